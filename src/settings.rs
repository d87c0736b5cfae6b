//! Settings: the environment, read once into ready values, with every problem reported at once.
//!
//! | module | holds |
//! |---|---|
//! | [`registry`] | every variable: name, meaning, what holds without it |
//! | [`table`] | the README's table of them |
//! | `environment`, `kubernetes`, `nearest` | whose value is whose; names that are none of ours |
//! | `raw` | text, one struct a section |
//! | `read`, `secrets`, [`duration`] | text into values |
//! | `installation`, `pools`, `agent`, `hetzner`, `ec2` | the sections |
//! | `problems` | what is wrong, and how much of a value may be shown |

mod agent;
pub mod duration;
mod ec2;
mod environment;
mod hetzner;
mod installation;
mod kubernetes;
mod nearest;
mod pools;
mod problems;
mod raw;
mod read;
pub mod registry;
mod secrets;
pub mod table;
#[cfg(test)]
#[cfg(feature = "hcloud")]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::model::ids::{self, InstallationId, PoolName};
use crate::model::labels::Labels;
use crate::model::pool::{AccountId, Billing, FixedInstance, RetireTo};

/// Everything that was configured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `PICUS_ID`
    pub installation: InstallationId,
    /// The Woodpecker server.
    pub woodpecker: WoodpeckerSettings,
    /// `PICUS_POLL_INTERVAL`
    pub poll_interval: Duration,
    /// The pools in order; one named `default` without `PICUS_POOLS`.
    pub pools: Vec<PoolSettings>,
    /// Provider accounts; pools with the same provider, token and endpoint share one.
    pub accounts: Vec<AccountSettings>,
    /// Health checks, metrics, status page.
    pub http: HttpSettings,
    /// Logs.
    pub log: LogSettings,
    /// `PICUS_DRY_RUN`: decide and say, do nothing.
    pub dry_run: bool,
    /// What works and deserves a word at the start, each naming its variable.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Reads the settings from `vars`, which is the environment. Reads the files of secrets (`…_FILE`) too.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, at least one problem: first what is missing, then unknown names, then values.
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Self, Vec<Problem>> {
        let mut vars: BTreeMap<String, String> = vars.into_iter().collect();
        // Empty means unset, here and for everything that follows.
        vars.retain(|_, value| !value.is_empty());
        installation::read(vars)
    }
}

impl HttpSettings {
    /// Reads `PICUS_HTTP_*` alone: all that asking a running Picus takes.
    ///
    /// # Errors
    ///
    /// As [`Settings::from_vars`].
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Self, Vec<Problem>> {
        let mut vars: BTreeMap<String, String> = vars.into_iter().collect();
        vars.retain(|_, value| !value.is_empty());
        installation::read_http(vars)
    }
}

/// How to reach the Woodpecker server.
#[derive(Debug, Clone)]
pub struct WoodpeckerSettings {
    /// `PICUS_WOODPECKER_SERVER`: `http` or `https`, a path is kept, no credentials in it.
    pub server: Url,
    /// `PICUS_WOODPECKER_TOKEN`
    pub token: SecretString,
    /// `PICUS_WOODPECKER_CA_FILE`
    pub ca_file: Option<PathBuf>,
}

/// Where and for whom the status is served.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// `PICUS_HTTP_ADDR`. `None`: nothing listens.
    pub address: Option<SocketAddr>,
    /// `PICUS_HTTP_TOKEN`. `None`: who is on this machine sees all, everybody else health and metrics.
    pub token: Option<SecretString>,
}

/// How to log.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// `PICUS_LOG`: a filter of `tracing_subscriber::EnvFilter`, already checked.
    pub filter: String,
    /// `PICUS_LOG_FORMAT`
    pub format: LogFormat,
}

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// One account at a provider.
#[derive(Debug, Clone)]
pub enum AccountSettings {
    /// Hetzner Cloud.
    Hetzner {
        /// `PICUS_HCLOUD_TOKEN`
        token: SecretString,
        /// `PICUS_HCLOUD_ENDPOINT`, without a slash at its end.
        endpoint: Url,
    },
    /// AWS EC2: the SDK finds credentials and region itself.
    Aws,
}

impl AccountSettings {
    /// The provider's fixed word in answers and metrics.
    #[must_use]
    pub fn provider(&self) -> &'static str {
        match self {
            Self::Hetzner { .. } => "hetzner",
            Self::Aws => "ec2",
        }
    }

    /// Whether an instance that is stopped costs what a running one does. Where it does not, its disk goes on costing, whose
    /// price is not known here.
    #[must_use]
    pub fn bills_stopped(&self) -> bool {
        match self {
            Self::Hetzner { .. } => true,
            Self::Aws => false,
        }
    }
}

/// One pool as configured.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// Its name.
    pub name: PoolName,
    /// Where it launches.
    pub account: AccountId,
    /// `PICUS_MIN_AGENTS`
    pub min: u32,
    /// `PICUS_MAX_AGENTS`
    pub max: u32,
    /// `PICUS_MAX_IDLE_TIME`
    pub idle_timeout: Duration,
    /// `PICUS_BILLING_PERIOD`
    pub billing: Billing,
    /// `PICUS_BOOT_TIMEOUT`
    pub boot_timeout: Duration,
    /// What its agents run and how.
    pub agent: AgentSettings,
    /// What its instances are.
    pub launch: LaunchSettings,
}

/// The agents of a pool.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// `PICUS_AGENT_IMAGE`. `None`: that of the server's own version.
    pub image: Option<String>,
    /// `PICUS_AGENT_WOODPECKER_SERVER`, as the agent takes it (`host:port`).
    pub server: String,
    /// `PICUS_AGENT_WOODPECKER_FILTER_LABELS` or `…_AGENT_LABELS`, read.
    pub labels: Labels,
    /// `PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS`
    pub slots: u32,
    /// `PICUS_AGENT_WOODPECKER_BACKEND`, `docker` unless set.
    pub backend: String,
    /// `PICUS_AGENT_WOODPECKER_AGENT_SECRET`. `None`: each agent gets a token of its own.
    pub shared_secret: Option<SecretString>,
    /// Every `PICUS_AGENT_WOODPECKER_X` as `WOODPECKER_X`, except the secret and the host name. Values may be secret
    /// (a registry's password), so they are kept as such.
    pub environment: Vec<(String, SecretString)>,
}

/// What to order for a pool.
#[derive(Debug, Clone)]
pub enum LaunchSettings {
    /// Hetzner Cloud.
    Hetzner(HetznerSettings),
    /// AWS EC2.
    Ec2(Box<Ec2Settings>),
    /// Nothing: machines at AWS EC2 that somebody else made are started and stopped.
    Fixed(FixedSettings),
}

impl LaunchSettings {
    /// The machines that somebody else made.
    #[must_use]
    pub fn fixed(&self) -> &[FixedInstance] {
        match self {
            Self::Fixed(fixed) => &fixed.instances,
            Self::Hetzner(_) | Self::Ec2(_) => &[],
        }
    }

    /// What becomes of a launched instance that is not needed.
    #[must_use]
    pub fn retire(&self) -> RetireTo {
        match self {
            Self::Ec2(launched) => launched.retire,
            Self::Hetzner(_) | Self::Fixed(_) => RetireTo::Delete,
        }
    }
}

impl LaunchSettings {
    /// A short mark of what is launched: instances with another one were launched with other settings. `None`: nothing is
    /// compared.
    #[must_use]
    pub fn mark(&self) -> Option<String> {
        match self {
            Self::Ec2(launched) => Some(launched.mark()),
            Self::Hetzner(_) | Self::Fixed(_) => None,
        }
    }
}

impl Ec2Settings {
    /// See [`LaunchSettings::mark`]. What changes nothing on a machine that is there already is left out: order and choice of
    /// types and subnets, tags, price, how it ends.
    #[must_use]
    pub fn mark(&self) -> String {
        let Self {
            prefix: _,
            instance_types: _,
            ami,
            subnets: _,
            security_groups,
            key_name,
            instance_profile,
            spot: _,
            volume_size,
            tags: _,
            launch_template,
            retire: _,
            hourly_price: _,
        } = self;
        let text = format!(
            "{ami:?} {security_groups:?} {key_name:?} {instance_profile:?} {volume_size:?} {launch_template:?}"
        );
        ids::mark(&text)
    }
}

/// `PICUS_AWS_*` of a pool that launches.
#[derive(Debug, Clone)]
pub struct Ec2Settings {
    /// The prefix of this pool's variables in messages: `PICUS_AWS_` or `PICUS_POOL_ARM64_AWS_`.
    pub prefix: String,
    /// `…_INSTANCE_TYPE` in order. Empty: the launch template's.
    pub instance_types: Vec<String>,
    /// `…_AMI`. `None`: the launch template's.
    pub ami: Option<AmiChoice>,
    /// `…_SUBNETS` in order. Empty: the launch template's or the default one.
    pub subnets: Vec<String>,
    /// `…_SECURITY_GROUPS`
    pub security_groups: Vec<String>,
    /// `…_KEY_NAME`
    pub key_name: Option<String>,
    /// `…_INSTANCE_PROFILE`: name or ARN.
    pub instance_profile: Option<String>,
    /// `…_SPOT`
    pub spot: Spot,
    /// `…_VOLUME_SIZE` in GiB. `None`: the image's.
    pub volume_size: Option<u32>,
    /// `…_TAGS`: own tags on each instance and volume.
    pub tags: Vec<(String, String)>,
    /// `…_LAUNCH_TEMPLATE`
    pub launch_template: Option<LaunchTemplate>,
    /// `…_RETIRE` and `…_STOPPED_MAX_AGE`
    pub retire: RetireTo,
    /// `…_HOURLY_PRICE`. `None`: not told.
    pub hourly_price: Option<f64>,
}

/// `PICUS_AWS_INSTANCE_ID` of a pool.
#[derive(Debug, Clone)]
pub struct FixedSettings {
    /// The prefix of this pool's variables in messages.
    pub prefix: String,
    /// The machines, in order.
    pub instances: Vec<FixedInstance>,
    /// `…_HOURLY_PRICE`. `None`: not told.
    pub hourly_price: Option<f64>,
}

/// Which image is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AmiChoice {
    /// `ami-…`
    Id(String),
    /// What this parameter of the Systems Manager names: `/aws/service/…`, looked up by EC2 at each launch.
    Parameter(String),
    /// The newest of this owner whose name is so; `*` and `?` stand for any letters.
    Newest {
        /// `self`, `amazon`, `aws-marketplace` or an account's number.
        owner: String,
        /// Its name.
        name: String,
    },
}

/// A launch template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchTemplate {
    /// Id or name.
    pub name: String,
    /// A number, `$Default` or `$Latest`.
    pub version: String,
}

/// Whether spot instances are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// On demand.
    Never,
    /// Spot, and on demand where there is none.
    Prefer,
    /// Spot and nothing else.
    Only,
}

/// `PICUS_HCLOUD_*` of a pool.
#[derive(Debug, Clone)]
pub struct HetznerSettings {
    /// The prefix of this pool's variables in messages: `PICUS_HCLOUD_` or `PICUS_POOL_ARM64_HCLOUD_`.
    pub prefix: String,
    /// `…_SERVER_TYPE` in order; a type may name its own place.
    pub server_types: Vec<ServerTypeChoice>,
    /// `…_LOCATION` in order.
    pub locations: Vec<String>,
    /// `…_IMAGE`: name or id.
    pub image: String,
    /// `…_SSH_KEYS`: names or ids.
    pub ssh_keys: Vec<String>,
    /// `…_NETWORKS`: names or ids.
    pub networks: Vec<String>,
    /// `…_FIREWALLS`: names or ids.
    pub firewalls: Vec<String>,
    /// `…_PLACEMENT_GROUP`: name or id.
    pub placement_group: Option<String>,
    /// `…_LABELS`: own labels on each instance.
    pub labels: Vec<(String, String)>,
    /// `…_PUBLIC_IPV4`
    pub public_ipv4: bool,
    /// `…_PUBLIC_IPV6`
    pub public_ipv6: bool,
}

/// One entry of the list of server types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTypeChoice {
    /// `cx23`
    pub name: String,
    /// Its own place, in `cpx32:fsn1`. `None`: the pool's places, in order.
    pub location: Option<String>,
}

/// One thing that is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The variable, as it was set: `PICUS_MAX_AGENTS`.
    pub variable: String,
    /// What it had. `None` for a secret or where nothing was set.
    pub had: Option<String>,
    /// What is wrong and what is accepted, as half a sentence: `must be a whole number from 1 to 10000`.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.had {
            Some(had) => write!(f, "{}={had:?}: {}", self.variable, self.message),
            None => write!(f, "{}: {}", self.variable, self.message),
        }
    }
}
