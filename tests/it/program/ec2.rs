//! The program and EC2, as moto speaks it: what a user with machines of their own sees, what one sees who lets Picus launch,
//! and `picus check` for both.

use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{HttpTokensState, Instance, InstanceStateName};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use picus::model::ids::{AgentId, InstallationId};
use picus::world::{World, agent, task};
use rustix::process::Signal;
use tokio::time::Instant;

use super::{LONG, Program, Running, bare, world};

#[path = "../../support/moto.rs"]
mod moto;
use moto::{KEY, Moto};

/// A stopped machine with an agent installed, and the agent's record.
async fn machine(moto: &Moto, world: &World, name: &str) -> (String, AgentId) {
    let id = moto.machine(name).await;
    moto.client().stop_instances().instance_ids(&id).send().await.expect("it is stopped");
    let record = world.add_agent(agent(name));
    world.kill_agent(record);
    (id, record)
}

/// The program with this account.
fn picus(world: &World, moto: &Moto, arguments: &[&'static str]) -> Program {
    let program = bare(arguments)
        .set("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str())
        .set("PICUS_WOODPECKER_TOKEN", world.admin_token())
        .set("PICUS_PROVIDER_TYPE", "aws")
        .set("PICUS_POLL_INTERVAL", "1s")
        .set("PICUS_MAX_IDLE_TIME", "1m")
        .set("AWS_ENDPOINT_URL", &moto.address)
        .set("AWS_REGION", "eu-central-1")
        .set("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        .set("AWS_SECRET_ACCESS_KEY", KEY);
    Program { secrets: vec![world.admin_token().to_owned(), KEY.to_owned()], ..program }
}

/// Every instance that moto has, with its state.
async fn instances(ec2: &Client) -> Vec<(Instance, InstanceStateName)> {
    let answer = ec2.describe_instances().send().await.expect("a list");
    let all = answer.reservations().iter().flat_map(|reservation| reservation.instances().to_vec());
    all.filter_map(|one| one.state().and_then(|state| state.name()).cloned().map(|state| (one, state))).collect()
}

/// Waits until EC2 has so many instances in this state.
async fn until(ec2: &Client, state: &InstanceStateName, count: usize, running: &Running) -> Vec<Instance> {
    let deadline = Instant::now() + LONG * 5;
    loop {
        let all = instances(ec2).await;
        let so: Vec<Instance> = all.iter().filter(|(_, is)| is == state).map(|(one, _)| one.clone()).collect();
        if so.len() == count {
            return so;
        }
        assert!(Instant::now() < deadline, "in vain: {count} {state}\n{}", running.text());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn done(world: &World, job: &picus::model::ids::TaskId, running: &Running) {
    super::eventually("the job is done", || world.task(job).is_some_and(|task| task.is_done()), || running.text())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_ones_own_are_started_for_a_task_and_stopped_when_idle() {
    let Some(moto) = Moto::start().await else { return };
    let (world, ec2) = (world().await, moto.client());
    let (first, record) = machine(&moto, &world, "build7").await;
    let (second, _) = machine(&moto, &world, "build8").await;
    let running = picus(&world, &moto, &["run"]).set("PICUS_AWS_INSTANCE_ID", &format!("{first},{second}")).start();
    running.says("watching").await;
    let job = world.push(task("build").takes(Duration::from_secs(2)));
    let up = until(&ec2, &InstanceStateName::Running, 1, &running).await;
    assert_eq!(up[0].instance_id(), Some(first.as_str()), "one machine for one task, the first first");
    world.connect(record, agent("build7"));
    done(&world, &job, &running).await;
    until(&ec2, &InstanceStateName::Stopped, 2, &running).await;
    assert_eq!(world.killed_jobs(), []);
    assert!(world.agent(record).is_some(), "its record stays");
    assert_eq!(running.ends_on(Signal::TERM, LONG).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_launched_for_a_task_and_terminated_when_idle() {
    let Some(moto) = Moto::start().await else { return };
    let (world, ec2) = (world().await, moto.client());
    let running = picus(&world, &moto, &["run"])
        .set("PICUS_AWS_INSTANCE_TYPE", "c5.large")
        .set("PICUS_AWS_AMI", &moto.image().await)
        .set("PICUS_AWS_TAGS", "team=ci")
        .set("PICUS_AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000")
        .start();
    running.says("watching").await;
    let job = world.push(task("build").takes(Duration::from_secs(2)));
    let up = until(&ec2, &InstanceStateName::Running, 1, &running).await.remove(0);
    let tag = |key: &str| up.tags().iter().find(|tag| tag.key() == Some(key)).and_then(|tag| tag.value());
    assert_eq!((tag("picus"), tag("picus-pool"), tag("team")), (Some("picus"), Some("default"), Some("ci")));
    let metadata = up.metadata_options().expect("options");
    assert_eq!(metadata.http_tokens(), Some(&HttpTokensState::Required));
    assert_eq!(metadata.http_put_response_hop_limit(), Some(1));
    let id = up.instance_id().expect("an id");
    let attribute = ec2.describe_instance_attribute().instance_id(id).attribute("userData".into());
    let attribute = attribute.send().await.expect("user data");
    let user_data = attribute.user_data().and_then(|data| data.value()).expect("user data");
    let user_data = String::from_utf8(STANDARD.decode(user_data).expect("base64")).expect("text");
    assert!(user_data.starts_with("#cloud-config") && user_data.contains("woodpecker.example.com:9000"), "{user_data}");

    let record = AgentId(tag("picus-agent").and_then(|id| id.parse().ok()).expect("its record"));
    assert!(world.connect(record, agent(tag("Name").expect("a name"))));
    done(&world, &job, &running).await;
    until(&ec2, &InstanceStateName::Terminated, 1, &running).await;
    let left = || world.left_behind(&InstallationId("picus".to_owned()));
    super::eventually("its record is gone", || left().agents.is_empty(), || running.text()).await;
    assert_eq!(world.killed_jobs(), []);
    assert_eq!(running.ends_on(Signal::TERM, LONG).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_tells_what_exists_and_what_the_credentials_may_do() {
    let Some(moto) = Moto::start().await else { return };
    let (world, ec2) = (world().await, moto.client());
    let (id, _) = machine(&moto, &world, "build7").await;
    let both = |program: Program, image: &str| {
        program
            .set("PICUS_POOLS", "own,launched")
            .set("PICUS_POOL_OWN_AWS_INSTANCE_ID", &id)
            .set("PICUS_POOL_LAUNCHED_AWS_INSTANCE_TYPE", "c5.large")
            .set("PICUS_POOL_LAUNCHED_AWS_AMI", image)
            .set("PICUS_POOL_LAUNCHED_AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000")
    };
    let before = instances(&ec2).await.len();
    let ended = both(picus(&world, &moto, &["check"]), &moto.image().await).output().await;
    assert_eq!(ended.code, Some(0), "{}", ended.out);
    for told in [
        "the credentials are accepted",
        "region eu-central-1",
        &format!("{id} (build7): t3.small, stopped"),
        "starts and stops linux/amd64 machines: 1",
        "the credentials may ec2:StartInstances, ec2:StopInstances",
        "instance type c5.large: linux/amd64",
        "the credentials may ec2:RunInstances",
        "ec2:TerminateInstances",
    ] {
        assert!(ended.out.contains(told), "nothing of {told:?} in\n{}", ended.out);
    }
    assert_eq!(instances(&ec2).await.len(), before, "nothing was done");

    let ended = both(picus(&world, &moto, &["check"]), "ami-0123456789abcdef0").output().await;
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    assert!(ended.out.contains("PICUS_POOL_LAUNCHED_AWS_AMI=\"ami-0123456789abcdef0\""), "{}", ended.out);
    let nowhere = picus(&world, &moto, &["check"]).set("PICUS_AWS_INSTANCE_ID", &id);
    let ended = nowhere.set("AWS_ENDPOINT_URL", "http://127.0.0.1:1").output().await;
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    assert!(ended.out.contains("AWS_ENDPOINT_URL"), "{}", ended.out);
}
