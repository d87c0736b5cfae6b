//! What was decided for a task, and what it or its pools wait for.
//!
//! What is done about it stands in `action.rs`; what happens to agents and instances in `machine.rs`.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::ids::{PoolName, TaskId};
use super::labels::Mismatch;

/// What was decided for a task that waits.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum TaskDecision {
    /// A free slot of this agent will take it.
    Covered {
        /// Name of the agent.
        by: String,
    },
    /// A slot of a stopped instance, which this plan starts, or which is started once it has stopped, will take it.
    Starting {
        /// Name of the instance.
        by: String,
        /// Its pool.
        pool: PoolName,
    },
    /// A slot of an instance that still boots will take it.
    Booting {
        /// Name of the instance, launches of this plan included.
        by: String,
        /// Its pool.
        pool: PoolName,
    },
    /// An agent whose drain this plan undoes will take it.
    Uncordoned {
        /// Name of the agent.
        by: String,
        /// Its pool.
        pool: PoolName,
    },
    /// It could start, is ours, but nothing can be done for it now.
    Held {
        /// What each pool that could take it waits for, in the order of the settings.
        why: Shared<(PoolName, Hold)>,
    },
    /// It could not start now whatever we do.
    NotReady {
        /// What it waits for.
        why: Wait,
    },
    /// No pool of ours could take it.
    NotOurs {
        /// Why not, for each pool.
        why: Shared<(PoolName, Mismatch)>,
    },
    /// An idle matching agent is connected but is not given it: nothing is launched for it.
    Stuck {
        /// Since when.
        since: Timestamp,
        /// The agent.
        agent: String,
    },
}

impl TaskDecision {
    /// Fixed word for logs and metrics; of a task that is held back or not ready what it waits for.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Covered { .. } => "covered",
            Self::Starting { .. } => "starting",
            Self::Booting { .. } => "booting",
            Self::Uncordoned { .. } => "uncordoned",
            Self::Held { why } => why.first().map_or("held", |(_, hold)| hold.kind()),
            Self::NotReady { why } => why.kind(),
            Self::NotOurs { .. } => "not_ours",
            Self::Stuck { .. } => "stuck",
        }
    }
}

impl fmt::Display for TaskDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Covered { by } => write!(f, "agent {by} has a free slot for it"),
            Self::Starting { by, pool } => write!(f, "{by} (pool {pool}), which is stopped, is started for it"),
            Self::Booting { by, pool } => write!(f, "{by} (pool {pool}) boots for it"),
            Self::Uncordoned { by, pool } => write!(f, "the drain of {by} (pool {pool}) is undone for it"),
            Self::Held { why } => by_pool(f, "held back", why),
            Self::NotReady { why } => write!(f, "could not start now: {why}"),
            Self::NotOurs { why } => by_pool(f, "not ours", why),
            Self::Stuck { since, agent } => {
                write!(f, "stuck since {since:.0}: agent {agent} is free and matches, but is not given it")
            }
        }
    }
}

/// What each pool has to say about it.
fn by_pool<T: fmt::Display>(f: &mut fmt::Formatter<'_>, what: &str, said: &[(PoolName, T)]) -> fmt::Result {
    write!(f, "{what}: ")?;
    for (index, (pool, why)) in said.iter().enumerate() {
        write!(f, "{}pool {pool}: {why}", if index == 0 { "" } else { "; " })?;
    }
    Ok(())
}

/// A list that thousands of decisions have in common; a clone costs next to nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared<T>(Arc<[T]>);

impl<T> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> FromIterator<T> for Shared<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<'a, T> IntoIterator for &'a Shared<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// What a task waits for that no machine changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "wait", rename_all = "snake_case")]
pub enum Wait {
    /// The queue is paused.
    Paused,
    /// Other tasks must end first.
    Dependencies {
        /// Those that are still in the queue.
        on: Vec<TaskId>,
    },
    /// Its concurrency group is full, or earlier pipelines of it go first.
    Concurrency {
        /// The group.
        group: String,
        /// Its limit.
        limit: u32,
    },
}

impl Wait {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Dependencies { .. } => "dependencies",
            Self::Concurrency { .. } => "concurrency",
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("the queue is paused"),
            Self::Dependencies { on } => {
                f.write_str("waits for task ")?;
                for (index, task) in on.iter().enumerate() {
                    write!(f, "{}{task}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::Concurrency { group, limit } => {
                write!(f, "its concurrency group {group} (limit {limit}) is full, or an earlier pipeline goes first")
            }
        }
    }
}

/// Why a pool does nothing for a task, or launches nothing to reach its minimum.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "hold", rename_all = "snake_case")]
pub enum Hold {
    /// The maximum is reached.
    AtMaximum {
        /// The maximum.
        max: u32,
    },
    /// Each of its machines, which somebody else made, is up, or is left to whoever cordoned it.
    NothingToStart {
        /// How many there are.
        machines: u32,
    },
    /// Every candidate is sold out.
    SoldOut {
        /// When the first is tried again.
        until: Timestamp,
    },
    /// The provider refuses launches on this account.
    Refused {
        /// Its reason.
        why: String,
        /// When it is tried again.
        until: Timestamp,
    },
    /// Launches or boots of the pool fail.
    Trouble {
        /// How many in a row.
        failures: u32,
        /// The last failure.
        why: String,
        /// When it is tried again.
        until: Timestamp,
    },
    /// The provider's listing is unknown, so nothing can be counted.
    ListingUnknown {
        /// Why.
        why: String,
    },
    /// The provider could not be asked yet.
    NotReady {
        /// Why.
        why: String,
    },
}

impl Hold {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::AtMaximum { .. } => "at_maximum",
            Self::NothingToStart { .. } => "nothing_to_start",
            Self::SoldOut { .. } => "sold_out",
            Self::Refused { .. } => "refused",
            Self::Trouble { .. } => "trouble",
            Self::ListingUnknown { .. } => "listing_unknown",
            Self::NotReady { .. } => "not_ready",
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMaximum { max: 1 } => f.write_str("the maximum of 1 instance is reached"),
            Self::AtMaximum { max } => write!(f, "the maximum of {max} instances is reached"),
            Self::NothingToStart { machines: 1 } => {
                f.write_str("its machine is up, cordoned by somebody else, or another kind")
            }
            Self::NothingToStart { machines } => {
                write!(f, "each of its {machines} machines is up, cordoned by somebody else, or another kind")
            }
            Self::SoldOut { until } => write!(f, "every candidate is sold out; tried again at {until:.0}"),
            Self::Refused { why, until } => write!(f, "the provider refuses: {why}; tried again at {until:.0}"),
            Self::Trouble { failures: 1, why, until } => {
                write!(f, "the last launch failed: {why}; tried again from {until:.0}, one instance at a time")
            }
            Self::Trouble { failures, why, until } => {
                write!(
                    f,
                    "the last {failures} launches failed: {why}; tried again from {until:.0}, one instance at a time"
                )
            }
            Self::ListingUnknown { why } => write!(f, "what instances there are is not known: {why}"),
            Self::NotReady { why } => write!(f, "the provider could not be asked yet: {why}"),
        }
    }
}
