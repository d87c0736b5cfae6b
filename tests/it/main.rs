//! The integration tests, one binary.

mod compose;
mod review;
