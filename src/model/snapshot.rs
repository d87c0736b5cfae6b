//! A snapshot: what was observed at one instant. Unknown is not absent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::agent::Agent;
use super::ids::{AgentId, InstallationId, InstanceId, LaunchName, PoolName, ServerMark};
use super::instance::{Instance, OfferKey};
use super::pool::{AccountId, Pool};
use super::task::Task;

/// The world as one pass saw it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When; every age is measured from here.
    pub now: Timestamp,
    /// This installation.
    pub installation: InstallationId,
    /// The Woodpecker server it serves.
    pub server: ServerMark,
    /// Time until the next pass at the latest; bounds how early a closing billing window must be used.
    pub poll_interval: Duration,
    /// The pools in the order of the settings.
    pub pools: Vec<Pool>,
    /// Woodpecker's queue.
    pub queue: Queue,
    /// Every agent record of the server, all pages.
    pub agents: Vec<Agent>,
    /// Every instance of this installation, an entry for each account of the settings.
    pub instances: BTreeMap<AccountId, Listing>,
    /// What runs beside the loop right now.
    pub in_flight: InFlight,
}

impl Snapshot {
    /// Every instance that is known, of all accounts.
    pub fn listed(&self) -> impl Iterator<Item = &Instance> {
        let known = self.instances.values().filter_map(|listing| match listing {
            Listing::Known { instances, .. } => Some(instances),
            Listing::Unknown { .. } => None,
        });
        known.flatten()
    }
}

/// The queue at one instant.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// Nothing is handed out.
    pub paused: bool,
    /// Waiting for an agent, in the server's order; may hold tasks whose dependencies still run.
    pub pending: Vec<Task>,
    /// Waiting for other tasks.
    pub waiting: Vec<Task>,
    /// Given to an agent.
    pub running: Vec<Task>,
}

/// A provider's answer to "what do we have?".
#[derive(Debug, Clone)]
pub enum Listing {
    /// A whole answer.
    Known {
        /// When it was asked for.
        listed: Timestamp,
        /// The instances of this installation, all pages, also those of pools that are not configured.
        instances: Vec<Instance>,
    },
    /// It failed, was cut short, or looks impossible: nothing is launched or removed on the strength of it.
    Unknown {
        /// Why, for people.
        why: String,
    },
}

/// Operations that were begun and have not ended. They count as what they are going to be.
#[derive(Debug, Clone, Default)]
pub struct InFlight {
    /// Launches.
    pub launches: Vec<Launching>,
    /// Agents on which an operation runs (cordon, uncordon, retire, delete of the record).
    pub agents: BTreeSet<AgentId>,
    /// Those of them whose drain is being undone: their slots are there again.
    pub undone: BTreeSet<AgentId>,
    /// Instances on which an operation runs.
    pub instances: BTreeSet<InstanceId>,
    /// Those of them that are being started: they boot.
    pub started: BTreeSet<InstanceId>,
}

/// A launch, from its decision until a listing shows its instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launching {
    /// The pool.
    pub pool: PoolName,
    /// Name of the instance and of the record.
    pub name: LaunchName,
    /// What was ordered.
    pub offer: OfferKey,
    /// When it was begun.
    pub since: Timestamp,
    /// The record, once it is registered.
    pub agent: Option<AgentId>,
}
