//! The call that launches, and what its answer means.
//!
//! *Expected flow*: the request carries our tags on instance and volume, and a client token; EC2 answers with the instance.
//!
//! *Guarantees*: the client token is made of the launch's name and the offer, so the same call sent twice launches once. An
//! answer that is lost is settled by looking for the name. The root volume goes with the instance; the metadata service asks
//! for a session token and answers no container (hop limit 1).
//!
//! *Assumptions*: names are fresh for each launch, so an instance with this name and our tags is this launch's.

use std::io::Write as _;

use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types::{
    BlockDeviceMapping, EbsBlockDevice, HttpTokensState, IamInstanceProfileSpecification, Instance as Wire,
    InstanceInterruptionBehavior, InstanceMarketOptionsRequest, InstanceMetadataEndpointState,
    InstanceMetadataOptionsRequest, LaunchTemplateSpecification, MarketType, ResourceType, ShutdownBehavior,
    SpotInstanceType, SpotMarketOptions, Tag, TagSpecification,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use secrecy::ExposeSecret as _;

use super::LARGEST_USER_DATA;
use super::client::Client;
use super::failure::{Failure, Meaning};
use super::instances::{self, named};
use super::prepare::DEFAULT_PLACE;
use crate::model::ids;
use crate::model::instance::{Instance, OfferKey};
use crate::model::pool::RetireTo;
use crate::provider::{Launch, ProviderError, label};
use crate::settings::{Ec2Settings, Spot};

/// What a pool's launch settings came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    /// `ami-…` or an alias. `None`: the launch template's.
    pub(super) image: Option<String>,
    /// What the image calls its root volume. `None`: not known.
    pub(super) root_device: Option<String>,
    /// How large the image makes it, in GiB. `None`: not known.
    pub(super) root_size: Option<i32>,
}

/// Launches the instance, or finds that it exists.
pub(super) async fn launch(
    client: &Client,
    launch: &Launch<'_>,
    settings: &Ec2Settings,
    resolved: &Resolved,
) -> Result<Instance, ProviderError> {
    let user_data = encoded(launch.user_data.expose_secret());
    let markets: &[Market] = match settings.spot {
        Spot::Never => &[Market::OnDemand],
        Spot::Prefer => &[Market::Spot, Market::OnDemand],
        Spot::Only => &[Market::Spot],
    };
    let mut refused = None;
    for market in markets {
        let request = basic(client.ec2().await?.run_instances(), settings, resolved, launch.offer, *market)
            .min_count(1)
            .max_count(1)
            .client_token(token(launch, *market))
            .user_data(&user_data)
            .tag_specifications(tagged(ResourceType::Instance, launch, settings))
            .tag_specifications(tagged(ResourceType::Volume, launch, settings));
        match client.read("RunInstances", request.send().await) {
            Ok(answer) => {
                let first = answer.instances.unwrap_or_default().into_iter().next();
                return match first.as_ref().and_then(|wire| ours(wire, launch)) {
                    Some(instance) => Ok(instance),
                    None => settle(client, launch, "RunInstances: an answer without an instance").await,
                };
            }
            Err(Failure::Refused { meaning: Meaning::SoldOut, text }) => refused = Some(text),
            Err(Failure::Refused { meaning: Meaning::Broken, text } | Failure::Unanswered(text)) => {
                return settle(client, launch, &text).await;
            }
            Err(failure @ (Failure::Refused { .. } | Failure::RateLimited { .. } | Failure::NotSent(_))) => {
                return Err(failure.into());
            }
        }
    }
    Err(ProviderError::SoldOut(refused.unwrap_or_else(|| "nothing was tried".to_owned())))
}

/// How an instance is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Market {
    OnDemand,
    Spot,
}

/// The request without what belongs to one launch. What is not set is the launch template's.
pub(super) fn basic(
    request: RunInstancesFluentBuilder,
    settings: &Ec2Settings,
    resolved: &Resolved,
    offer: &OfferKey,
    market: Market,
) -> RunInstancesFluentBuilder {
    let template = settings.launch_template.as_ref().map(|template| {
        let specification = LaunchTemplateSpecification::builder().version(&template.version);
        if template.name.starts_with("lt-") {
            specification.launch_template_id(&template.name).build()
        } else {
            specification.launch_template_name(&template.name).build()
        }
    });
    let root = resolved.root_device.as_ref().map(|device| {
        let volume = EbsBlockDevice::builder()
            .delete_on_termination(true)
            .set_volume_size(settings.volume_size.and_then(|size| i32::try_from(size).ok()).or(resolved.root_size));
        vec![BlockDeviceMapping::builder().device_name(device).ebs(volume.build()).build()]
    });
    let profile = settings.instance_profile.as_ref().map(|profile| {
        let specification = IamInstanceProfileSpecification::builder();
        if profile.starts_with("arn:") {
            specification.arn(profile).build()
        } else {
            specification.name(profile).build()
        }
    });
    let spot = (market == Market::Spot).then(|| {
        let options = SpotMarketOptions::builder()
            .spot_instance_type(SpotInstanceType::OneTime)
            .instance_interruption_behavior(InstanceInterruptionBehavior::Terminate);
        InstanceMarketOptionsRequest::builder().market_type(MarketType::Spot).spot_options(options.build()).build()
    });
    let metadata = InstanceMetadataOptionsRequest::builder()
        .http_endpoint(InstanceMetadataEndpointState::Enabled)
        .http_tokens(HttpTokensState::Required)
        .http_put_response_hop_limit(1);
    let shutdown = match settings.retire {
        RetireTo::Delete => ShutdownBehavior::Terminate,
        RetireTo::Stop { .. } => ShutdownBehavior::Stop,
    };
    let groups = (!settings.security_groups.is_empty()).then(|| settings.security_groups.clone());
    request
        .set_launch_template(template)
        .set_image_id(resolved.image.clone())
        .instance_type(offer.server_type.as_str().into())
        .set_subnet_id((offer.location != DEFAULT_PLACE).then(|| offer.location.clone()))
        .set_security_group_ids(groups)
        .set_key_name(settings.key_name.clone())
        .set_iam_instance_profile(profile)
        .set_block_device_mappings(root)
        .set_instance_market_options(spot)
        .metadata_options(metadata.build())
        .instance_initiated_shutdown_behavior(shutdown)
}

/// The user data as EC2 takes it: compressed where it is too long otherwise; cloud-init reads both.
fn encoded(user_data: &str) -> String {
    STANDARD.encode(shortest(user_data))
}

/// The user data in the form in which it is sent, before base64.
#[must_use]
pub fn shortest(user_data: &str) -> Vec<u8> {
    if user_data.len() <= LARGEST_USER_DATA {
        return user_data.as_bytes().to_vec();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing into memory does not fail; if it did, what comes of it is too long to be sent.
    match encoder.write_all(user_data.as_bytes()).and_then(|()| encoder.finish()) {
        Ok(compressed) => compressed,
        Err(_) => user_data.as_bytes().to_vec(),
    }
}

/// At most 64 letters, different for each launch, offer and market.
fn token(launch: &Launch<'_>, market: Market) -> String {
    let text = format!("{} {} {} {market:?}", launch.name, launch.server, launch.offer);
    format!("picus-{}{}", ids::mark(&text), ids::mark(&format!("{text} again")))
}

/// Own tags and ours; ours win.
fn tagged(resource: ResourceType, launch: &Launch<'_>, settings: &Ec2Settings) -> TagSpecification {
    let mark = settings.mark();
    let agent = launch.agent.map(|agent| agent.to_string());
    let ours = [
        ("Name", Some(launch.name.as_str())),
        (label::INSTALLATION, Some(launch.installation.0.as_str())),
        (label::SERVER, Some(launch.server.0.as_str())),
        (label::POOL, Some(launch.pool.name.0.as_str())),
        (label::AGENT, agent.as_deref()),
        (label::SETTINGS, Some(mark.as_str())),
    ];
    let own = settings.tags.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
    let mut specification = TagSpecification::builder().resource_type(resource);
    for (key, value) in own.chain(ours) {
        if let Some(value) = value {
            specification = specification.tags(Tag::builder().key(key).value(value).build());
        }
    }
    specification.build()
}

/// The instance, if it is this launch's.
fn ours(wire: &Wire, launch: &Launch<'_>) -> Option<Instance> {
    let instance = instances::instance(wire, launch.installation)?;
    let same = instance.pool == launch.pool.name
        && instance.agent == launch.agent
        && instance.server.as_ref() == Some(launch.server)
        && instance.name == *launch.name;
    same.then_some(instance)
}

/// Looks whether the instance exists after all.
async fn settle(client: &Client, launch: &Launch<'_>, why: &str) -> Result<Instance, ProviderError> {
    match named(client, launch.name).await {
        Ok(Some(wire)) => ours(&wire, launch).ok_or_else(|| {
            ProviderError::Rejected(format!(
                "the name {} is that of instance {}, which is not of this launch; {why}",
                launch.name,
                wire.instance_id().unwrap_or("?")
            ))
        }),
        // A new one may be missing from the list for some seconds.
        Ok(None) => Err(ProviderError::Unclear(format!("{why}; there is no instance {} yet", launch.name))),
        Err(failure) => {
            let look = ProviderError::from(failure);
            Err(ProviderError::Unclear(format!("{why}; looking for {} failed: {look}", launch.name)))
        }
    }
}
