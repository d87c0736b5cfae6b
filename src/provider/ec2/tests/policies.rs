//! The rights that `deploy/aws` asks for are the calls that are made, no more and no fewer.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fake::{Fake, instance, listed};
use super::refused::prepared;
use super::{installation, launch, pool, provider};
use crate::clock::Clock;
use crate::model::ids::{AgentId, InstanceId};
use crate::model::instance::OfferKey;
use crate::provider::Provider as _;

const FIXED: &str = include_str!("../../../../deploy/aws/policy-fixed.json");
const LAUNCHED: &str = include_str!("../../../../deploy/aws/policy-launched.json");
const TEMPLATE: &str = include_str!("../../../../deploy/aws/fixed-agent.yaml");
const SOURCES: [&str; 5] = [
    include_str!("../../ec2.rs"),
    include_str!("../instances.rs"),
    include_str!("../launch.rs"),
    include_str!("../prepare.rs"),
    include_str!("../rights.rs"),
];

/// EC2's actions in a policy.
fn actions(policy: &str) -> BTreeSet<String> {
    let policy: Value = serde_json::from_str(policy).expect("JSON");
    let statements = policy["Statement"].as_array().expect("statements");
    let each = statements.iter().flat_map(|statement| match &statement["Action"] {
        Value::String(one) => vec![one.clone()],
        many => many.as_array().expect("actions").iter().map(|one| one.as_str().expect("text").to_owned()).collect(),
    });
    each.filter_map(|action| action.strip_prefix("ec2:").map(ToOwned::to_owned)).collect()
}

/// What follows each `before` up to the next character that is not of a name.
fn named(text: &str, before: &str) -> BTreeSet<String> {
    text.split(before)
        .skip(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_alphanumeric).collect::<String>())
        .filter(|name| name.chars().next().is_some_and(|first| first.is_ascii_uppercase()))
        .collect()
}

/// What is done to an instance that is there already.
async fn handled(ec2: &super::Ec2, id: &InstanceId) {
    // The fake knows no answer to most of these: what counts is that they are asked.
    let _ = ec2.start(id).await;
    let _ = ec2.stop(id).await;
    let _ = ec2.note_drain(id, Some(AgentId(5))).await;
    let _ = ec2.note_drain(id, None).await;
    let _ = ec2.console(id).await;
}

/// The calls for machines that somebody else made.
async fn calls_for_fixed() -> BTreeSet<String> {
    let fake = Fake::start().await;
    let machine = instance("i-1", "running", &[]).replace("</item>", "<architecture>x86_64</architecture></item>");
    fake.answers("DescribeInstances", [listed(&[machine])]);
    let pool = pool(&[("PICUS_AWS_INSTANCE_ID", "i-1")]);
    let ec2 = provider(&fake.address, std::slice::from_ref(&pool), Clock::System);
    ec2.prepare(&pool).await.expect("it is prepared");
    ec2.list(&installation()).await.expect("a list");
    handled(&ec2, &InstanceId::from("i-1")).await;
    ec2.rights(&pool, &installation()).await.expect("rights");
    fake.operations()
}

/// The calls for instances that are launched.
async fn calls_for_launched() -> BTreeSet<String> {
    let (fake, pool, ec2, _) = prepared(&[
        ("PICUS_AWS_SECURITY_GROUPS", "sg-1"),
        ("PICUS_AWS_KEY_NAME", "desk"),
        ("PICUS_AWS_LAUNCH_TEMPLATE", "ci"),
    ])
    .await;
    let disk = "<rootDeviceName>/dev/xvda</rootDeviceName><blockDeviceMapping><item><deviceName>/dev/xvda</deviceName>\
                <ebs><deleteOnTermination>false</deleteOnTermination></ebs></item></blockDeviceMapping></item>";
    let ours = instance("i-1", "running", &[("picus", "p1"), ("picus-pool", "default")]);
    fake.answers("DescribeInstances", [listed(&[format!("{}{disk}", ours.strip_suffix("</item>").expect("an item"))])]);
    ec2.list(&installation()).await.expect("a list");
    let offer = OfferKey { server_type: "c7a.large".to_owned(), location: "subnet-1".to_owned() };
    let _ = launch(&ec2, &pool, 1, &offer).await;
    handled(&ec2, &InstanceId::from("i-1")).await;
    let _ = ec2.delete(&InstanceId::from("i-1")).await;
    ec2.prepare(&pool).await.expect("it is prepared");
    ec2.rights(&pool, &installation()).await.expect("rights");
    fake.operations()
}

#[tokio::test]
async fn the_policies_allow_the_calls_that_are_made_and_no_other() {
    let (fixed, launched) = (calls_for_fixed().await, calls_for_launched().await);
    assert_eq!(actions(FIXED), fixed);
    assert_eq!(actions(LAUNCHED), launched);
    // Nothing is called anywhere that was not called here.
    let in_code: BTreeSet<String> = SOURCES.iter().flat_map(|source| named(source, ".read(\"")).collect();
    assert_eq!(in_code, fixed.union(&launched).cloned().collect());
}

#[test]
fn the_template_gives_the_same_rights() {
    assert_eq!(named(TEMPLATE, "ec2:"), actions(FIXED));
}

#[test]
fn rights_hang_on_the_tags_that_are_set() {
    use crate::provider::label;
    assert!(LAUNCHED.contains(&format!("\"aws:RequestTag/{}\": \"picus\"", label::INSTALLATION)));
    assert!(LAUNCHED.contains(&format!("\"aws:ResourceTag/{}\": \"picus\"", label::INSTALLATION)));
    for policy in [FIXED, LAUNCHED, TEMPLATE] {
        assert!(policy.contains(label::DRAIN));
    }
}
