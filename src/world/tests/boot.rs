//! A server's life: from the create call to the agent that works, and what may go wrong on the way.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::json;

use super::{create, hetzner, order, register, secs, user_data, world, world_with};
use crate::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, PoolName};
use crate::world::{Event, Fault, MachineFault, TaskState, WorldOptions, task};

#[tokio::test]
async fn a_server_boots_with_what_its_user_data_says() {
    let world = world().await;
    let (id, token) = register(&world, "picus-1").await;
    let more = "# a comment\nWOODPECKER_FILTER_LABELS=type=picus,zone=*\nWOODPECKER_MAX_WORKFLOWS=2\n";
    let server = create(&world, order("picus-1", &user_data(&token, more))).await;
    let build = world.push(task("build").label("type", "picus").label("platform", "linux/amd64").takes(secs(30)));
    let status = async || {
        let answer = hetzner(&world, Method::GET, &format!("servers/{server}"), None).await.json();
        answer["server"]["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status().await, "initializing");
    world.advance(secs(4));
    assert_eq!(status().await, "starting");
    world.advance(secs(6));
    assert_eq!(status().await, "running");
    world.advance(secs(30));
    assert!(!world.agent(AgentId(id)).unwrap().connected);
    world.advance(secs(10));
    let agent = world.agent(AgentId(id)).unwrap();
    assert!(agent.connected);
    assert_eq!((agent.slots, agent.platform.as_str()), (2, "linux/amd64"));
    assert_eq!(agent.custom_labels.to_string(), "type=picus,zone=*");
    assert!(world.task(&build).unwrap().is_running());
    world.advance(secs(31));
    assert!(world.task(&build).unwrap().is_done());
}

#[tokio::test]
async fn an_arm_server_is_an_arm_agent_and_base64_is_read() {
    let world = world().await;
    let (id, token) = register(&world, "arm").await;
    let environment = format!(
        "WOODPECKER_SERVER=ci:9000\nWOODPECKER_AGENT_SECRET={token}\nWOODPECKER_FILTER_LABELS=a=b\n\
         WOODPECKER_AGENT_LABELS=c=d\nWOODPECKER_BACKEND=local\n"
    );
    let file = json!({ "path": "/x/agent.env", "content": STANDARD.encode(environment), "encoding": "b64" });
    let mut order = order("arm", &format!("#cloud-config\n{}", json!({ "write_files": [file] })));
    order["server_type"] = json!("cax11");
    create(&world, order).await;
    world.advance(secs(60));
    let agent = world.agent(AgentId(id)).unwrap();
    assert_eq!(agent.platform, "linux/arm64");
    assert_eq!(agent.custom_labels.to_string(), "c=d", "the newer name wins");
}

#[tokio::test]
async fn an_agent_whose_settings_can_not_be_used_never_connects() {
    let world = world().await;
    let (_, token) = register(&world, "picus-1").await;
    for (number, data) in [
        "echo hello".to_owned(),
        "#cloud-config\nwrite_files: [".to_owned(),
        "#cloud-config\nruncmd: []\n".to_owned(),
        user_data("wrong", ""),
        user_data(&token, "WOODPECKER_AGENT_LABELS=a\n"),
        user_data(&token, "WOODPECKER_MAX_WORKFLOWS=many\n"),
        user_data(&token, "WOODPECKER_SERVER=https://ci:9000\n"),
    ]
    .iter()
    .enumerate()
    {
        create(&world, order(&format!("s{number}"), data)).await;
        world.advance(secs(600));
        let failed = world.take_events().into_iter().filter(|event| matches!(event.event, Event::AgentFailed { .. }));
        assert_eq!(failed.count(), 1, "{data}");
    }
    assert!(world.agents().iter().all(|agent| !agent.connected));
}

#[tokio::test]
async fn with_the_shared_secret_each_new_disk_makes_a_record_named_after_the_host() {
    let world = world_with(WorldOptions { shared_secret: Some("s3cret".into()), ..WorldOptions::default() }).await;
    let data = user_data("s3cret", "WOODPECKER_HOSTNAME=builder\n");
    for name in ["one", "two"] {
        create(&world, order(name, &data)).await;
    }
    world.advance(secs(60));
    let names: Vec<_> = world.agents().into_iter().map(|agent| agent.name).collect();
    assert_eq!(names, ["builder", "builder"]);
}

#[tokio::test]
async fn deleting_a_server_under_a_job_is_recorded_as_a_crime() {
    let world = world().await;
    let (id, token) = register(&world, "picus-1").await;
    let server = create(&world, order("picus-1", &user_data(&token, ""))).await;
    let build = world.push(task("build").takes(secs(600)));
    world.advance(secs(60));
    assert!(world.task(&build).unwrap().is_running());
    assert_eq!(hetzner(&world, Method::DELETE, &format!("servers/{server}"), None).await.status, 200);
    let killed = world.killed_jobs();
    assert_eq!(killed.len(), 1);
    assert_eq!((&killed[0].task, killed[0].agent.as_str()), (&build, "picus-1"));
    assert!(!world.agent(AgentId(id)).unwrap().connected);
    world.advance(secs(81));
    assert_eq!(world.task(&build), Some(TaskState::Pending));
}

#[tokio::test]
async fn deleting_a_server_by_hand_loses_the_job_but_is_nobodys_crime() {
    let world = world().await;
    let (_, token) = register(&world, "picus-1").await;
    let server = create(&world, order("picus-1", &user_data(&token, ""))).await;
    world.push(task("build").takes(secs(600)));
    world.advance(secs(60));
    assert!(world.delete_server_by_hand(&InstanceId(server.to_string())));
    assert_eq!(world.killed_jobs(), []);
    assert_eq!(world.lost_jobs().len(), 1);
    assert_eq!(world.servers(), []);
}

#[tokio::test]
async fn machines_may_hang_be_slow_stay_off_or_be_called_something_odd() {
    let world = world().await;
    for (fault, status, connects_after) in [
        (MachineFault::NeverBoots, "running", None),
        (MachineFault::BootsSlowly(secs(300)), "running", Some(345)),
        (MachineFault::StaysOff, "off", None),
        (MachineFault::OddStatus, "levitating", Some(45)),
    ] {
        let name = format!("{fault:?}").split('(').next().unwrap().to_owned();
        let (id, token) = register(&world, &name).await;
        world.fault(Fault::machine(fault).times(1));
        create(&world, order(&name, &user_data(&token, ""))).await;
        world.advance(secs(connects_after.unwrap_or(3600) - 1));
        assert_eq!(world.servers().last().unwrap().status, status);
        assert!(!world.agent(AgentId(id)).unwrap().connected, "{name}");
        world.advance(secs(1));
        assert_eq!(world.agent(AgentId(id)).unwrap().connected, connects_after.is_some(), "{name}");
    }
}

#[tokio::test]
async fn what_is_left_of_an_installation_is_its_servers_and_its_records() {
    let world = world().await;
    let installation = InstallationId::from("picus");
    assert!(world.left_behind(&installation).is_empty());
    let name = LaunchName::new(&installation, &PoolName::from("default"), 1).to_string();
    register(&world, &name).await;
    register(&world, "picus-default-builder1").await;
    let server = create(&world, order(&name, "")).await;
    let left = world.left_behind(&installation);
    assert_eq!((left.servers.len(), left.agents.len()), (1, 1));
    assert!(world.left_behind(&InstallationId::from("other")).is_empty());
    hetzner(&world, Method::DELETE, &format!("servers/{server}"), None).await;
    assert!(world.left_behind(&installation).servers.is_empty());
}
