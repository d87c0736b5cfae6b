//! AWS EC2 behind the [`Provider`] trait: instances that are launched, and machines that somebody else made.
//!
//! | file | does |
//! |---|---|
//! | `client` | the SDK's client: credentials and region from its own settings, timeouts, throttling |
//! | `failure` | reads EC2's error codes |
//! | `instances` | EC2's instances as ours |
//! | `prepare` | what a pool's settings name, and what can be ordered |
//! | `launch` | the call that launches |
//! | `rights` | what the credentials may do, asked without doing it |

mod client;
mod failure;
mod instances;
mod launch;
mod prepare;
mod rights;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use aws_sdk_ec2::types::{EbsInstanceBlockDeviceSpecification, InstanceBlockDeviceMappingSpecification, Tag};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use self::client::Client;
use self::failure::{Failure, Meaning};
use self::launch::Resolved;
pub use self::launch::shortest;
use super::{Launch, PrepareError, Prepared, Provider, ProviderError, Right, label};
use crate::clock::Clock;
use crate::metrics::Calls;
use crate::model::ids::{AgentId, InstallationId, InstanceId, PoolName};
use crate::model::instance::Instance;
use crate::settings::{LaunchSettings, PoolSettings};

/// Most that EC2 takes as user data, in bytes before base64
/// (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html>).
pub const LARGEST_USER_DATA: usize = 16 * 1024;

/// So many last lines of a console are of use.
const CONSOLE_LINES: usize = 20;

/// An account at AWS, in one region.
#[derive(Debug)]
pub struct Ec2 {
    client: Client,
    /// Whether any pool launches here, and the machines that somebody else made, by pool.
    launches: bool,
    fixed: BTreeMap<InstanceId, PoolName>,
    /// What the pools' settings came to when they were last prepared.
    resolved: Mutex<BTreeMap<PoolName, Arc<Resolved>>>,
    /// Of the last list the launched instances whose root volume would outlive them, with what it is called.
    outliving: Mutex<BTreeMap<InstanceId, String>>,
}

impl Ec2 {
    /// An account with these pools. Nothing is sent: credentials and region are looked for at the first call.
    #[must_use]
    pub fn new<'a>(pools: impl IntoIterator<Item = &'a PoolSettings>, clock: Clock) -> Self {
        let (mut launches, mut fixed) = (false, BTreeMap::new());
        for pool in pools {
            match &pool.launch {
                LaunchSettings::Ec2(_) => launches = true,
                LaunchSettings::Fixed(settings) => {
                    fixed.extend(settings.instances.iter().map(|one| (one.id.clone(), pool.name.clone())));
                }
                LaunchSettings::Hetzner(_) => {}
            }
        }
        Self { client: Client::new(clock), launches, fixed, resolved: Mutex::default(), outliving: Mutex::default() }
    }

    /// The same with its calls counted.
    #[must_use]
    pub fn counted(mut self, calls: Calls) -> Self {
        self.client.calls = calls;
        self
    }

    /// Makes the root volume go with the instance. An image that EC2 itself looked up may say otherwise.
    async fn take_volume_along(&self, instance: &InstanceId) -> Result<(), Failure> {
        let device = self.outliving.lock().unwrap_or_else(PoisonError::into_inner).get(instance).cloned();
        let Some(device) = device else { return Ok(()) };
        let volume = EbsInstanceBlockDeviceSpecification::builder().delete_on_termination(true).build();
        let mapping = InstanceBlockDeviceMappingSpecification::builder().device_name(device).ebs(volume).build();
        let ask = self.client.ec2().await?.modify_instance_attribute().instance_id(&instance.0);
        self.client.read("ModifyInstanceAttribute", ask.block_device_mappings(mapping).send().await).map(|_| ())
    }

    fn known(&self, pool: &PoolName) -> Option<Arc<Resolved>> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner).get(pool).cloned()
    }

    fn remember(&self, pool: &PoolName, resolved: Option<Resolved>) {
        let mut all = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        match resolved {
            Some(resolved) => drop(all.insert(pool.clone(), Arc::new(resolved))),
            None => drop(all.remove(pool)),
        }
    }

    async fn resolved(&self, pool: &PoolSettings) -> Result<Arc<Resolved>, ProviderError> {
        if let Some(resolved) = self.known(&pool.name) {
            return Ok(resolved);
        }
        match self.prepare(pool).await {
            Ok(_) => {}
            Err(PrepareError::Provider(error)) => return Err(error),
            Err(error @ PrepareError::Settings(_)) => return Err(ProviderError::Rejected(error.to_string())),
        }
        self.known(&pool.name).ok_or_else(|| ProviderError::Rejected(format!("pool {} launches nothing", pool.name)))
    }
}

#[async_trait]
impl Provider for Ec2 {
    async fn prepare(&self, pool: &PoolSettings) -> Result<Prepared, PrepareError> {
        match &pool.launch {
            LaunchSettings::Ec2(settings) => {
                let (prepared, resolved) = prepare::launched(&self.client, settings).await?;
                self.remember(&pool.name, Some(resolved));
                Ok(prepared)
            }
            LaunchSettings::Fixed(settings) => prepare::fixed(&self.client, settings).await,
            LaunchSettings::Hetzner(_) => Err(elsewhere(pool).into()),
        }
    }

    async fn list(&self, installation: &InstallationId) -> Result<Vec<Instance>, ProviderError> {
        let mut instances = Vec::new();
        if self.launches || self.fixed.is_empty() {
            let (launched, outliving) = instances::launched(&self.client, installation).await?;
            *self.outliving.lock().unwrap_or_else(PoisonError::into_inner) = outliving;
            instances.extend(launched);
        }
        if !self.fixed.is_empty() {
            instances.extend(instances::fixed(&self.client, &self.fixed).await?);
        }
        Ok(instances)
    }

    async fn launch(&self, launch: &Launch<'_>) -> Result<Instance, ProviderError> {
        let LaunchSettings::Ec2(settings) = &launch.pool.launch else { return Err(elsewhere(launch.pool)) };
        let resolved = self.resolved(launch.pool).await?;
        let launched = launch::launch(&self.client, launch, settings, &resolved).await;
        if matches!(launched, Err(ProviderError::Rejected(_))) {
            // What was found may be gone since: the next launch looks again.
            self.remember(&launch.pool.name, None);
        }
        launched
    }

    async fn start(&self, instance: &InstanceId) -> Result<(), ProviderError> {
        let sent = self.client.ec2().await?.start_instances().instance_ids(&instance.0).send().await;
        self.client.read("StartInstances", sent).map(|_| ()).map_err(Into::into)
    }

    async fn stop(&self, instance: &InstanceId) -> Result<(), ProviderError> {
        let sent = self.client.ec2().await?.stop_instances().instance_ids(&instance.0).send().await;
        self.client.read("StopInstances", sent).map(|_| ()).map_err(Into::into)
    }

    async fn note_drain(&self, instance: &InstanceId, agent: Option<AgentId>) -> Result<(), ProviderError> {
        let ec2 = self.client.ec2().await?;
        if let Some(agent) = agent {
            let tag = Tag::builder().key(label::DRAIN).value(agent.to_string()).build();
            let sent = ec2.create_tags().resources(&instance.0).tags(tag).send().await;
            self.client.read("CreateTags", sent).map(|_| ()).map_err(Into::into)
        } else {
            let tag = Tag::builder().key(label::DRAIN).build();
            let sent = ec2.delete_tags().resources(&instance.0).tags(tag).send().await;
            self.client.read("DeleteTags", sent).map(|_| ()).map_err(Into::into)
        }
    }

    async fn delete(&self, instance: &InstanceId) -> Result<(), ProviderError> {
        if self.fixed.contains_key(instance) {
            return Err(ProviderError::Rejected(format!("instance {instance} is not Picus's to terminate")));
        }
        if let Err(failure) = self.take_volume_along(instance).await {
            // An instance costs more than its volume.
            let why = ProviderError::from(failure);
            tracing::warn!(%instance, "its root volume stays when it is terminated, delete it by hand: {why}");
        }
        let sent = self.client.ec2().await?.terminate_instances().instance_ids(&instance.0).send().await;
        match self.client.read("TerminateInstances", sent) {
            Ok(_) | Err(Failure::Refused { meaning: Meaning::NotFound, .. }) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn console(&self, instance: &InstanceId) -> Result<Option<String>, ProviderError> {
        let sent = self.client.ec2().await?.get_console_output().instance_id(&instance.0).send().await;
        let answer = self.client.read("GetConsoleOutput", sent)?;
        let text = answer.output().and_then(|output| STANDARD.decode(output.trim()).ok());
        Ok(text.and_then(|bytes| tail(&String::from_utf8_lossy(&bytes))))
    }

    async fn rights(&self, pool: &PoolSettings, installation: &InstallationId) -> Result<Vec<Right>, ProviderError> {
        match &pool.launch {
            LaunchSettings::Ec2(settings) => {
                let resolved = self.resolved(pool).await?;
                rights::launched(&self.client, settings, &resolved, installation).await
            }
            LaunchSettings::Fixed(settings) => rights::fixed(&self.client, settings).await,
            LaunchSettings::Hetzner(_) => Err(elsewhere(pool)),
        }
    }
}

/// A pool is only ever handed to the provider of its account.
fn elsewhere(pool: &PoolSettings) -> ProviderError {
    ProviderError::Rejected(format!("pool {} is not at EC2", pool.name))
}

/// The last lines, without control characters; `None` if there are none.
fn tail(text: &str) -> Option<String> {
    let clean =
        |line: &str| line.chars().filter(|letter| !letter.is_control()).collect::<String>().trim_end().to_owned();
    let lines: Vec<String> = text.lines().map(clean).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(CONSOLE_LINES);
    (!lines.is_empty()).then(|| lines[from..].join("\n"))
}
