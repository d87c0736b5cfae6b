//! What must outlive a pass but need not outlive the process.
//!
//! Everything here can be lost: after a restart it is learnt again, at worst with a pause. The planner only reads it;
//! `crate::reconcile` writes it, through the methods below, from what was observed and what came of the actions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::ids::{AgentId, InstanceId, LaunchName, PoolName, TaskId};
use super::instance::OfferKey;
use super::pool::AccountId;
use super::{age, later};

/// A sold-out offer is left alone for so long: stock changes within minutes, and a try costs two calls.
pub const SOLD_OUT_PAUSE: Duration = Duration::from_mins(10);
/// After an account-wide refusal (quota, authorisation) nothing is launched there for so long.
pub const REFUSAL_PAUSE: Duration = Duration::from_mins(5);
/// First pause after a launch or a boot that failed; doubles with each one in a row.
pub const FIRST_PAUSE: Duration = Duration::from_mins(1);
/// Longest of those pauses.
pub const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// From so long on it is an outage that the server could not be read: agents count as connected for as long.
pub const OUTAGE: Duration = Duration::from_mins(1);

/// What the process remembers.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Agents seen cordoned.
    pub cordons: BTreeMap<AgentId, Cordon>,
    /// When the loop last saw an agent with a running task.
    pub seen_busy: BTreeMap<AgentId, Timestamp>,
    /// When the loop first saw an agent connected that it had seen unconnected before.
    pub first_contact: BTreeMap<AgentId, Timestamp>,
    /// Agents whose process the loop has not seen connected since it was begun, and their last contact before that.
    pub unconnected: BTreeMap<AgentId, Option<Timestamp>>,
    /// Instances that this process started, and when.
    pub started: BTreeMap<InstanceId, Timestamp>,
    /// Instances that looked as if their record were gone, since when without a break.
    pub without_record: BTreeMap<InstanceId, Timestamp>,
    /// Records that looked as if their instance were gone, since when without a break.
    pub without_instance: BTreeMap<AgentId, Timestamp>,
    /// Instances whose record this process deleted itself: nothing speaks against deleting them at once.
    pub record_deleted: BTreeSet<InstanceId>,
    /// Tasks that an idle matching agent was there for, since when without a break.
    pub passed_over: BTreeMap<TaskId, Timestamp>,
    /// Offers that are sold out, and until when they are skipped.
    pub sold_out: BTreeMap<(AccountId, OfferKey), Timestamp>,
    /// Account-wide refusals.
    pub refusals: BTreeMap<AccountId, Refusal>,
    /// Pools whose launches or boots fail.
    pub troubles: BTreeMap<PoolName, Trouble>,
    /// Number of the next launch name; starts at a random number for each process.
    pub next_launch: u64,
    /// Instances whose labels name no record (the shared secret), and the record that was seen to have their name: it
    /// stays theirs when somebody renames one of the two.
    pub records: BTreeMap<InstanceId, AgentId>,
    /// How well the server could be watched.
    pub watch: Watch,
}

/// How well the server could be watched: what has not been heard of during an outage is not lost, and what has begun
/// before it may not show yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watch {
    /// The last look that succeeded. `None`: there was none.
    pub last: Option<Timestamp>,
    /// A look failed since.
    pub blind: bool,
    /// Since when looks have followed one another. `None`: there was none.
    pub since: Option<Timestamp>,
    /// When the last outage ended. `None`: this process has seen none.
    pub returned: Option<Timestamp>,
}

impl Watch {
    /// A look failed, at `now`.
    pub fn failed(&mut self, now: Timestamp) {
        self.blind = true;
        // At the start nothing was seen before.
        self.last = self.last.or(Some(now));
    }

    /// A look succeeded, at `now`.
    pub fn succeeded(&mut self, now: Timestamp) {
        if self.blind && self.last.is_some_and(|last| age(now, last) >= OUTAGE) {
            self.returned = Some(now);
            self.since = Some(now);
        }
        self.since = self.since.or(Some(now));
        self.last = Some(now);
        self.blind = false;
    }
}

/// An agent that is not given new tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cordon {
    /// When this process first saw it so, or cordoned it.
    pub since: Timestamp,
    /// This process did it, so this process may undo it. `false` after a restart or for an administrator's.
    pub ours: bool,
}

/// Why an account launches nothing for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The provider's reason, for people.
    pub why: String,
    /// Nothing is launched before.
    pub until: Timestamp,
}

/// A row of failed launches or boots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// How many in a row.
    pub failures: u32,
    /// The last failure, for people.
    pub why: String,
    /// Nothing is launched for the pool before.
    pub until: Timestamp,
    /// Instances already counted, so that one whose deletion is slow is not counted twice.
    #[serde(skip)]
    pub counted: BTreeSet<LaunchName>,
}

impl Trouble {
    /// When the last failure was noted. A contact that an agent makes for the first time after it ends the row.
    #[must_use]
    pub fn failed_at(&self) -> Timestamp {
        let pause = pause_after(self.failures.saturating_sub(1));
        self.until.checked_sub(pause).unwrap_or(self.until)
    }
}

impl Memory {
    /// A launch or boot of `pool` failed: the next one waits, twice as long as the last time. Counts a name once,
    /// and those that fail together once.
    pub fn launch_failed(&mut self, pool: &PoolName, name: &LaunchName, why: String, now: Timestamp) {
        let trouble = self.troubles.entry(pool.clone()).or_insert_with(|| Trouble {
            failures: 0,
            why: String::new(),
            until: now,
            counted: BTreeSet::new(),
        });
        if !trouble.counted.insert(name.clone()) || (trouble.failures > 0 && now < trouble.until) {
            return;
        }
        trouble.until = later(now, pause_after(trouble.failures));
        trouble.failures = trouble.failures.saturating_add(1);
        trouble.why = why;
    }

    /// A launch of this offer has been refused lately, or any launch at this account.
    #[must_use]
    pub fn cannot_be_had(&self, account: AccountId, offer: &OfferKey, now: Timestamp) -> bool {
        self.refusals.get(&account).is_some_and(|refusal| now < refusal.until)
            || self.sold_out.get(&(account, offer.clone())).is_some_and(|until| now < *until)
    }

    /// An agent of `pool` connected: its row of failures is over.
    pub fn launch_succeeded(&mut self, pool: &PoolName) {
        self.troubles.remove(pool);
    }
}

/// The pause after one more failure than `failures`.
#[must_use]
pub fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_a_gap_with_failed_looks() {
        let start: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        for (gap, failed, outage) in [(59, true, false), (60, true, true), (300, false, false)] {
            let mut watch = Watch::default();
            watch.succeeded(start);
            assert_eq!((watch.since, watch.returned), (Some(start), None));
            if failed {
                watch.failed(later(start, Duration::from_secs(10)));
            }
            let back = later(start, Duration::from_secs(gap));
            watch.succeeded(back);
            assert_eq!(watch.returned, outage.then_some(back), "{gap} s");
            assert_eq!(watch.since, Some(if outage { back } else { start }));
        }
    }

    #[test]
    fn a_server_that_is_waited_for_at_the_start_has_had_an_outage() {
        let start: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let mut watch = Watch::default();
        watch.failed(start);
        let back = later(start, Duration::from_mins(20));
        watch.failed(back);
        watch.succeeded(back);
        assert_eq!(watch.returned, Some(back));
    }
}
