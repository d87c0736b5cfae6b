//! The integration tests, one binary.

mod compose;
mod harness;
mod simulation;
mod stories;
