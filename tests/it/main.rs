//! The integration tests, one binary.

mod compose;
mod harness;
mod program;
mod stories;
