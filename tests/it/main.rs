//! The integration tests, one binary.

mod compose;
#[expect(clippy::expect_used, clippy::panic, reason = "a story that can't go on ends there")]
mod harness;
#[expect(clippy::expect_used, reason = "a story that can't go on ends there")]
mod stories;
