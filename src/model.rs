//! Plain data: what was observed, what was configured, what was decided. No I/O, no clock, no randomness.
//!
//! The planner (`crate::plan`) reads and writes these types; clients and executor fill and obey them.

pub mod action;
pub mod agent;
pub mod decision;
pub mod ids;
pub mod instance;
pub mod labels;
pub mod machine;
pub mod memory;
pub mod pool;
pub mod reason;
pub mod snapshot;
pub mod task;

use std::time::Duration;

use jiff::Timestamp;

/// How long ago `then` was, seen from `now`; zero if `then` lies in the future (clocks differ).
#[must_use]
pub fn age(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or(Duration::ZERO)
}

/// `then + wait`, held at the end of time instead of failing.
#[must_use]
pub fn later(then: Timestamp, wait: Duration) -> Timestamp {
    then.checked_add(wait).unwrap_or(Timestamp::MAX)
}
