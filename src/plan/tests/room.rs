//! Machines that stand in the way of waiting tasks make room for an instance that can take them.

use insta::assert_snapshot;

use super::machine::agent;
use super::task::task;
use super::world::{pool, world};

#[test]
fn an_idle_agent_with_labels_of_earlier_settings_makes_room_when_the_maximum_is_reached() {
    let gpu = || pool().labels("type=gpu").max(1).billed_by("1h");
    let old = || agent("old").labels("type=small").idle_for("1m").launched("20m");
    assert_snapshot!(world().pool(gpu()).with(old()).with(task("1").labels("type=gpu")).plan(), @r"
    cordon old: makes room
    task 1: held: p1 has its maximum of 1
    old is idle: cordon
    ");
    // Without such a task it is kept while it is paid for; with room for another instance too.
    assert_snapshot!(world().pool(gpu()).with(old()).plan(), @r"
    no steps
    old is idle: kept, paid until 12:37:40
    ");
    assert_snapshot!(world().pool(gpu().max(2)).with(old()).with(task("1").labels("type=gpu")).plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    old is idle: kept, paid until 12:37:40
    ");
}

#[test]
fn what_takes_a_waiting_task_or_is_at_work_stays() {
    let gpu = pool().labels("type=gpu").max(2).slots(1);
    let old = |short| agent(short).labels("type=small").slots(1);
    let world = world().pool(gpu).with(old("idle").idle_for("1m")).with(old("busy").running(1));
    let small = task("1").labels("type=small");
    let gpu = task("2").labels("type=gpu");
    assert_snapshot!(world.with(small).with(gpu).plan(), @r"
    no steps
    task 1: covered by idle
    task 2: held: p1 has its maximum of 2
    idle is idle: kept, needed
    busy is busy: kept
    ");
}

#[test]
fn no_more_make_room_than_the_tasks_need() {
    let gpu = pool().labels("type=gpu").max(3).slots(2);
    let old = |short| agent(short).labels("type=small").idle_for("1m");
    let world = world().pool(gpu).with(old("a")).with(old("b")).with(old("c"));
    let gpu = |id| task(id).labels("type=gpu");
    assert_snapshot!(world.with(gpu("1")).with(gpu("2")).with(gpu("3")).plan(), @r"
    cordon a: makes room
    cordon c: makes room
    task 1: held: p1 has its maximum of 3
    task 2: held: p1 has its maximum of 3
    task 3: held: p1 has its maximum of 3
    a is idle: cordon
    c is idle: cordon
    b is idle: kept until 12:09:00
    ");
}

#[test]
fn one_on_its_way_out_is_enough() {
    let gpu = pool().labels("type=gpu").max(2);
    let old = |short| agent(short).labels("type=small").idle_for("1m");
    let world = world().pool(gpu).with(old("a").draining("5s")).with(old("b"));
    assert_snapshot!(world.with(task("1").labels("type=gpu")).plan(), @r"
    no steps
    task 1: held: p1 has its maximum of 2
    a is cordoned: kept, settles until 12:00:05
    b is idle: kept until 12:09:00
    ");
}

#[test]
fn an_idle_agent_that_somebody_else_cordoned_makes_room_after_a_while() {
    let full = || world().pool(pool().max(1).billed_by("1h")).tasks(1);
    let cordoned = |since| agent("a").idle_for("10m").launched("20m").cordoned(since);
    assert_snapshot!(full().with(cordoned("1m")).plan(), @r"
    no steps
    task 1: held: p1 has its maximum of 1
    a is cordoned: kept, cordoned by others
    ");
    assert_snapshot!(full().with(cordoned("3m")).plan(), @r"
    retire a: makes room
    task 1: held: p1 has its maximum of 1
    a is cordoned: retire
    ");
    assert_snapshot!(full().with(cordoned("3m").running(1)).plan(), @r"
    no steps
    task 1: held: p1 has its maximum of 1
    a is cordoned: kept
    ");
    let idle = world().pool(pool().max(1).billed_by("1h")).with(cordoned("3m"));
    assert_snapshot!(idle.plan(), @r"
    no steps
    a is cordoned: kept, cordoned by others
    ");
}

#[test]
fn a_minimum_that_only_the_maximum_keeps_from_being_met_takes_the_place_of_what_does_not_count() {
    let gpu = pool().labels("type=gpu").min(1).max(1);
    assert_snapshot!(world().pool(gpu).with(agent("old").labels("type=small").idle_for("1m")).plan(), @r"
    cordon old: makes room
    old is idle: cordon
    ");
}
