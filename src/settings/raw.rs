//! The environment as text, one struct a section, filled by `envy`.
//!
//! `envy` stops at the first problem, prints values and names variables without their prefix. So it only fills
//! optional text here, which can't fail, and everything else is read from that by the sections' own modules.

use secrecy::SecretString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::environment::{AGENT_PREFIX, Layer, PREFIX};
use super::problems::Problems;

/// A struct of optional text.
pub trait Section: DeserializeOwned + Default {
    /// Begins the names of its variables.
    const PREFIX: &'static str;

    /// Fills it.
    fn read(layer: &Layer, problems: &mut Problems) -> Self {
        envy::prefixed(Self::PREFIX).from_iter(layer.known()).unwrap_or_else(|_| {
            // The cause is left out: it holds a value, which may be secret.
            problems.add(format!("{}*", Self::PREFIX), None, "can't be read as text");
            Self::default()
        })
    }
}

/// `PICUS_*` of the installation.
#[derive(Deserialize, Default)]
pub struct Main {
    pub id: Option<String>,
    pub hcloud_id: Option<String>,
    pub poll_interval: Option<String>,
    pub log: Option<String>,
    pub log_format: Option<String>,
    pub dry_run: Option<String>,
}

impl Section for Main {
    const PREFIX: &'static str = PREFIX;
}

/// `PICUS_HTTP_*`
#[derive(Deserialize, Default)]
pub struct Http {
    pub addr: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    pub token: Option<SecretString>,
    pub token_file: Option<String>,
}

impl Section for Http {
    const PREFIX: &'static str = "PICUS_HTTP_";
}

/// `PICUS_WOODPECKER_*`
#[derive(Deserialize, Default)]
pub struct Woodpecker {
    pub server: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    pub token: Option<SecretString>,
    pub token_file: Option<String>,
    pub ca_file: Option<String>,
}

impl Section for Woodpecker {
    const PREFIX: &'static str = "PICUS_WOODPECKER_";
}

/// `PICUS_*` of a pool.
#[derive(Deserialize, Default)]
pub struct Pool {
    pub provider_type: Option<String>,
    pub max_idle_time: Option<String>,
    pub billing_period: Option<String>,
    pub boot_timeout: Option<String>,
    pub min_agents: Option<String>,
    pub max_agents: Option<String>,
    pub agent_image: Option<String>,
}

impl Section for Pool {
    const PREFIX: &'static str = PREFIX;
}

/// `PICUS_AGENT_WOODPECKER_*`, those that Picus itself must know.
#[expect(clippy::struct_field_names, reason = "the variables are named so: `…_WOODPECKER_AGENT_SECRET`")]
#[derive(Deserialize, Default)]
pub struct Agent {
    pub server: Option<String>,
    pub agent_labels: Option<String>,
    pub filter_labels: Option<String>,
    pub max_workflows: Option<String>,
    pub agent_single_workflow: Option<String>,
    pub backend: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    pub agent_secret: Option<SecretString>,
    pub agent_secret_file: Option<String>,
}

impl Section for Agent {
    const PREFIX: &'static str = AGENT_PREFIX;
}

/// `PICUS_HCLOUD_*`
#[derive(Deserialize, Default)]
pub struct Hetzner {
    #[serde(default, deserialize_with = "secret")]
    pub token: Option<SecretString>,
    pub token_file: Option<String>,
    pub endpoint: Option<String>,
    pub server_type: Option<String>,
    pub location: Option<String>,
    pub image: Option<String>,
    pub ssh_keys: Option<String>,
    pub networks: Option<String>,
    pub firewalls: Option<String>,
    pub placement_group: Option<String>,
    pub labels: Option<String>,
    pub public_ipv4: Option<String>,
    pub public_ipv6: Option<String>,
}

impl Section for Hetzner {
    const PREFIX: &'static str = "PICUS_HCLOUD_";
}

/// `PICUS_AWS_*`
#[derive(Deserialize, Default)]
pub struct Aws {
    pub instance_id: Option<String>,
    pub instance_type: Option<String>,
    pub ami: Option<String>,
    pub subnets: Option<String>,
    pub security_groups: Option<String>,
    pub key_name: Option<String>,
    pub instance_profile: Option<String>,
    pub spot: Option<String>,
    pub volume_size: Option<String>,
    pub tags: Option<String>,
    pub launch_template: Option<String>,
    pub retire: Option<String>,
    pub stopped_max_age: Option<String>,
    pub hourly_price: Option<String>,
}

impl Section for Aws {
    const PREFIX: &'static str = "PICUS_AWS_";
}

/// `PICUS_WOODPECKER_AGENT_ID` of a pool.
#[derive(Deserialize, Default)]
pub struct AgentRecord {
    pub agent_id: Option<String>,
}

impl Section for AgentRecord {
    const PREFIX: &'static str = "PICUS_WOODPECKER_";
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Option::<String>::deserialize(deserializer).map(|text| text.map(SecretString::from))
}
