//! The integration tests, one binary.

mod compose;
