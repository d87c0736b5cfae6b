//! Servers as instances: whose they are, what they are called, in which state; and the two ways to look for them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::client::Client;
use super::failure::Failure;
use super::wire::{Datacenter, NameOnly, Server, time};
use crate::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, PoolName, ServerMark};
use crate::model::instance::{Instance, InstanceState, OfferKey};
use crate::provider::label;

/// A list that changed while it was read is read again, so often.
const READINGS: usize = 3;

/// Every server of the installation.
pub(super) async fn list(client: &Client, installation: &InstallationId) -> Result<Vec<Instance>, Failure> {
    let selector = format!("{}=={installation}", label::INSTALLATION);
    let query = [("label_selector", selector.as_str()), ("sort", "id:asc")];
    for _ in 0..READINGS {
        let servers = client.pages::<Server>("/servers", "servers", &query).await?;
        let mut seen = BTreeSet::new();
        let distinct: Vec<Server> = servers.items.into_iter().filter(|server| seen.insert(server.id)).collect();
        // A server deleted between two pages moves another one to the page that was already read. One that is deleted
        // and one that is created between the same two pages hide that; a later listing shows it, and nothing is
        // removed on the strength of one.
        let whole = servers.total.is_none_or(|total| u64::try_from(distinct.len()).is_ok_and(|read| read >= total));
        if whole && servers.steady {
            let now = client.now_there();
            let mut instances: Vec<Instance> =
                distinct.into_iter().filter_map(|server| instance(server, installation, now)).collect();
            for instance in &mut instances {
                instance.created = client.by_our_clock(instance.created);
            }
            return Ok(instances);
        }
    }
    Err(Failure::Unanswered("GET /servers: not as many servers as it says there are".to_owned()))
}

/// The server with this name, whoever's it is. Names are unique in a project.
pub(super) async fn named(client: &Client, name: &LaunchName) -> Result<Option<Server>, Failure> {
    let servers = client.pages::<Server>("/servers", "servers", &[("name", name.as_str())]).await?;
    Ok(servers.items.into_iter().find(|server| server.name.as_deref() == Some(name.as_str())))
}

/// The instance that a server is. `None`: its labels are not exactly this installation's, or name no pool.
///
/// A server without a time of creation counts as created `now`: what is young is left alone.
pub(super) fn instance(server: Server, installation: &InstallationId, now: Timestamp) -> Option<Instance> {
    let labels = server.labels.unwrap_or_default();
    if labels.get(label::INSTALLATION) != Some(&installation.0) {
        return None;
    }
    let pool = PoolName(labels.get(label::POOL).filter(|pool| !pool.is_empty())?.clone());
    let text = server.name.unwrap_or_default();
    let name = LaunchName::parse(&text, installation, &pool).unwrap_or_else(|| LaunchName::renamed(&text));
    Some(Instance {
        id: InstanceId(server.id.to_string()),
        name,
        pool,
        server: labels.get(label::SERVER).cloned().map(ServerMark),
        agent: labels.get(label::AGENT).and_then(|id| id.parse().ok()).map(AgentId),
        known_as: Vec::new(),
        draining: None,
        launch_settings: None,
        stopped_since: None,
        state: state(server.status.as_deref()),
        created: time(server.created.as_deref()).unwrap_or(now),
        offer: OfferKey {
            server_type: name_of(server.kind.as_ref()).unwrap_or_else(unknown),
            location: location(server.location.as_ref(), server.datacenter.as_ref()).unwrap_or_else(unknown),
        },
    })
}

/// What was ordered, as far as the answer tells.
pub(super) fn offer(server: &Server) -> Option<OfferKey> {
    Some(OfferKey {
        server_type: name_of(server.kind.as_ref())?,
        location: location(server.location.as_ref(), server.datacenter.as_ref())?,
    })
}

fn location(location: Option<&NameOnly>, datacenter: Option<&Datacenter>) -> Option<String> {
    name_of(location).or_else(|| name_of(datacenter?.location.as_ref()))
}

fn name_of(named: Option<&NameOnly>) -> Option<String> {
    named?.name.clone()
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// The words: <https://docs.hetzner.cloud/reference/cloud#servers>. One that is being rebuilt or moved is in no state
/// that Picus could act on.
pub(super) fn state(status: Option<&str>) -> InstanceState {
    match status {
        Some("initializing" | "starting") => InstanceState::Starting,
        Some("running") => InstanceState::Running,
        Some("stopping") => InstanceState::Stopping,
        Some("off") => InstanceState::Stopped,
        Some("deleting") => InstanceState::Deleting,
        _ => InstanceState::Unknown,
    }
}
