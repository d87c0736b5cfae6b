//! Woodpecker's HTTP answers: who may ask, what the JSON looks like. The shapes are those of a real 3.17 server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::agents::{NOBODY, NotDeleted};
use super::{Record, Task, Woodpecker};
use crate::model::labels::Labels;
use crate::world::endpoint::Endpoint;
use crate::world::http::{Answer, Feed, Request};
use crate::world::state::State;

/// `maxPageSize`
const LARGEST_PAGE: usize = 50;

#[derive(Serialize)]
struct TaskJson<'a> {
    id: String,
    pid: usize,
    name: &'a str,
    labels: &'a Labels,
    dependencies: Option<Vec<&'a str>>,
    run_on: Option<&'a [String]>,
    dep_status: &'a BTreeMap<String, &'static str>,
    agent_id: i64,
    pipeline_id: i64,
    repo_id: i64,
    concurrency_limit: u32,
    concurrency_group: &'a str,
    created: i64,
    /// Only in the queue, not in an agent's tasks, as is the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline_number: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_name: Option<&'a str>,
}

#[derive(Serialize)]
struct QueueJson<'a> {
    pending: Vec<TaskJson<'a>>,
    waiting_on_deps: Vec<TaskJson<'a>>,
    running: Vec<TaskJson<'a>>,
    stats: StatsJson,
    paused: bool,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names on the wire")]
struct StatsJson {
    worker_count: u32,
    pending_count: usize,
    waiting_on_deps_count: usize,
    running_count: usize,
}

#[derive(Serialize)]
struct AgentJson<'a> {
    id: i64,
    created: i64,
    updated: i64,
    name: &'a str,
    owner_id: i64,
    token: &'a str,
    last_contact: i64,
    last_work: i64,
    platform: &'a str,
    backend: &'a str,
    capacity: u32,
    version: &'a str,
    no_schedule: bool,
    custom_labels: Option<&'a Labels>,
    org_id: i64,
}

/// What POST and PATCH read; what is absent is blanked.
#[derive(Deserialize)]
struct AgentBody {
    #[serde(default)]
    name: String,
    #[serde(default)]
    no_schedule: bool,
}

/// The answer of somebody who may not ask.
pub(in crate::world) fn not_authorised(status: u16) -> Answer {
    Answer::text(status, "User not authorized")
}

/// The answer that there is nothing.
pub(in crate::world) fn nothing(endpoint: Endpoint) -> Answer {
    if endpoint == Endpoint::Queue {
        let stats = StatsJson { worker_count: 0, pending_count: 0, waiting_on_deps_count: 0, running_count: 0 };
        let (pending, waiting_on_deps, running) = (Vec::new(), Vec::new(), Vec::new());
        return Answer::json(200, &QueueJson { pending, waiting_on_deps, running, stats, paused: false });
    }
    Answer::json(200, &serde_json::json!([]))
}

impl State {
    /// Answers a call to the Woodpecker server.
    pub(in crate::world) fn answer_woodpecker(&mut self, request: &Request<'_>) -> Answer {
        if let Err(refused) = self.admit(request) {
            return refused;
        }
        let id = match request.id.map(str::parse) {
            None => 0,
            Some(Ok(id)) => id,
            Some(Err(_)) => return Answer::empty(400),
        };
        match request.endpoint {
            Endpoint::Version => {
                let source = "https://github.com/woodpecker-ci/woodpecker";
                Answer::json(200, &serde_json::json!({ "source": source, "version": self.options.version }))
            }
            Endpoint::Health => Answer::empty(200),
            Endpoint::User => user(request.token == Some(self.woodpecker.admin_token.as_str())),
            Endpoint::Events => Answer::feed(self.woodpecker.feed.subscribe()),
            Endpoint::Queue => self.queue_json(),
            Endpoint::PauseQueue => self.pause(true),
            Endpoint::ResumeQueue => self.pause(false),
            Endpoint::Agents => self.agents_json(request),
            Endpoint::CreateAgent => self.post_agent(request.body),
            Endpoint::Agent => self.agent_answer(id),
            Endpoint::AgentTasks => self.tasks_json(id),
            Endpoint::PatchAgent => self.patch_agent(id, request.body),
            Endpoint::DeleteAgent => match self.delete_record(id) {
                Ok(()) => Answer::empty(204),
                Err(NotDeleted::Unknown) => Answer::empty(404),
                Err(NotDeleted::Busy) => Answer::text(409, "Agent has running tasks"),
            },
            Endpoint::OtherWoodpecker
            | Endpoint::Servers
            | Endpoint::Server
            | Endpoint::CreateServer
            | Endpoint::DeleteServer
            | Endpoint::ServerTypes
            | Endpoint::Locations
            | Endpoint::Images
            | Endpoint::SshKeys
            | Endpoint::Networks
            | Endpoint::Firewalls
            | Endpoint::PlacementGroups
            | Endpoint::OtherHetzner => Answer::text(404, "404 page not found\n"),
        }
    }

    /// Who may call what: version and health are open, the user and the events are for everybody with a token, the
    /// rest is for administrators.
    fn admit(&self, request: &Request<'_>) -> Result<(), Answer> {
        if matches!(request.endpoint, Endpoint::Version | Endpoint::Health) {
            return Ok(());
        }
        let everybody = matches!(request.endpoint, Endpoint::User | Endpoint::Events | Endpoint::OtherWoodpecker);
        match request.token {
            Some(token) if token == self.woodpecker.admin_token => Ok(()),
            Some(token) if token == self.woodpecker.user_token && everybody => Ok(()),
            Some(token) if token == self.woodpecker.user_token => Err(not_authorised(403)),
            Some(_) | None => Err(not_authorised(401)),
        }
    }

    /// Pauses or resumes the queue.
    pub(in crate::world) fn pause(&mut self, paused: bool) -> Answer {
        self.woodpecker.paused = paused;
        self.queue_changed();
        Answer::empty(204)
    }

    /// Ends all event streams.
    pub(in crate::world) fn cut_streams(&self) {
        // Nobody has to listen.
        let _ = self.woodpecker.feed.send(Feed::End);
    }

    fn queue_json(&self) -> Answer {
        let server = &self.woodpecker;
        let list = |numbers: &mut dyn Iterator<Item = &u64>| -> Vec<TaskJson<'_>> {
            numbers.filter_map(|number| server.task_json(*number, true)).collect()
        };
        let queue = QueueJson {
            pending: list(&mut server.pending.iter()),
            waiting_on_deps: list(&mut server.waiting.iter()),
            running: list(&mut server.running.iter()),
            stats: StatsJson {
                worker_count: self.idle_slots(),
                pending_count: server.pending.len(),
                waiting_on_deps_count: server.waiting.len(),
                running_count: server.running.len(),
            },
            paused: server.paused,
        };
        Answer::json(200, &queue)
    }

    fn tasks_json(&self, id: i64) -> Answer {
        if !self.woodpecker.agents.contains_key(&id) {
            return Answer::empty(404);
        }
        let running = self.woodpecker.running_on(id);
        let tasks: Vec<_> = running.filter_map(|(number, _)| self.woodpecker.task_json(number, false)).collect();
        Answer::json(200, &(!tasks.is_empty()).then_some(tasks))
    }

    fn agents_json(&mut self, request: &Request<'_>) -> Answer {
        let page = request.number("page").unwrap_or(1);
        let size = request.number("perPage").filter(|size| *size <= LARGEST_PAGE).unwrap_or(LARGEST_PAGE);
        let skipped = size.saturating_mul(page - 1);
        let ids: Vec<i64> = self.woodpecker.agents.keys().skip(skipped).take(size).copied().collect();
        for id in &ids {
            self.work_until_now(*id);
        }
        let agents: Vec<_> = ids.iter().filter_map(|id| self.agent_json(*id)).collect();
        Answer::json(200, &(!agents.is_empty()).then_some(agents))
    }

    fn agent_json(&self, id: i64) -> Option<AgentJson<'_>> {
        let record = self.woodpecker.agents.get(&id)?;
        let second = |time: Option<jiff::Timestamp>| time.map_or(0, jiff::Timestamp::as_second);
        Some(AgentJson {
            id,
            created: record.created.as_second(),
            updated: record.updated.as_second(),
            name: &record.name,
            owner_id: record.owner,
            token: &record.token,
            last_contact: second(self.last_contact(record)),
            last_work: second(record.last_work),
            platform: &record.platform,
            backend: &record.backend,
            capacity: record.capacity,
            version: &record.version,
            no_schedule: record.no_schedule,
            // An agent without labels tells an empty map; one that never connected has told nothing.
            custom_labels: (!record.platform.is_empty()).then_some(&record.custom_labels),
            org_id: record.organisation.unwrap_or(NOBODY),
        })
    }

    /// Last heartbeat of a record's process.
    pub(in crate::world) fn last_contact(&self, record: &Record) -> Option<jiff::Timestamp> {
        let process = record.process.and_then(|process| self.processes.get(&process));
        record.last_contact(process.map(|process| process.connected), self.now)
    }

    fn agent_answer(&mut self, id: i64) -> Answer {
        self.work_until_now(id);
        self.agent_json(id).map_or_else(|| Answer::empty(404), |agent| Answer::json(200, &agent))
    }

    fn post_agent(&mut self, body: &[u8]) -> Answer {
        let body = match read_agent(body) {
            Ok(body) => body,
            Err(error) => return Answer::text(400, error),
        };
        let id = self.create_record(&body.name, body.no_schedule, None).id;
        self.agent_answer(id)
    }

    fn patch_agent(&mut self, id: i64, body: &[u8]) -> Answer {
        let Ok(body) = read_agent(body) else { return Answer::empty(400) };
        match self.patch_record(id, body.name, body.no_schedule) {
            Some(()) => self.agent_answer(id),
            None => Answer::empty(404),
        }
    }
}

impl Woodpecker {
    fn task_json(&self, number: u64, in_queue: bool) -> Option<TaskJson<'_>> {
        let task: &Task = self.tasks.get(&number)?;
        let pipeline = self.pipelines.get(&task.pipeline)?;
        let needs: Vec<&str> = task.spec.needs.iter().map(|id| id.0.as_str()).collect();
        let agent = task.agent.and_then(|agent| self.agents.get(&agent));
        Some(TaskJson {
            id: number.to_string(),
            pid: task.pid,
            name: &task.spec.name,
            labels: &task.labels,
            dependencies: (!needs.is_empty()).then_some(needs),
            run_on: (!task.spec.run_on.is_empty()).then_some(&task.spec.run_on),
            dep_status: &task.dep_status,
            agent_id: task.agent.unwrap_or(0),
            pipeline_id: task.pipeline,
            repo_id: pipeline.repo_id,
            concurrency_limit: task.spec.limit,
            concurrency_group: &task.spec.group,
            created: pipeline.created.as_second(),
            pipeline_number: in_queue.then_some(pipeline.number),
            agent_name: in_queue.then_some(agent.map_or("", |agent| agent.name.as_str())),
        })
    }
}

/// Reads what Go's decoder would read: an object, and nothing else.
fn read_agent(body: &[u8]) -> Result<AgentBody, String> {
    let value: serde_json::Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if value.is_array() {
        return Err("json: cannot unmarshal array into Go value of type model.Agent".to_owned());
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn user(admin: bool) -> Answer {
    let (id, login) = if admin { (1, "admin") } else { (2, "somebody") };
    Answer::json(
        200,
        &serde_json::json!({
            "id": id, "forge_id": 1, "forge_remote_id": id.to_string(), "login": login,
            "email": format!("{login}@example.test"), "avatar_url": "", "admin": admin, "org_id": id,
        }),
    )
}
