//! The real wire protocol, spoken by moto.

use aws_sdk_ec2::types::ArchitectureValues;

use super::server::Moto;
use super::{installation, launch, launch_name, pool, provider};
use crate::clock::Clock;
use crate::model::ids::{AgentId, InstanceId};
use crate::model::instance::{InstanceState, OfferKey};
use crate::provider::ec2::Ec2;
use crate::provider::{Granted, PrepareError, Provider as _};
use crate::settings::PoolSettings;

impl Moto {
    fn provider(&self, pools: &[PoolSettings]) -> Ec2 {
        provider(&self.address, pools, Clock::System)
    }

    /// The subnets that moto begins with.
    #[cfg(feature = "hcloud")]
    pub(in crate::provider) async fn subnets(&self) -> Vec<String> {
        let answer = self.client().describe_subnets().send().await.expect("subnets");
        answer.subnets().iter().filter_map(|one| one.subnet_id()).map(ToOwned::to_owned).collect()
    }
}

fn offer() -> OfferKey {
    OfferKey { server_type: "c5.large".to_owned(), location: "default".to_owned() }
}

#[tokio::test]
async fn an_instance_is_launched_listed_stopped_started_and_terminated() {
    let Some(moto) = Moto::start().await else { return };
    let image = moto.image().await;
    let pool = pool(&[
        ("PICUS_AWS_INSTANCE_TYPE", "c5.large"),
        ("PICUS_AWS_AMI", &image),
        ("PICUS_AWS_TAGS", "team=ci"),
        ("PICUS_AWS_VOLUME_SIZE", "40"),
        ("PICUS_AWS_RETIRE", "stop"),
    ]);
    let ec2 = moto.provider(std::slice::from_ref(&pool));
    let prepared = ec2.prepare(&pool).await.expect("it is prepared");
    assert_eq!((prepared.platform.as_str(), &prepared.offers[0].key), ("linux/amd64", &offer()));

    let launched = launch(&ec2, &pool, 1, &offer()).await.expect("it is launched");
    assert_eq!((&launched.name, launched.agent), (&launch_name(1), Some(AgentId(5))));
    assert_eq!(launched.launch_settings, pool.launch.mark());
    let listed = || async { ec2.list(&installation()).await.expect("a list") };
    let there = listed().await;
    assert_eq!((there.len(), &there[0].id, there[0].state), (1, &launched.id, InstanceState::Running));
    assert!(ec2.list(&"p10".into()).await.expect("a list").is_empty(), "another installation's are not ours");

    ec2.note_drain(&launched.id, Some(AgentId(5))).await.expect("it is noted");
    assert_eq!(listed().await[0].draining, Some(AgentId(5)));
    ec2.note_drain(&launched.id, None).await.expect("it is noted");
    assert_eq!(listed().await[0].draining, None);

    ec2.stop(&launched.id).await.expect("it is stopped");
    let stopped = &listed().await[0];
    assert_eq!(stopped.state, InstanceState::Stopped);
    assert!(stopped.stopped_since.is_some(), "{stopped:?}");
    ec2.start(&launched.id).await.expect("it is started");
    assert_eq!(listed().await[0].state, InstanceState::Running);
    ec2.console(&launched.id).await.expect("a console, or none");

    // The disk bears our tags and goes with the instance.
    let client = moto.client();
    let volumes = client.describe_volumes().send().await.expect("volumes").volumes.expect("volumes");
    let ours: Vec<_> = volumes.iter().filter(|one| one.tags().iter().any(|tag| tag.key() == Some("picus"))).collect();
    assert_eq!((ours.len(), ours[0].size()), (1, Some(40)));
    ec2.delete(&launched.id).await.expect("it is terminated");
    ec2.delete(&launched.id).await.expect("one that is terminated is terminated");
    ec2.delete(&InstanceId::from("i-0123456789abcdef0")).await.expect("one that does not exist is gone");
    assert!(listed().await.is_empty());
    let volumes = client.describe_volumes().send().await.expect("volumes").volumes.unwrap_or_default();
    assert!(volumes.iter().all(|one| one.tags().iter().all(|tag| tag.key() != Some("picus"))));
}

#[tokio::test]
async fn more_instances_than_a_page_holds_are_listed() {
    let Some(moto) = Moto::start().await else { return };
    let image = moto.image().await;
    let pool = pool(&[("PICUS_AWS_INSTANCE_TYPE", "c5.large"), ("PICUS_AWS_AMI", &image)]);
    let ec2 = moto.provider(std::slice::from_ref(&pool));
    for number in 0..105 {
        launch(&ec2, &pool, number, &offer()).await.expect("it is launched");
    }
    let mut ids: Vec<_> = ec2.list(&installation()).await.expect("a list").into_iter().map(|one| one.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 105);
}

#[tokio::test]
async fn machines_that_somebody_else_made_are_started_and_stopped_and_never_terminated() {
    let Some(moto) = Moto::start().await else { return };
    let (first, second) = (moto.machine("build7").await, moto.machine("build8").await);
    let ids = format!("{first},{second}");
    let pool = pool(&[("PICUS_AWS_INSTANCE_ID", &ids), ("PICUS_WOODPECKER_AGENT_ID", "5,7")]);
    assert_eq!((pool.max, pool.launch.fixed()[1].agent), (2, Some(AgentId(7))));
    let ec2 = moto.provider(std::slice::from_ref(&pool));
    let prepared = ec2.prepare(&pool).await.expect("it is prepared");
    assert_eq!((prepared.platform.as_str(), prepared.offers.len()), ("linux/amd64", 0));
    let listed = ec2.list(&installation()).await.expect("a list");
    assert_eq!(listed.len(), 2);
    let one = listed.iter().find(|one| one.id.0 == first).expect("the first");
    assert_eq!((one.name.as_str(), one.agent), ("build7", None));
    assert!(one.known_as.contains(&first) && one.known_as.contains(&"build7".to_owned()), "{:?}", one.known_as);
    assert!(one.known_as.iter().any(|name| name.starts_with("ip-")), "{:?}", one.known_as);
    ec2.stop(&one.id).await.expect("it is stopped");
    ec2.start(&one.id).await.expect("it is started");
    assert!(ec2.delete(&one.id).await.is_err());
    assert_eq!(ec2.list(&installation()).await.expect("a list").len(), 2);
}

#[tokio::test]
async fn what_does_not_exist_is_told_with_its_variable_all_at_once() {
    let Some(moto) = Moto::start().await else { return };
    let pool = pool(&[
        ("PICUS_AWS_INSTANCE_TYPE", "c5.large,z9.huge"),
        ("PICUS_AWS_AMI", "self/none-*"),
        ("PICUS_AWS_SUBNETS", "subnet-0123"),
        ("PICUS_AWS_SECURITY_GROUPS", "sg-0123"),
        ("PICUS_AWS_KEY_NAME", "nobodys"),
    ]);
    let ec2 = moto.provider(std::slice::from_ref(&pool));
    let Err(PrepareError::Settings(problems)) = ec2.prepare(&pool).await else { panic!("problems") };
    let names: Vec<&str> = problems.iter().map(|problem| problem.variable.as_str()).collect();
    let all =
        ["INSTANCE_TYPE", "AMI", "SUBNETS", "SECURITY_GROUPS", "KEY_NAME"].map(|name| format!("PICUS_AWS_{name}"));
    assert_eq!(names, all);
}

#[tokio::test]
async fn a_machine_that_does_not_exist_ends_the_start() {
    let Some(moto) = Moto::start().await else { return };
    let id = moto.machine("build7").await;
    let pool = pool(&[("PICUS_AWS_INSTANCE_ID", &format!("{id},i-0123456789abcdef0"))]);
    let ec2 = moto.provider(std::slice::from_ref(&pool));
    let Err(PrepareError::Settings(problems)) = ec2.prepare(&pool).await else { panic!("problems") };
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("i-0123456789abcdef0"), "{}", problems[0]);
}

#[tokio::test]
async fn the_newest_image_of_the_right_architecture_is_taken() {
    let Some(moto) = Moto::start().await else { return };
    let pool = pool(&[("PICUS_AWS_INSTANCE_TYPE", "c5.large"), ("PICUS_AWS_AMI", "amazon/amzn*")]);
    let ec2 = moto.provider(std::slice::from_ref(&pool));
    let prepared = ec2.prepare(&pool).await.expect("it is prepared");
    let image = prepared.findings.iter().find(|finding| finding.starts_with("image ami-")).expect("an image");
    let client = moto.client();
    let filters = vec![super::super::instances::filter("name", ["amzn*"])];
    let all = client.describe_images().owners("amazon").set_filters(Some(filters)).send().await.expect("images");
    let mut fitting: Vec<_> =
        all.images().iter().filter(|one| one.architecture() == Some(&ArchitectureValues::X8664)).collect();
    fitting.sort_by_key(|one| (one.creation_date(), one.image_id()));
    let newest = fitting.last().and_then(|one| one.image_id()).expect("the newest");
    assert!(image.contains(newest), "{image}, not {newest}");
}

#[tokio::test]
async fn rights_are_proven_without_doing_anything() {
    let Some(moto) = Moto::start().await else { return };
    let image = moto.image().await;
    let pool = pool(&[("PICUS_AWS_INSTANCE_TYPE", "c5.large"), ("PICUS_AWS_AMI", &image)]);
    let ec2 = moto.provider(std::slice::from_ref(&pool));
    ec2.prepare(&pool).await.expect("it is prepared");
    let rights = ec2.rights(&pool, &installation()).await.expect("rights");
    let actions: Vec<&str> = rights.iter().map(|right| right.action).collect();
    let all = ["RunInstances", "StartInstances", "StopInstances", "CreateTags", "DeleteTags", "TerminateInstances"];
    assert_eq!(actions, all.map(|action| format!("ec2:{action}")));
    assert!(rights.iter().all(|right| right.granted == Granted::Yes), "{rights:?}");
    assert!(ec2.list(&installation()).await.expect("a list").is_empty());
}
