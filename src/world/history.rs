//! What happened in the world, for the demo's live output and for tests.

use std::collections::VecDeque;
use std::fmt;

use jiff::Timestamp;
use tokio::sync::broadcast;

use super::task::Outcome;
use crate::model::ids::{AgentId, InstanceId, TaskId};

/// So many events are kept for `take_events`, and for a subscriber that is slow.
const LENGTH: usize = 10_000;
/// A subscriber may lag so far behind.
const CHANNEL: usize = 4096;

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened {
    /// When.
    pub at: Timestamp,
    /// What.
    pub event: Event,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A task was put into the queue.
    TaskQueued {
        /// The task.
        task: TaskId,
        /// Its name.
        name: String,
    },
    /// A task was given to an agent.
    TaskStarted {
        /// The task.
        task: TaskId,
        /// Its name.
        name: String,
        /// Name of the agent.
        agent: String,
    },
    /// A task ended, or was skipped.
    TaskDone {
        /// The task.
        task: TaskId,
        /// Its name.
        name: String,
        /// How.
        outcome: Outcome,
    },
    /// A task's machine died under it.
    JobKilled(KilledJob),
    /// The server noticed that a task's agent is dead, and put the task back to the front of the queue.
    TaskRequeued {
        /// The task.
        task: TaskId,
        /// Its name.
        name: String,
    },
    /// An agent record was made.
    RecordCreated {
        /// The record.
        agent: AgentId,
        /// Its name.
        name: String,
    },
    /// An agent record's `no_schedule` changed.
    Cordoned {
        /// The record.
        agent: AgentId,
        /// Its name.
        name: String,
        /// The new value.
        no_schedule: bool,
    },
    /// An agent record was deleted.
    RecordDeleted {
        /// The record.
        agent: AgentId,
        /// Its name.
        name: String,
    },
    /// An agent made its first contact.
    AgentConnected {
        /// The record.
        agent: AgentId,
        /// Its name.
        name: String,
    },
    /// A machine is up, but its agent never connects.
    AgentFailed {
        /// Name of the server.
        server: String,
        /// Why.
        why: String,
    },
    /// A server was created.
    ServerCreated {
        /// Its id.
        server: InstanceId,
        /// Its name.
        name: String,
        /// Its type.
        server_type: String,
        /// Its place.
        location: String,
    },
    /// A server is up.
    ServerRunning {
        /// Its id.
        server: InstanceId,
        /// Its name.
        name: String,
    },
    /// A server is gone.
    ServerDeleted {
        /// Its id.
        server: InstanceId,
        /// Its name.
        name: String,
    },
}

/// A job whose machine or process died while it ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KilledJob {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Name of the agent it ran on.
    pub agent: String,
    /// When.
    pub at: Timestamp,
    /// Whose doing it was.
    pub cause: Cause,
}

/// Whose doing the death of a machine was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A call to Hetzner's API.
    Api,
    /// A verb: somebody deleted it by hand, or it crashed.
    Hand,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TaskQueued { task, name } => write!(f, "task {task} {name} queued"),
            Self::TaskStarted { task, name, agent } => write!(f, "task {task} {name} started on {agent}"),
            Self::TaskDone { task, name, outcome } => write!(f, "task {task} {name} {outcome}"),
            Self::JobKilled(KilledJob { task, name, agent, .. }) => {
                write!(f, "task {task} {name} killed: {agent} died under it")
            }
            Self::TaskRequeued { task, name } => write!(f, "task {task} {name} queued again: its agent is dead"),
            Self::RecordCreated { name, .. } => write!(f, "agent {name} registered"),
            Self::Cordoned { name, no_schedule: true, .. } => write!(f, "agent {name} cordoned"),
            Self::Cordoned { name, no_schedule: false, .. } => write!(f, "agent {name} uncordoned"),
            Self::RecordDeleted { name, .. } => write!(f, "agent {name} removed"),
            Self::AgentConnected { name, .. } => write!(f, "agent {name} connected"),
            Self::AgentFailed { server, why } => write!(f, "agent on {server} never connects: {why}"),
            Self::ServerCreated { name, server_type, location, .. } => {
                write!(f, "server {name} created ({server_type} in {location})")
            }
            Self::ServerRunning { name, .. } => write!(f, "server {name} is up"),
            Self::ServerDeleted { name, .. } => write!(f, "server {name} deleted"),
        }
    }
}

/// The events until now.
pub(super) struct History {
    kept: VecDeque<Happened>,
    killed: Vec<KilledJob>,
    live: broadcast::Sender<Happened>,
}

impl Default for History {
    fn default() -> Self {
        Self { kept: VecDeque::new(), killed: Vec::new(), live: broadcast::Sender::new(CHANNEL) }
    }
}

impl History {
    pub(super) fn tell(&mut self, at: Timestamp, event: Event) {
        if let Event::JobKilled(job) = &event {
            self.killed.push(job.clone());
        }
        let happened = Happened { at, event };
        // Nobody has to listen.
        let _ = self.live.send(happened.clone());
        if self.kept.len() == LENGTH {
            self.kept.pop_front();
        }
        self.kept.push_back(happened);
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Happened> {
        self.live.subscribe()
    }

    pub(super) fn take(&mut self) -> Vec<Happened> {
        self.kept.drain(..).collect()
    }

    pub(super) fn killed(&self, cause: Cause) -> Vec<KilledJob> {
        self.killed.iter().filter(|job| job.cause == cause).cloned().collect()
    }
}
