//! A server's life after the create call, and the agent process on it.
//!
//! The user data is read for real: if the agent's settings can't be found in it, or its secret is not known, the agent
//! never connects, as it would be with a real machine.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;

use super::faults::MachineFault;
use super::hetzner::Status;
use super::history::{Cause, Event, KilledJob};
use super::state::State;
use super::woodpecker::{Introduction, LabelSet};
use crate::model::ids::{InstanceId, TaskId};
use crate::model::labels::Labels;

/// An agent process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId(pub(super) u64);

/// A living agent process.
#[derive(Debug)]
pub(super) struct Process {
    /// The record that it uses; it may be deleted meanwhile, then the process lives on and is given nothing.
    pub(super) agent: i64,
    pub(super) connected: Timestamp,
    pub(super) slots: u32,
    pub(super) labels: LabelSet,
    /// Numbers of the tasks it works on.
    pub(super) tasks: Vec<u64>,
}

/// The part of cloud-config that matters here.
#[derive(Deserialize)]
struct CloudConfig {
    #[serde(default)]
    write_files: Vec<WriteFile>,
}

#[derive(Deserialize)]
struct WriteFile {
    path: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    encoding: Option<String>,
}

/// What the agent process is started with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Environment {
    secret: String,
    hostname: Option<String>,
    backend: String,
    slots: u32,
    labels: Labels,
}

impl Environment {
    /// Finds the agent's settings in user data.
    ///
    /// # Errors
    ///
    /// Why the agent never connects.
    pub(super) fn read(user_data: &str) -> Result<Self, String> {
        if user_data.lines().next().map(str::trim_end) != Some("#cloud-config") {
            return Err("the user data is not cloud-config".to_owned());
        }
        let config: CloudConfig =
            serde_saphyr::from_str(user_data).map_err(|_| "the user data is not valid YAML".to_owned())?;
        let file = config.write_files.into_iter().find(|file| file.path.ends_with("agent.env"));
        let file = file.ok_or("the user data writes no agent.env")?;
        let text = match file.encoding.as_deref() {
            None | Some("" | "text/plain") => file.content,
            Some("b64" | "base64") => {
                let compact: String = file.content.split_whitespace().collect();
                let bytes = STANDARD.decode(compact).map_err(|_| "agent.env is not valid base64")?;
                String::from_utf8(bytes).map_err(|_| "agent.env is not text")?
            }
            Some(other) => return Err(format!("agent.env has the encoding {other}")),
        };
        Self::read_file(&text)
    }

    /// Reads `KEY=VALUE` lines as `docker run --env-file` does: nothing is quoted, `#` begins a comment only at the
    /// beginning of a line. The same key twice: the last wins.
    fn read_file(text: &str) -> Result<Self, String> {
        let get = |name: &str| {
            let pairs = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            let pairs = pairs.filter_map(|line| line.split_once('='));
            let mut values = pairs.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.to_owned());
            values.next_back().filter(|value| !value.is_empty())
        };
        let server = get("WOODPECKER_SERVER").ok_or("WOODPECKER_SERVER is not set")?;
        if server.contains("://") {
            return Err("WOODPECKER_SERVER has a scheme".to_owned());
        }
        let labels = get("WOODPECKER_AGENT_LABELS").or_else(|| get("WOODPECKER_FILTER_LABELS")).unwrap_or_default();
        let slots = get("WOODPECKER_MAX_WORKFLOWS").map_or(Ok(1), |slots| slots.parse());
        Ok(Self {
            secret: get("WOODPECKER_AGENT_SECRET").ok_or("WOODPECKER_AGENT_SECRET is not set")?,
            hostname: get("WOODPECKER_HOSTNAME"),
            backend: get("WOODPECKER_BACKEND").unwrap_or_else(|| "docker".to_owned()),
            slots: slots.map_err(|_| "WOODPECKER_MAX_WORKFLOWS is not a number")?,
            labels: Labels::parse_list(&labels).map_err(|_| "the agent's labels can't be read")?,
        })
    }
}

impl State {
    /// The create call's second step.
    pub(super) fn server_starts(&mut self, id: u64) {
        if let Some(server) = self.hetzner.servers.get_mut(&id)
            && server.status == Status::Initializing
        {
            server.status = if server.flaws.contains(&MachineFault::StaysOff) { Status::Off } else { Status::Starting };
        }
    }

    /// The machine is up; its cloud-init begins.
    pub(super) fn server_runs(&mut self, id: u64) {
        if let Some(server) = self.hetzner.servers.get_mut(&id)
            && server.status == Status::Starting
        {
            server.status = if server.flaws.contains(&MachineFault::OddStatus) { Status::Odd } else { Status::Running };
            let name = server.name.clone();
            self.tell(Event::ServerRunning { server: InstanceId(id.to_string()), name });
        }
    }

    /// Cloud-init is through; the agent's container starts.
    pub(super) fn agent_starts(&mut self, id: u64) {
        let Some(server) = self.hetzner.servers.get(&id) else { return };
        if server.status.is_up()
            && let Err(why) = self.boot(id)
        {
            let server = self.hetzner.servers.get(&id).map(|server| server.name.clone()).unwrap_or_default();
            self.tell(Event::AgentFailed { server, why });
        }
    }

    fn boot(&mut self, id: u64) -> Result<(), String> {
        let server = self.hetzner.servers.get(&id).ok_or("the server is gone")?;
        if server.flaws.contains(&MachineFault::NeverBoots) {
            return Err("the machine hangs".to_owned());
        }
        let environment = Environment::read(&server.user_data)?;
        let platform = self.hetzner.catalogue.platform(&server.type_name);
        let hostname = environment.hostname.unwrap_or_else(|| server.name.clone());
        let agent = if self.options.shared_secret.as_ref() == Some(&environment.secret) {
            self.create_shared_record(&hostname, environment.secret).id
        } else {
            let mut records = self.woodpecker.agents.values();
            let own = records.find(|record| record.token == environment.secret);
            own.ok_or("the server does not know its token")?.id
        };
        let told = Introduction {
            hostname,
            platform,
            backend: environment.backend,
            slots: environment.slots,
            labels: environment.labels,
        };
        let process = self.connect(agent, told);
        if let Some(server) = self.hetzner.servers.get_mut(&id) {
            server.process = process;
        }
        Ok(())
    }

    /// A process dies: what it worked on is lost, and the Woodpecker server will notice only later.
    pub(super) fn kill_process(&mut self, process: ProcessId, cause: Cause) {
        let Some(gone) = self.disconnect(process) else { return };
        let agent = self.woodpecker.agents.get(&gone.agent).map(|record| record.name.clone()).unwrap_or_default();
        for number in &gone.tasks {
            let name = self.woodpecker.tasks.get(number).map(|task| task.spec.name.clone()).unwrap_or_default();
            let (task, agent, at) = (TaskId(number.to_string()), agent.clone(), self.now);
            self.tell(Event::JobKilled(KilledJob { task, name, agent, at, cause }));
        }
        self.orphan_runs(&gone.tasks);
    }
}
