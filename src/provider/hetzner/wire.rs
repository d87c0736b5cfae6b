//! The parts of Hetzner's answers that Picus uses, read leniently: unknown fields are ignored, missing ones are `None`,
//! words are kept as words. Only an element without its id is an error, and makes the whole answer one.
//!
//! Fields: <https://docs.hetzner.cloud/reference/cloud>. The response models of the crate `hcloud` are not used: they
//! fail a whole answer, that of a create call that succeeded too, on one unknown word.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// `error` of every refusal.
#[derive(Deserialize)]
pub(super) struct ErrorAnswer {
    pub(super) error: ErrorBody,
}

#[derive(Deserialize)]
pub(super) struct ErrorBody {
    pub(super) code: String,
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) details: Option<serde_json::Value>,
}

impl ErrorBody {
    /// Names of the request's fields that were not accepted, from `details.fields[].name`.
    pub(super) fn fields(&self) -> Vec<String> {
        let fields = self.details.as_ref().and_then(|details| details.get("fields")?.as_array());
        let name = |field: &serde_json::Value| Some(field.get("name")?.as_str()?.to_owned());
        fields.map(|fields| fields.iter().filter_map(name).collect()).unwrap_or_default()
    }
}

/// `meta` of a list.
#[derive(Deserialize)]
pub(super) struct Meta {
    #[serde(default)]
    pub(super) pagination: Option<Pagination>,
}

#[derive(Deserialize)]
pub(super) struct Pagination {
    #[serde(default)]
    pub(super) next_page: Option<u64>,
    #[serde(default)]
    pub(super) total_entries: Option<u64>,
}

/// The answer to a create call; its root password is not read.
#[derive(Deserialize)]
pub(super) struct Created {
    pub(super) server: Server,
}

/// The answer to a delete call.
#[derive(Deserialize)]
pub(super) struct Deleted {
    #[serde(default)]
    pub(super) action: Option<Action>,
}

#[derive(Deserialize)]
pub(super) struct Action {
    #[serde(default)]
    pub(super) status: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Server {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) created: Option<String>,
    #[serde(default)]
    pub(super) labels: Option<BTreeMap<String, String>>,
    #[serde(default, rename = "server_type")]
    pub(super) kind: Option<NameOnly>,
    #[serde(default)]
    pub(super) location: Option<NameOnly>,
    /// Until July 2026 the place was in here.
    #[serde(default)]
    pub(super) datacenter: Option<Datacenter>,
}

#[derive(Deserialize)]
pub(super) struct Datacenter {
    #[serde(default)]
    pub(super) location: Option<NameOnly>,
}

/// Something whose name is all that is needed of it.
#[derive(Deserialize)]
pub(super) struct NameOnly {
    #[serde(default)]
    pub(super) name: Option<String>,
}

/// An SSH key, network, firewall or placement group.
#[derive(Deserialize)]
pub(super) struct Named {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ServerType {
    #[serde(rename = "id")]
    pub(super) _id: u64,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) architecture: Option<String>,
    #[serde(default)]
    pub(super) deprecation: Option<Deprecation>,
    /// Since September 2025.
    #[serde(default)]
    pub(super) locations: Option<Vec<TypeLocation>>,
    #[serde(default)]
    pub(super) prices: Option<Vec<Price>>,
}

#[derive(Deserialize)]
pub(super) struct TypeLocation {
    #[serde(default)]
    pub(super) name: Option<String>,
    /// Whether it is in stock.
    #[serde(default)]
    pub(super) available: Option<bool>,
    #[serde(default)]
    pub(super) deprecation: Option<Deprecation>,
}

#[derive(Deserialize)]
pub(super) struct Deprecation {
    #[serde(default)]
    pub(super) unavailable_after: Option<String>,
}

impl Deprecation {
    /// When it can't be ordered any more. `None`: not told.
    pub(super) fn end(&self) -> Option<Timestamp> {
        time(self.unavailable_after.as_deref())
    }
}

#[derive(Deserialize)]
pub(super) struct Price {
    #[serde(default)]
    pub(super) location: Option<String>,
    #[serde(default)]
    pub(super) price_hourly: Option<Amount>,
}

#[derive(Deserialize)]
pub(super) struct Amount {
    #[serde(default)]
    pub(super) gross: Option<String>,
}

/// The answer to a question for one image.
#[derive(Deserialize)]
pub(super) struct OneImage {
    pub(super) image: Image,
}

#[derive(Deserialize)]
pub(super) struct Image {
    pub(super) id: u64,
    /// Snapshots have none.
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) architecture: Option<String>,
    /// When it was or will be deprecated.
    #[serde(default)]
    pub(super) deprecated: Option<String>,
}

/// A time in RFC 3339; `None` for what is none.
pub(super) fn time(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}
