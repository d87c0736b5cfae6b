//! Which tasks are ours, and which of them could start.

use insta::assert_snapshot;

use super::machine::{agent, static_agent};
use super::task::{TaskBuilder, task};
use super::world::{pool, world};

#[test]
fn a_chain_that_the_server_has_not_sorted_yet_asks_for_one_slot() {
    let world = world().with(task("a")).with(task("b").needs(&["a"])).with(task("c").needs(&["b"]));
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task a: boots new1 (p1)
    task b: needs a
    task c: needs b
    ");
}

#[test]
fn a_task_whose_dependencies_run_waits_and_one_whose_dependencies_are_gone_counts() {
    let world = world()
        .with(agent("x").id(5).running(2))
        .with(task("1").needs(&["x-0"]).waiting())
        .with(task("2").needs(&["gone"]).waiting());
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: needs x-0
    task 2: boots new1 (p1)
    x is busy: kept
    ");
}

#[test]
fn a_group_that_is_full_asks_for_nothing() {
    let member = |id| task(id).group("deploy", 1);
    let mut world = world().with(member("0").pipeline(1, "9m").running_on(99));
    for (pipeline, id) in (2..).zip(["1", "2", "3", "4", "5"]) {
        world = world.with(member(id).pipeline(pipeline, "5m"));
    }
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: group deploy has its 1
    task 2: group deploy has its 1
    task 3: group deploy has its 1
    task 4: group deploy has its 1
    task 5: group deploy has its 1
    ");
}

#[test]
fn a_group_with_one_place_left_asks_for_one_slot() {
    let member = |id| task(id).group("deploy", 2);
    let mut world = world().with(member("0").pipeline(1, "9m").running_on(99));
    for (pipeline, id) in (2..).zip(["1", "2", "3", "4", "5"]) {
        world = world.with(member(id).pipeline(pipeline, "5m"));
    }
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    task 2: group deploy has its 2
    task 3: group deploy has its 2
    task 4: group deploy has its 2
    task 5: group deploy has its 2
    ");
}

#[test]
fn a_later_pipeline_waits_for_an_earlier_one_of_its_group_that_waits_for_its_dependencies() {
    let world = world()
        .with(task("x").running_on(99))
        .with(task("early").group("deploy", 1).pipeline(1, "9m").needs(&["x"]).waiting())
        .with(task("late").group("deploy", 1).pipeline(2, "5m"));
    assert_snapshot!(world.plan(), @r"
    no steps
    task early: needs x
    task late: group deploy has its 1
    ");
}

#[test]
fn members_of_the_same_pipeline_do_not_reserve_places_of_their_group() {
    let world = world()
        .with(task("x").running_on(99))
        .with(task("early").group("deploy", 1).pipeline(1, "9m").needs(&["x"]).waiting())
        .with(task("late").group("deploy", 1).pipeline(1, "9m"));
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task early: needs x
    task late: boots new1 (p1)
    ");
}

#[test]
fn a_paused_queue_launches_nothing_and_idle_agents_are_retired_as_ever() {
    let world = world().with(agent("a").idle_for("11m")).with(agent("b").idle_for("9m")).tasks(3).paused();
    assert_snapshot!(world.plan(), @r"
    cordon a: idle since 11:49:00
    task 1: paused
    task 2: paused
    task 3: paused
    a is idle: cordon
    b is idle: kept until 12:01:00
    ");
}

#[test]
fn a_task_of_another_scope_is_left_alone_with_its_reason() {
    let world = world()
        .with(task("1").labels("platform=linux/arm64"))
        .with(task("2").labels("type=windows"))
        .with(task("3").labels("hostname=build7"));
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: not ours: p1 has platform=linux/amd64
    task 2: not ours: p1 lacks type
    task 3: not ours: p1 lacks hostname
    ");
}

#[test]
fn the_servers_own_labels_and_empty_values_do_not_matter() {
    let world = world()
        .with(task("1").labels("woodpecker-ci.org/new=1"))
        .with(task("2").labels("woodpecker-ci.organic=1"))
        .with(task("3").labels("platform="));
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    launch new2 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    task 2: boots new1 (p1)
    task 3: boots new2 (p1)
    ");
}

fn taken(scope: &str, task: TaskBuilder) -> bool {
    world().pool(pool().labels(scope)).with(task).plan().starts_with("launch")
}

#[test]
fn a_required_label_must_be_on_the_task_with_exactly_that_value() {
    let table = [
        ("!gpu=true", "", false),
        ("!gpu=true", "gpu=true", true),
        ("!gpu=true", "gpu=false", false),
        ("!gpu=true", "gpu=", false),
        ("!gpu=*", "gpu=true", false),
        ("!gpu=*", "gpu=*", true),
        ("type=picus", "type=picus", true),
        ("type=picus", "type=picus,foo=bar", false),
        ("type=picus", "", true),
        ("zone=*", "zone=a", true),
        ("zone=a", "zone=*", false),
    ];
    for (scope, labels, ours) in table {
        assert_eq!(taken(scope, task("1").labels(labels)), ours, "pool {scope}, task {labels}");
    }
}

#[test]
fn each_pool_launches_for_the_tasks_of_its_platform() {
    let mut world = world()
        .pool(pool().named("amd64").labels("").max(9))
        .pool(pool().named("arm64").platform("linux/arm64").max(9));
    for (id, platform) in ["1", "2", "3", "4", "5", "6"].into_iter().zip(["amd64", "arm64"].into_iter().cycle()) {
        world = world.with(task(id).labels(&format!("platform=linux/{platform}")));
    }
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    launch new2 cx23:nbg1: tasks: 1
    launch new3 cx23:nbg1: tasks: 2
    launch new4 cx23:nbg1: tasks: 1
    task 1: boots new1 (amd64)
    task 2: boots new3 (arm64)
    task 3: boots new1 (amd64)
    task 4: boots new3 (arm64)
    task 5: boots new2 (amd64)
    task 6: boots new4 (arm64)
    ");
}

#[test]
fn a_task_that_two_pools_could_take_is_counted_once() {
    let world = world().pool(pool().named("a")).pool(pool().named("b").account(1)).tasks(3);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    launch new2 cx23:nbg1: tasks: 1
    task 1: boots new1 (a)
    task 2: boots new1 (a)
    task 3: boots new2 (a)
    ");
}

#[test]
fn a_task_that_an_idle_matching_agent_is_not_given_for_five_minutes_is_stuck_and_no_longer_counted() {
    let world = world().with(static_agent("s")).with(task("1").passed_over_for("5m")).tasks(3);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: stuck since 11:55:00 at s
    task 2: covered by s
    task 3: covered by s
    task 4: boots new1 (p1)
    notice: s does not take 1
    ");
}

#[test]
fn a_task_that_is_passed_over_for_less_is_still_counted() {
    let world = world()
        .with(static_agent("s").idle_for("2m").slots(1))
        .with(task("1").passed_over_for("4m59s"))
        .with(task("2"));
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: covered by s
    task 2: boots new1 (p1)
    ");
}

#[test]
fn without_an_idle_agent_beside_it_a_task_is_not_stuck() {
    let world = world().with(task("1").passed_over_for("1h"));
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    ");
}

#[test]
fn an_agent_beside_a_stuck_task_is_retired_like_any_other() {
    let world = world().with(agent("a").idle_for("11m")).with(task("1").passed_over_for("11m"));
    assert_snapshot!(world.plan(), @r"
    cordon a: idle since 11:49:00
    task 1: stuck since 11:49:00 at a
    a is idle: cordon
    notice: a does not take 1
    ");
}

#[test]
fn older_servers_that_tell_neither_creation_nor_groups_are_planned_for_too() {
    let mut world = world().tasks(3);
    for task in &mut world.snapshot.queue.pending {
        task.created = None;
        task.name.clear();
        task.pipeline = 0;
    }
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    launch new2 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    task 2: boots new1 (p1)
    task 3: boots new2 (p1)
    ");
}
