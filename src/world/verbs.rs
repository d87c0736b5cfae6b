//! What people do to the world, and what can be seen of it from outside its APIs.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast;

use super::World;
use super::agent::{AgentSpec, AgentView};
use super::endpoint::{Call, Endpoint, Side};
use super::faults::{Fault, FaultId};
use super::hetzner::{Bill, Resource, ServerView};
use super::history::{Cause, Happened, KilledJob};
use super::state::State;
use super::task::{TaskSpec, TaskState};
use super::woodpecker::{Introduction, Record};
use crate::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, TaskId};
use crate::model::later;
use crate::provider::label;

/// What is left of an installation: its servers, and its agent records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftBehind {
    /// Servers that carry its label.
    pub servers: Vec<ServerView>,
    /// Records whose name is of the form of its launches.
    pub agents: Vec<AgentView>,
}

impl LeftBehind {
    /// Nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.agents.is_empty()
    }
}

/// Time, faults and what was seen.
#[expect(
    clippy::must_use_candidate,
    reason = "verbs are called for what they do; what they return is for those who care"
)]
impl World {
    /// The world's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.state().now
    }

    /// Moves a manual clock, and lets happen what is due. Clocks that run are left to themselves.
    pub fn advance(&self, by: Duration) {
        self.shared.clock.advance(by);
        drop(self.state());
    }

    /// Switches a fault on.
    pub fn fault(&self, fault: Fault) -> FaultId {
        let mut state = self.state();
        let now = state.now;
        state.faults.switch_on(fault, now)
    }

    /// Switches a fault off.
    pub fn mend(&self, fault: FaultId) {
        self.state().faults.switch_off(fault);
    }

    /// Switches all faults off. Offers that are sold out, locks and the limit of servers stay.
    pub fn mend_all(&self) {
        self.state().faults.switch_all_off();
    }

    /// How often an endpoint was called, whatever became of it.
    #[must_use]
    pub fn calls(&self, endpoint: Endpoint) -> usize {
        self.state().calls.count(endpoint)
    }

    /// How often a side was called.
    #[must_use]
    pub fn calls_to(&self, side: Side) -> usize {
        self.state().calls.count_side(side)
    }

    /// The calls one by one, the last 100,000 of them.
    #[must_use]
    pub fn call_log(&self) -> Vec<Call> {
        self.state().calls.log()
    }

    /// Everything that happens from now on. A subscriber that is slow loses the oldest.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Happened> {
        self.state().history.subscribe()
    }

    /// What happened since the last time this was asked, the last 10,000 events of it.
    #[must_use]
    pub fn take_events(&self) -> Vec<Happened> {
        self.state().history.take()
    }

    /// Jobs that a call to Hetzner's API killed. An autoscaler must never cause one.
    #[must_use]
    pub fn killed_jobs(&self) -> Vec<KilledJob> {
        self.state().history.killed(Cause::Api)
    }

    /// Jobs that died because a verb deleted their server or killed their agent.
    #[must_use]
    pub fn lost_jobs(&self) -> Vec<KilledJob> {
        self.state().history.killed(Cause::Hand)
    }

    /// What an installation has now.
    #[must_use]
    pub fn left_behind(&self, installation: &InstallationId) -> LeftBehind {
        let servers = self.servers().into_iter();
        let agents = self.agents().into_iter();
        LeftBehind {
            servers: servers.filter(|server| server.labels.get(label::INSTALLATION) == Some(&installation.0)).collect(),
            agents: agents.filter(|agent| LaunchName::pool_of(&agent.name, installation).is_some()).collect(),
        }
    }
}

/// The Woodpecker server.
#[expect(
    clippy::must_use_candidate,
    reason = "verbs are called for what they do; what they return is for those who care"
)]
impl World {
    /// Puts a task at the end of the queue.
    pub fn push(&self, task: TaskSpec) -> TaskId {
        self.state().push(task)
    }

    /// Where a task is. `None`: there never was one of this id.
    #[must_use]
    pub fn task(&self, id: &TaskId) -> Option<TaskState> {
        self.state().woodpecker.task(id).map(|(_, task)| task.state.clone())
    }

    /// Tasks that have not ended.
    #[must_use]
    pub fn open_tasks(&self) -> Vec<TaskId> {
        let state = self.state();
        let open = state.woodpecker.tasks.iter().filter(|(_, task)| !task.state.is_done());
        open.map(|(number, _)| TaskId(number.to_string())).collect()
    }

    /// Nothing is handed out any more.
    pub fn pause_queue(&self) {
        self.state().pause(true);
    }

    /// Tasks are handed out again.
    pub fn resume_queue(&self) {
        self.state().pause(false);
    }

    /// The server is restarted while agents work: it knows nothing any more of what runs, and agents go on with it.
    pub fn restart_server(&self) {
        let mut state = self.state();
        state.woodpecker.running.clear();
        state.cut_streams();
    }

    /// Ends all open event streams, as a proxy may.
    pub fn cut_streams(&self) {
        self.state().cut_streams();
    }

    /// Makes the server refuse its administrator's token, or take it again, from the next call on.
    pub fn set_admin_token(&self, token: impl Into<String>) {
        self.state().woodpecker.admin_token = token.into();
    }

    /// A connected agent that lives until it is killed.
    pub fn add_agent(&self, spec: AgentSpec) -> AgentId {
        let id = AgentId(self.state().create_record(&spec.name, false, spec.organisation).id);
        self.connect(id, spec);
        id
    }

    /// A process begins on an agent's machine and uses its record. `false`: there is no such record.
    pub fn connect(&self, id: AgentId, spec: AgentSpec) -> bool {
        let AgentSpec { name, labels, slots, platform, backend, organisation: _ } = spec;
        self.state().connect(id.0, Introduction { hostname: name, platform, backend, slots, labels }).is_some()
    }

    /// An agent record that nobody has connected with.
    pub fn add_record(&self, name: &str) -> AgentId {
        AgentId(self.state().create_record(name, false, None).id)
    }

    /// All agent records, in order of their ids.
    #[must_use]
    pub fn agents(&self) -> Vec<AgentView> {
        let mut state = self.state();
        let ids: Vec<i64> = state.woodpecker.agents.keys().copied().collect();
        for id in ids {
            state.work_until_now(id);
        }
        state.woodpecker.agents.values().map(|record| state.agent_view(record)).collect()
    }

    /// An agent record.
    #[must_use]
    pub fn agent(&self, id: AgentId) -> Option<AgentView> {
        let mut state = self.state();
        state.work_until_now(id.0);
        state.woodpecker.agents.get(&id.0).map(|record| state.agent_view(record))
    }

    /// An administrator cordons an agent. `false`: there is none of this id.
    pub fn cordon(&self, id: AgentId) -> bool {
        self.set_no_schedule(id, true)
    }

    /// An administrator lets an agent take tasks again. `false`: there is none of this id.
    pub fn uncordon(&self, id: AgentId) -> bool {
        self.set_no_schedule(id, false)
    }

    fn set_no_schedule(&self, id: AgentId, no_schedule: bool) -> bool {
        let mut state = self.state();
        let name = state.woodpecker.agents.get(&id.0).map(|record| record.name.clone());
        name.and_then(|name| state.patch_record(id.0, name, no_schedule)).is_some()
    }

    /// An administrator renames an agent. `false`: there is none of this id.
    pub fn rename(&self, id: AgentId, name: &str) -> bool {
        let mut state = self.state();
        let no_schedule = state.woodpecker.agents.get(&id.0).map(|record| record.no_schedule);
        no_schedule.and_then(|no_schedule| state.patch_record(id.0, name.to_owned(), no_schedule)).is_some()
    }

    /// An agent's process dies, and with it what it works on; its machine stays. `false`: none lives.
    pub fn kill_agent(&self, id: AgentId) -> bool {
        let mut state = self.state();
        let Some(process) = state.woodpecker.agents.get(&id.0).and_then(|record| record.process) else { return false };
        for server in state.hetzner.servers.values_mut().filter(|server| server.process == Some(process)) {
            server.process = None;
        }
        state.kill_process(process, Cause::Hand);
        true
    }

    /// Somebody deletes an agent record. `false`: there is none, or it runs a task and the server refuses.
    pub fn delete_record_by_hand(&self, id: AgentId) -> bool {
        self.state().delete_record(id.0).is_ok()
    }
}

/// The project at Hetzner.
#[expect(
    clippy::must_use_candidate,
    reason = "verbs are called for what they do; what they return is for those who care"
)]
impl World {
    /// All servers, those that lists leave out included, in order of their ids.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerView> {
        let state = self.state();
        state.hetzner.servers.iter().map(|(id, server)| state.hetzner.view(*id, server)).collect()
    }

    /// Somebody deletes a server, or it crashes for good; what its agent works on is lost. `false`: there is none, or
    /// it is locked.
    pub fn delete_server_by_hand(&self, id: &InstanceId) -> bool {
        let mut state = self.state();
        id.0.parse().is_ok_and(|id| state.delete_server(id, Cause::Hand).is_ok())
    }

    /// Something else works on a server for so long: calls that change it are refused with `locked`.
    pub fn lock_server(&self, id: &InstanceId, time: Duration) -> bool {
        let mut state = self.state();
        let until = later(state.now, time);
        let server = id.0.parse().ok().and_then(|id: u64| state.hetzner.servers.get_mut(&id));
        server.map(|server| server.locked_until = Some(until)).is_some()
    }

    /// A type can't be ordered for so long, in one place or (`None`) everywhere.
    pub fn sell_out(&self, server_type: &str, location: Option<&str>, time: Duration) {
        let mut state = self.state();
        let until = later(state.now, time);
        state.hetzner.sold_out.push((server_type.to_owned(), location.map(str::to_owned), until));
    }

    /// Everything can be ordered again.
    pub fn restock(&self) {
        self.state().hetzner.sold_out.clear();
    }

    /// Announces today that a type ends after so long, in one place or (`None`) everywhere.
    pub fn deprecate(&self, server_type: &str, location: Option<&str>, ends_in: Duration) {
        let mut state = self.state();
        let (now, end) = (state.now, later(state.now, ends_in));
        state.hetzner.catalogue.deprecate(server_type, location, now, end);
    }

    /// Changes how many servers the project may have.
    pub fn set_server_limit(&self, limit: usize) {
        self.state().options.server_limit = limit;
    }

    /// Makes Hetzner take only this token from the next call on.
    pub fn set_hetzner_token(&self, token: impl Into<String>) {
        self.state().hetzner.token = token.into();
    }

    /// Adds an SSH key, network, firewall or placement group; returns its id. From the start there are the key `admin`,
    /// the network `ci`, the firewall `ci` and the placement group `spread`.
    pub fn add_resource(&self, kind: Resource, name: &str) -> u64 {
        self.state().hetzner.add_resource(kind, name)
    }

    /// What all servers cost until now.
    #[must_use]
    pub fn bill(&self) -> Bill {
        let state = self.state();
        state.hetzner.bill(state.now)
    }

    /// Euros an hour, gross, of a server type. `None`: there is none of this name.
    #[must_use]
    pub fn hourly_price(&self, server_type: &str) -> Option<f64> {
        self.state().hetzner.catalogue.hourly(server_type).map(super::hetzner::catalogue::euros)
    }
}

impl State {
    fn agent_view(&self, record: &Record) -> AgentView {
        AgentView {
            id: AgentId(record.id),
            name: record.name.clone(),
            no_schedule: record.no_schedule,
            connected: record.process.is_some(),
            slots: record.capacity,
            custom_labels: record.custom_labels.clone(),
            platform: record.platform.clone(),
            last_contact: self.last_contact(record),
            last_work: record.last_work,
            running: self.woodpecker.running_on(record.id).map(|(id, _)| TaskId(id.to_string())).collect(),
        }
    }
}
