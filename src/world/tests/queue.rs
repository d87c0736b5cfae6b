//! The queue's rules, driven by verbs.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{secs, world};
use crate::clock::Clock;
use crate::model::ids::TaskId;
use crate::world::{Event, Outcome, TaskState, World, WorldOptions, agent, task};

fn is_running(world: &World, id: &TaskId) -> bool {
    world.task(id).unwrap().is_running()
}

fn outcome(world: &World, id: &TaskId) -> Option<Outcome> {
    match world.task(id).unwrap() {
        TaskState::Done { outcome, .. } => Some(outcome),
        TaskState::Pending | TaskState::Waiting | TaskState::Running { .. } => None,
    }
}

#[tokio::test]
async fn a_task_lies_in_pending_until_the_ticker_has_sorted_it() {
    let world = world().await;
    let first = world.push(task("build"));
    let second = world.push(task("test").needs(&first));
    assert_eq!(world.task(&second), Some(TaskState::Pending));
    world.advance(secs(1));
    assert_eq!(world.task(&second), Some(TaskState::Waiting));
    assert_eq!(world.task(&first), Some(TaskState::Pending));
}

#[tokio::test]
async fn tasks_run_in_order_of_their_dependencies() {
    let world = world().await;
    world.add_agent(agent("a").slots(4));
    let build = world.push(task("build").takes(secs(90)));
    let check = world.push(task("check").takes(secs(30)).needs(&build));
    world.advance(secs(60));
    assert!(is_running(&world, &build));
    assert_eq!(world.task(&check), Some(TaskState::Waiting));
    world.advance(secs(31));
    assert_eq!(outcome(&world, &build), Some(Outcome::Succeeded));
    assert!(is_running(&world, &check));
    world.advance(secs(31));
    assert_eq!(outcome(&world, &check), Some(Outcome::Succeeded));
}

#[tokio::test]
async fn one_long_jump_gives_the_same_world_as_many_small_steps() {
    let mut seen = BTreeSet::new();
    for step in [1, 7, 600] {
        let world = world().await;
        world.add_agent(agent("a"));
        let first = world.push(task("build").takes(secs(50)));
        for _ in 0..3 {
            world.push(task("check").takes(secs(20)).needs(&first));
        }
        for _ in 0..600_u64.div_ceil(step) {
            world.advance(secs(step));
        }
        let done = world.take_events().into_iter().map(|event| format!("{} {}", event.at, event.event));
        seen.insert(done.collect::<Vec<_>>());
        assert_eq!(world.open_tasks(), []);
    }
    assert_eq!(seen.len(), 1, "{seen:#?}");
}

#[tokio::test]
async fn what_needs_a_failed_task_is_skipped_once_a_matching_agent_polls() {
    let world = world().await;
    world.add_agent(agent("small").label("size", "small"));
    let build = world.push(task("build").label("size", "small").takes(secs(10)).fails());
    let deploy = world.push(task("deploy").label("size", "large").needs(&build));
    let then = world.push(task("then").label("size", "large").needs(&deploy));
    let tidy = world.push(task("tidy").label("size", "large").needs(&build).on_failure());
    world.advance(secs(60));
    assert_eq!(outcome(&world, &build), Some(Outcome::Failed));
    assert_eq!(world.task(&deploy), Some(TaskState::Pending));
    world.add_agent(agent("large").label("size", "large").slots(2));
    world.advance(secs(1));
    assert_eq!(outcome(&world, &deploy), Some(Outcome::Skipped));
    assert_eq!(outcome(&world, &then), Some(Outcome::Skipped));
    assert!(is_running(&world, &tidy));
}

#[tokio::test]
async fn a_paused_queue_hands_out_nothing_and_sorts_nothing() {
    let world = world().await;
    world.add_agent(agent("a"));
    world.pause_queue();
    let build = world.push(task("build"));
    let check = world.push(task("check").needs(&build));
    world.advance(secs(60));
    assert_eq!(world.task(&build), Some(TaskState::Pending));
    assert_eq!(world.task(&check), Some(TaskState::Pending));
    world.resume_queue();
    world.advance(secs(1));
    assert!(is_running(&world, &build));
    assert_eq!(world.task(&check), Some(TaskState::Waiting));
}

#[tokio::test]
async fn a_group_runs_at_most_its_limit() {
    let world = world().await;
    world.add_agent(agent("a").slots(9));
    let tasks: Vec<_> = (0..5).map(|_| world.push(task("deploy").group("g", 2).takes(secs(60)))).collect();
    // Each pipeline is a second older than the next: the real queue orders by the second.
    world.advance(secs(1));
    let running = tasks.iter().filter(|id| is_running(&world, id)).count();
    assert_eq!(running, 2);
    world.advance(secs(60));
    let running = tasks.iter().filter(|id| is_running(&world, id)).count();
    assert_eq!(running, 2);
}

#[tokio::test]
async fn an_earlier_pipeline_that_waits_keeps_its_place_in_the_group() {
    let world = world().await;
    world.add_agent(agent("a").slots(9));
    let build = world.push(task("build").takes(secs(60)));
    let earlier = world.push(task("deploy").needs(&build).group("g", 1).takes(secs(60)));
    world.advance(secs(5));
    let later = world.push(task("deploy").group("g", 1).takes(secs(60)));
    world.advance(secs(5));
    assert!(is_running(&world, &build));
    assert_eq!(world.task(&later), Some(TaskState::Pending));
    world.advance(secs(55));
    assert!(is_running(&world, &earlier));
    assert_eq!(world.task(&later), Some(TaskState::Pending));
    world.advance(secs(60));
    assert!(is_running(&world, &later));
}

#[tokio::test]
async fn members_of_one_pipeline_reserve_nothing_for_each_other() {
    let world = world().await;
    world.add_agent(agent("a").slots(9));
    let test = world.push(task("test").group("g", 1).takes(secs(10)));
    let deploy = world.push(task("deploy").needs(&test).group("g", 1).takes(secs(10)));
    world.advance(secs(30));
    assert_eq!(outcome(&world, &deploy), Some(Outcome::Succeeded));
}

#[tokio::test]
async fn the_agent_that_fits_best_takes_the_task() {
    let world = world().await;
    let any = world.add_agent(agent("any").label("type", "*"));
    let exact = world.add_agent(agent("exact").label("type", "picus"));
    let build = world.push(task("build").label("type", "picus"));
    let other = world.push(task("other").label("type", "else"));
    world.advance(secs(1));
    assert_eq!(world.agent(exact).unwrap().running, [build]);
    assert_eq!(world.agent(any).unwrap().running, [other]);
}

#[tokio::test]
async fn an_agent_is_given_only_what_fits_it() {
    let world = world().await;
    world.add_agent(agent("arm").platform("linux/arm64"));
    world.add_agent(agent("theirs").organisation(7));
    world.add_agent(agent("gpu").label("!gpu", "true"));
    world.add_record("never-connected");
    let cordoned = world.add_agent(agent("cordoned"));
    assert!(world.cordon(cordoned));
    let build = world.push(task("build").label("platform", "linux/amd64"));
    world.advance(secs(60));
    assert_eq!(world.task(&build), Some(TaskState::Pending));
    let at_host = world.push(task("here").label("hostname", "theirs").organisation(7));
    world.advance(secs(1));
    assert!(is_running(&world, &at_host));
    assert!(world.uncordon(cordoned));
    world.advance(secs(1));
    assert!(is_running(&world, &build));
}

#[tokio::test]
async fn a_dead_agents_task_comes_back_to_the_front_a_minute_later_and_names_the_dead_agent() {
    let world = world().await;
    let dead = world.add_agent(agent("a"));
    let build = world.push(task("build").takes(secs(100)));
    world.advance(secs(5));
    let second = world.push(task("second"));
    assert!(world.kill_agent(dead));
    world.advance(secs(59));
    assert!(is_running(&world, &build), "the server does not know yet");
    assert!(!world.delete_record_by_hand(dead), "and keeps the record");
    world.advance(secs(22));
    assert_eq!(world.task(&build), Some(TaskState::Pending));
    assert!(world.delete_record_by_hand(dead));
    world.add_agent(agent("b"));
    world.advance(secs(1));
    assert!(is_running(&world, &build), "it is first");
    assert_eq!(world.task(&second), Some(TaskState::Pending));
    world.advance(secs(160));
    assert_eq!(outcome(&world, &build), Some(Outcome::Succeeded));
    assert_eq!(world.lost_jobs().len(), 1);
    assert_eq!(world.killed_jobs(), [], "no API call did it");
}

#[tokio::test]
async fn hundreds_of_agents_and_long_jumps_are_cheap() {
    let world = world().await;
    for number in 0..300 {
        world.add_agent(agent(format!("a{number}")).label("type", (number % 7).to_string()).slots(2));
    }
    for number in 0..1500 {
        world.push(task("build").label("type", (number % 9).to_string()).takes(secs(60 + number % 50)));
    }
    world.advance(secs(24 * 3600));
    let without_agent = (0..1500).filter(|number| number % 9 >= 7).count();
    assert_eq!(world.open_tasks().len(), without_agent);
}

#[tokio::test]
async fn with_a_clock_that_runs_the_world_lives_without_being_asked() {
    let clock = Clock::fast(Timestamp::UNIX_EPOCH, 3600);
    let world = World::start(clock, WorldOptions::default()).await.unwrap();
    let mut events = world.subscribe();
    world.add_agent(agent("a"));
    world.push(task("build").takes(secs(300)));
    let done = async { while !matches!(events.recv().await.unwrap().event, Event::TaskDone { .. }) {} };
    tokio::time::timeout(secs(20), done).await.unwrap();
}

#[tokio::test]
async fn events_read_as_sentences() {
    let world = world().await;
    let id = world.add_agent(agent("a"));
    world.push(task("build").takes(secs(60)));
    world.advance(secs(60));
    world.cordon(id);
    world.advance(secs(60));
    assert!(world.delete_record_by_hand(id));
    let events: Vec<_> = world.take_events().into_iter().map(|event| event.event.to_string()).collect();
    insta::assert_snapshot!(events.join("\n"), @r"
    agent a registered
    agent a connected
    task 1 build queued
    task 1 build started on a
    agent a cordoned
    task 1 build done
    agent a removed
    ");
}
