//! Hetzner Cloud behind the [`Provider`] trait. Each project (token) is one [`Hetzner`].
//!
//! | file | does |
//! |---|---|
//! | `client` | sends calls: token, timeouts, pages, rate limit |
//! | `failure` | reads Hetzner's error codes |
//! | `wire` | the parts of answers that are used |
//! | `servers` | servers as instances |
//! | `prepare`, `offers` | what a pool's settings name, and what can be ordered |
//! | `launch` | the create call |

mod client;
mod failure;
mod launch;
mod offers;
mod prepare;
mod servers;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use secrecy::SecretString;
use url::Url;

use self::client::{Client, Timeouts};
use self::failure::{Code, Failure};
use self::launch::Resolved;
use self::wire::Deleted;
use super::{Launch, PrepareError, Prepared, Provider, ProviderError};
use crate::clock::Clock;
use crate::metrics::Calls;
use crate::model::ids::{InstallationId, InstanceId, PoolName};
use crate::model::instance::Instance;
use crate::settings::{LaunchSettings, PoolSettings};

/// Most that Hetzner takes as user data, in bytes (<https://docs.hetzner.cloud/reference/cloud#servers-create-a-server>).
pub const LARGEST_USER_DATA: usize = 32 * 1024;

/// A project at Hetzner Cloud.
///
/// At rest nothing is called but the listing, one call for 50 servers. After a 429 no call leaves before its reset:
/// every method answers [`ProviderError::RateLimited`] at once.
#[derive(Debug)]
pub struct Hetzner {
    client: Client,
    /// What the pools' settings came to when they were last prepared.
    resolved: Mutex<BTreeMap<PoolName, Arc<Resolved>>>,
}

impl Hetzner {
    /// A project. `endpoint` is the base of the API (`https://api.hetzner.cloud/v1`); `clock` tells when a rate limit
    /// is over. Nothing is sent.
    ///
    /// # Errors
    ///
    /// The TLS stack can't be set up.
    pub fn new(token: SecretString, endpoint: Url, clock: Clock) -> Result<Self, reqwest::Error> {
        Self::with_timeouts(token, endpoint, clock, Timeouts::default())
    }

    /// The same with its calls counted.
    #[must_use]
    pub fn counted(mut self, calls: Calls) -> Self {
        self.client.calls = calls;
        self
    }

    fn with_timeouts(
        token: SecretString,
        endpoint: Url,
        clock: Clock,
        timeouts: Timeouts,
    ) -> Result<Self, reqwest::Error> {
        let client = Client::new(token, endpoint, clock, timeouts)?;
        Ok(Self { client, resolved: Mutex::default() })
    }

    fn known(&self, pool: &PoolName) -> Option<Arc<Resolved>> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner).get(pool).cloned()
    }

    fn remember(&self, pool: &PoolName, resolved: Resolved) -> Arc<Resolved> {
        let resolved = Arc::new(resolved);
        let mut all = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(pool.clone(), Arc::clone(&resolved));
        resolved
    }

    fn forget(&self, pool: &PoolName) {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner).remove(pool);
    }
}

#[async_trait]
impl Provider for Hetzner {
    async fn prepare(&self, pool: &PoolSettings) -> Result<Prepared, PrepareError> {
        let LaunchSettings::Hetzner(settings) = &pool.launch else { return Err(elsewhere(pool).into()) };
        let (prepared, resolved) = prepare::prepare(&self.client, settings).await?;
        self.remember(&pool.name, resolved);
        Ok(prepared)
    }

    async fn list(&self, installation: &InstallationId) -> Result<Vec<Instance>, ProviderError> {
        Ok(servers::list(&self.client, installation).await?)
    }

    async fn launch(&self, launch: &Launch<'_>) -> Result<Instance, ProviderError> {
        let LaunchSettings::Hetzner(settings) = &launch.pool.launch else { return Err(elsewhere(launch.pool)) };
        let resolved = match self.known(&launch.pool.name) {
            Some(resolved) => resolved,
            None => match prepare::prepare(&self.client, settings).await {
                Ok((_, resolved)) => self.remember(&launch.pool.name, resolved),
                Err(PrepareError::Provider(error)) => return Err(error),
                Err(error @ PrepareError::Settings(_)) => return Err(ProviderError::Rejected(error.to_string())),
            },
        };
        let launched = launch::launch(&self.client, launch, settings, &resolved).await;
        if matches!(launched, Err(ProviderError::Rejected(_))) {
            // What was found may be gone since: the next launch looks again.
            self.forget(&launch.pool.name);
        }
        launched
    }

    async fn delete(&self, instance: &InstanceId) -> Result<(), ProviderError> {
        // An id is part of the path: nothing but a number may come in there.
        let Ok(id) = instance.0.parse::<u64>() else {
            return Err(ProviderError::Rejected(format!("{:?} is not an id of Hetzner's", instance.0)));
        };
        match self.client.delete::<Deleted>(&format!("/servers/{id}")).await {
            Ok(Deleted { action }) => match action.and_then(|action| action.status).as_deref() {
                Some("error") => Err(ProviderError::Unavailable(format!("server {id}: its deletion failed"))),
                _ => Ok(()),
            },
            Err(Failure::Refused(refusal)) if refusal.meaning() == Code::NotFound => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }
}

/// A pool is only ever handed to the provider of its account.
fn elsewhere(pool: &PoolSettings) -> ProviderError {
    ProviderError::Rejected(format!("pool {} is not at Hetzner", pool.name))
}
