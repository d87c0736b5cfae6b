//! Hetzner's HTTP answers: token, budget, pages, selectors, and the JSON of today's API (servers have a `location` and no
//! `datacenter` any more).

use serde_json::{Value, json};

use super::catalogue::{IMAGES, Image, LOCATIONS};
use super::servers::{Order, Refusal};
use super::wire::{self, Shared};
use super::{Resource, Server};
use crate::world::endpoint::Endpoint;
use crate::world::history::Cause;
use crate::world::http::{Answer, Request};
use crate::world::state::State;

/// Entries of a page unless asked otherwise, and at most.
const PAGE: usize = 25;
const LARGEST_PAGE: usize = 50;
/// Length of a root password.
const PASSWORD_LENGTH: usize = 20;

/// An error answer with the status of its code.
pub(in crate::world) fn error(code: &str, message: &str) -> Answer {
    let status = match code {
        "unauthorized" => 401,
        "forbidden" | "resource_limit_exceeded" => 403,
        "not_found" => 404,
        "uniqueness_error" | "conflict" => 409,
        "resource_unavailable" | "placement_error" => 412,
        "invalid_input" => 422,
        "locked" => 423,
        "rate_limit_exceeded" => 429,
        "maintenance" | "unavailable" => 503,
        _ => 500,
    };
    Answer::json(status, &json!({ "error": { "code": code, "message": message, "details": null } }))
}

/// The answer that there is nothing.
pub(in crate::world) fn nothing(endpoint: Endpoint) -> Answer {
    match list_key(endpoint) {
        Some(key) => wire::page(key, &[], 1, PAGE, Value::clone),
        None => Answer::json(200, &json!([])),
    }
}

/// The name of the list that an endpoint answers with.
fn list_key(endpoint: Endpoint) -> Option<&'static str> {
    match endpoint {
        Endpoint::Servers => Some("servers"),
        Endpoint::ServerTypes => Some("server_types"),
        Endpoint::Locations => Some("locations"),
        Endpoint::Images => Some("images"),
        Endpoint::SshKeys => Some("ssh_keys"),
        Endpoint::Networks => Some("networks"),
        Endpoint::Firewalls => Some("firewalls"),
        Endpoint::PlacementGroups => Some("placement_groups"),
        Endpoint::Server
        | Endpoint::CreateServer
        | Endpoint::DeleteServer
        | Endpoint::OtherHetzner
        | Endpoint::Version
        | Endpoint::Health
        | Endpoint::User
        | Endpoint::Queue
        | Endpoint::PauseQueue
        | Endpoint::ResumeQueue
        | Endpoint::Agents
        | Endpoint::Agent
        | Endpoint::AgentTasks
        | Endpoint::CreateAgent
        | Endpoint::PatchAgent
        | Endpoint::DeleteAgent
        | Endpoint::Events
        | Endpoint::OtherWoodpecker => None,
    }
}

impl State {
    /// Answers a call to Hetzner.
    pub(in crate::world) fn answer_hetzner(&mut self, request: &Request<'_>) -> Answer {
        if request.token != Some(self.hetzner.token.as_str()) {
            return error("unauthorized", "unable to authenticate");
        }
        if !self.hetzner.budget.spend(self.now) {
            return self.budget_is_spent();
        }
        let answer = match request.endpoint {
            Endpoint::CreateServer => self.post_server(request.body),
            Endpoint::DeleteServer => self.remove_server(request),
            Endpoint::Server => self.get_server(request),
            Endpoint::Servers => self.list_servers(request),
            endpoint => match list_key(endpoint) {
                Some(key) => self.list(key, request),
                None => error("not_found", "the requested URL was not found"),
            },
        };
        self.hetzner.budget.tell(answer, self.now)
    }

    fn post_server(&mut self, body: &[u8]) -> Answer {
        let order: Order = match serde_json::from_slice(body) {
            Ok(order) => order,
            Err(problem) => return error("invalid_input", &problem.to_string()),
        };
        match self.create_server(order) {
            Ok(id) => {
                let password = self.token(PASSWORD_LENGTH);
                let without_key = self.hetzner.servers.get(&id).is_some_and(|server| server.ssh_keys.is_empty());
                let body = json!({
                    "server": wire::server(self, id, &mut Shared::default()),
                    "action": self.action("create_server", id),
                    "next_actions": [self.action("start_server", id)],
                    "root_password": without_key.then_some(password),
                });
                Answer::json(201, &body)
            }
            Err((code, message)) => error(code, &message),
        }
    }

    fn remove_server(&mut self, request: &Request<'_>) -> Answer {
        let deleted = server_id(request).and_then(|id| self.delete_server(id, Cause::Api).map(|()| id));
        match deleted {
            Ok(id) => Answer::json(200, &json!({ "action": self.action("delete_server", id) })),
            Err((code, message)) => error(code, &message),
        }
    }

    fn get_server(&self, request: &Request<'_>) -> Answer {
        match server_id(request).map(|id| wire::server(self, id, &mut Shared::default())) {
            Ok(None) => error("not_found", "server not found"),
            Ok(Some(server)) => Answer::json(200, &json!({ "server": server })),
            Err((code, message)) => error(code, &message),
        }
    }

    fn list_servers(&self, request: &Request<'_>) -> Answer {
        let selector = match request.parameter("label_selector").map(Selector::parse).transpose() {
            Ok(selector) => selector.unwrap_or_default(),
            Err((code, message)) => return error(code, &message),
        };
        let name = request.parameter("name");
        let status = request.parameter("status");
        let found = self.hetzner.servers.iter().filter(|(_, server)| {
            server.is_listed(self.now)
                && name.is_none_or(|name| name == server.name)
                && status.is_none_or(|status| status == server.status.word())
                && selector.takes(server)
        });
        let (number, size) = page_of(request);
        let ids: Vec<u64> = found.map(|(id, _)| *id).collect();
        let mut shared = Shared::default();
        wire::page("servers", &ids, number, size, |id| wire::server(self, *id, &mut shared))
    }

    /// All other lists, and single entries of them.
    fn list(&self, key: &'static str, request: &Request<'_>) -> Answer {
        let project = &self.hetzner;
        let sold_out = |server_type: &str, location: &str| project.is_sold_out(server_type, location, self.now);
        let mut entries: Vec<Value> = match key {
            "server_types" => project.catalogue.types_json(self.now, &sold_out),
            "locations" => LOCATIONS.iter().map(super::catalogue::Location::json).collect(),
            "images" => {
                // May come several times: any of them.
                let kinds: Vec<&str> = request.parameters("type").collect();
                let architecture = request.parameter("architecture");
                let is_of = |image: &Image| kinds.is_empty() || kinds.iter().any(|kind| image.is_of_kind(kind));
                let found = IMAGES.iter().filter(|image| is_of(image));
                let found = found.filter(|image| architecture.is_none_or(|wanted| wanted == image.architecture));
                found.map(Image::json).collect()
            }
            "ssh_keys" => self.resources_json(Resource::SshKey),
            "networks" => self.resources_json(Resource::Network),
            "firewalls" => self.resources_json(Resource::Firewall),
            _ => self.resources_json(Resource::PlacementGroup),
        };
        if let Some(id) = request.id {
            let found = entries.into_iter().find(|entry| entry["id"].as_u64() == id.parse().ok());
            let single = key.strip_suffix('s').unwrap_or(key);
            return found.map_or_else(
                || error("not_found", &format!("{single} with ID '{id}' not found")),
                |entry| Answer::json(200, &json!({ single: entry })),
            );
        }
        if let Some(name) = request.parameter("name") {
            entries.retain(|entry| entry["name"] == name);
        }
        let (number, size) = page_of(request);
        wire::page(key, &entries, number, size, Value::clone)
    }

    fn resources_json(&self, kind: Resource) -> Vec<Value> {
        let found = self.hetzner.resources.iter().filter(|resource| resource.kind == kind);
        let json = found.map(|found| match kind {
            Resource::SshKey => json!({
                "id": found.id, "name": found.name, "labels": {}, "created": "2025-01-01T00:00:00Z",
                "fingerprint": "b7:2f:30:a0:2f:6c:58:6c:21:04:58:61:ba:06:3b:2f", "public_key": "ssh-ed25519 AAAA",
            }),
            Resource::Network => json!({
                "id": found.id, "name": found.name, "labels": {}, "created": "2025-01-01T00:00:00Z",
                "ip_range": "10.0.0.0/16", "subnets": [], "routes": [], "servers": [], "load_balancers": [],
                "protection": { "delete": false }, "expose_routes_to_vswitch": false,
            }),
            Resource::Firewall => json!({
                "id": found.id, "name": found.name, "labels": {}, "created": "2025-01-01T00:00:00Z",
                "rules": [], "applied_to": [],
            }),
            Resource::PlacementGroup => json!({
                "id": found.id, "name": found.name, "labels": {}, "created": "2025-01-01T00:00:00Z",
                "servers": [], "type": "spread",
            }),
        });
        json.collect()
    }

    fn action(&self, command: &str, server: u64) -> Value {
        json!({
            "id": server * 10, "command": command, "status": "running", "progress": 0, "started": self.now,
            "finished": null, "error": null, "resources": [{ "id": server, "type": "server" }],
        })
    }
}

fn server_id(request: &Request<'_>) -> Result<u64, Refusal> {
    let id = request.id.unwrap_or_default();
    id.parse().map_err(|_| ("invalid_input", format!("invalid server id '{id}'")))
}

fn page_of(request: &Request<'_>) -> (usize, usize) {
    (request.number("page").unwrap_or(1), request.number("per_page").unwrap_or(PAGE).min(LARGEST_PAGE))
}

/// A label selector: comma means and.
#[derive(Default)]
struct Selector(Vec<Condition>);

enum Condition {
    Equals(String, String),
    Differs(String, String),
    Has(String),
    HasNot(String),
}

impl Selector {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let refused = || ("invalid_input", format!("invalid label selector '{text}'"));
        let condition = |part: &str| {
            let part = part.trim();
            let pair = |(key, value): (&str, &str)| (key.trim().to_owned(), value.trim().to_owned());
            if part.is_empty() || part.contains(['(', ')', ' ']) {
                return Err(refused());
            }
            Ok(if let Some((key, value)) = part.split_once("!=").map(pair) {
                Condition::Differs(key, value)
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')).map(pair) {
                Condition::Equals(key, value)
            } else if let Some(key) = part.strip_prefix('!') {
                Condition::HasNot(key.to_owned())
            } else {
                Condition::Has(part.to_owned())
            })
        };
        text.split(',').map(condition).collect::<Result<_, _>>().map(Self)
    }

    fn takes(&self, server: &Server) -> bool {
        self.0.iter().all(|condition| match condition {
            Condition::Equals(key, value) => server.labels.get(key) == Some(value),
            Condition::Differs(key, value) => server.labels.get(key) != Some(value),
            Condition::Has(key) => server.labels.contains_key(key),
            Condition::HasNot(key) => !server.labels.contains_key(key),
        })
    }
}
