//! Why a step is taken. Reasons are data; log lines, `picus plan` and pages are views of them.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

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
    /// It is stopped: its drain has come to its end, and it may be started again.
    Stopped,
    /// It is stopped, and was launched with other settings.
    SettingsChanged,
    /// It has been stopped for too long.
    StoppedFor {
        /// Since when.
        since: Timestamp,
    },
    /// An instance without its agent record.
    RecordGone,
    /// An agent record without its instance.
    InstanceGone,
}

impl Reason {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TasksWait { .. } => "tasks_wait",
            Self::BelowMinimum { .. } => "below_minimum",
            Self::Idle { .. } => "idle",
            Self::PeriodEnds { .. } => "period_ends",
            Self::PaidAgain { .. } => "paid_again",
            Self::MakesRoom => "makes_room",
            Self::NeverConnected { .. } => "never_connected",
            Self::ContactLost { .. } => "contact_lost",
            Self::Stopped => "stopped",
            Self::SettingsChanged => "settings_changed",
            Self::StoppedFor { .. } => "stopped_for",
            Self::RecordGone => "record_gone",
            Self::InstanceGone => "instance_gone",
        }
    }
}

impl Reason {
    /// When an agent that did its work came to its time: since when it has idled, or when the paid period ends. `None`: it
    /// ends, or begins, for something else.
    #[must_use]
    pub fn came_due(&self) -> Option<Timestamp> {
        match self {
            Self::Idle { since } => Some(*since),
            Self::PeriodEnds { ends } => Some(*ends),
            Self::TasksWait { .. }
            | Self::BelowMinimum { .. }
            | Self::PaidAgain { .. }
            | Self::MakesRoom
            | Self::NeverConnected { .. }
            | Self::ContactLost { .. }
            | Self::Stopped
            | Self::SettingsChanged
            | Self::StoppedFor { .. }
            | Self::RecordGone
            | Self::InstanceGone => None,
        }
    }
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
            Self::Stopped => f.write_str("it is stopped, and can be started again"),
            Self::SettingsChanged => f.write_str("stopped, and launched with other settings"),
            Self::StoppedFor { since } => write!(f, "stopped since {since:.0}"),
            Self::RecordGone => f.write_str("its agent record is gone"),
            Self::InstanceGone => f.write_str("its instance is gone"),
        }
    }
}
