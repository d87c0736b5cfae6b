//! What an agent or an instance of ours is doing, and what happens to it and why.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::ids::{AgentId, InstanceId, PoolName};
use super::reason::Reason;

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
    /// Being stopped; it can be started again once it is.
    Stopping,
    /// Stopped, and of use: it can be started.
    Stopped,
}

impl MachineState {
    /// Each of them.
    pub const ALL: [Self; 10] = [
        Self::Booting,
        Self::Busy,
        Self::Idle,
        Self::Cordoned,
        Self::Lost,
        Self::Failed,
        Self::Orphan,
        Self::Deleting,
        Self::Stopping,
        Self::Stopped,
    ];

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
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }
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
    /// It is being stopped.
    Stopping,
    /// It is stopped, and is started when it is needed.
    Stopped,
    /// It is up, and no record tells what it does.
    NoRecord,
    /// Not heard of, but not long enough to be given up.
    LostLately {
        /// When that is long enough.
        until: Timestamp,
    },
}

impl Fate {
    /// Fixed word for logs and metrics: why.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Step { reason, .. } => reason.kind(),
            Self::Kept { why } => why.kind(),
        }
    }
}

impl Keep {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Boots { .. } => "boots",
            Self::IdleUntil { .. } => "idle_until",
            Self::PaidUntil { .. } => "paid_until",
            Self::Needed => "needed",
            Self::Minimum => "minimum",
            Self::Settling { .. } => "settling",
            Self::MayWork { .. } => "may_work",
            Self::Named => "named",
            Self::CordonedByOthers => "cordoned_by_others",
            Self::ListingUnknown => "listing_unknown",
            Self::InstanceNotListed => "instance_not_listed",
            Self::MissingLately { .. } => "missing_lately",
            Self::InFlight => "in_flight",
            Self::Deleting => "deleting",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::NoRecord => "no_record",
            Self::LostLately { .. } => "lost_lately",
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
            Self::Stopping => f.write_str("is being stopped"),
            Self::Stopped => f.write_str("stopped until it is needed"),
            Self::NoRecord => f.write_str("up, and no agent record tells what it does"),
            Self::LostLately { until } => write!(f, "not heard of; given up at {until:.0}"),
        }
    }
}
