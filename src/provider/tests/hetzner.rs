//! Hetzner: the provider and the modelled cloud of `picus::world`.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::AUTHORIZATION;
use secrecy::SecretString;

use super::{Peer, Trouble};
use crate::clock::Clock;
use crate::provider::Provider;
use crate::provider::hetzner::Hetzner as Client;
use crate::settings::{PoolSettings, Settings};
use crate::world::{AnswerFault, Endpoint, Fault, Side, World, WorldOptions};

pub(super) struct Hetzner {
    world: World,
    client: Client,
    pool: PoolSettings,
}

/// The only pool of settings with these launch settings.
fn pool(world: &World, launch: &[(&str, &str)]) -> PoolSettings {
    let least = [
        ("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str()),
        ("PICUS_WOODPECKER_TOKEN", world.admin_token()),
        ("PICUS_PROVIDER_TYPE", "hcloud"),
        ("PICUS_AGENT_WOODPECKER_SERVER", "ci.example.org:9000"),
        ("PICUS_HCLOUD_TOKEN", world.hetzner_token()),
        ("PICUS_HCLOUD_ENDPOINT", world.hetzner_url().as_str()),
    ];
    let all = least.iter().chain(launch).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::from_vars(all).expect("good settings").pools.into_iter().next().expect("one pool")
}

impl Hetzner {
    pub(super) async fn start() -> Self {
        let clock = Clock::manual("2026-12-01T12:00:00Z".parse().expect("a time"));
        let options = WorldOptions { server_limit: 1_000, ..WorldOptions::default() };
        let world = World::start(clock.clone(), options).await.expect("a free port");
        let token = SecretString::from(world.hetzner_token());
        let client = Client::new(token, world.hetzner_url().clone(), clock).expect("a client");
        let pool = pool(&world, &[("PICUS_HCLOUD_SERVER_TYPE", "cx23"), ("PICUS_HCLOUD_LOCATION", "nbg1,fsn1")]);
        Self { world, client, pool }
    }
}

#[async_trait]
impl Peer for Hetzner {
    fn provider(&self) -> &dyn Provider {
        &self.client
    }

    fn pool(&self) -> &PoolSettings {
        &self.pool
    }

    fn wrong_pool(&self) -> (PoolSettings, Vec<&'static str>) {
        let wrong = [
            ("PICUS_HCLOUD_SERVER_TYPE", "cx99"),
            ("PICUS_HCLOUD_IMAGE", "none"),
            ("PICUS_HCLOUD_NETWORKS", "nobodys"),
            ("PICUS_HCLOUD_FIREWALLS", "nobodys"),
            ("PICUS_HCLOUD_SSH_KEYS", "nobodys"),
        ];
        (pool(&self.world, &wrong), wrong.map(|(name, _)| name).to_vec())
    }

    fn secret(&self) -> &str {
        self.world.hetzner_token()
    }

    fn trouble(&self, trouble: Option<Trouble>) {
        self.world.mend_all();
        let create = |fault| Fault::on(Endpoint::CreateServer, fault);
        let fault = match trouble {
            None => return,
            Some(Trouble::SoldOut) => create(AnswerFault::Refused("resource_unavailable")),
            Some(Trouble::Quota) => create(AnswerFault::Refused("resource_limit_exceeded")),
            Some(Trouble::Unauthorised) => create(AnswerFault::Forbidden),
            Some(Trouble::Throttled) => {
                Fault::side(Side::Hetzner, AnswerFault::RateLimited(Duration::from_mins(10))).times(1)
            }
            Some(Trouble::LostAnswer) => create(AnswerFault::LostAnswer).times(1),
            Some(Trouble::Broken) => Fault::side(Side::Hetzner, AnswerFault::Status(500)),
        };
        self.world.fault(fault);
    }

    fn calls(&self) -> usize {
        self.world.calls_to(Side::Hetzner)
    }

    fn pass(&self, time: Duration) {
        self.world.advance(time);
    }

    async fn strangers_instance(&self) {
        let url = format!("{}/servers", self.world.hetzner_url().as_str().trim_end_matches('/'));
        let server = serde_json::json!({
            "name": "build7", "server_type": "cx23", "image": "docker-ce", "location": "nbg1", "labels": {"picus-pool": "default"},
        });
        let sent = reqwest::Client::new()
            .post(url)
            .header(AUTHORIZATION, format!("Bearer {}", self.world.hetzner_token()))
            .json(&server);
        sent.send().await.and_then(reqwest::Response::error_for_status).expect("a server");
    }
}
