//! The clouds behind one trait. Nothing outside knows a provider's wire types.

#[cfg(feature = "aws")]
pub mod ec2;
#[cfg(feature = "hcloud")]
pub mod hetzner;
#[cfg(all(test, feature = "aws", feature = "hcloud"))]
mod tests;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, ServerMark};
use crate::model::instance::{Instance, OfferKey};
use crate::model::pool::Offer;
use crate::settings::PoolSettings;

/// One account at a cloud. Every call has a timeout; calls may run at the same time.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Asks whether the account can be used, and whether what the pool's launch settings name exists there.
    ///
    /// # Errors
    ///
    /// [`PrepareError::Settings`] for what no waiting repairs, [`PrepareError::Provider`] for the rest.
    async fn prepare(&self, pool: &PoolSettings) -> Result<Prepared, PrepareError>;

    /// Every instance of the installation, all pages.
    ///
    /// # Errors
    ///
    /// Any failure on any page: a part of the list is not a list.
    async fn list(&self, installation: &InstallationId) -> Result<Vec<Instance>, ProviderError>;

    /// Creates an instance. `pool` must have been prepared. A name that is taken by an instance with the same
    /// installation, pool and agent is that instance (a lost answer, or a second try).
    ///
    /// # Errors
    ///
    /// [`ProviderError::Unclear`] if it may exist all the same.
    async fn launch(&self, launch: &Launch<'_>) -> Result<Instance, ProviderError>;

    /// Starts a stopped instance; one that is up, or on its way up, is started.
    ///
    /// # Errors
    ///
    /// [`ProviderError::SoldOut`] if there is no room for it now, [`ProviderError::Locked`] while it is being stopped.
    async fn start(&self, instance: &InstanceId) -> Result<(), ProviderError> {
        Err(not_stopped(instance))
    }

    /// Stops an instance; its disk stays. One that is stopped, or being stopped, is stopped.
    ///
    /// # Errors
    ///
    /// The rest: try again in a later pass.
    async fn stop(&self, instance: &InstanceId) -> Result<(), ProviderError> {
        Err(not_stopped(instance))
    }

    /// Notes on an instance that its agent is being drained by this installation ([`Instance::draining`]), or, with `None`,
    /// that none is.
    ///
    /// # Errors
    ///
    /// The rest: the drain goes on all the same.
    async fn note_drain(&self, instance: &InstanceId, _agent: Option<AgentId>) -> Result<(), ProviderError> {
        Err(not_stopped(instance))
    }

    /// The last lines of an instance's console, which tell how its boot went. `None`: there are none, or the provider does not
    /// show them.
    ///
    /// # Errors
    ///
    /// The rest: the boot's failure is told without them.
    async fn console(&self, _instance: &InstanceId) -> Result<Option<String>, ProviderError> {
        Ok(None)
    }

    /// What the account's credentials may do of what `pool` needs, asked without doing it. Empty where it can't be asked.
    /// `pool` must have been prepared.
    ///
    /// # Errors
    ///
    /// The provider could not be asked.
    async fn rights(&self, _pool: &PoolSettings, _installation: &InstallationId) -> Result<Vec<Right>, ProviderError> {
        Ok(Vec::new())
    }

    /// Deletes an instance; one that does not exist is deleted.
    ///
    /// # Errors
    ///
    /// [`ProviderError::Locked`] and the rest: try again in a later pass.
    async fn delete(&self, instance: &InstanceId) -> Result<(), ProviderError>;
}

/// A provider at which stopping saves nothing has no pools that do so.
fn not_stopped(instance: &InstanceId) -> ProviderError {
    ProviderError::Rejected(format!("instance {instance} is of a provider whose instances are not stopped and started"))
}

/// Everything that a launch takes.
#[derive(Debug)]
pub struct Launch<'a> {
    /// This installation, for the labels.
    pub installation: &'a InstallationId,
    /// The Woodpecker server, for the labels.
    pub server: &'a ServerMark,
    /// The pool, for its launch settings and for the labels.
    pub pool: &'a PoolSettings,
    /// Name of the instance.
    pub name: &'a LaunchName,
    /// Its agent record. `None`: it registers itself with the shared secret.
    pub agent: Option<AgentId>,
    /// What to order.
    pub offer: &'a OfferKey,
    /// What cloud-init runs; holds the agent's secret.
    pub user_data: &'a secrecy::SecretString,
}

/// One thing that credentials may do, or may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// The provider's word for it: `ec2:RunInstances`.
    pub action: &'static str,
    /// Whether they may.
    pub granted: Granted,
}

/// Whether credentials may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Granted {
    /// They may.
    Yes,
    /// They may not: the provider's words.
    No(String),
    /// It can't be told: what is missing to ask.
    Unknown(&'static str),
}

/// What a provider found for a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// `linux/amd64` or `linux/arm64`, from the architecture of the server types.
    pub platform: String,
    /// Candidates in order of preference.
    pub offers: Vec<Offer>,
    /// What works today and needs attention: a deprecated type, no SSH key.
    pub warnings: Vec<String>,
    /// One line each for `picus check`: what was asked for and found.
    pub findings: Vec<String>,
}

/// Why a pool can't be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The settings name what does not exist; each problem names the variable, what it had and what exists.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Settings(Vec<crate::settings::Problem>),
    /// The provider could not be asked.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

/// Why a provider did not do what it was asked. A variant exists because somebody does something different for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// This offer can't be ordered now: the next one.
    #[error("{0}")]
    SoldOut(String),
    /// The account may launch nothing more: quota, billing. Nothing else is tried for a while.
    #[error("{0}")]
    Quota(String),
    /// The token is not valid or lacks rights.
    #[error("{0}")]
    Unauthorised(String),
    /// No call before `until`.
    #[error("too many calls: none before {until:.0}")]
    RateLimited {
        /// From the provider's answer.
        until: Timestamp,
    },
    /// Something else works on the instance: a later pass.
    #[error("{0}")]
    Locked(String),
    /// The provider does not accept what was asked; asking again does not help.
    #[error("{0}")]
    Rejected(String),
    /// The call may have been carried out: look before asking again.
    #[error("{0}")]
    Unclear(String),
    /// It was not carried out, or it was a question: 5xx, no connection, an answer that is none.
    #[error("{0}")]
    Unavailable(String),
}

impl ProviderError {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SoldOut(_) => "sold_out",
            Self::Quota(_) => "quota",
            Self::Unauthorised(_) => "unauthorised",
            Self::RateLimited { .. } => "rate_limited",
            Self::Locked(_) => "locked",
            Self::Rejected(_) => "rejected",
            Self::Unclear(_) => "unclear",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

/// Keys of the labels (tags) on every instance of ours.
pub mod label {
    /// The installation; the listing asks for it.
    pub const INSTALLATION: &str = "picus";
    /// Mark of the Woodpecker server: two installations of one name do not touch each other's instances.
    pub const SERVER: &str = "picus-server";
    /// The pool.
    pub const POOL: &str = "picus-pool";
    /// Id of the agent record; absent where agents register with the shared secret.
    pub const AGENT: &str = "picus-agent";
    /// Id of the agent that is being drained; absent where none is.
    pub const DRAIN: &str = "picus-drain";
    /// Mark of the launch settings.
    pub const SETTINGS: &str = "picus-settings";
}
