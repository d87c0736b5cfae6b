//! What EC2 says no to, and what it says too late or not at all.

use base64::Engine as _;

use super::fake::{Answer, Call, Fake, instance, listed, xml};
use super::{installation, launch, launch_name, pool, provider};
use crate::clock::Clock;
use crate::model::ids::{AgentId, InstanceId};
use crate::model::instance::{InstanceState, OfferKey};
use crate::provider::ec2::Ec2;
use crate::provider::{Granted, Provider as _, ProviderError, Right};
use crate::settings::PoolSettings;

fn offer() -> OfferKey {
    OfferKey { server_type: "c7a.large".to_owned(), location: "subnet-1".to_owned() }
}

/// A pool and what preparing it finds.
pub(super) async fn prepared(more: &[(&str, &str)]) -> (Fake, PoolSettings, Ec2, Clock) {
    let fake = Fake::start().await;
    fake.answers("DescribeInstanceTypes", [xml("DescribeInstanceTypes", "<instanceTypeSet><item><instanceType>c7a.large</instanceType><processorInfo><supportedArchitectures><item>x86_64</item></supportedArchitectures></processorInfo></item></instanceTypeSet>")]);
    fake.answers("DescribeImages", [xml("DescribeImages", "<imagesSet><item><imageId>ami-1</imageId><architecture>x86_64</architecture><rootDeviceName>/dev/xvda</rootDeviceName></item></imagesSet>")]);
    fake.answers("DescribeSubnets", [xml("DescribeSubnets", "<subnetSet><item><subnetId>subnet-1</subnetId></item><item><subnetId>subnet-2</subnetId></item></subnetSet>")]);
    fake.answers(
        "DescribeSecurityGroups",
        [xml("DescribeSecurityGroups", "<securityGroupInfo><item><groupId>sg-1</groupId></item></securityGroupInfo>")],
    );
    fake.answers(
        "DescribeKeyPairs",
        [xml("DescribeKeyPairs", "<keySet><item><keyName>desk</keyName></item></keySet>")],
    );
    fake.answers("DescribeLaunchTemplateVersions", [xml("DescribeLaunchTemplateVersions", "<launchTemplateVersionSet><item><launchTemplateData><imageId>ami-2</imageId></launchTemplateData></item></launchTemplateVersionSet>")]);
    let least = [
        ("PICUS_AWS_INSTANCE_TYPE", "c7a.large"),
        ("PICUS_AWS_AMI", "ami-1"),
        ("PICUS_AWS_SUBNETS", "subnet-1,subnet-2"),
    ];
    let all: Vec<(&str, &str)> = least.into_iter().chain(more.iter().copied()).collect();
    let pool = pool(&all);
    let clock = Clock::manual("2026-12-01T12:00:00Z".parse().expect("a time"));
    let ec2 = provider(&fake.address, std::slice::from_ref(&pool), clock.clone());
    ec2.prepare(&pool).await.expect("it is prepared");
    (fake, pool, ec2, clock)
}

fn ours(number: u64) -> String {
    let name = launch_name(number);
    let tags = [
        ("Name", name.as_str()),
        ("picus", "p1"),
        ("picus-server", "bcdfghjk"),
        ("picus-pool", "default"),
        ("picus-agent", "5"),
    ];
    instance("i-1", "pending", &tags)
}

fn launched(number: u64) -> Answer {
    xml("RunInstances", &format!("<instancesSet>{}</instancesSet>", ours(number)))
}

#[tokio::test]
async fn codes_mean_what_the_loop_does_about_them() {
    let (fake, pool, ec2, _) = prepared(&[]).await;
    for (code, kind) in [
        ("InsufficientInstanceCapacity", "sold_out"),
        ("Unsupported", "sold_out"),
        ("UnfulfillableCapacity", "sold_out"),
        ("SpotMaxPriceTooLow", "sold_out"),
        ("MaxSpotInstanceCountExceeded", "sold_out"),
        ("InsufficientFreeAddressesInSubnet", "sold_out"),
        ("InstanceLimitExceeded", "quota"),
        ("VcpuLimitExceeded", "quota"),
        ("UnauthorizedOperation", "unauthorised"),
        ("AuthFailure", "unauthorised"),
        ("InvalidParameterValue", "rejected"),
        ("IdempotentParameterMismatch", "rejected"),
    ] {
        fake.answers("RunInstances", [Answer::Refused(code)]);
        let error = launch(&ec2, &pool, 1, &offer()).await.expect_err(code);
        assert_eq!(error.kind(), kind, "{code}: {error}");
        assert!(error.to_string().contains(code), "{error}");
        ec2.prepare(&pool).await.expect("it is prepared");
    }
}

#[tokio::test]
async fn the_order_is_subnet_by_subnet_then_type_by_type() {
    let (_, pool, ec2, _) = prepared(&[]).await;
    let offers = ec2.prepare(&pool).await.expect("it is prepared").offers;
    let keys: Vec<String> = offers.iter().map(|offer| offer.key.to_string()).collect();
    assert_eq!(keys, ["c7a.large:subnet-1", "c7a.large:subnet-2"]);
}

#[tokio::test]
async fn after_throttling_no_call_leaves_for_a_while_and_longer_each_time() {
    let (fake, _, ec2, clock) = prepared(&[]).await;
    fake.answers("DescribeInstances", [Answer::Refused("RequestLimitExceeded")]);
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let Err(ProviderError::RateLimited { until }) = ec2.list(&installation()).await else { panic!("throttled") };
        let calls = fake.all_calls();
        assert!(matches!(ec2.list(&installation()).await, Err(ProviderError::RateLimited { .. })));
        assert_eq!(fake.all_calls(), calls, "nothing is sent before");
        let pause = crate::model::age(until, clock.now());
        pauses.push(pause.as_secs());
        clock.advance(pause);
    }
    assert_eq!(pauses, [10, 20, 40, 80]);
    fake.answers("DescribeInstances", [listed(&[])]);
    assert!(ec2.list(&installation()).await.expect("a list").is_empty());
}

#[tokio::test]
async fn a_launch_whose_answer_is_lost_is_found_by_its_name() {
    for lost in [Answer::Lost, Answer::Refused("InternalError"), Answer::Body("<html>".to_owned())] {
        let (fake, pool, ec2, _) = prepared(&[]).await;
        fake.answers("RunInstances", [lost.clone()]);
        fake.answers("DescribeInstances", [listed(&[ours(1)])]);
        let found = launch(&ec2, &pool, 1, &offer()).await.unwrap_or_else(|error| panic!("{lost:?}: {error}"));
        assert_eq!((found.id, found.agent), (InstanceId::from("i-1"), Some(AgentId(5))));
        // Not there yet: it may come.
        fake.answers("DescribeInstances", [listed(&[])]);
        let unclear = launch(&ec2, &pool, 1, &offer()).await.expect_err("it is unclear");
        assert_eq!(unclear.kind(), "unclear", "{unclear}");
        // Somebody else's.
        fake.answers(
            "DescribeInstances",
            [listed(&[instance("i-2", "running", &[("Name", launch_name(1).as_str())])])],
        );
        assert_eq!(launch(&ec2, &pool, 1, &offer()).await.expect_err("it is not ours").kind(), "rejected");
    }
}

#[tokio::test]
async fn the_request_says_what_it_must() {
    let (fake, pool, ec2, _) = prepared(&[
        ("PICUS_AWS_SECURITY_GROUPS", ""),
        ("PICUS_AWS_INSTANCE_PROFILE", "arn:aws:iam::123456789012:instance-profile/ci"),
        ("PICUS_AWS_TAGS", "team=ci"),
        ("PICUS_AWS_VOLUME_SIZE", "40"),
    ])
    .await;
    fake.answers("RunInstances", [launched(1)]);
    launch(&ec2, &pool, 1, &offer()).await.expect("it is launched");
    launch(&ec2, &pool, 1, &OfferKey { location: "subnet-2".to_owned(), ..offer() }).await.expect("it is launched");
    launch(&ec2, &pool, 1, &offer()).await.expect("it is launched");
    let calls = fake.calls("RunInstances");
    let call: &Call = &calls[0];
    for (parameter, value) in [
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("ImageId", "ami-1"),
        ("InstanceType", "c7a.large"),
        ("SubnetId", "subnet-1"),
        ("MetadataOptions.HttpTokens", "required"),
        ("MetadataOptions.HttpPutResponseHopLimit", "1"),
        ("InstanceInitiatedShutdownBehavior", "terminate"),
        ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
        ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
        ("BlockDeviceMapping.1.Ebs.VolumeSize", "40"),
        ("IamInstanceProfile.Arn", "arn:aws:iam::123456789012:instance-profile/ci"),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", "team"),
        ("TagSpecification.2.ResourceType", "volume"),
    ] {
        assert_eq!(call.get(parameter).map(String::as_str), Some(value), "{parameter} in {call:#?}");
    }
    assert!(call.keys().all(|key| !key.starts_with("InstanceMarketOptions")));
    let token = |index: usize| calls[index]["ClientToken"].clone();
    assert!(token(0).len() <= 64);
    assert_eq!(token(0), token(2), "the same call again is the same call");
    assert_ne!(token(0), token(1), "another offer is another");
}

#[tokio::test]
async fn spot_is_preferred_and_falls_back_or_is_the_only_one() {
    let (fake, pool, ec2, _) = prepared(&[("PICUS_AWS_SPOT", "prefer")]).await;
    fake.answers("RunInstances", [Answer::Refused("InsufficientInstanceCapacity"), launched(1)]);
    launch(&ec2, &pool, 1, &offer()).await.expect("it is launched on demand");
    let markets: Vec<Option<String>> =
        fake.calls("RunInstances").iter().map(|call| call.get("InstanceMarketOptions.MarketType").cloned()).collect();
    assert_eq!(markets, [Some("spot".to_owned()), None]);

    let (fake, pool, ec2, _) = prepared(&[("PICUS_AWS_SPOT", "only")]).await;
    fake.answers("RunInstances", [Answer::Refused("InsufficientInstanceCapacity"), launched(1)]);
    assert_eq!(launch(&ec2, &pool, 1, &offer()).await.expect_err("no spot").kind(), "sold_out");
    assert_eq!(fake.calls("RunInstances").len(), 1);
}

#[tokio::test]
async fn a_list_has_every_state_and_nothing_of_others() {
    let (fake, _, ec2, _) = prepared(&[]).await;
    let tagged = |id: &str, state: &str, installation: &str| {
        instance(id, state, &[("picus", installation), ("picus-pool", "default"), ("Name", id)])
    };
    let states = ["pending", "running", "stopping", "stopped", "shutting-down", "terminated", "a-new-one"];
    let mut all: Vec<String> = states.iter().map(|state| tagged(&format!("i-{state}"), state, "p1")).collect();
    all.push(tagged("i-other", "running", "p10"));
    all.push(instance("i-bare", "running", &[]));
    fake.answers("DescribeInstances", [listed(&all)]);
    let listed: Vec<(String, InstanceState)> =
        ec2.list(&installation()).await.expect("a list").into_iter().map(|one| (one.id.0, one.state)).collect();
    let wanted = [
        ("i-pending", InstanceState::Starting),
        ("i-running", InstanceState::Running),
        ("i-stopping", InstanceState::Stopping),
        ("i-stopped", InstanceState::Stopped),
        ("i-shutting-down", InstanceState::Deleting),
        ("i-a-new-one", InstanceState::Unknown),
    ];
    assert_eq!(listed, wanted.map(|(id, state)| (id.to_owned(), state)));
}

#[tokio::test]
async fn two_pages_are_read_and_a_page_that_fails_fails_the_list() {
    let (fake, _, ec2, _) = prepared(&[]).await;
    let tags = |id| instance(id, "running", &[("picus", "p1"), ("picus-pool", "default"), ("Name", id)]);
    let page = |id, token: &str| {
        xml(
            "DescribeInstances",
            &format!("<reservationSet><item><instancesSet>{}</instancesSet></item></reservationSet>{token}", tags(id)),
        )
    };
    fake.answers("DescribeInstances", [page("i-1", "<nextToken>more</nextToken>"), page("i-2", "")]);
    assert_eq!(ec2.list(&installation()).await.expect("a list").len(), 2);
    assert_eq!(fake.calls("DescribeInstances")[1]["NextToken"], "more");
    fake.answers("DescribeInstances", [page("i-1", "<nextToken>more</nextToken>"), Answer::Refused("InternalError")]);
    assert!(ec2.list(&installation()).await.is_err());
}

#[tokio::test]
async fn starting_and_terminating_are_refused_as_the_loop_understands_it() {
    let (fake, _, ec2, _) = prepared(&[]).await;
    let id = InstanceId::from("i-1");
    fake.answers("StartInstances", [Answer::Refused("InsufficientInstanceCapacity")]);
    assert_eq!(ec2.start(&id).await.expect_err("no room").kind(), "sold_out");
    fake.answers("StartInstances", [Answer::Refused("IncorrectInstanceState")]);
    assert_eq!(ec2.start(&id).await.expect_err("it stops").kind(), "locked");
    fake.answers("TerminateInstances", [Answer::Refused("InvalidInstanceID.NotFound")]);
    ec2.delete(&id).await.expect("it is gone");
    fake.answers("TerminateInstances", [Answer::Refused("OperationNotPermitted")]);
    assert_eq!(ec2.delete(&id).await.expect_err("it is protected").kind(), "rejected");
}

#[tokio::test]
async fn a_root_volume_that_would_stay_is_made_to_go_with_its_instance() {
    let (fake, _, ec2, _) = prepared(&[("PICUS_AWS_AMI", "resolve:ssm:/ci/image")]).await;
    let disk = |stays: bool| {
        format!(
            "<rootDeviceName>/dev/xvda</rootDeviceName><blockDeviceMapping><item><deviceName>/dev/xvda</deviceName>\
             <ebs><deleteOnTermination>{}</deleteOnTermination></ebs></item></blockDeviceMapping></item>",
            !stays
        )
    };
    let with = |id: &str, stays: bool| {
        let bare = ours(1).replace("i-1", id);
        format!("{}{}", bare.strip_suffix("</item>").expect("an item"), disk(stays))
    };
    fake.answers("DescribeInstances", [listed(&[with("i-1", true), with("i-2", false)])]);
    fake.answers("TerminateInstances", [xml("TerminateInstances", "")]);
    fake.answers("ModifyInstanceAttribute", [xml("ModifyInstanceAttribute", "<return>true</return>")]);
    assert_eq!(ec2.list(&installation()).await.expect("a list").len(), 2);
    for id in ["i-1", "i-2"] {
        ec2.delete(&InstanceId::from(id)).await.expect("it is terminated");
    }
    let changed = fake.calls("ModifyInstanceAttribute");
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0]["InstanceId"], "i-1");
    assert_eq!(changed[0]["BlockDeviceMapping.1.Ebs.DeleteOnTermination"], "true");
    // Without that right it is terminated all the same.
    fake.answers("ModifyInstanceAttribute", [Answer::Refused("UnauthorizedOperation")]);
    ec2.delete(&InstanceId::from("i-1")).await.expect("it is terminated");
    assert_eq!(fake.calls("TerminateInstances").len(), 3);
}

#[tokio::test]
async fn a_missing_right_is_told_and_the_others_are_asked_for() {
    let (fake, pool, ec2, _) = prepared(&[]).await;
    for operation in ["StartInstances", "StopInstances", "CreateTags", "DeleteTags", "TerminateInstances"] {
        fake.answers(operation, [Answer::Refused("DryRunOperation")]);
    }
    fake.answers("RunInstances", [Answer::Refused("UnauthorizedOperation")]);
    fake.answers("TerminateInstances", [Answer::Refused("UnauthorizedOperation")]);
    let refused = |rights: Vec<Right>| {
        assert_eq!(rights.len(), 6);
        let so =
            |right: Right| (right.granted != Granted::Yes).then(|| format!("{} {:?}", right.action, right.granted));
        rights.into_iter().filter_map(so).collect::<Vec<_>>()
    };
    // Without an instance a right that hangs on its tags can't be told.
    fake.answers("DescribeInstances", [listed(&[])]);
    let told = refused(ec2.rights(&pool, &installation()).await.expect("rights"));
    assert!(told[0].starts_with("ec2:RunInstances No("), "{told:?}");
    assert!(told.len() == 2 && told[1].starts_with("ec2:TerminateInstances Unknown("), "{told:?}");
    fake.answers("DescribeInstances", [listed(&[ours(1)])]);
    let told = refused(ec2.rights(&pool, &installation()).await.expect("rights"));
    assert!(told.len() == 2 && told[1].starts_with("ec2:TerminateInstances No("), "{told:?}");
    assert_eq!(fake.calls("TerminateInstances")[1]["InstanceId.1"], "i-1");
    let dry = |operation: &str| fake.calls(operation).iter().all(|call| call["DryRun"] == "true");
    assert!(dry("RunInstances") && dry("TerminateInstances"));
}

#[tokio::test]
async fn the_console_gives_its_last_lines() {
    let (fake, _, ec2, _) = prepared(&[]).await;
    let text = (0..50).map(|line| format!("line {line}\u{1b}[0m\r\n")).collect::<Vec<_>>().concat();
    let output = base64::engine::general_purpose::STANDARD.encode(text);
    fake.answers("GetConsoleOutput", [xml("GetConsoleOutput", &format!("<output>{output}</output>"))]);
    let tail = ec2.console(&InstanceId::from("i-1")).await.expect("an answer").expect("a tail");
    assert_eq!((tail.lines().count(), tail.lines().last()), (20, Some("line 49[0m")));
    fake.answers("GetConsoleOutput", [xml("GetConsoleOutput", "")]);
    assert_eq!(ec2.console(&InstanceId::from("i-1")).await.expect("an answer"), None);
}

#[tokio::test]
async fn user_data_that_is_too_long_is_compressed() {
    let (short, long) = ("#cloud-config\n".to_owned(), "#cloud-config\n".repeat(2000));
    assert_eq!(super::super::shortest(&short), short.as_bytes());
    let compressed = super::super::shortest(&long);
    assert!(compressed.len() < 1000 && compressed.starts_with(&[0x1f, 0x8b]));
}
