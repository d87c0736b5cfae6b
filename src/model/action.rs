//! A plan: what to do, and for everything that was looked at, what was decided and why.
//!
//! The executor has no choice left: an action names everything that it takes. Reasons are data; log lines, `picus plan`
//! and pages are views of them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::ids::{AgentId, InstanceId, LaunchName, PoolName, TaskId};
use super::instance::OfferKey;
use super::labels::Mismatch;
use super::pool::AccountId;

/// The decided steps and the reasons.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// What to do; the order is the order of importance, each step stands alone.
    pub steps: Vec<Step>,
    /// Every task of the queue that waits, in queue order, with what was decided for it.
    pub tasks: Vec<(TaskId, TaskDecision)>,
    /// Every agent record of ours and instance of ours.
    pub machines: Vec<MachineDecision>,
    /// Things that a person should know: trouble, refusals, stuck tasks, strays.
    pub notices: Vec<Notice>,
    /// Numbers for a line of log and for tests.
    pub totals: BTreeMap<PoolName, PoolTotals>,
    /// Accounts whose steps rest on a listing that is older than this pass: list again and plan again before acting.
    pub stale: Vec<AccountId>,
    /// The earliest instant at which the same world would be decided differently. `None`: nothing is due.
    pub next_look: Option<Timestamp>,
    /// How many launch names were used up.
    pub names_used: u64,
}

/// A pool at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PoolTotals {
    /// Tasks of ours that could start now and that no slot covers.
    pub uncovered: u32,
    /// Instances in whatever state, launches under way included.
    pub instances: u32,
    /// Launches decided in this plan.
    pub launches: u32,
}

/// One action and its reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// The pool it is for.
    pub pool: PoolName,
    /// What is done.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

/// One step on the outside world. Each is safe to repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Let an agent that this process cordoned take tasks again.
    Uncordon {
        /// The record.
        agent: AgentId,
        /// Its name, which every PATCH must carry.
        name: String,
    },
    /// Register an agent, create its instance.
    Launch {
        /// Name of both.
        name: LaunchName,
        /// What to order.
        offer: OfferKey,
    },
    /// Keep new tasks away from an agent, and read it back.
    Cordon {
        /// The record.
        agent: AgentId,
        /// Its name, which every PATCH must carry.
        name: String,
    },
    /// Look once more that it is cordoned and idle, delete the record, then the instance.
    Retire {
        /// The record.
        agent: AgentId,
        /// The record's name.
        name: String,
        /// The machine. `None`: only a record is left.
        instance: Option<InstanceId>,
        /// The record must still be cordoned. `false` for one that never connected or has no process any more.
        cordoned: bool,
    },
    /// Delete an instance whose record is gone, or stays for now because the machine is dead and a task in the queue names
    /// its record. The server is asked once more for the record.
    DeleteInstance {
        /// The machine.
        instance: InstanceId,
        /// Its name.
        name: LaunchName,
        /// The record that must be gone, or cordoned and without contact. `None`: look for a record of its name.
        agent: Option<AgentId>,
    },
}

impl Action {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Uncordon { .. } => "uncordon",
            Self::Launch { .. } => "launch",
            Self::Cordon { .. } => "cordon",
            Self::Retire { .. } => "retire",
            Self::DeleteInstance { .. } => "delete_instance",
        }
    }
}

/// Why a step is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// Tasks wait that no slot covers.
    TasksWait {
        /// How many this step serves.
        tasks: u32,
    },
    /// Fewer usable instances than the minimum.
    BelowMinimum {
        /// The minimum.
        min: u32,
    },
    /// Idle for longer than the idle timeout.
    Idle {
        /// Since when.
        since: Timestamp,
    },
    /// Idle, and the paid period ends.
    PeriodEnds {
        /// End of the started period.
        ends: Timestamp,
    },
    /// A drain did not end within the paid period, and the next one is paid for too.
    PaidAgain {
        /// When the last minutes of the new period begin.
        until: Timestamp,
    },
    /// The boot timeout has passed without a first contact.
    NeverConnected {
        /// When it was launched.
        launched: Timestamp,
    },
    /// It was connected and has not been heard of for longer than the boot timeout, and runs nothing.
    ContactLost {
        /// Last heartbeat.
        last_contact: Timestamp,
    },
    /// An instance without its agent record.
    RecordGone,
    /// An agent record without its instance.
    InstanceGone,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TasksWait { tasks: 1 } => f.write_str("1 task waits"),
            Self::TasksWait { tasks } => write!(f, "{tasks} tasks wait"),
            Self::BelowMinimum { min } => write!(f, "fewer usable instances than the minimum of {min}"),
            Self::Idle { since } => write!(f, "idle since {since:.0}"),
            Self::PeriodEnds { ends } => write!(f, "idle, and the paid period ends at {ends:.0}"),
            Self::PaidAgain { until } => write!(f, "paid for again, of use until {until:.0}"),
            Self::NeverConnected { launched } => write!(f, "launched at {launched:.0}, never connected"),
            Self::ContactLost { last_contact } => write!(f, "not heard of since {last_contact:.0}"),
            Self::RecordGone => f.write_str("its agent record is gone"),
            Self::InstanceGone => f.write_str("its instance is gone"),
        }
    }
}

/// What was decided for a task that waits.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum TaskDecision {
    /// A free slot of this agent will take it.
    Covered {
        /// Name of the agent.
        by: String,
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

/// Why a pool does nothing for a task, or launches nothing to reach its minimum.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "hold", rename_all = "snake_case")]
pub enum Hold {
    /// The maximum is reached.
    AtMaximum {
        /// The maximum.
        max: u32,
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

/// An agent record or instance of ours, and what happens to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineDecision {
    /// Its pool.
    pub pool: PoolName,
    /// Name of the instance or of the record.
    pub name: String,
    /// The record. `None`: none is known.
    pub agent: Option<AgentId>,
    /// The instance. `None`: none is known.
    pub instance: Option<InstanceId>,
    /// Running tasks. `None`: has no record.
    pub running: Option<u32>,
    /// What it is doing.
    pub state: MachineState,
    /// What happens to it.
    pub fate: Fate,
}

/// What a machine of ours is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// Launched, not connected yet, within its boot timeout.
    Booting,
    /// Connected and at work.
    Busy,
    /// Connected and free.
    Idle,
    /// Cordoned, by us or by an administrator.
    Cordoned,
    /// Was connected, is not heard of.
    Lost,
    /// Never connected within its boot timeout.
    Failed,
    /// An instance without its record, or the reverse.
    Orphan,
    /// On its way out at the provider.
    Deleting,
}

/// What happens to a machine of ours in this plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// A step of the plan is about it.
    Step {
        /// `cordon`, `uncordon`, `retire`, `delete_instance`
        action: &'static str,
        /// Why.
        reason: Reason,
    },
    /// It is left alone.
    Kept {
        /// Why.
        why: Keep,
    },
}

/// Why a machine of ours is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "keep", rename_all = "snake_case")]
pub enum Keep {
    /// It works.
    Busy,
    /// It still boots.
    Boots {
        /// Its boot timeout.
        until: Timestamp,
    },
    /// Idle, and the idle timeout has not passed.
    IdleUntil {
        /// When it will have.
        until: Timestamp,
    },
    /// Idle, and the rest of the period is paid for.
    PaidUntil {
        /// When the last minutes of the started period begin.
        until: Timestamp,
    },
    /// Tasks that wait will take its slots.
    Needed,
    /// The minimum would not be met without it.
    Minimum,
    /// Cordoned a moment ago: a task given in between must be able to show.
    Settling {
        /// When that is long enough.
        until: Timestamp,
    },
    /// It worked a moment ago, or the server was away a moment ago: what it works on may not show yet.
    MayWork {
        /// When it would have shown.
        until: Timestamp,
    },
    /// A task in the queue names its record, on which it ran before: servers before 3.16 answer nothing about the queue
    /// once such a record is gone.
    Named,
    /// Cordoned by somebody else.
    CordonedByOthers,
    /// The provider's listing is unknown.
    ListingUnknown,
    /// It is connected, though the provider does not list its instance.
    InstanceNotListed,
    /// Its record, or its instance, is missing only since a moment ago.
    MissingLately {
        /// When that is long enough.
        until: Timestamp,
    },
    /// An operation on it is under way.
    InFlight,
    /// It goes away by itself.
    Deleting,
    /// Not heard of, but not long enough to be given up.
    LostLately {
        /// When that is long enough.
        until: Timestamp,
    },
}

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum Notice {
    /// A task is not given to an agent that could take it.
    StuckTask {
        /// The task.
        task: TaskId,
        /// The agent.
        agent: String,
    },
    /// An instance of this installation belongs to a pool that is not configured; it is billed and left alone.
    StrayInstance {
        /// Its name.
        name: LaunchName,
        /// The pool in its labels.
        pool: PoolName,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uncordon { agent, name } => write!(f, "uncordon {name} (agent {agent})"),
            Self::Launch { name, offer } => write!(f, "launch {name} ({offer})"),
            Self::Cordon { agent, name } => write!(f, "cordon {name} (agent {agent})"),
            Self::Retire { agent, name, instance: Some(instance), .. } => {
                write!(f, "retire {name} (agent {agent}, instance {instance})")
            }
            Self::Retire { agent, name, instance: None, .. } => write!(f, "delete the record {name} (agent {agent})"),
            Self::DeleteInstance { instance, name, .. } => write!(f, "delete {name} (instance {instance})"),
        }
    }
}

impl Hold {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::AtMaximum { .. } => "at_maximum",
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

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("at work"),
            Self::Boots { until } => write!(f, "boots, until {until:.0} at most"),
            Self::IdleUntil { until } => write!(f, "idle, kept until {until:.0}"),
            Self::PaidUntil { until } => write!(f, "idle, paid for, kept until {until:.0}"),
            Self::Needed => f.write_str("tasks that wait need it"),
            Self::Minimum => f.write_str("kept for the minimum"),
            Self::Settling { until } => write!(f, "cordoned just now, looked at again at {until:.0}"),
            Self::MayWork { until } => {
                write!(f, "may be at work without the server knowing, looked at again at {until:.0}")
            }
            Self::Named => f.write_str("a task that came back from it is still in the queue"),
            Self::CordonedByOthers => f.write_str("cordoned, and not by this process"),
            Self::ListingUnknown => f.write_str("what instances there are is not known"),
            Self::InstanceNotListed => f.write_str("connected, though the provider does not list its instance"),
            Self::MissingLately { until } => write!(f, "its other half is missing; given up at {until:.0}"),
            Self::InFlight => f.write_str("an operation on it is under way"),
            Self::Deleting => f.write_str("goes away"),
            Self::LostLately { until } => write!(f, "not heard of; given up at {until:.0}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StuckTask { task, agent } => write!(
                f,
                "task {task} is stuck: agent {agent} is connected, free and matches, but is not given it; look at the agent's log"
            ),
            Self::StrayInstance { name, pool } => write!(
                f,
                "instance {name} belongs to pool {pool}, which is not configured: it is billed and left alone; \
                 configure the pool or delete the instance"
            ),
        }
    }
}

impl MachineState {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Booting => "booting",
            Self::Busy => "busy",
            Self::Idle => "idle",
            Self::Cordoned => "cordoned",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Orphan => "orphan",
            Self::Deleting => "deleting",
        }
    }
}
