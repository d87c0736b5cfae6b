//! EC2's instances as ours: whose they are, what they are called, in which state; and the ways to look for them.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{Filter, Instance as Wire, InstanceStateName};
use jiff::Timestamp;

use super::client::Client;
use super::failure::Failure;
use crate::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, PoolName, ServerMark};
use crate::model::instance::{Instance, InstanceState, OfferKey};
use crate::provider::label;

/// Instances on one page.
const PAGE: i32 = 100;

/// A filter with these values.
pub(super) fn filter(name: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().map(Into::into).collect())).build()
}

/// Every instance that the filter lets through, all pages, those that are terminated left out.
pub(super) async fn described(client: &Client, filters: Vec<Filter>) -> Result<Vec<Wire>, Failure> {
    let mut found = Vec::new();
    let mut pages =
        client.ec2().await?.describe_instances().set_filters(Some(filters)).max_results(PAGE).into_paginator().send();
    while let Some(page) = pages.next().await {
        let page = client.read("DescribeInstances", page)?;
        for mut reservation in page.reservations.unwrap_or_default() {
            found.append(&mut reservation.instances.take().unwrap_or_default());
        }
    }
    // A terminated one stays in the list for an hour.
    found.retain(|instance| state(instance).is_some());
    Ok(found)
}

/// Every instance of the installation; and of those whose root volume would outlive them what it is called.
pub(super) async fn launched(
    client: &Client,
    installation: &InstallationId,
) -> Result<(Vec<Instance>, BTreeMap<InstanceId, String>), Failure> {
    let ours = filter(&format!("tag:{}", label::INSTALLATION), [installation.0.as_str()]);
    let found = described(client, vec![ours]).await?;
    let (mut instances, mut outliving) = (Vec::new(), BTreeMap::new());
    for wire in &found {
        let Some(instance) = instance(wire, installation) else { continue };
        if let Some(device) = outliving_root(wire) {
            outliving.insert(instance.id.clone(), device.to_owned());
        }
        instances.push(instance);
    }
    Ok((instances, outliving))
}

/// What the root volume is called, if it stays when the instance is terminated.
fn outliving_root(wire: &Wire) -> Option<&str> {
    let device = wire.root_device_name()?;
    let mapping = wire.block_device_mappings().iter().find(|one| one.device_name() == Some(device))?;
    (mapping.ebs()?.delete_on_termination() == Some(false)).then_some(device)
}

/// The machines that somebody else made, of those that exist.
pub(super) async fn fixed(client: &Client, pools: &BTreeMap<InstanceId, PoolName>) -> Result<Vec<Instance>, Failure> {
    let ids = filter("instance-id", pools.keys().map(|id| id.0.as_str()));
    let found = described(client, vec![ids]).await?;
    Ok(found
        .iter()
        .filter_map(|wire| Some((wire, pools.get(&InstanceId::from(wire.instance_id()?))?)))
        .filter_map(|(wire, pool)| of_pool(wire, pool))
        .collect())
}

/// The instance with this name that is not gone.
pub(super) async fn named(client: &Client, name: &LaunchName) -> Result<Option<Wire>, Failure> {
    Ok(described(client, vec![filter("tag:Name", [name.as_str()])]).await?.into_iter().next())
}

/// A launched instance. `None`: its tags are not exactly this installation's, or name no pool.
pub(super) fn instance(wire: &Wire, installation: &InstallationId) -> Option<Instance> {
    if tag(wire, label::INSTALLATION) != Some(&installation.0) {
        return None;
    }
    let pool = PoolName::from(tag(wire, label::POOL).filter(|pool| !pool.is_empty())?);
    let text = tag(wire, "Name").unwrap_or_default();
    let name = LaunchName::parse(text, installation, &pool).unwrap_or_else(|| LaunchName::renamed(text));
    Some(Instance {
        server: tag(wire, label::SERVER).map(ServerMark::from),
        agent: tag(wire, label::AGENT).and_then(|id| id.parse().ok()).map(AgentId),
        known_as: Vec::new(),
        launch_settings: tag(wire, label::SETTINGS).map(ToOwned::to_owned),
        ..bare(wire, name, pool)?
    })
}

/// A machine that somebody else made.
fn of_pool(wire: &Wire, pool: &PoolName) -> Option<Instance> {
    let id = wire.instance_id()?;
    let dns = wire.private_dns_name().filter(|dns| !dns.is_empty());
    let short = dns.and_then(|dns| dns.split('.').next());
    let called = tag(wire, "Name").filter(|name| !name.is_empty());
    let mut known_as: Vec<String> = Vec::new();
    for name in [Some(id), dns, short, called].into_iter().flatten() {
        if !known_as.iter().any(|known| known == name) {
            known_as.push(name.to_owned());
        }
    }
    let name = LaunchName::renamed(called.unwrap_or(id));
    Some(Instance { known_as, ..bare(wire, name, pool.clone())? })
}

/// What both have.
fn bare(wire: &Wire, name: LaunchName, pool: PoolName) -> Option<Instance> {
    let state = state(wire)?;
    Some(Instance {
        id: InstanceId::from(wire.instance_id()?),
        name,
        pool,
        server: None,
        agent: None,
        known_as: Vec::new(),
        draining: tag(wire, label::DRAIN).and_then(|id| id.parse().ok()).map(AgentId),
        launch_settings: None,
        state,
        stopped_since: (state == InstanceState::Stopped).then(|| stopped_at(wire.state_transition_reason()?)).flatten(),
        // The time of the last start. The SDK signs with this machine's clock, so the two agree within minutes.
        created: wire
            .launch_time()
            .and_then(|at| Timestamp::from_second(at.secs()).ok())
            .unwrap_or(Timestamp::UNIX_EPOCH),
        offer: offer(wire),
    })
}

/// What it is: its type, and its subnet.
pub(super) fn offer(wire: &Wire) -> OfferKey {
    let place = wire.subnet_id().or_else(|| wire.placement().and_then(|placement| placement.availability_zone()));
    OfferKey {
        server_type: wire.instance_type().map_or("unknown", |kind| kind.as_str()).to_owned(),
        location: place.unwrap_or("unknown").to_owned(),
    }
}

/// `None`: it is gone.
pub(super) fn state(wire: &Wire) -> Option<InstanceState> {
    match wire.state().and_then(|state| state.name()) {
        Some(InstanceStateName::Pending) => Some(InstanceState::Starting),
        Some(InstanceStateName::Running) => Some(InstanceState::Running),
        Some(InstanceStateName::Stopping) => Some(InstanceState::Stopping),
        Some(InstanceStateName::Stopped) => Some(InstanceState::Stopped),
        Some(InstanceStateName::ShuttingDown) => Some(InstanceState::Deleting),
        Some(InstanceStateName::Terminated) => None,
        _ => Some(InstanceState::Unknown),
    }
}

/// The value of a tag.
pub(super) fn tag<'a>(wire: &'a Wire, key: &str) -> Option<&'a str> {
    wire.tags().iter().find(|tag| tag.key() == Some(key)).and_then(|tag| tag.value())
}

/// The time in `User initiated (2026-12-01 12:00:00 GMT)`.
fn stopped_at(reason: &str) -> Option<Timestamp> {
    let (_, rest) = reason.split_once('(')?;
    let (time, _zone) = rest.strip_suffix(')')?.rsplit_once(' ')?;
    format!("{}Z", time.replace(' ', "T")).parse().ok()
}

#[cfg(test)]
mod unit {
    use super::stopped_at;

    #[test]
    fn the_time_of_a_stop_is_read_from_its_reason() {
        let at = |text: &str| stopped_at(text).map(|at| at.to_string());
        assert_eq!(at("User initiated (2026-12-01 12:00:30 GMT)").as_deref(), Some("2026-12-01T12:00:30Z"));
        for text in ["", "User initiated", "User initiated (yesterday)", "(2026-12-01 12:00:30 GMT", ")("] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
