//! A plan: what to do, and for everything that was looked at, what was decided and why.
//!
//! The executor has no choice left: an action names everything that it takes.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::decision::{Hold, TaskDecision};
use super::ids::{AgentId, InstanceId, LaunchName, PoolName, TaskId};
use super::instance::OfferKey;
use super::machine::MachineDecision;
use super::pool::AccountId;
use super::reason::Reason;

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

impl Plan {
    /// What tasks are held back for, by pool and kind: how many, and the first hold of that kind.
    #[must_use]
    pub fn holds(&self) -> BTreeMap<(&PoolName, &'static str), (u32, &Hold)> {
        let mut holds = BTreeMap::new();
        for (_, decision) in &self.tasks {
            if let TaskDecision::Held { why } = decision {
                for (pool, hold) in why {
                    holds.entry((pool, hold.kind())).or_insert((0, hold)).0 += 1;
                }
            }
        }
        holds
    }
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
        /// The instance on which the drain is noted. `None`: nowhere.
        noted_on: Option<InstanceId>,
    },
    /// Start a stopped instance; its record is schedulable.
    Start {
        /// The machine.
        instance: InstanceId,
        /// Its name.
        name: String,
        /// What it is: it can be sold out.
        offer: OfferKey,
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
        /// The instance on which the drain is noted, so that the cordon is known as ours after a restart. `None`: nowhere.
        noted_on: Option<InstanceId>,
    },
    /// Look once more that it has nothing to do, stop the instance; the record stays.
    Stop {
        /// The record. `None`: it has none.
        agent: Option<AgentId>,
        /// The machine's name.
        name: String,
        /// The machine.
        instance: InstanceId,
        /// What must still be so.
        proof: Proof,
    },
    /// Look once more that it is cordoned and idle, delete the record, then the instance.
    Retire {
        /// The record.
        agent: AgentId,
        /// The record's name.
        name: String,
        /// The machine. `None`: only a record is left.
        instance: Option<InstanceId>,
        /// What must still be so.
        proof: Proof,
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

/// What must still be so when an agent's end is carried out; besides, nothing may run on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Its record is cordoned.
    Cordoned,
    /// It has never been heard of.
    NeverHeardOf,
    /// It has not been heard of lately: it has no process.
    Silent,
}

impl Action {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Uncordon { .. } => "uncordon",
            Self::Start { .. } => "start",
            Self::Launch { .. } => "launch",
            Self::Stop { .. } => "stop",
            Self::Cordon { .. } => "cordon",
            Self::Retire { .. } => "retire",
            Self::DeleteInstance { .. } => "delete_instance",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uncordon { agent, name, noted_on: _ } => write!(f, "uncordon {name} (agent {agent})"),
            Self::Launch { name, offer } => write!(f, "launch {name} ({offer})"),
            Self::Start { instance, name, offer } => write!(f, "start {name} (instance {instance}, {offer})"),
            Self::Stop { name, instance, .. } => write!(f, "stop {name} (instance {instance})"),
            Self::Cordon { agent, name, noted_on: _ } => write!(f, "cordon {name} (agent {agent})"),
            Self::Retire { agent, name, instance: Some(instance), .. } => {
                write!(f, "retire {name} (agent {agent}, instance {instance})")
            }
            Self::Retire { agent, name, instance: None, .. } => write!(f, "delete the record {name} (agent {agent})"),
            Self::DeleteInstance { instance, name, .. } => write!(f, "delete {name} (instance {instance})"),
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
    /// An instance that Picus is to start and stop does not exist at the provider.
    NoSuchInstance {
        /// Its pool.
        pool: PoolName,
        /// Its id.
        instance: InstanceId,
    },
    /// An instance that Picus is to start and stop is up, and no agent record belongs to it.
    NoRecord {
        /// Its pool.
        pool: PoolName,
        /// Its id.
        instance: InstanceId,
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
            Self::NoSuchInstance { pool, instance } => {
                write!(
                    f,
                    "instance {instance} of pool {pool} does not exist at the provider: take it out of the settings"
                )
            }
            Self::NoRecord { pool, instance } => write!(
                f,
                "no agent record belongs to instance {instance} of pool {pool}, so it is left alone: name the agent like the \
                 instance's private DNS name, `Name` tag or id, or set PICUS_WOODPECKER_AGENT_ID"
            ),
            Self::OtherServersInstance { name } => write!(
                f,
                "instance {name} was launched for another Woodpecker server, or for this one under another address, and has \
                 no agent here: it is billed and left alone; give each installation its own PICUS_ID, or delete the instance"
            ),
        }
    }
}
