//! An instance: a machine of ours at a provider, as its listing tells.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::ids::{AgentId, InstanceId, LaunchName, PoolName, ServerMark};

/// A machine that carries this installation's labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The provider's id.
    pub id: InstanceId,
    /// Its name; [`LaunchName::renamed`] if somebody gave it another.
    pub name: LaunchName,
    /// The pool in its labels.
    pub pool: PoolName,
    /// The Woodpecker server in its labels. `None`: not told.
    pub server: Option<ServerMark>,
    /// The agent record in its labels. `None`: it registers itself with the shared secret; the record has its name.
    pub agent: Option<AgentId>,
    /// Names under which the agent of a machine that Picus did not launch may be known at Woodpecker, the surest first.
    /// Empty for one that Picus launched: its record has its name.
    pub known_as: Vec<String>,
    /// The agent whose drain this installation has noted on the instance: its cordon is ours, also after a restart.
    pub draining: Option<AgentId>,
    /// The launch settings it was made with, as [`super::pool::Pool::launch_settings`]. `None`: not told.
    pub launch_settings: Option<String>,
    /// State at the provider.
    pub state: InstanceState,
    /// Since when it is stopped. `None`: it is not, or that is not told.
    pub stopped_since: Option<Timestamp>,
    /// When it was created, or last started where instances are stopped and started; billing by the hour counts from here.
    pub created: Timestamp,
    /// Server type and place, for people and for the price.
    pub offer: OfferKey,
}

/// What a provider says of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    /// Being created or started.
    Starting,
    /// Up.
    Running,
    /// Shutting down, but not going away.
    Stopping,
    /// Powered off; billed at Hetzner like a running one.
    Stopped,
    /// On its way out; needs no action.
    Deleting,
    /// A word that this release does not know.
    Unknown,
}

/// A server type at a place: what can be ordered, and what can be sold out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct OfferKey {
    /// `cx23`
    pub server_type: String,
    /// `nbg1`
    pub location: String,
}

impl fmt::Display for OfferKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.server_type, self.location)
    }
}
