//! The project at Hetzner Cloud: its servers, what else is in it, its budget of calls and its bill. What can be ordered
//! is in `catalogue.rs`, what becomes of servers in `servers.rs`, the HTTP answers in `routes.rs`.
//!
//! Modelled on <https://docs.hetzner.cloud/reference/cloud>.

pub(super) mod catalogue;
pub(super) mod routes;
mod servers;
mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::faults::MachineFault;
use super::http::Answer;
use super::machine::ProcessId;
use super::state::State;
use crate::model::ids::InstanceId;
use crate::model::{age, later};
use catalogue::Catalogue;

/// Servers are billed by the started hour.
const HOUR: u64 = 3600;

/// The project.
pub(super) struct Hetzner {
    pub(super) token: String,
    pub(super) catalogue: Catalogue,
    pub(super) servers: BTreeMap<u64, Server>,
    pub(super) resources: Vec<NamedResource>,
    /// Every server that ever was, for the bill.
    receipts: Vec<Receipt>,
    /// Offers that can't be ordered now: type, place (`None`: all) and until when.
    pub(super) sold_out: Vec<(String, Option<String>, Timestamp)>,
    budget: Budget,
    last_id: u64,
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) status: Status,
    pub(super) type_name: String,
    location: String,
    created: Timestamp,
    labels: BTreeMap<String, String>,
    pub(super) user_data: String,
    image: u64,
    ipv4: bool,
    ipv6: bool,
    ssh_keys: Vec<u64>,
    networks: Vec<u64>,
    firewalls: Vec<u64>,
    placement_group: Option<u64>,
    pub(super) locked_until: Option<Timestamp>,
    /// What goes wrong with it.
    pub(super) flaws: Vec<MachineFault>,
    /// Index of its receipt.
    receipt: usize,
    pub(super) process: Option<ProcessId>,
}

/// What the API says of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Initializing,
    Starting,
    Running,
    Off,
    Deleting,
    /// Running, but called something that no documentation knows.
    Odd,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Initializing => "initializing",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Off => "off",
            Self::Deleting => "deleting",
            Self::Odd => "levitating",
        }
    }

    pub(super) fn is_up(self) -> bool {
        match self {
            Self::Running | Self::Odd => true,
            Self::Initializing | Self::Starting | Self::Off | Self::Deleting => false,
        }
    }
}

/// Something that a server can be created with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// An SSH key.
    SshKey,
    /// A private network.
    Network,
    /// A firewall.
    Firewall,
    /// A placement group of type `spread`.
    PlacementGroup,
}

/// A resource of the project.
pub(super) struct NamedResource {
    pub(super) kind: Resource,
    pub(super) id: u64,
    pub(super) name: String,
}

struct Receipt {
    /// Millionths of the currency an hour, gross.
    hourly: u64,
    created: Timestamp,
    deleted: Option<Timestamp>,
}

/// What all servers cost until now, by the started hour and without the monthly cap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bill {
    /// Servers that were ever created.
    pub servers: usize,
    /// Started hours of all of them.
    pub hours: u64,
    /// Euros, gross.
    pub cost: f64,
}

/// The budget of calls: it refills evenly, as at the real API.
struct Budget {
    an_hour: u32,
    left: f64,
    refilled: Timestamp,
    /// No call is carried out before.
    exhausted_until: Option<Timestamp>,
}

/// A server as it is, whatever the API says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerView {
    /// Its id.
    pub id: InstanceId,
    /// Its name.
    pub name: String,
    /// Its status as the API words it.
    pub status: &'static str,
    /// Its type.
    pub server_type: String,
    /// Its place.
    pub location: String,
    /// Name of its image.
    pub image: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created: Timestamp,
    /// Has a public IPv4 address.
    pub ipv4: bool,
    /// Has a public IPv6 network.
    pub ipv6: bool,
    /// Names of its SSH keys, networks, firewalls and placement group.
    pub resources: Vec<(Resource, String)>,
    /// Its agent is connected.
    pub connected: bool,
}

impl Hetzner {
    pub(super) fn new(token: String, calls_an_hour: u32, now: Timestamp) -> Self {
        let mut project = Self {
            token,
            catalogue: Catalogue::default(),
            servers: BTreeMap::new(),
            resources: Vec::new(),
            receipts: Vec::new(),
            sold_out: Vec::new(),
            budget: Budget {
                an_hour: calls_an_hour,
                left: f64::from(calls_an_hour),
                refilled: now,
                exhausted_until: None,
            },
            last_id: 40_000_000,
        };
        for (kind, name) in [
            (Resource::SshKey, "admin"),
            (Resource::Network, "ci"),
            (Resource::Firewall, "ci"),
            (Resource::PlacementGroup, "spread"),
        ] {
            project.add_resource(kind, name);
        }
        project
    }

    pub(super) fn add_resource(&mut self, kind: Resource, name: &str) -> u64 {
        let id = self.next_id();
        self.resources.push(NamedResource { kind, id, name: name.to_owned() });
        id
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A resource by id or name.
    fn resource(&self, kind: Resource, wanted: &str) -> Option<u64> {
        let found = self.resources.iter().filter(|resource| resource.kind == kind);
        let mut found = found.filter(|resource| resource.id.to_string() == wanted || resource.name == wanted);
        found.next().map(|resource| resource.id)
    }

    pub(super) fn bill(&self, now: Timestamp) -> Bill {
        let mut bill = Bill { servers: self.receipts.len(), hours: 0, cost: 0.0 };
        for receipt in &self.receipts {
            let seconds = age(receipt.deleted.unwrap_or(now), receipt.created).as_secs();
            let hours = seconds.div_ceil(HOUR).max(1);
            bill.hours += hours;
            bill.cost += catalogue::euros(receipt.hourly.saturating_mul(hours));
        }
        bill
    }

    pub(super) fn view(&self, id: u64, server: &Server) -> ServerView {
        let ids = [&server.ssh_keys, &server.networks, &server.firewalls].into_iter().flatten();
        let ids: Vec<u64> = ids.chain(&server.placement_group).copied().collect();
        let resources = self.resources.iter().filter(|resource| ids.contains(&resource.id));
        ServerView {
            id: InstanceId(id.to_string()),
            name: server.name.clone(),
            status: server.status.word(),
            server_type: server.type_name.clone(),
            location: server.location.clone(),
            image: catalogue::image(server.image).map_or("", |image| image.name).to_owned(),
            labels: server.labels.clone(),
            created: server.created,
            ipv4: server.ipv4,
            ipv6: server.ipv6,
            resources: resources.map(|resource| (resource.kind, resource.name.clone())).collect(),
            connected: server.process.is_some(),
        }
    }
}

impl Budget {
    /// Takes one call out of the budget. `false`: none is left.
    fn spend(&mut self, now: Timestamp) -> bool {
        self.left = (self.left + age(now, self.refilled).as_secs_f64() * self.a_second()).min(f64::from(self.an_hour));
        self.refilled = now;
        if self.exhausted_until.is_some_and(|until| now < until) || self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }

    fn a_second(&self) -> f64 {
        f64::from(self.an_hour) / 3600.0
    }

    /// When the budget is full again, or the first call is possible again if none is.
    fn reset(&self, now: Timestamp) -> Timestamp {
        let missing = if self.left < 1.0 { 1.0 - self.left } else { f64::from(self.an_hour) - self.left };
        let wait = Duration::try_from_secs_f64(missing / self.a_second().max(f64::MIN_POSITIVE));
        later(now, wait.unwrap_or(Duration::ZERO)).max(self.exhausted_until.unwrap_or(now))
    }

    /// Adds what every answer tells of the budget.
    fn tell(&self, answer: Answer, now: Timestamp) -> Answer {
        let exhausted = self.exhausted_until.is_some_and(|until| now < until);
        let left = if exhausted { 0.0 } else { self.left.floor() };
        // Unix seconds, rounded up: a call at that second must be possible.
        let reset = self.reset(now);
        let reset = reset.as_second() + i64::from(reset.subsec_nanosecond() > 0);
        answer
            .with("ratelimit-limit", self.an_hour.to_string())
            .with("ratelimit-remaining", left.to_string())
            .with("ratelimit-reset", reset.to_string())
    }
}

impl State {
    /// Nothing is carried out for so long; gives the answer that says so.
    pub(super) fn exhaust_budget(&mut self, time: Duration) -> Answer {
        self.hetzner.budget.exhausted_until = Some(later(self.now, time));
        self.budget_is_spent()
    }

    fn budget_is_spent(&self) -> Answer {
        let answer = routes::error("rate_limit_exceeded", "limit of calls an hour reached");
        self.hetzner.budget.tell(answer, self.now)
    }
}
