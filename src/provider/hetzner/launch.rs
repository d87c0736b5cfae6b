//! The create call, and what its answer means.
//!
//! *Expected flow*: the request names everything by id and carries our labels; Hetzner answers with the server.
//!
//! *Guarantees*: an answer that is lost or makes no sense is settled by looking for the name. A server with the same
//! installation, pool and agent in its labels is this launch's and is returned. One with others is somebody's: rejected.
//! None at all is still unclear, because a create call that was cut off can be carried out after the look, and listings
//! come late; whoever launched keeps the name as in flight, and a later listing settles it.
//!
//! *Assumptions*: names are unique in a project, so a second server of one launch can't come to be. A failing action
//! after a good answer leaves the server `off`; the boot timeout finds it.

use std::collections::BTreeMap;

use hcloud::models::{CreateServerRequest, CreateServerRequestFirewalls, CreateServerRequestPublicNet};
use secrecy::ExposeSecret;

use super::client::Client;
use super::failure::{Code, Failure, Refusal};
use super::servers;
use super::wire::{Created, Server, time};
use crate::model::ids::InstanceId;
use crate::model::instance::Instance;
use crate::provider::{Launch, ProviderError, label};
use crate::settings::HetznerSettings;

/// What a pool's launch settings came to, as Hetzner's ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) image: u64,
    /// Names: the API takes both, and as text a name is the unmistakable one.
    pub(super) ssh_keys: Vec<String>,
    pub(super) networks: Vec<i64>,
    pub(super) firewalls: Vec<i64>,
    pub(super) placement_group: Option<i64>,
}

/// Creates the server, or finds that it exists.
pub(super) async fn launch(
    client: &Client,
    launch: &Launch<'_>,
    settings: &HetznerSettings,
    resolved: &Resolved,
) -> Result<Instance, ProviderError> {
    // `CreateServerRequest` prints its user data with `Debug`: it never leaves this function.
    let body = serde_json::to_vec(&request(launch, settings, resolved))
        .map_err(|_| ProviderError::Rejected("the request can't be written as JSON".to_owned()))?;
    match client.post::<Created>("/servers", body).await {
        Ok(created) => Ok(ours(&created.server, launch, client)),
        Err(Failure::Unanswered(why)) => settle(client, launch, &why).await,
        Err(Failure::Refused(refusal)) => refused(client, launch, withhold(refusal, launch)).await,
        Err(failure @ (Failure::RateLimited { .. } | Failure::NotDone(_))) => Err(failure.into()),
    }
}

async fn refused(client: &Client, launch: &Launch<'_>, refusal: Refusal) -> Result<Instance, ProviderError> {
    match refusal.meaning() {
        Code::NameTaken | Code::Broken => settle(client, launch, &refusal.to_string()).await,
        // Hetzner says so of a type that a place does not offer, and names no field then
        // (https://github.com/autobase-tech/autobase/issues/1403). All else in the request was asked for when the pool
        // was prepared, so what is left is the offer: the next one.
        Code::InvalidInput if refusal.fields.iter().all(|field| field == "server_type" || field == "location") => {
            Err(ProviderError::SoldOut(refusal.to_string()))
        }
        Code::Unauthorised
        | Code::Quota
        | Code::SoldOut
        | Code::NotFound
        | Code::Locked
        | Code::InvalidInput
        | Code::Unavailable
        | Code::Other => Err(refusal.into_error()),
    }
}

/// Looks whether the server exists after all.
async fn settle(client: &Client, launch: &Launch<'_>, why: &str) -> Result<Instance, ProviderError> {
    match servers::named(client, launch.name).await {
        Ok(Some(server)) if is_this_launchs(&server, launch) => Ok(ours(&server, launch, client)),
        Ok(Some(server)) => Err(ProviderError::Rejected(format!(
            "the name {} is taken by server {}, which is not of this launch; {why}",
            launch.name, server.id
        ))),
        Ok(None) => Err(ProviderError::Unclear(format!("{why}; there is no server {} yet", launch.name))),
        Err(failure) => {
            let look = ProviderError::from(failure);
            Err(ProviderError::Unclear(format!("{why}; looking for {} failed: {look}", launch.name)))
        }
    }
}

fn is_this_launchs(server: &Server, launch: &Launch<'_>) -> bool {
    let has = |key: &str| server.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let agent = launch.agent.map(|agent| agent.to_string());
    has(label::INSTALLATION) == Some(&launch.installation.0)
        && has(label::SERVER) == Some(&launch.server.0)
        && has(label::POOL) == Some(&launch.pool.name.0)
        && has(label::AGENT) == agent.as_deref()
}

/// The instance of this launch, whatever the answer leaves out.
fn ours(server: &Server, launch: &Launch<'_>, client: &Client) -> Instance {
    Instance {
        id: InstanceId(server.id.to_string()),
        name: launch.name.clone(),
        pool: launch.pool.name.clone(),
        server: Some(launch.server.clone()),
        agent: launch.agent,
        known_as: Vec::new(),
        draining: None,
        launch_settings: None,
        stopped_since: None,
        state: servers::state(server.status.as_deref()),
        created: time(server.created.as_deref()).map_or_else(|| client.now(), |at| client.by_our_clock(at)),
        // An adopted one may come of an earlier try with another offer.
        offer: servers::offer(server).unwrap_or_else(|| launch.offer.clone()),
    }
}

/// Own labels and ours; ours win.
fn labels(launch: &Launch<'_>, own: &[(String, String)]) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = own.iter().cloned().collect();
    labels.insert(label::INSTALLATION.to_owned(), launch.installation.to_string());
    labels.insert(label::SERVER.to_owned(), launch.server.to_string());
    labels.insert(label::POOL.to_owned(), launch.pool.name.to_string());
    match launch.agent {
        Some(agent) => labels.insert(label::AGENT.to_owned(), agent.to_string()),
        None => labels.remove(label::AGENT),
    };
    labels
}

fn request(launch: &Launch<'_>, settings: &HetznerSettings, resolved: &Resolved) -> CreateServerRequest {
    let some = |list: &[i64]| (!list.is_empty()).then(|| list.to_vec());
    CreateServerRequest {
        automount: None,
        firewalls: some(&resolved.firewalls)
            .map(|firewalls| firewalls.into_iter().map(CreateServerRequestFirewalls::new).collect()),
        image: resolved.image.to_string(),
        labels: Some(labels(launch, &settings.labels).into_iter().collect()),
        location: Some(launch.offer.location.clone()),
        name: launch.name.to_string(),
        networks: some(&resolved.networks),
        placement_group: resolved.placement_group,
        public_net: Some(Box::new(CreateServerRequestPublicNet {
            enable_ipv4: Some(settings.public_ipv4),
            enable_ipv6: Some(settings.public_ipv6),
            ipv4: None,
            ipv6: None,
        })),
        server_type: launch.offer.server_type.clone(),
        ssh_keys: (!resolved.ssh_keys.is_empty()).then(|| resolved.ssh_keys.clone()),
        start_after_create: Some(true),
        user_data: Some(launch.user_data.expose_secret().to_owned()),
        volumes: None,
    }
}

/// A text of Hetzner's that repeats what was sent could hold the agent's secret: it is left out.
fn withhold(mut refusal: Refusal, launch: &Launch<'_>) -> Refusal {
    /// Shorter values (`docker`, `true`) stand in a message by chance.
    const SHORTEST: usize = 8;
    let user_data = launch.user_data.expose_secret();
    let value = |line: &'_ str| line.split_once('=').map_or(line.to_owned(), |(_, value)| value.to_owned());
    let repeats = |text: &str| {
        text.contains("#cloud-config")
            || user_data
                .lines()
                .map(|line| value(line.trim()))
                .any(|value| value.len() >= SHORTEST && text.contains(&value))
    };
    if repeats(&refusal.message) {
        "(its message repeats the request and is left out)".clone_into(&mut refusal.message);
    }
    if repeats(&refusal.code) {
        "(a code that repeats the request)".clone_into(&mut refusal.code);
    }
    refusal.fields.retain(|field| !repeats(field));
    refusal
}
