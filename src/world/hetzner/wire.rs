//! JSON of servers and of pages. A list of servers repeats the same type, place and image in each of them: those are
//! serialised once a call.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::catalogue::{self, LOCATIONS};
use crate::world::http::Answer;
use crate::world::state::State;

/// What servers have in common, by its kind and name.
#[derive(Default)]
pub(super) struct Shared(HashMap<(&'static str, String), Box<RawValue>>);

impl Shared {
    fn get(&mut self, kind: &'static str, name: &str, json: impl FnOnce() -> Option<Value>) -> Box<RawValue> {
        let raw = self.0.entry((kind, name.to_owned())).or_insert_with(|| {
            // What is already a JSON value can always be written.
            serde_json::value::to_raw_value(&json()).unwrap_or_else(|_| RawValue::NULL.to_owned())
        });
        raw.clone()
    }
}

#[derive(serde::Serialize)]
pub(super) struct ServerJson<'a> {
    id: u64,
    name: &'a str,
    status: &'static str,
    created: Timestamp,
    public_net: PublicNet,
    private_net: Vec<Value>,
    server_type: Box<RawValue>,
    location: Box<RawValue>,
    image: Box<RawValue>,
    iso: (),
    rescue_enabled: bool,
    locked: bool,
    backup_window: (),
    outgoing_traffic: u64,
    ingoing_traffic: u64,
    included_traffic: u64,
    protection: Box<RawValue>,
    labels: &'a BTreeMap<String, String>,
    volumes: [u64; 0],
    load_balancers: [u64; 0],
    primary_disk_size: u64,
    placement_group: Option<Value>,
}

#[derive(serde::Serialize)]
struct PublicNet {
    ipv4: Option<Value>,
    ipv6: Option<Value>,
    floating_ips: [u64; 0],
    firewalls: Vec<Value>,
}

/// A server as today's API tells it: with a `location`, without a `datacenter`. `None`: it does not exist.
pub(super) fn server<'a>(state: &'a State, id: u64, shared: &mut Shared) -> Option<ServerJson<'a>> {
    let project = &state.hetzner;
    let server = project.servers.get(&id)?;
    let sold_out = |server_type: &str, location: &str| project.is_sold_out(server_type, location, state.now);
    let third = id % 250 + 1;
    let ipv4 =
        || json!({ "id": id + 1, "ip": format!("192.0.2.{third}"), "blocked": false, "dns_ptr": "a.example.test" });
    let ipv6 = || json!({ "id": id + 2, "ip": format!("2001:db8:{third:x}::/64"), "blocked": false, "dns_ptr": [] });
    let firewalls = server.firewalls.iter().map(|id| json!({ "id": id, "status": "applied" }));
    let networks = server.networks.iter().map(|id| {
        json!({ "network": id, "ip": format!("10.0.0.{third}"), "alias_ips": [], "mac_address": "86:00:ff:2a:7d:e1" })
    });
    let group = project.resources.iter().find(|resource| Some(resource.id) == server.placement_group);
    Some(ServerJson {
        id,
        name: &server.name,
        status: server.status.word(),
        created: server.created,
        public_net: PublicNet {
            ipv4: server.ipv4.then(ipv4),
            ipv6: server.ipv6.then(ipv6),
            floating_ips: [],
            firewalls: firewalls.collect(),
        },
        private_net: networks.collect(),
        server_type: shared.get("server_type", &server.type_name, || {
            let found = project.catalogue.find(&server.type_name)?;
            Some(project.catalogue.type_json(found, state.now, &sold_out))
        }),
        location: shared.get("location", &server.location, || {
            LOCATIONS.iter().find(|location| location.name == server.location).map(catalogue::Location::json)
        }),
        image: shared
            .get("image", &server.image.to_string(), || catalogue::image(server.image).map(catalogue::Image::json)),
        iso: (),
        rescue_enabled: false,
        locked: server.is_locked(state.now),
        backup_window: (),
        outgoing_traffic: 0,
        ingoing_traffic: 0,
        included_traffic: 21_990_232_555_520,
        protection: shared.get("protection", "", || Some(json!({ "delete": false, "rebuild": false }))),
        labels: &server.labels,
        volumes: [],
        load_balancers: [],
        primary_disk_size: 40,
        placement_group: group.map(|group| {
            json!({
                "id": group.id, "name": group.name, "labels": {}, "type": "spread",
                "created": "2025-01-01T00:00:00Z", "servers": [id],
            })
        }),
    })
}

/// One page of a list, with what the API tells of the others.
pub(super) fn page<T, J: Serialize>(
    key: &'static str,
    entries: &[T],
    number: usize,
    size: usize,
    json: impl FnMut(&T) -> J,
) -> Answer {
    let last = entries.len().div_ceil(size).max(1);
    let shown = entries.iter().skip(size.saturating_mul(number - 1)).take(size).map(json).collect();
    let meta = json!({ "pagination": {
        "page": number,
        "per_page": size,
        "previous_page": (number > 1).then(|| number - 1),
        "next_page": (number < last).then_some(number + 1),
        "last_page": last,
        "total_entries": entries.len(),
    }});
    Answer::json(200, &Page { key, shown, meta })
}

/// A list under its own name, beside `meta`.
struct Page<J> {
    key: &'static str,
    shown: Vec<J>,
    meta: Value,
}

impl<J: Serialize> Serialize for Page<J> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry(self.key, &self.shown)?;
        map.serialize_entry("meta", &self.meta)?;
        map.end()
    }
}
