//! The integration tests, one binary.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a failed expectation fails the test, and builders read best with plain values"
)]

mod at_rest;
mod browser;
mod chart;
mod compose;
mod harness;
mod program;
mod review;
mod served;
mod simulation;
mod stories;
