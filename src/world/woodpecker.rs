//! The Woodpecker server's records: tasks, pipelines, agents. The queue's rules are in `queue.rs`, what happens to agent
//! records in `agents.rs`, the HTTP answers in `routes.rs`.
//!
//! Modelled on the source of 3.17: <https://github.com/woodpecker-ci/woodpecker/tree/v3.17.0/server>.

mod agents;
mod queue;
pub(super) mod routes;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast;

pub(super) use agents::Introduction;

use super::http::Feed;
use super::machine::ProcessId;
use super::task::{TaskSpec, TaskState};
use crate::model::ids::TaskId;
use crate::model::labels::{Labels, Score, fit};

/// A subscriber of the event stream may lag so far behind.
const FEED: usize = 256;

/// The server.
pub(super) struct Woodpecker {
    pub(super) admin_token: String,
    pub(super) user_token: String,
    /// Every task that ever was, by its number.
    pub(super) tasks: BTreeMap<u64, Task>,
    pub(super) pending: VecDeque<u64>,
    pub(super) waiting: Vec<u64>,
    pub(super) running: BTreeSet<u64>,
    /// Runs whose agent is dead, to be put back at the next tick.
    expired: Vec<u64>,
    pub(super) paused: bool,
    /// A tick is on the agenda.
    tick_is_due: bool,
    pub(super) agents: BTreeMap<i64, Record>,
    last_agent: i64,
    last_task: u64,
    pipelines: BTreeMap<i64, Pipeline>,
    /// Repositories by name: id and the number of the last pipeline.
    repos: BTreeMap<String, (i64, i64)>,
    pub(super) label_sets: LabelSets,
    pub(super) feed: broadcast::Sender<Feed>,
}

/// A task of the queue, or one that was.
pub(super) struct Task {
    pub(super) spec: TaskSpec,
    /// Position in its pipeline.
    pid: usize,
    labels: Labels,
    label_set: LabelSet,
    /// Status words of dependencies that have ended.
    dep_status: BTreeMap<String, &'static str>,
    /// Stays when the agent is dead.
    agent: Option<i64>,
    pipeline: i64,
    /// Number of the current or last run.
    run: u32,
    pub(super) state: TaskState,
}

/// A pipeline: tasks that were pushed for one commit.
struct Pipeline {
    number: i64,
    repo_id: i64,
    repo: String,
    created: Timestamp,
    tasks: usize,
}

/// An agent record.
pub(super) struct Record {
    pub(super) id: i64,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    pub(super) name: String,
    /// -1 for one that registered with the shared secret.
    owner: i64,
    pub(super) token: String,
    /// As it was when the last process died.
    last_contact: Option<Timestamp>,
    pub(super) last_work: Option<Timestamp>,
    pub(super) platform: String,
    backend: String,
    pub(super) capacity: u32,
    version: String,
    pub(super) no_schedule: bool,
    pub(super) custom_labels: Labels,
    organisation: Option<i64>,
    /// The process that uses it, if one lives.
    pub(super) process: Option<ProcessId>,
    /// A slot polls although the record is cordoned: [`Race::OneMoreTask`](super::Race::OneMoreTask).
    one_more: bool,
}

impl Woodpecker {
    pub(super) fn new(admin_token: String, user_token: String) -> Self {
        Self {
            admin_token,
            user_token,
            tasks: BTreeMap::new(),
            pending: VecDeque::new(),
            waiting: Vec::new(),
            running: BTreeSet::new(),
            expired: Vec::new(),
            paused: false,
            tick_is_due: false,
            agents: BTreeMap::new(),
            last_agent: 0,
            last_task: 0,
            pipelines: BTreeMap::new(),
            repos: BTreeMap::new(),
            label_sets: LabelSets::default(),
            feed: broadcast::Sender::new(FEED),
        }
    }

    /// The running tasks of an agent.
    pub(super) fn running_on(&self, agent: i64) -> impl Iterator<Item = (u64, &Task)> {
        self.running
            .iter()
            .filter_map(|id| Some((*id, self.tasks.get(id)?)))
            .filter(move |(_, task)| task.agent == Some(agent))
    }

    /// Sends a pipeline's change to the event streams.
    fn publish(&self, pipeline: i64, status: &str) {
        let Some(found) = self.pipelines.get(&pipeline) else { return };
        let (owner, name) = found.repo.split_once('/').unwrap_or(("", &found.repo));
        let data = serde_json::json!({
            "repo": {
                "id": found.repo_id, "owner": owner, "name": name, "full_name": found.repo,
                "visibility": "public", "private": false, "active": true,
            },
            "pipeline": {
                "id": pipeline, "number": found.number, "event": "push", "status": status,
                "created": found.created.as_second(), "branch": "main", "workflows": null,
            },
        });
        // Nobody has to listen.
        let _ = self.feed.send(Feed::Data(Arc::from(data.to_string())));
    }

    /// The task's number, if it is one of ours.
    pub(super) fn task(&self, id: &TaskId) -> Option<(u64, &Task)> {
        let number = id.0.parse().ok()?;
        Some((number, self.tasks.get(&number)?))
    }
}

impl Record {
    /// Last heartbeat; heartbeats come every 10 s while a process lives.
    pub(super) fn last_contact(&self, connected: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let Some(connected) = connected else { return self.last_contact };
        let beats = crate::model::age(now, connected).as_secs() / agents::HEARTBEAT.as_secs();
        Some(crate::model::later(connected, Duration::from_secs(beats * agents::HEARTBEAT.as_secs())))
    }
}

/// A set of labels by number: the same few sets meet again and again, and each pair is matched only once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LabelSet(usize);

/// All sets of labels that were ever seen.
#[derive(Default)]
pub(super) struct LabelSets {
    sets: Vec<Labels>,
    numbers: HashMap<Labels, LabelSet>,
    fits: HashMap<(LabelSet, LabelSet), Option<Score>>,
}

impl LabelSets {
    pub(super) fn number(&mut self, labels: &Labels) -> LabelSet {
        if let Some(known) = self.numbers.get(labels) {
            return *known;
        }
        let number = LabelSet(self.sets.len());
        self.sets.push(labels.clone());
        self.numbers.insert(labels.clone(), number);
        number
    }

    /// Whether an agent is given a task, and with which score.
    fn fit(&mut self, agent: LabelSet, task: LabelSet) -> Option<Score> {
        let Self { sets, fits, .. } = self;
        *fits.entry((agent, task)).or_insert_with(|| fit(sets.get(agent.0)?, sets.get(task.0)?).ok())
    }
}
