//! The answers as they come over the wire, from 2.8 to 3.17, and what they mean to the model.
//!
//! Missing and unknown fields, `null` lists and other spellings of a number are read; what can't be read at all fails the
//! whole answer, because a task or an agent that is dropped in silence would count as absent. Tokens have no field here
//! except in [`Registered`], so they can't go anywhere.

mod lenient;

use secrecy::SecretString;
use serde::Deserialize;

use crate::model;
use crate::model::ids::{AgentId, TaskId};
use lenient::{Flag, Id, Instant, LabelMap, Name, Number, Reference, list, present, secret};

/// `model.QueueInfo` in Woodpecker's source. A list is `None` if the answer has no such field.
#[derive(Deserialize)]
pub(super) struct Queue {
    #[serde(default, deserialize_with = "list")]
    pending: Option<Vec<Task>>,
    #[serde(default, deserialize_with = "list")]
    waiting_on_deps: Option<Vec<Task>>,
    #[serde(default, deserialize_with = "list")]
    running: Option<Vec<Task>>,
    #[serde(default)]
    paused: Flag,
}

impl Queue {
    /// The queue; `None` if none of its lists is there, so that `{}` is not taken for an empty one.
    pub(super) fn into_queue(self) -> Option<model::snapshot::Queue> {
        let Self { pending, waiting_on_deps, running, paused } = self;
        if pending.is_none() && waiting_on_deps.is_none() && running.is_none() {
            return None;
        }
        let tasks = |list: Option<Vec<Task>>| list.unwrap_or_default().into_iter().map(Into::into).collect();
        Some(model::snapshot::Queue {
            paused: paused.0,
            pending: tasks(pending),
            waiting: tasks(waiting_on_deps),
            running: tasks(running),
        })
    }
}

/// `model.QueueTask`: `server/model/task.go`.
#[derive(Deserialize)]
struct Task {
    id: Reference,
    #[serde(default)]
    name: Name,
    #[serde(default)]
    labels: LabelMap,
    #[serde(default, deserialize_with = "list")]
    dependencies: Option<Vec<Reference>>,
    #[serde(default)]
    agent_id: Number,
    #[serde(default)]
    pipeline_id: Number,
    #[serde(default)]
    pipeline_number: Number,
    #[serde(default)]
    concurrency_limit: Number,
    #[serde(default)]
    concurrency_group: Name,
    #[serde(default)]
    created: Instant,
}

impl From<Task> for model::task::Task {
    fn from(task: Task) -> Self {
        Self {
            id: TaskId(task.id.0),
            name: task.name.0,
            labels: task.labels.0,
            dependencies: task.dependencies.unwrap_or_default().into_iter().map(|id| TaskId(id.0)).collect(),
            // The server counts records from 1; 0 is "none yet", -1 its "not set".
            agent: (task.agent_id.0 > 0).then_some(AgentId(task.agent_id.0)),
            pipeline: task.pipeline_id.0,
            pipeline_number: task.pipeline_number.0,
            // "A value <= 0 means unlimited"; one beyond 32 bits is as good as that.
            concurrency_limit: u32::try_from(task.concurrency_limit.0).ok().filter(|limit| *limit > 0),
            concurrency_group: task.concurrency_group.0,
            created: task.created.0,
        }
    }
}

/// A task of which only the id is wanted.
#[derive(Deserialize)]
pub(super) struct TaskReference {
    id: Reference,
}

impl From<TaskReference> for TaskId {
    fn from(task: TaskReference) -> Self {
        Self(task.id.0)
    }
}

/// `model.Agent`: `server/model/agent.go`, without its token.
#[derive(Deserialize)]
pub(super) struct Agent {
    id: Id,
    #[serde(default)]
    name: Name,
    #[serde(default)]
    created: Instant,
    #[serde(default)]
    updated: Instant,
    #[serde(default)]
    last_contact: Instant,
    #[serde(default)]
    last_work: Instant,
    #[serde(default)]
    platform: Name,
    #[serde(default)]
    backend: Name,
    #[serde(default)]
    capacity: Number,
    #[serde(default)]
    no_schedule: Flag,
    /// Absent before 3.0 (unknown), `null` where an agent has none.
    #[serde(default, deserialize_with = "present")]
    custom_labels: Option<LabelMap>,
    /// Absent before 3.0, where every agent was global. -1 is "not set" (`IDNotSet`); 0 is an organisation.
    #[serde(default)]
    org_id: Option<Number>,
}

impl Agent {
    pub(super) fn id(&self) -> i64 {
        self.id.0
    }
}

impl From<Agent> for model::agent::Agent {
    fn from(agent: Agent) -> Self {
        Self {
            id: AgentId(agent.id.0),
            name: agent.name.0,
            // Every version tells it; should one not, the last change is the best guess.
            created: agent.created.0.or(agent.updated.0).unwrap_or_default(),
            last_contact: agent.last_contact.0,
            last_work: agent.last_work.0,
            platform: agent.platform.0,
            backend: agent.backend.0,
            capacity: u32::try_from(agent.capacity.0.max(0)).unwrap_or(u32::MAX),
            no_schedule: agent.no_schedule.0,
            custom_labels: agent.custom_labels.map(|labels| labels.0),
            organisation: agent.org_id.map(|id| id.0).filter(|id| *id != -1),
        }
    }
}

/// A fresh record: the one place where a token is read.
#[derive(Deserialize)]
pub(super) struct Registered {
    id: Id,
    #[serde(deserialize_with = "secret")]
    token: SecretString,
}

impl Registered {
    /// `None` if it is no record: an id of 0 or an empty token is what an unfilled one has.
    pub(super) fn into_registered(self) -> Option<super::Registered> {
        use secrecy::ExposeSecret;
        let whole = self.id.0 > 0 && !self.token.expose_secret().is_empty();
        whole.then_some(super::Registered { id: AgentId(self.id.0), token: self.token })
    }
}

/// `GET /version`
#[derive(Deserialize)]
pub(super) struct Version {
    #[serde(default)]
    version: Name,
}

impl Version {
    pub(super) fn into_version(self) -> Option<String> {
        (!self.version.0.is_empty()).then_some(self.version.0)
    }
}

/// `GET /api/user`
#[derive(Deserialize)]
pub(super) struct User {
    #[serde(default)]
    login: Name,
    #[serde(default)]
    admin: Flag,
}

impl User {
    pub(super) fn into_user(self) -> Option<super::User> {
        (!self.login.0.is_empty()).then_some(super::User { login: self.login.0, admin: self.admin.0 })
    }
}

/// What is wrong with a JSON answer of `length` bytes, without a word of it: it may hold tokens.
pub(super) fn describe(error: &serde_json::Error, length: usize) -> String {
    use serde_json::error::Category;
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        Category::Eof => format!("JSON that breaks off after {length} bytes"),
        Category::Io | Category::Syntax => format!("{length} bytes that are not JSON ({place})"),
        Category::Data => {
            // serde's messages quote the value first; what it expected, which comes last, is this module's own text.
            let message = error.to_string();
            let expected = message.rsplit_once(", expected ").map(|(_, expected)| format!("expected {expected}"));
            let missing = message.starts_with("missing field").then_some(message);
            expected.or(missing).map_or_else(
                || format!("JSON of another shape ({place})"),
                |detail| format!("JSON of another shape ({detail})"),
            )
        }
    }
}
