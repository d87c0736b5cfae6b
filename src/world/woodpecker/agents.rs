//! What happens to agent records: made, connected, cordoned, deleted, and how their times move.

use std::time::Duration;

use super::Record;
use crate::model::ids::AgentId;
use crate::model::labels::{Labels, effective};
use crate::world::faults::Race;
use crate::world::history::Event;
use crate::world::machine::{Process, ProcessId};
use crate::world::state::{Due, State};

/// An agent reports itself alive so often.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);
/// `last_work` moves at most so often (`updateAgentLastWorkDelay`).
const WORK_DELAY: Duration = Duration::from_mins(1);
/// Length of an agent's token.
const TOKEN_LENGTH: usize = 56;
/// The user who makes records through the API.
const ADMIN: i64 = 1;
/// The owner of records that came with the shared secret, and the organisation of agents for every one.
pub(super) const NOBODY: i64 = -1;

/// What an agent tells when it connects.
pub(in crate::world) struct Introduction {
    pub(in crate::world) hostname: String,
    pub(in crate::world) platform: String,
    pub(in crate::world) backend: String,
    pub(in crate::world) slots: u32,
    pub(in crate::world) labels: Labels,
}

impl State {
    /// Makes a record with a token of its own.
    pub(in crate::world) fn create_record(
        &mut self,
        name: &str,
        no_schedule: bool,
        organisation: Option<i64>,
    ) -> &mut Record {
        let token = self.token(TOKEN_LENGTH);
        self.insert_record(name, no_schedule, organisation, ADMIN, token)
    }

    /// Makes the record of an agent that came with the shared secret; a name that is taken is no hindrance.
    pub(in crate::world) fn create_shared_record(&mut self, hostname: &str, secret: String) -> &mut Record {
        self.insert_record(hostname, false, None, NOBODY, secret)
    }

    fn insert_record(
        &mut self,
        name: &str,
        no_schedule: bool,
        organisation: Option<i64>,
        owner: i64,
        token: String,
    ) -> &mut Record {
        let now = self.now;
        self.woodpecker.last_agent += 1;
        let id = self.woodpecker.last_agent;
        self.tell(Event::RecordCreated { agent: AgentId(id), name: name.to_owned() });
        self.woodpecker.agents.entry(id).or_insert_with(|| Record {
            id,
            created: now,
            updated: now,
            name: name.to_owned(),
            owner,
            token,
            last_contact: None,
            last_work: None,
            platform: String::new(),
            backend: String::new(),
            capacity: 0,
            version: String::new(),
            no_schedule,
            custom_labels: Labels::default(),
            organisation,
            process: None,
            one_more: false,
        })
    }

    /// An agent process makes contact with a record, and begins to poll.
    pub(in crate::world) fn connect(&mut self, id: i64, told: Introduction) -> Option<ProcessId> {
        let now = self.now;
        let record = self.woodpecker.agents.get_mut(&id)?;
        if record.name.is_empty() {
            record.name.clone_from(&told.hostname);
        }
        let mut labels: Labels = [("hostname", told.hostname.as_str())].into_iter().collect();
        for (key, value) in told.labels.iter() {
            labels.set(key, value);
        }
        let labels = effective(&told.platform, &told.backend, &labels, record.organisation);
        record.platform = told.platform;
        record.backend = told.backend;
        record.capacity = told.slots;
        record.version.clone_from(&self.options.version);
        record.custom_labels = told.labels;
        record.updated = now;
        let labels = self.woodpecker.label_sets.number(&labels);
        let process = ProcessId(self.processes.last_key_value().map_or(1, |(last, _)| last.0 + 1));
        record.process = Some(process);
        let name = record.name.clone();
        let running = Process { agent: id, connected: now, slots: told.slots, labels, tasks: Vec::new() };
        self.processes.insert(process, running);
        self.tell(Event::AgentConnected { agent: AgentId(id), name });
        self.queue_changed();
        Some(process)
    }

    /// A process is no more. Its record stays as it was last written.
    pub(in crate::world) fn disconnect(&mut self, process: ProcessId) -> Option<Process> {
        let now = self.now;
        let agent = self.processes.get(&process)?.agent;
        self.work_until_now(agent);
        let gone = self.processes.remove(&process)?;
        if let Some(record) = self.woodpecker.agents.get_mut(&gone.agent)
            && record.process == Some(process)
        {
            record.last_contact = record.last_contact(Some(gone.connected), now);
            record.process = None;
        }
        Some(gone)
    }

    /// Sets name and flag, as PATCH always does both. `None`: there is no such record.
    pub(in crate::world) fn patch_record(&mut self, id: i64, name: String, no_schedule: bool) -> Option<()> {
        let now = self.now;
        let record = self.woodpecker.agents.get_mut(&id)?;
        let before = std::mem::replace(&mut record.no_schedule, no_schedule);
        record.name = name;
        record.updated = now;
        record.one_more = false;
        let (name, connected) = (record.name.clone(), record.process.is_some());
        if connected && no_schedule && !before {
            if self.faults.race(Race::OneMoreTask, now, &mut self.rng)
                && let Some(record) = self.woodpecker.agents.get_mut(&id)
            {
                record.one_more = true;
            }
            if self.faults.race(Race::WriteBack, now, &mut self.rng) {
                let wait = self.draw_up_to(HEARTBEAT);
                self.schedule(wait, Due::WriteBack { agent: id, no_schedule: before });
            }
        }
        if before != no_schedule {
            self.tell(Event::Cordoned { agent: AgentId(id), name, no_schedule });
        }
        self.queue_changed();
        Some(())
    }

    /// A heartbeat writes the whole row as it read it before a PATCH.
    pub(in crate::world) fn write_back(&mut self, id: i64, no_schedule: bool) {
        if let Some(record) = self.woodpecker.agents.get_mut(&id)
            && record.process.is_some()
            && record.no_schedule != no_schedule
        {
            record.no_schedule = no_schedule;
            let name = record.name.clone();
            self.tell(Event::Cordoned { agent: AgentId(id), name, no_schedule });
            self.queue_changed();
        }
    }

    /// Deletes a record, unless the server has a task as running on it.
    pub(in crate::world) fn delete_record(&mut self, id: i64) -> Result<(), NotDeleted> {
        if !self.woodpecker.agents.contains_key(&id) {
            return Err(NotDeleted::Unknown);
        }
        if self.woodpecker.running_on(id).next().is_some() {
            return Err(NotDeleted::Busy);
        }
        if let Some(record) = self.woodpecker.agents.remove(&id) {
            self.tell(Event::RecordDeleted { agent: AgentId(id), name: record.name });
        }
        Ok(())
    }

    /// The agent worked just now; written down at most once a minute.
    pub(super) fn touch_work(&mut self, id: i64) {
        let now = self.now;
        if let Some(record) = self.woodpecker.agents.get_mut(&id)
            && record.last_work.is_none_or(|last| crate::model::age(now, last) >= WORK_DELAY)
        {
            record.last_work = Some(now);
            record.updated = now;
        }
    }

    /// Brings `last_work` up to date for an agent that has been at work until now: a run is extended every 20 s. Has to
    /// come before its tasks change.
    pub(in crate::world) fn work_until_now(&mut self, id: i64) {
        let now = self.now;
        let Some(record) = self.woodpecker.agents.get_mut(&id) else { return };
        let process = record.process.and_then(|process| self.processes.get(&process));
        if process.is_some_and(|process| !process.tasks.is_empty())
            && let Some(last) = record.last_work
        {
            let minutes = crate::model::age(now, last).as_secs() / WORK_DELAY.as_secs();
            record.last_work = Some(crate::model::later(last, Duration::from_secs(minutes * WORK_DELAY.as_secs())));
        }
    }
}

/// Why a record was not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::world) enum NotDeleted {
    /// There is none of this id.
    Unknown,
    /// It runs a task.
    Busy,
}
