//! An agent: a record at the Woodpecker server, and the process behind it.

use jiff::Timestamp;

use super::ids::AgentId;
use super::labels::Labels;

/// An agent record. Its token is not part of it: nothing but the launch needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The record's id.
    pub id: AgentId,
    /// The record's name; need not be unique.
    pub name: String,
    /// When the record was made.
    pub created: Timestamp,
    /// Last heartbeat (every 10 s while connected). `None`: never connected.
    pub last_contact: Option<Timestamp>,
    /// Last time it worked, moved at most once a minute. `None`: never.
    pub last_work: Option<Timestamp>,
    /// The engine's platform (`linux/amd64`); empty until it has connected.
    pub platform: String,
    /// The engine's name (`docker`); empty until it has connected.
    pub backend: String,
    /// Slots; 0 until it has connected.
    pub capacity: u32,
    /// Set: the server gives it nothing new.
    pub no_schedule: bool,
    /// Labels it was started with. `None`: the server does not tell (before 3.0).
    pub custom_labels: Option<Labels>,
    /// `None`: an agent for every organisation.
    pub organisation: Option<i64>,
}
