//! What becomes of servers: the create call with all that it may be refused for, deletion by whom ever.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::catalogue::{self, IMAGES};
use super::{Receipt, Resource, Server, Status};
use crate::model::ids::InstanceId;
use crate::model::{age, later};
use crate::world::faults::MachineFault;
use crate::world::history::{Cause, Event};
use crate::world::state::{Due, State};

/// From the create call to the power on, and to the moment that the API calls it running.
const STARTS_AFTER: Duration = Duration::from_secs(3);
const RUNS_AFTER: Duration = Duration::from_secs(9);
/// Largest user data, in bytes.
const USER_DATA_LIMIT: usize = 32 * 1024;
/// Largest name and label part.
const NAME_LIMIT: usize = 63;
/// A placement group of type `spread` holds so many servers.
const GROUP_LIMIT: usize = 10;

/// Why a call is refused: code and message.
pub(super) type Refusal = (&'static str, String);

/// The body of a create call.
#[derive(Deserialize)]
pub(super) struct Order {
    name: String,
    server_type: Value,
    image: Value,
    #[serde(default)]
    location: Value,
    #[serde(default)]
    ssh_keys: Vec<Value>,
    #[serde(default)]
    networks: Vec<Value>,
    #[serde(default)]
    firewalls: Vec<OrderedFirewall>,
    #[serde(default)]
    placement_group: Value,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    user_data: Option<String>,
    #[serde(default)]
    public_net: PublicNet,
    #[serde(default)]
    start_after_create: Option<bool>,
}

#[derive(Deserialize)]
struct OrderedFirewall {
    firewall: Value,
}

#[derive(Deserialize, Default)]
struct PublicNet {
    #[serde(default)]
    enable_ipv4: Option<bool>,
    #[serde(default)]
    enable_ipv6: Option<bool>,
}

impl State {
    /// Creates a server, or says why not.
    pub(super) fn create_server(&mut self, order: Order) -> Result<u64, Refusal> {
        check_order(&order)?;
        let project = &self.hetzner;
        let server_type = name_or_id(&order.server_type);
        let server_type = project
            .catalogue
            .find(&server_type)
            .ok_or_else(|| ("invalid_input", format!("server type {server_type} not found")))?;
        let location = match name_or_id(&order.location) {
            none if none.is_empty() => server_type.locations.first().copied().unwrap_or_default().to_owned(),
            location => location,
        };
        if !catalogue::LOCATIONS.iter().any(|place| place.name == location) {
            return Err(("invalid_input", format!("location {location} not found")));
        }
        if !server_type.locations.contains(&location.as_str()) {
            return Err(("invalid_input", "unsupported location for server type".to_owned()));
        }
        if project.catalogue.is_gone(server_type.name, &location, self.now) {
            return Err(("invalid_input", format!("server type {} is deprecated", server_type.name)));
        }
        let image = name_or_id(&order.image);
        let mut images = IMAGES.iter().filter(|found| found.name == image || found.id.to_string() == image).peekable();
        if images.peek().is_none() {
            return Err(("invalid_input", format!("image {image} not found")));
        }
        let image = images.find(|found| found.architecture == server_type.architecture);
        let image = image.ok_or(("invalid_input", "image is not for the server type's architecture".to_owned()))?.id;
        let find_all = |kind, wanted: Vec<String>| -> Result<Vec<u64>, Refusal> {
            let missing = |name: &str| ("not_found", format!("{kind:?} {name} not found"));
            wanted.iter().map(|name| project.resource(kind, name).ok_or_else(|| missing(name))).collect()
        };
        let texts = |values: &[Value]| values.iter().map(name_or_id).collect::<Vec<_>>();
        let ssh_keys = find_all(Resource::SshKey, texts(&order.ssh_keys))?;
        let networks = find_all(Resource::Network, texts(&order.networks))?;
        let firewalls = order.firewalls.iter().map(|ordered| name_or_id(&ordered.firewall)).collect();
        let firewalls = find_all(Resource::Firewall, firewalls)?;
        let group = Some(name_or_id(&order.placement_group)).filter(|group| !group.is_empty());
        let placement_group = find_all(Resource::PlacementGroup, group.into_iter().collect())?.first().copied();
        let (ipv4, ipv6) = (order.public_net.enable_ipv4.unwrap_or(true), order.public_net.enable_ipv6.unwrap_or(true));
        if !ipv4 && !ipv6 && networks.is_empty() {
            return Err(("invalid_input", "a server without public network needs a private one".to_owned()));
        }
        if project.servers.values().any(|other| other.name == order.name) {
            return Err(("uniqueness_error", "server name is already used".to_owned()));
        }
        if project.servers.len() >= self.options.server_limit {
            return Err(("resource_limit_exceeded", "server limit exceeded".to_owned()));
        }
        let in_group = project.servers.values().filter(|other| other.placement_group == placement_group).count();
        if placement_group.is_some() && in_group >= GROUP_LIMIT {
            return Err(("placement_error", "the placement group is full".to_owned()));
        }
        if project.is_sold_out(server_type.name, &location, self.now) {
            return Err(("resource_unavailable", "error during placement".to_owned()));
        }
        let type_name = server_type.name.to_owned();
        let server = Server {
            name: order.name,
            status: Status::Initializing,
            type_name,
            location,
            created: self.now,
            labels: order.labels,
            user_data: order.user_data.unwrap_or_default(),
            image,
            ipv4,
            ipv6,
            ssh_keys,
            networks,
            firewalls,
            placement_group,
            locked_until: None,
            // Asked for, it is no fault.
            flaws: order
                .start_after_create
                .filter(|start| !start)
                .map(|_| MachineFault::StaysOff)
                .into_iter()
                .collect(),
            receipt: project.receipts.len(),
            process: None,
        };
        Ok(self.put_up(server))
    }

    /// The order is accepted: from here on it is billed, and fate has its way.
    fn put_up(&mut self, mut server: Server) -> u64 {
        let id = self.hetzner.next_id();
        let mut boot = self.options.boot_time + self.draw_up_to(self.options.boot_spread);
        server.flaws.extend(self.faults.machine(self.now, &mut self.rng));
        boot += server.delay(|flaw| if let MachineFault::BootsSlowly(time) = flaw { Some(time) } else { None });
        let hourly = self.hetzner.catalogue.hourly(&server.type_name).unwrap_or(0);
        self.hetzner.receipts.push(Receipt { hourly, created: self.now, deleted: None });
        self.tell(Event::ServerCreated {
            server: InstanceId(id.to_string()),
            name: server.name.clone(),
            server_type: server.type_name.clone(),
            location: server.location.clone(),
        });
        self.hetzner.servers.insert(id, server);
        self.schedule(STARTS_AFTER.min(boot), Due::ServerStarts { server: id });
        self.schedule(RUNS_AFTER.min(boot), Due::ServerRuns { server: id });
        self.schedule(boot, Due::AgentStarts { server: id });
        id
    }

    /// Deletes a server; whatever its agent works on is killed.
    pub(in crate::world) fn delete_server(&mut self, id: u64, cause: Cause) -> Result<(), Refusal> {
        let now = self.now;
        let server = self.hetzner.servers.get_mut(&id);
        let server = server.ok_or_else(|| ("not_found", format!("server with ID '{id}' not found")))?;
        if server.is_locked(now) || server.status == Status::Deleting {
            return Err(("locked", "server is locked by another action".to_owned()));
        }
        server.status = Status::Deleting;
        let wait = server.delay(|flaw| if let MachineFault::DeletesSlowly(time) = flaw { Some(time) } else { None });
        let process = server.process.take();
        if let Some(process) = process {
            self.kill_process(process, cause);
        }
        if wait.is_zero() {
            self.server_gone(id);
        } else {
            self.schedule(wait, Due::ServerGone { server: id });
        }
        Ok(())
    }

    /// A deletion is through.
    pub(in crate::world) fn server_gone(&mut self, id: u64) {
        let Some(server) = self.hetzner.servers.remove(&id) else { return };
        if let Some(receipt) = self.hetzner.receipts.get_mut(server.receipt) {
            receipt.deleted = Some(self.now);
        }
        self.tell(Event::ServerDeleted { server: InstanceId(id.to_string()), name: server.name });
    }
}

impl super::Hetzner {
    /// Nothing of this type can be had there now.
    pub(super) fn is_sold_out(&self, server_type: &str, location: &str, now: jiff::Timestamp) -> bool {
        self.sold_out.iter().any(|(sold, place, until)| {
            sold == server_type && place.as_deref().is_none_or(|place| place == location) && now < *until
        })
    }
}

impl Server {
    /// The sum of those delays that `of` picks among its flaws.
    fn delay(&self, of: impl Fn(MachineFault) -> Option<Duration>) -> Duration {
        self.flaws.iter().filter_map(|flaw| of(*flaw)).sum()
    }

    /// Lists show it.
    pub(super) fn is_listed(&self, now: jiff::Timestamp) -> bool {
        let late = self.delay(|flaw| if let MachineFault::ListedLate(time) = flaw { Some(time) } else { None });
        now >= later(self.created, late)
    }

    pub(super) fn is_locked(&self, now: jiff::Timestamp) -> bool {
        self.locked_until.is_some_and(|until| !age(until, now).is_zero())
    }
}

fn check_order(order: &Order) -> Result<(), Refusal> {
    let name = order.name.as_str();
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
    let ends =
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    if !letters || !ends || name.len() > NAME_LIMIT {
        return Err(("invalid_input", "invalid input in field 'name'".to_owned()));
    }
    if order.user_data.as_ref().is_some_and(|data| data.len() > USER_DATA_LIMIT) {
        return Err(("invalid_input", "invalid input in field 'user_data': longer than 32768 bytes".to_owned()));
    }
    for (key, value) in &order.labels {
        let key = key.rsplit_once('/').map_or(key.as_str(), |(_, key)| key);
        if key.is_empty() || !is_label_part(key) || !is_label_part(value) {
            return Err(("invalid_input", "invalid input in field 'labels'".to_owned()));
        }
    }
    Ok(())
}

/// At most 63 of letters, digits, `.`, `_`, `-`, alphanumeric at both ends; may be empty.
fn is_label_part(part: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    part.len() <= NAME_LIMIT && part.bytes().all(inner) && end(part.bytes().next()) && end(part.bytes().last())
}

/// The API takes names and ids in the same field; empty for `null`.
fn name_or_id(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
    }
}
