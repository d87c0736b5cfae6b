//! What is shown: plain data, the same for API, page and terminal. Field names are part of the API's version 1: one may come
//! to it, none changes its meaning.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The API's version.
pub const VERSION: u32 = 1;

/// Everything at one instant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// [`VERSION`]
    pub version: u32,
    /// The running release.
    pub picus: String,
    /// `PICUS_ID`
    pub installation: String,
    /// The Woodpecker server's address.
    pub server: String,
    /// Nothing is done, only decided.
    pub dry_run: bool,
    /// When the process began.
    pub started: Timestamp,
    /// When this was observed.
    pub now: Timestamp,
    /// The loop.
    pub pass: PassStatus,
    /// The queue.
    pub queue: QueueStatus,
    /// The pools, in the order of the settings.
    pub pools: Vec<PoolStatus>,
    /// Tasks of ours that wait, in the order of the queue.
    pub tasks: Vec<TaskStatus>,
    /// Agents and instances of ours.
    pub machines: Vec<MachineStatus>,
    /// Agents of others that are connected.
    pub others: Vec<OtherAgent>,
    /// Provider accounts.
    pub accounts: Vec<AccountStatus>,
    /// Offers that are left alone for a while.
    pub sold_out: Vec<SoldOut>,
    /// The last steps, newest first.
    pub steps: Vec<StepStatus>,
    /// What a person should know.
    pub notices: Vec<String>,
}

/// The loop.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PassStatus {
    /// Passes since the start.
    pub number: u64,
    /// `done`, or `skipped`: Woodpecker could not be read, and what is shown is of the last pass that was done.
    pub outcome: String,
    /// Why it was skipped.
    pub why: Option<String>,
    /// When it ended.
    pub ended: Timestamp,
    /// How long it took.
    pub took_seconds: f64,
    /// When the last one was done. `None`: none was.
    pub last_done: Option<Timestamp>,
    /// When the next one begins, unless an event comes before.
    pub next: Option<Timestamp>,
}

/// The queue.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct QueueStatus {
    /// An administrator has paused it.
    pub paused: bool,
    /// Tasks that wait, of whatever scope.
    pub waiting: usize,
    /// Those of them that no pool of ours could take.
    pub not_ours: usize,
    /// Tasks that run, of whatever scope.
    pub running: usize,
}

/// A pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// `hetzner` or `ec2`
    pub provider: String,
    /// The scope: the labels that its agents have. `None`: not known before the provider was asked.
    pub labels: Option<BTreeMap<String, String>>,
    /// Why the provider could not be asked.
    pub not_ready: Option<String>,
    /// What is ordered, in order of preference.
    pub offers: Vec<OfferStatus>,
    /// `PICUS_MIN_AGENTS`
    pub min: u32,
    /// `PICUS_MAX_AGENTS`
    pub max: u32,
    /// Slots of each agent that is launched.
    pub slots_per_agent: u32,
    /// `PICUS_MAX_IDLE_TIME`
    pub idle_timeout_seconds: u64,
    /// `PICUS_BOOT_TIMEOUT`
    pub boot_timeout_seconds: u64,
    /// `PICUS_BILLING_PERIOD`; 0: by the second.
    pub billing_period_seconds: u64,
    /// Tasks of ours that could start now and that this pool is the first to take.
    pub demand: u32,
    /// The same with those that could not start yet.
    pub waiting: u32,
    /// How long the oldest of them waits.
    pub oldest_wait_seconds: Option<u64>,
    /// Slots of its agents.
    pub slots: Slots,
    /// Instances in whatever state, launches under way included.
    pub instances: u32,
    /// Price of an hour of all that is billed. `None`: a price is not known.
    pub cost_per_hour: Option<f64>,
    /// What instances have cost since the process began.
    pub cost: f64,
    /// The part of it for idling.
    pub idle_cost: f64,
    /// Launches or boots fail.
    pub trouble: Option<TroubleStatus>,
}

/// Slots by what they are doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// Of connected agents, without a task.
    pub free: u32,
    /// With a task.
    pub busy: u32,
    /// Of instances that boot.
    pub booting: u32,
    /// Without a task, of cordoned agents.
    pub cordoned: u32,
}

/// What can be ordered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OfferStatus {
    /// Server type.
    pub server_type: String,
    /// Where.
    pub location: String,
    /// Price of an hour, if known.
    pub hourly_price: Option<f64>,
}

/// Launches or boots fail.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TroubleStatus {
    /// How many in a row.
    pub failures: u32,
    /// The last failure.
    pub why: String,
    /// Nothing is launched before.
    pub until: Timestamp,
}

/// A task of ours that waits. There may be thousands, which have much in common: that is shared.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Woodpecker's id.
    pub id: String,
    /// The workflow's name.
    pub name: String,
    /// Its repository.
    pub repo: String,
    /// Number of the pipeline in its repository; 0: the server does not tell.
    pub pipeline: i64,
    /// The first pool that could take it.
    pub pool: Arc<str>,
    /// Labels that an agent needs for it.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Since when it waits. `None`: the server does not tell.
    pub since: Option<Timestamp>,
    /// What was decided for it, one word.
    pub decision: Cow<'static, str>,
    /// The same in a sentence.
    pub why: Arc<str>,
}

/// An agent or instance of ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineStatus {
    /// Name of both.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Its record's id.
    pub agent: Option<i64>,
    /// Its id at the provider.
    pub instance: Option<String>,
    /// Its server type.
    pub server_type: Option<String>,
    /// Where it is.
    pub location: Option<String>,
    /// When it was created or last started.
    pub since: Option<Timestamp>,
    /// What it is doing, one word.
    pub state: String,
    /// Tasks on it. `None`: has no record.
    pub running: Option<u32>,
    /// Slots. `None`: not known before its first contact.
    pub slots: Option<u32>,
    /// What is done to it now. `None`: it is left alone.
    pub action: Option<String>,
    /// Why that is done, or why it is left alone: one word.
    pub reason: String,
    /// The same in a sentence.
    pub why: String,
    /// Price of an hour, if known and if it is billed.
    pub hourly_price: Option<f64>,
}

/// An agent of others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OtherAgent {
    /// Its name.
    pub name: String,
    /// Its record's id.
    pub agent: i64,
    /// Tasks on it.
    pub running: u32,
    /// Slots.
    pub slots: u32,
    /// It is given nothing new.
    pub cordoned: bool,
}

/// A provider account.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccountStatus {
    /// `hetzner` or `ec2`
    pub provider: String,
    /// Its pools.
    pub pools: Vec<String>,
    /// When its instances were listed. `None`: they are not known.
    pub listed: Option<Timestamp>,
    /// Why they are not known.
    pub unknown: Option<String>,
    /// Why it launches nothing for now.
    pub refused: Option<String>,
}

/// An offer that is left alone for a while.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SoldOut {
    /// `hetzner` or `ec2`
    pub provider: String,
    /// Server type.
    pub server_type: String,
    /// Where.
    pub location: String,
    /// When it is tried again.
    pub until: Timestamp,
}

/// A step that was taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepStatus {
    /// Grows from step to step.
    pub number: u64,
    /// When it began.
    pub began: Timestamp,
    /// Its pool.
    pub pool: String,
    /// What is done, one word.
    pub action: String,
    /// The same in a sentence.
    pub what: String,
    /// Why.
    pub why: String,
    /// `under way`, `done`, `failed`, or `only decided` (dry run).
    pub outcome: String,
    /// Why it failed.
    pub error: Option<String>,
    /// How long it took.
    pub took_seconds: Option<f64>,
}

/// An action, or a hold that changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DecisionEntry {
    /// Grows from entry to entry.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// `action`, `hold`, `release`, `keep` or `notice`.
    pub kind: String,
    /// The pool, if it is about one.
    pub pool: Option<String>,
    /// What it is about: a machine, a pool, a task.
    pub subject: String,
    /// One word for what was decided.
    pub word: String,
    /// The same in a sentence.
    pub why: String,
    /// What it was decided from.
    pub inputs: Inputs,
}

/// A pool's numbers when something was decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// Tasks of ours that could start.
    pub demand: u32,
    /// Slots of its agents.
    pub slots: Slots,
    /// Instances in whatever state.
    pub instances: u32,
    /// The maximum.
    pub max: u32,
}

/// A point of the plot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Tasks that could start.
    pub demand: u32,
    /// Slots of connected agents.
    pub slots: u32,
    /// Instances in whatever state.
    pub instances: u32,
    /// Cost of an hour.
    pub cost_per_hour: f64,
}
