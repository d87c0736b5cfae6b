//! Which call is which: faults are switched, and calls counted, by these words. Routing is done here for both sides.

use std::collections::{BTreeMap, VecDeque};

use axum::http::Method;
use jiff::Timestamp;

/// So many calls are kept one by one; the counts go on.
const LOG_LENGTH: usize = 100_000;

/// One of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The Woodpecker server.
    Woodpecker,
    /// Hetzner Cloud.
    Hetzner,
}

/// Method and kind of path of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// `GET /version`
    Version,
    /// `GET /healthz`
    Health,
    /// `GET /api/user`
    User,
    /// `GET /api/queue/info`
    Queue,
    /// `POST /api/queue/pause`
    PauseQueue,
    /// `POST /api/queue/resume`
    ResumeQueue,
    /// `GET /api/agents`
    Agents,
    /// `GET /api/agents/{id}`
    Agent,
    /// `GET /api/agents/{id}/tasks`
    AgentTasks,
    /// `POST /api/agents`
    CreateAgent,
    /// `PATCH /api/agents/{id}`
    PatchAgent,
    /// `DELETE /api/agents/{id}`
    DeleteAgent,
    /// `GET /api/stream/events`
    Events,
    /// Anything else at the Woodpecker server.
    OtherWoodpecker,
    /// `GET /servers`
    Servers,
    /// `GET /servers/{id}`
    Server,
    /// `POST /servers`
    CreateServer,
    /// `DELETE /servers/{id}`
    DeleteServer,
    /// `GET /server_types`, also of one
    ServerTypes,
    /// `GET /locations`, also of one
    Locations,
    /// `GET /images`, also of one
    Images,
    /// `GET /ssh_keys`, also of one
    SshKeys,
    /// `GET /networks`, also of one
    Networks,
    /// `GET /firewalls`, also of one
    Firewalls,
    /// `GET /placement_groups`, also of one
    PlacementGroups,
    /// Anything else at Hetzner.
    OtherHetzner,
}

impl Endpoint {
    /// The server that it belongs to.
    #[must_use]
    pub fn side(self) -> Side {
        match self {
            Self::Version
            | Self::Health
            | Self::User
            | Self::Queue
            | Self::PauseQueue
            | Self::ResumeQueue
            | Self::Agents
            | Self::Agent
            | Self::AgentTasks
            | Self::CreateAgent
            | Self::PatchAgent
            | Self::DeleteAgent
            | Self::Events
            | Self::OtherWoodpecker => Side::Woodpecker,
            Self::Servers
            | Self::Server
            | Self::CreateServer
            | Self::DeleteServer
            | Self::ServerTypes
            | Self::Locations
            | Self::Images
            | Self::SshKeys
            | Self::Networks
            | Self::Firewalls
            | Self::PlacementGroups
            | Self::OtherHetzner => Side::Hetzner,
        }
    }

    /// The endpoint of a request, and the id in its path.
    pub(super) fn of<'a>(side: Side, method: &Method, path: &'a str) -> (Self, Option<&'a str>) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match side {
            Side::Woodpecker => Self::of_woodpecker(method.as_str(), &parts),
            Side::Hetzner => Self::of_hetzner(method.as_str(), &parts),
        }
    }

    fn of_woodpecker<'a>(method: &str, parts: &[&'a str]) -> (Self, Option<&'a str>) {
        match (method, parts) {
            ("GET", ["version"]) => (Self::Version, None),
            ("GET", ["healthz"]) => (Self::Health, None),
            ("GET", ["api", "user"]) => (Self::User, None),
            ("GET", ["api", "queue", "info"]) => (Self::Queue, None),
            ("POST", ["api", "queue", "pause"]) => (Self::PauseQueue, None),
            ("POST", ["api", "queue", "resume"]) => (Self::ResumeQueue, None),
            ("GET", ["api", "agents"]) => (Self::Agents, None),
            ("POST", ["api", "agents"]) => (Self::CreateAgent, None),
            ("GET", ["api", "agents", id]) => (Self::Agent, Some(id)),
            ("PATCH", ["api", "agents", id]) => (Self::PatchAgent, Some(id)),
            ("DELETE", ["api", "agents", id]) => (Self::DeleteAgent, Some(id)),
            ("GET", ["api", "agents", id, "tasks"]) => (Self::AgentTasks, Some(id)),
            ("GET", ["api", "stream", "events"]) => (Self::Events, None),
            _ => (Self::OtherWoodpecker, None),
        }
    }

    fn of_hetzner<'a>(method: &str, parts: &[&'a str]) -> (Self, Option<&'a str>) {
        let (list, id) = match (method, parts) {
            ("POST", ["v1", "servers"]) => return (Self::CreateServer, None),
            ("DELETE", ["v1", "servers", id]) => return (Self::DeleteServer, Some(id)),
            ("GET", ["v1", "servers", id]) => return (Self::Server, Some(id)),
            ("GET", ["v1", list]) => (*list, None),
            ("GET", ["v1", list, id]) => (*list, Some(*id)),
            _ => ("", None),
        };
        let endpoint = match list {
            "servers" => Self::Servers,
            "server_types" => Self::ServerTypes,
            "locations" => Self::Locations,
            "images" => Self::Images,
            "ssh_keys" => Self::SshKeys,
            "networks" => Self::Networks,
            "firewalls" => Self::Firewalls,
            "placement_groups" => Self::PlacementGroups,
            _ => Self::OtherHetzner,
        };
        (endpoint, id)
    }
}

/// A call that reached one of the servers, whatever became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// When, by the world's clock.
    pub at: Timestamp,
    /// What was called.
    pub endpoint: Endpoint,
}

/// All calls.
#[derive(Default)]
pub(super) struct Calls {
    counts: BTreeMap<Endpoint, usize>,
    log: VecDeque<Call>,
}

impl Calls {
    pub(super) fn record(&mut self, call: Call) {
        *self.counts.entry(call.endpoint).or_default() += 1;
        if self.log.len() == LOG_LENGTH {
            self.log.pop_front();
        }
        self.log.push_back(call);
    }

    pub(super) fn count(&self, endpoint: Endpoint) -> usize {
        self.counts.get(&endpoint).copied().unwrap_or(0)
    }

    pub(super) fn count_side(&self, side: Side) -> usize {
        self.counts.iter().filter(|(endpoint, _)| endpoint.side() == side).map(|(_, count)| count).sum()
    }

    pub(super) fn log(&self) -> Vec<Call> {
        self.log.iter().copied().collect()
    }
}
