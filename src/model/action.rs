//! A plan: what to do, and for everything that was looked at, what was decided and why.
//!
//! The executor has no choice left: an action names everything that it takes. Reasons are data; log lines, `picus plan`
//! and pages are views of them.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::decision::TaskDecision;
use super::ids::{AgentId, InstanceId, LaunchName, PoolName, TaskId};
use super::instance::OfferKey;
use super::machine::MachineDecision;
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
    /// Tasks wait that its pool, which is at its maximum, could launch an instance for; this one takes none of them.
    MakesRoom,
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
            Self::MakesRoom => f.write_str("idle, takes none of the tasks that wait, and the maximum is reached"),
            Self::NeverConnected { launched } => write!(f, "launched at {launched:.0}, never connected"),
            Self::ContactLost { last_contact } => write!(f, "not heard of since {last_contact:.0}"),
            Self::RecordGone => f.write_str("its agent record is gone"),
            Self::InstanceGone => f.write_str("its instance is gone"),
        }
    }
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
    /// An instance with the name of this installation was launched for another Woodpecker server; it is left alone.
    OtherServersInstance {
        /// Its name.
        name: LaunchName,
    },
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
            Self::OtherServersInstance { name } => write!(
                f,
                "instance {name} was launched for another Woodpecker server, or for this one under another address, and has \
                 no agent here: it is billed and left alone; give each installation its own PICUS_ID, or delete the instance"
            ),
        }
    }
}
