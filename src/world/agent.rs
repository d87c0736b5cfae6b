//! Agents of others as a test puts them into the world, and what can be seen of any agent.

use jiff::Timestamp;

use crate::model::ids::{AgentId, TaskId};
use crate::model::labels::Labels;

/// An agent that is always on; see [`agent`].
#[derive(Debug, Clone)]
pub struct AgentSpec {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) slots: u32,
    pub(super) platform: String,
    pub(super) backend: String,
    pub(super) organisation: Option<i64>,
}

/// A connected agent with one slot on `linux/amd64` with Docker, for every organisation.
#[must_use]
pub fn agent(name: impl Into<String>) -> AgentSpec {
    AgentSpec {
        name: name.into(),
        labels: Labels::default(),
        slots: 1,
        platform: "linux/amd64".to_owned(),
        backend: "docker".to_owned(),
        organisation: None,
    }
}

impl AgentSpec {
    /// Started with this label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.set(key, value);
        self
    }

    /// So many tasks at once.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// What its engine runs on.
    #[must_use]
    pub fn platform(mut self, platform: impl Into<String>) -> Self {
        self.platform = platform.into();
        self
    }

    /// Its engine.
    #[must_use]
    pub fn backend(mut self, backend: impl Into<String>) -> Self {
        self.backend = backend.into();
        self
    }

    /// Only for this organisation.
    #[must_use]
    pub fn organisation(mut self, id: i64) -> Self {
        self.organisation = Some(id);
        self
    }
}

/// An agent record, with what is known of its process from outside the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentView {
    /// The record's id.
    pub id: AgentId,
    /// The record's name.
    pub name: String,
    /// Cordoned.
    pub no_schedule: bool,
    /// A process lives that uses the record.
    pub connected: bool,
    /// Slots as the agent told them; 0 before its first contact.
    pub slots: u32,
    /// Labels it was started with.
    pub custom_labels: Labels,
    /// What its engine runs on; empty before its first contact.
    pub platform: String,
    /// Last heartbeat.
    pub last_contact: Option<Timestamp>,
    /// Last work, as the record has it.
    pub last_work: Option<Timestamp>,
    /// Tasks that the server has as running on it.
    pub running: Vec<TaskId>,
}
