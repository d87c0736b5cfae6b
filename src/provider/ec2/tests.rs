//! The EC2 provider against moto, which speaks EC2's real wire protocol, and against a small fake for what moto does not
//! know: no capacity, throttling, lost answers, other people's instances.

pub(in crate::provider) mod fake;
mod moto;
mod policies;
mod refused;
#[path = "../../../tests/support/moto.rs"]
pub(in crate::provider) mod server;

use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::{BehaviorVersion, Credentials, Region};
use secrecy::SecretString;

use super::Ec2;
use super::client::{Client, http};
use crate::clock::Clock;
use crate::model::ids::{AgentId, InstallationId, LaunchName, PoolName, ServerMark};
use crate::model::instance::{Instance, OfferKey};
use crate::provider::{Launch, Provider as _, ProviderError};
use crate::settings::{PoolSettings, Settings};

/// Settings of one pool at EC2.
pub(in crate::provider) fn pool(more: &[(&str, &str)]) -> PoolSettings {
    let least = [
        ("PICUS_WOODPECKER_SERVER", "https://ci.example.org"),
        ("PICUS_WOODPECKER_TOKEN", "token"),
        ("PICUS_PROVIDER_TYPE", "aws"),
        ("PICUS_AGENT_WOODPECKER_SERVER", "ci.example.org:9000"),
    ];
    let all = least.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let settings = Settings::from_vars(all).expect("good settings");
    settings.pools.into_iter().next().expect("one pool")
}

/// A provider that asks at this address.
pub(in crate::provider) fn provider(address: &str, pools: &[PoolSettings], clock: Clock) -> Ec2 {
    let config = aws_sdk_ec2::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("AKIDEXAMPLE", server::KEY, None, None, "test"))
        .endpoint_url(address)
        .retry_config(RetryConfig::disabled())
        .http_client(http())
        .build();
    let mut ec2 = Ec2::new(pools, clock.clone());
    ec2.client = Client::of(config, clock);
    ec2
}

fn installation() -> InstallationId {
    "p1".into()
}

fn launch_name(number: u64) -> LaunchName {
    LaunchName::new(&installation(), &PoolName::from("default"), number)
}

async fn launch(ec2: &Ec2, pool: &PoolSettings, number: u64, offer: &OfferKey) -> Result<Instance, ProviderError> {
    let name = launch_name(number);
    let launch = Launch {
        installation: &installation(),
        server: &ServerMark::from("bcdfghjk"),
        pool,
        name: &name,
        agent: Some(AgentId(5)),
        offer,
        user_data: &SecretString::from("#cloud-config\n{}\n"),
    };
    ec2.launch(&launch).await
}
