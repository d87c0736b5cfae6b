//! `picus plan`: what is decided for each task, agent and instance, and why; and that looking changes nothing.

use std::time::Duration;

use picus::world::{Call, Endpoint, World, WorldOptions, agent, task};
use rustix::process::Signal;
use serde_json::Value;

use super::{LONG, Program, bare, eventually, picus, world_with};

/// A world in which something of everything waits, and an instance of ours boots.
async fn busy_world() -> (World, Program) {
    let world = world_with(WorldOptions { boot_time: Duration::from_mins(9), ..WorldOptions::default() }).await;
    let settings = picus(&world, &[]).set("PICUS_AGENT_WOODPECKER_FILTER_LABELS", "type=cloud");
    world.push(task("boots-for-it").label("type", "cloud"));
    let running = settings.clone().start();
    eventually("an instance boots", || world.servers().len() == 1, || running.text()).await;
    running.says("launch").await;
    assert_eq!(running.ends_on(Signal::TERM, LONG).await.code, Some(0));

    world.push(task("over-the-maximum").label("type", "cloud"));
    let first = world.push(task("elsewhere").label("type", "cloud").label("platform", "windows/amd64"));
    world.push(task("after-it").label("type", "cloud").needs(&first));
    let offices = world.push(task("at-the-office").label("type", "office"));
    world.add_agent(agent("office").label("type", "office"));
    world.push(task("second").label("type", "office"));
    let at_work = || world.task(&offices).is_some_and(|task| task.is_running());
    eventually("the office works", at_work, || format!("{:?}", world.agents())).await;
    (world, settings)
}

fn changes(calls: &[Call]) -> Vec<&Call> {
    let changes = |endpoint| match endpoint {
        Endpoint::PauseQueue
        | Endpoint::ResumeQueue
        | Endpoint::CreateAgent
        | Endpoint::PatchAgent
        | Endpoint::DeleteAgent
        | Endpoint::OtherWoodpecker
        | Endpoint::CreateServer
        | Endpoint::DeleteServer
        | Endpoint::OtherHetzner => true,
        Endpoint::Version
        | Endpoint::Health
        | Endpoint::User
        | Endpoint::Queue
        | Endpoint::Agents
        | Endpoint::Agent
        | Endpoint::AgentTasks
        | Endpoint::Events
        | Endpoint::Servers
        | Endpoint::Server
        | Endpoint::ServerTypes
        | Endpoint::Locations
        | Endpoint::Images
        | Endpoint::SshKeys
        | Endpoint::Networks
        | Endpoint::Firewalls
        | Endpoint::PlacementGroups => false,
    };
    calls.iter().filter(|call| changes(call.endpoint)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_says_for_each_task_and_each_machine_what_is_decided_and_why() {
    let (world, settings) = busy_world().await;
    let before = world.call_log().len();
    let ended = Program { arguments: vec!["plan"], ..settings }.output().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    for (of, told) in [
        ("boots-for-it", "(pool default) boots for it"),
        ("over-the-maximum", "held back: pool default: the maximum of 1 instance is reached"),
        ("elsewhere", "not ours: pool default: platform is linux/amd64 (the task wants platform=windows/amd64)"),
        ("after-it", "waits for task 3"),
        ("second", "not ours: pool default: type is cloud (the task wants type=office)"),
        ("[default]", "agent 1, instance "),
    ] {
        let line = ended.out.lines().find(|line| line.contains(of));
        assert!(line.is_some_and(|line| line.contains(told)), "nothing of {told:?} for {of} in\n{}", ended.out);
    }
    assert!(ended.out.contains("booting, 0 running; left alone: boots, until "), "{}", ended.out);
    assert_eq!(changes(&world.call_log()[before..]), Vec::<&Call>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_for_programs_is_json_with_the_same_decisions() {
    let (world, settings) = busy_world().await;
    let before = world.call_log().len();
    let ended = Program { arguments: vec!["plan", "--output", "json"], ..settings }.output().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let plan: Value = serde_json::from_str(&ended.out).expect("JSON and nothing else");
    let decisions: Vec<(&str, &str)> = plan["tasks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|task| (task["name"].as_str().unwrap(), task["decision"]["decision"].as_str().unwrap()))
        .collect();
    assert_eq!(
        decisions,
        [
            ("boots-for-it", "booting"),
            ("over-the-maximum", "held"),
            ("elsewhere", "not_ours"),
            ("after-it", "not_ready"),
            ("second", "not_ours"),
        ]
    );
    assert_eq!(plan["tasks"][1]["decision"]["why"][0][1]["hold"], "at_maximum");
    assert_eq!(plan["tasks"][2]["labels"]["platform"], "windows/amd64");
    assert_eq!(plan["machines"][0]["state"], "booting");
    assert_eq!(plan["machines"][0]["fate"]["fate"], "kept");
    assert_eq!(plan["pools"]["default"]["instances"], 1);
    assert_eq!(changes(&world.call_log()[before..]), Vec::<&Call>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_an_empty_world_has_nothing_to_do_and_of_a_waiting_task_a_launch() {
    let world = super::world().await;
    let look = || picus(&world, &["plan"]).output();
    let ended = look().await;
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("Next steps (0)"), "{}", ended.out);

    world.push(task("build"));
    let ended = look().await;
    assert!(ended.out.contains("Next steps (1)") && ended.out.contains("(cx23:nbg1)"), "{}", ended.out);
    assert!(ended.out.contains("1 task waits"), "{}", ended.out);
    assert_eq!(changes(&world.call_log()), Vec::<&Call>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_can_not_be_made_says_why() {
    let world = super::world().await;
    let ended = picus(&world, &["plan"]).set("PICUS_WOODPECKER_TOKEN", world.user_token()).output().await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert!(ended.err.contains("403"), "{}", ended.err);
    let ended = bare(&["plan"]).output().await;
    assert_eq!(ended.code, Some(2));

    // A cloud that can't be asked is no reason to say nothing of the tasks.
    world.push(task("build"));
    let ended = picus(&world, &["plan"]).set("PICUS_HCLOUD_TOKEN", &"X".repeat(64)).output().await;
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("PICUS_HCLOUD_TOKEN must be valid"), "{}", ended.out);
}
