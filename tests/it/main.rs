//! The integration tests, one binary.

mod at_rest;
mod compose;
mod program;
