//! What the credentials may do, asked with `DryRun`: nothing is done, and EC2 says whether it would have been
//! (<https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html>).

use aws_sdk_ec2::types::{ResourceType, Tag, TagSpecification};

use super::client::Client;
use super::failure::{Failure, Meaning};
use super::instances;
use super::launch::{Market, Resolved, basic};
use super::prepare::DEFAULT_PLACE;
use crate::model::ids::InstallationId;
use crate::model::instance::OfferKey;
use crate::provider::{Granted, ProviderError, Right, label};
use crate::settings::{Ec2Settings, FixedSettings, Spot};

/// No instance has this id: that it is not found means that the right to ask for it was there.
const NOBODY: &str = "i-00000000000000000";

/// A right may hang on the instance's tags, and one that does not exist has none.
const NO_INSTANCE: &str =
    "there is no instance of Picus's to ask about; if it hangs on the tag `picus`, it is told once there is one";

/// The rights of a pool that launches.
pub(super) async fn launched(
    client: &Client,
    settings: &Ec2Settings,
    resolved: &Resolved,
    installation: &InstallationId,
) -> Result<Vec<Right>, ProviderError> {
    let offer = OfferKey {
        server_type: settings.instance_types.first().cloned().unwrap_or_default(),
        location: settings.subnets.first().map_or(DEFAULT_PLACE, String::as_str).to_owned(),
    };
    let market = if settings.spot == Spot::Never { Market::OnDemand } else { Market::Spot };
    let tagged = |resource| {
        let tag = Tag::builder().key(label::INSTALLATION).value(&installation.0).build();
        TagSpecification::builder().resource_type(resource).tags(tag).build()
    };
    let request = basic(client.ec2().await?.run_instances(), settings, resolved, &offer, market)
        .min_count(1)
        .max_count(1)
        .tag_specifications(tagged(ResourceType::Instance))
        .tag_specifications(tagged(ResourceType::Volume));
    let request = if settings.instance_types.is_empty() { request.set_instance_type(None) } else { request };
    let run = right("ec2:RunInstances", client.read("RunInstances", request.dry_run(true).send().await));
    let mut rights = vec![run];
    let (known, _) = instances::launched(client, installation).await?;
    match known.first() {
        Some(instance) => rights.extend(on(client, &instance.id.0, true).await?),
        None => rights.extend(on(client, NOBODY, true).await?.into_iter().map(|right| match right.granted {
            Granted::No(_) => Right { granted: Granted::Unknown(NO_INSTANCE), ..right },
            Granted::Yes | Granted::Unknown(_) => right,
        })),
    }
    Ok(rights)
}

/// The rights of a pool of machines that somebody else made.
pub(super) async fn fixed(client: &Client, settings: &FixedSettings) -> Result<Vec<Right>, ProviderError> {
    let mut rights = Vec::new();
    for instance in &settings.instances {
        for right in on(client, &instance.id.0, false).await? {
            if !rights.contains(&right) {
                rights.push(right);
            }
        }
    }
    Ok(rights)
}

/// What may be done to an instance.
async fn on(client: &Client, instance: &str, terminate: bool) -> Result<Vec<Right>, ProviderError> {
    let ec2 = client.ec2().await?;
    let started = ec2.start_instances().instance_ids(instance).dry_run(true).send().await;
    let stopped = ec2.stop_instances().instance_ids(instance).dry_run(true).send().await;
    let noted = Tag::builder().key(label::DRAIN).value("check").build();
    let tagged = ec2.create_tags().resources(instance).tags(noted.clone()).dry_run(true).send().await;
    let untagged = ec2.delete_tags().resources(instance).tags(noted).dry_run(true).send().await;
    let mut rights = vec![
        right("ec2:StartInstances", client.read("StartInstances", started)),
        right("ec2:StopInstances", client.read("StopInstances", stopped)),
        right("ec2:CreateTags", client.read("CreateTags", tagged)),
        right("ec2:DeleteTags", client.read("DeleteTags", untagged)),
    ];
    if terminate {
        let terminated = ec2.terminate_instances().instance_ids(instance).dry_run(true).send().await;
        rights.push(right("ec2:TerminateInstances", client.read("TerminateInstances", terminated)));
    }
    Ok(rights)
}

/// What the answer to a question means.
fn right<T>(action: &'static str, answer: Result<T, Failure>) -> Right {
    let granted = match answer {
        Ok(_) | Err(Failure::Refused { meaning: Meaning::WouldBeDone | Meaning::NotFound | Meaning::Locked, .. }) => {
            Granted::Yes
        }
        Err(failure) => Granted::No(ProviderError::from(failure).to_string()),
    };
    Right { action, granted }
}
