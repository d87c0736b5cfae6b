//! What an outage, a restart or a rename hides: what can't show yet is not taken for absent.

use insta::assert_snapshot;

use super::machine::{agent, instance, record, static_agent};
use super::task::task;
use super::world::{World, ago, pool, world};
use crate::model::ids::AgentId;
use crate::model::instance::InstanceState;

/// The server came back so long ago.
fn returned(world: World, words: &str) -> World {
    world.remember(|memory| {
        memory.watch.returned = Some(ago(words));
        memory.watch.since = Some(ago(words));
    })
}

#[test]
fn an_agent_whose_runs_the_restarted_server_forgot_is_not_retired() {
    let hourly = |worked: &str| {
        let agent = agent("a").launched("58m").draining("30s").idle_for(worked);
        world().pool(pool().billed_by("1h")).with(agent).plan()
    };
    assert_snapshot!(hourly("80s"), @r"
    no steps
    a is cordoned: kept, may work until 12:00:10
    ");
    assert_snapshot!(hourly("90s"), @r"
    retire a: period ends 12:02:00
    a is cordoned: retire
    ");
}

#[test]
fn after_an_outage_a_drain_waits_until_agents_have_shown_what_they_run() {
    let cordoned = |seen: &str| agent("a").draining("50m").idle_for("50m").unseen_for(seen);
    assert_snapshot!(returned(world().with(cordoned("5s")), "59s").plan(), @r"
    no steps
    a is cordoned: kept, may work until 12:00:01
    ");
    assert_snapshot!(returned(world().with(cordoned("5s")), "1m").plan(), @r"
    retire a: idle since 11:10:00
    a is cordoned: retire
    ");
    assert_snapshot!(returned(world().with(cordoned("50m")), "2m").plan(), @r"
    no steps
    a is cordoned: kept, may work until 12:01:00
    ");
}

#[test]
fn a_boot_that_an_outage_outlasted_has_not_failed_yet() {
    let booting = || world().with(agent("a").booting().launched("50m"));
    assert_snapshot!(returned(booting(), "10s").plan(), @r"
    no steps
    a is booting: kept, boots until 12:02:50
    ");
    assert_snapshot!(returned(booting(), "3m").plan(), @r"
    retire a (never heard of): never connected, launched 11:10:00
    a is failed: retire
    ");
    // What was launched since has its own time.
    let young = world().with(agent("a").booting().launched("11m"));
    assert_snapshot!(returned(young, "12m").plan(), @r"
    retire a (never heard of): never connected, launched 11:49:00
    a is failed: retire
    ");
}

#[test]
fn an_agent_that_is_not_back_yet_after_an_outage_is_not_given_up() {
    let lost = || world().with(agent("a").idle_for("50m").unseen_for("50m"));
    assert_snapshot!(returned(lost(), "10s").plan(), @r"
    no steps
    a is lost: kept, lost; given up at 12:02:50
    ");
    assert_snapshot!(returned(lost(), "3m").plan(), @r"
    cordon a: lost since 11:10:00
    a is lost: cordon
    ");
}

#[test]
fn a_renamed_record_or_instance_stays_linked_with_the_shared_secret_too() {
    let shared = || world().pool(pool().shared_secret());
    let seen = |world: World| {
        let (machine, record) = (world.machine_ids(0), world.snapshot.agents[0].id);
        world.remember(|memory| memory.records.extend([(machine, record)]))
    };
    let renamed = || shared().with(agent("a").shared_secret().renamed("build7").running(1));
    assert_snapshot!(seen(renamed()).plan(), @r"
    no steps
    a is busy: kept
    ");
    // After a restart nothing tells any more; it is left alone while such an agent is at work.
    assert_snapshot!(renamed().plan(), @r"
    no steps
    a is busy: kept
    ");
    let idle = agent("a").shared_secret().renamed("build7").idle_for("2m");
    assert_snapshot!(shared().with(idle).plan(), @r"
    delete instance a: never connected, launched 11:00:00
    a is failed: delete_instance
    ");
}

#[test]
fn a_failed_boot_is_not_taken_for_the_machine_of_an_agent_that_was_there_before() {
    let failed = instance("a").shared_secret().launched("11m");
    let older = static_agent("build7").launched("20m").running(1);
    let world = world().pool(pool().shared_secret()).with(failed).with(older);
    assert_snapshot!(world.plan(), @r"
    delete instance a: never connected, launched 11:49:00
    a is failed: delete_instance
    ");
}

#[test]
fn with_the_shared_secret_idle_time_counts_from_the_first_contact_too() {
    let mut world =
        world().pool(pool().shared_secret()).with(agent("a").shared_secret().launched("11m").last_work(None));
    world.snapshot.agents[0].created = ago("2m");
    assert_snapshot!(world.plan(), @r"
    no steps
    a is idle: kept until 12:08:00
    ");
}

/// A task of the queue of a 3.15 server names the record of that agent, on which it ran before.
fn came_back_from(mut world: World, agent: AgentId) -> World {
    let task = &mut world.snapshot.queue.pending[0];
    (task.agent, task.created) = (Some(agent), None);
    world
}

#[test]
fn a_record_that_a_task_of_the_queue_names_is_not_deleted() {
    let gone = world().pool(pool().max(1)).with(record("a").id(7).missing_for("5m")).with(task("1"));
    assert_snapshot!(came_back_from(gone, AgentId(7)).plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    a is orphan: kept, named by a task
    ");
}

#[test]
fn since_3_16_a_record_may_go_before_its_task_runs_elsewhere() {
    let gone = world().pool(pool().max(1)).with(record("a").id(7).missing_for("5m")).with(task("1"));
    let mut world = came_back_from(gone, AgentId(7));
    world.snapshot.queue.pending[0].created = Some(ago("20m"));
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    delete record of a (silent): instance gone
    task 1: boots new1 (p1)
    a is orphan: retire
    ");
}

#[test]
fn a_dead_machine_makes_room_for_the_task_that_came_back_from_it() {
    let dead = agent("a").id(7).state(InstanceState::Stopped).idle_for("20m").unseen_for("20m").draining("1m");
    let world = world().pool(pool().max(1)).with(dead).with(task("1"));
    let world = came_back_from(world, AgentId(7));
    assert_snapshot!(world.plan(), @r"
    delete instance a: idle since 11:40:00
    task 1: held: p1 has its maximum of 1
    a is cordoned: delete_instance
    ");
    assert_snapshot!(world.executed().plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    a is orphan: kept, missing; looked again at 12:02:00
    ");
}

#[test]
fn a_drain_whose_undoing_is_under_way_covers_tasks_and_the_minimum() {
    let mut world = world().pool(pool().min(1)).with(agent("a").id(7).draining("1m").in_flight()).tasks(2);
    world.snapshot.in_flight.undone.insert(AgentId(7));
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: covered by a
    task 2: covered by a
    a is cordoned: kept, under way
    ");
}

#[test]
fn a_slot_whose_run_the_restarted_server_forgot_is_not_taken_for_free() {
    let passed_over = |time: &str, worked: &str| {
        world().with(agent("a").idle_for(worked)).with(task("1").passed_over_for(time)).plan()
    };
    let covered = "no steps\ntask 1: covered by a\na is idle: kept, needed\n";
    assert_eq!(passed_over("29s", "20s"), covered);
    assert_eq!(passed_over("40s", "2m"), covered);
    assert_snapshot!(passed_over("30s", "20s"), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    a is idle: kept until 12:09:40
    ");
}
