//! What can be ordered: server types with prices, places and deprecations, and images. The names are today's; prices are
//! near the real ones and serve the bill of the demo only.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Gross over net, in percent.
const VAT: u64 = 119;
/// Hours after which a month is not billed any further.
const HOURS_A_MONTH: u64 = 624;
const MEBI: u64 = 1024 * 1024;

/// A place.
pub(super) struct Location {
    id: u64,
    pub(super) name: &'static str,
    city: &'static str,
    country: &'static str,
    network_zone: &'static str,
}

pub(super) const LOCATIONS: &[Location] = &[
    Location { id: 1, name: "fsn1", city: "Falkenstein", country: "DE", network_zone: "eu-central" },
    Location { id: 2, name: "nbg1", city: "Nuremberg", country: "DE", network_zone: "eu-central" },
    Location { id: 3, name: "hel1", city: "Helsinki", country: "FI", network_zone: "eu-central" },
    Location { id: 4, name: "ash", city: "Ashburn, VA", country: "US", network_zone: "us-east" },
    Location { id: 5, name: "hil", city: "Hillsboro, OR", country: "US", network_zone: "us-west" },
    Location { id: 6, name: "sin", city: "Singapore", country: "SG", network_zone: "ap-southeast" },
];

const EUROPE: &[&str] = &["fsn1", "nbg1", "hel1"];
const EVERYWHERE: &[&str] = &["fsn1", "nbg1", "hel1", "ash", "hil", "sin"];

/// An image. One name stands for two of them, one an architecture.
pub(super) struct Image {
    pub(super) id: u64,
    pub(super) name: &'static str,
    kind: &'static str,
    /// `plan9` is not among the documented ones: readers have to cope.
    flavour: &'static str,
    pub(super) architecture: &'static str,
}

pub(super) const IMAGES: &[Image] = &[
    Image { id: 40_093_140, name: "docker-ce", kind: "app", flavour: "ubuntu", architecture: "x86" },
    Image { id: 105_888_141, name: "docker-ce", kind: "app", flavour: "ubuntu", architecture: "arm" },
    Image { id: 161_547_269, name: "ubuntu-24.04", kind: "system", flavour: "ubuntu", architecture: "x86" },
    Image { id: 161_547_270, name: "ubuntu-24.04", kind: "system", flavour: "ubuntu", architecture: "arm" },
    Image { id: 170_000_001, name: "plan9-4", kind: "system", flavour: "plan9", architecture: "x86" },
];

/// The image of an id.
pub(super) fn image(id: u64) -> Option<&'static Image> {
    IMAGES.iter().find(|image| image.id == id)
}

/// A server type.
pub(super) struct ServerType {
    id: u64,
    pub(super) name: &'static str,
    pub(super) architecture: &'static str,
    /// `burst` is not among the documented ones: readers have to cope.
    cpu: &'static str,
    cores: u64,
    memory: u64,
    disk: u64,
    /// Millionths of a euro an hour, net.
    hourly_net: u64,
    pub(super) locations: &'static [&'static str],
}

const TYPES: &[(u64, &str, u64, u64, u64, u64)] = &[
    (104, "cx22", 2, 4, 40, 6_000),
    (114, "cx23", 2, 4, 40, 5_600),
    (115, "cx33", 4, 8, 80, 8_800),
    (116, "cx43", 8, 16, 160, 15_200),
    (117, "cx53", 16, 32, 320, 28_000),
    (45, "cax11", 2, 4, 40, 6_100),
    (93, "cax21", 4, 8, 80, 10_400),
    (94, "cax31", 8, 16, 160, 20_000),
    (95, "cax41", 16, 32, 320, 39_400),
    (109, "cpx22", 2, 4, 80, 10_400),
    (110, "cpx32", 4, 8, 160, 17_600),
    (111, "cpx42", 8, 16, 320, 32_000),
    (112, "cpx52", 12, 24, 480, 45_800),
    (113, "cpx62", 16, 32, 640, 60_900),
];

/// Announced end of a type, everywhere or in one place.
#[derive(Debug)]
struct Deprecation {
    server_type: String,
    location: Option<String>,
    announced: Timestamp,
    unavailable_after: Timestamp,
}

/// The catalogue as it is now.
pub(in crate::world) struct Catalogue {
    types: Vec<ServerType>,
    deprecations: Vec<Deprecation>,
}

impl Default for Catalogue {
    fn default() -> Self {
        let types = TYPES.iter().map(|&(id, name, cores, memory, disk, hourly_net)| ServerType {
            id,
            name,
            architecture: if name.starts_with("cax") { "arm" } else { "x86" },
            cpu: if name == "cpx62" { "burst" } else { "shared" },
            cores,
            memory,
            disk,
            hourly_net,
            locations: if name.starts_with("cpx") { EVERYWHERE } else { EUROPE },
        });
        let mut catalogue = Self { types: types.collect(), deprecations: Vec::new() };
        // 2025-10-16 and 2026-01-01: the type is still listed, and can't be ordered any more.
        let day = |second| Timestamp::from_second(second).unwrap_or_default();
        catalogue.deprecate("cx22", None, day(1_760_572_800), day(1_767_225_600));
        catalogue
    }
}

impl Catalogue {
    /// A type by name or id.
    pub(super) fn find(&self, wanted: &str) -> Option<&ServerType> {
        self.types.iter().find(|found| found.name == wanted || found.id.to_string() == wanted)
    }

    /// Announces the end of a type, everywhere or in one place.
    pub(in crate::world) fn deprecate(
        &mut self,
        server_type: &str,
        location: Option<&str>,
        announced: Timestamp,
        unavailable_after: Timestamp,
    ) {
        let (server_type, location) = (server_type.to_owned(), location.map(str::to_owned));
        self.deprecations.push(Deprecation { server_type, location, announced, unavailable_after });
    }

    /// Gross price an hour in millionths of a euro.
    pub(in crate::world) fn hourly(&self, server_type: &str) -> Option<u64> {
        self.find(server_type).map(|found| found.hourly_net * VAT / 100)
    }

    /// What a machine of this type tells as its platform.
    pub(in crate::world) fn platform(&self, server_type: &str) -> String {
        let architecture = self.find(server_type).map_or("x86", |found| found.architecture);
        if architecture == "arm" { "linux/arm64" } else { "linux/amd64" }.to_owned()
    }

    /// Its end has come there.
    pub(super) fn is_gone(&self, server_type: &str, location: &str, now: Timestamp) -> bool {
        let found = self.deprecations.iter().filter(|end| end.server_type == server_type);
        let mut found = found.filter(|end| end.location.as_deref().is_none_or(|place| place == location));
        found.any(|end| now > end.unavailable_after)
    }

    fn deprecation(&self, server_type: &str, location: Option<&str>) -> Value {
        let found = self.deprecations.iter().filter(|end| end.server_type == server_type);
        let mut found = found.filter(|end| end.location.is_none() || end.location.as_deref() == location);
        found.next().map_or(
            Value::Null,
            |end| json!({ "announced": end.announced, "unavailable_after": end.unavailable_after }),
        )
    }

    pub(super) fn types_json(&self, now: Timestamp, sold_out: &dyn Fn(&str, &str) -> bool) -> Vec<Value> {
        self.types.iter().map(|found| self.type_json(found, now, sold_out)).collect()
    }

    /// A type as the API tells it.
    pub(super) fn type_json(&self, found: &ServerType, now: Timestamp, sold_out: &dyn Fn(&str, &str) -> bool) -> Value {
        let prices = found.locations.iter().map(|location| {
            json!({
                "location": location,
                "price_hourly": price(found.hourly_net),
                "price_monthly": price(found.hourly_net * HOURS_A_MONTH),
                "price_per_tb_traffic": price(1_000_000),
                "included_traffic": 20 * MEBI * MEBI,
            })
        });
        let locations = found.locations.iter().map(|name| {
            let id = LOCATIONS.iter().find(|location| location.name == *name).map(|location| location.id);
            json!({
                "id": id,
                "name": name,
                "available": !sold_out(found.name, name) && !self.is_gone(found.name, name, now),
                "recommended": false,
                "deprecation": self.deprecation(found.name, Some(name)),
            })
        });
        let deprecation = self.deprecation(found.name, None);
        json!({
            "id": found.id,
            "name": found.name,
            "description": found.name.to_uppercase(),
            "category": "cost_optimized",
            "architecture": found.architecture,
            "cores": found.cores,
            "cpu_type": found.cpu,
            "memory": found.memory,
            "disk": found.disk,
            "storage_type": "local",
            "deprecated": !deprecation.is_null(),
            "deprecation": deprecation,
            "prices": prices.collect::<Vec<_>>(),
            "locations": locations.collect::<Vec<_>>(),
        })
    }
}

/// Millionths of a euro as euros.
#[expect(clippy::cast_precision_loss, reason = "a bill of 9 billion euros may be off by a millionth")]
pub(in crate::world) fn euros(millionths: u64) -> f64 {
    millionths as f64 / 1_000_000.0
}

fn price(net: u64) -> Value {
    json!({ "net": format!("{:.10}", euros(net)), "gross": format!("{:.10}", euros(net * VAT / 100)) })
}

impl Location {
    pub(super) fn json(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "description": format!("{} DC Park 1", self.city), "city": self.city,
            "country": self.country, "latitude": 50.0, "longitude": 12.0, "network_zone": self.network_zone,
        })
    }
}

impl Image {
    pub(super) fn json(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "description": self.name, "type": self.kind, "status": "available",
            "image_size": null, "disk_size": 20, "created": "2024-05-02T06:20:00Z", "created_from": null,
            "bound_to": null, "os_flavor": self.flavour, "os_version": null, "rapid_deploy": true,
            "architecture": self.architecture, "protection": { "delete": false }, "deprecated": null,
            "deleted": null, "labels": {},
        })
    }

    pub(super) fn is_of_kind(&self, kind: &str) -> bool {
        self.kind == kind
    }
}
