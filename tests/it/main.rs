//! The integration tests, one binary.

mod at_rest;
mod compose;
mod harness;
mod program;
mod simulation;
mod stories;
