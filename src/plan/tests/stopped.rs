//! Instances that are stopped and started again: machines that somebody else made, and retired ones that are kept.

use insta::assert_snapshot;

use super::machine::{agent, fixed};
use super::task::task;
use super::world::{World, ahead, pool, world};

fn fixed_world() -> World {
    world().pool(pool().max(3).fixed())
}

fn kept_world() -> World {
    world().pool(pool().max(3).stops("168h"))
}

#[test]
fn demand_starts_a_stopped_machine() {
    assert_snapshot!(fixed_world().with(fixed("a").stopped("1h")).tasks(1).plan(), @r"
    start a: tasks: 1
    task 1: starts a (p1)
    a is stopped: start
    ");
    assert_snapshot!(kept_world().with(agent("a").stopped("1h")).tasks(1).plan(), @r"
    start a: tasks: 1
    task 1: starts a (p1)
    a is stopped: start
    ");
}

#[test]
fn without_demand_a_stopped_machine_stays_as_it_is() {
    assert_snapshot!(fixed_world().with(fixed("a").stopped("1000h")).plan(), @r"
    no steps
    a is stopped: kept, stopped
    ");
    assert_snapshot!(kept_world().with(agent("a").stopped("1h")).plan(), @r"
    no steps
    a is stopped: kept, stopped
    ");
}

#[test]
fn drains_are_undone_first_then_instances_are_started_then_launched() {
    let world = kept_world().with(agent("drains").draining("1m").idle_for("1m")).with(agent("stopped").stopped("1h"));
    assert_snapshot!(world.tasks(6).plan(), @r"
    uncordon drains: tasks: 2
    start stopped: tasks: 2
    launch new1 cx23:nbg1: tasks: 2
    task 1: uncordons drains (p1)
    task 2: uncordons drains (p1)
    task 3: starts stopped (p1)
    task 4: starts stopped (p1)
    task 5: boots new1 (p1)
    task 6: boots new1 (p1)
    drains is cordoned: uncordon
    stopped is stopped: start
    ");
}

#[test]
fn no_more_are_started_than_are_needed_and_never_more_than_the_maximum_are_up() {
    let stopped = |short| fixed(short).stopped("1h");
    let world = || fixed_world().with(stopped("a")).with(stopped("b")).with(fixed("c").running(2));
    assert_snapshot!(world().tasks(1).plan(), @r"
    start a: tasks: 1
    task 1: starts a (p1)
    a is stopped: start
    b is stopped: kept, stopped
    c is busy: kept
    ");
    let mut small = world();
    small.snapshot.pools[0].max = 2;
    assert_snapshot!(small.tasks(4).plan(), @r"
    start a: tasks: 2
    task 1: starts a (p1)
    task 2: starts a (p1)
    task 3: held: p1 has its maximum of 2
    task 4: held: p1 has its maximum of 2
    a is stopped: start
    b is stopped: kept, stopped
    c is busy: kept
    ");
}

#[test]
fn a_machine_that_is_being_stopped_is_waited_for() {
    let world = fixed_world().with(fixed("a").stopping().draining("1m"));
    assert_snapshot!(world.tasks(1).plan(), @r"
    no steps
    task 1: starts a (p1)
    a is stopping: kept, stops
    ");
}

#[test]
fn a_drain_ends_when_the_machine_is_stopped_and_then_it_can_be_started_again() {
    let world = fixed_world().with(fixed("a").stopped("1m").draining("3m"));
    assert_snapshot!(world.tasks(1).plan(), @r"
    uncordon a: stopped
    task 1: starts a (p1)
    a is stopped: uncordon
    ");
}

#[test]
fn a_stopped_machine_that_an_administrator_cordoned_is_not_started() {
    let world = fixed_world().with(fixed("a").stopped("1h").cordoned("1h"));
    assert_snapshot!(world.tasks(1).plan(), @r"
    no steps
    task 1: held: p1 has nothing to start of 1
    a is stopped: kept, cordoned by others
    ");
}

#[test]
fn an_idle_machine_is_cordoned_drained_and_stopped_and_its_record_stays() {
    assert_snapshot!(fixed_world().with(fixed("a").idle_for("11m")).plan(), @r"
    cordon a: idle since 11:49:00
    a is idle: cordon
    ");
    assert_snapshot!(fixed_world().with(fixed("a").idle_for("12m").draining("1m")).plan(), @r"
    stop a: idle since 11:48:00
    a is cordoned: stop
    ");
    assert_snapshot!(kept_world().with(agent("a").idle_for("12m").draining("1m")).plan(), @r"
    stop a: idle since 11:48:00
    a is cordoned: stop
    ");
}

#[test]
fn what_was_up_when_picus_started_is_judged_by_its_record() {
    let world = fixed_world()
        .with(fixed("busy").running(1))
        .with(fixed("idle").idle_for("3m"))
        .with(fixed("overdue").idle_for("1h"))
        .with(fixed("lost").unseen_for("11m"));
    assert_snapshot!(world.plan(), @r"
    cordon lost: lost since 11:49:00
    cordon overdue: idle since 11:00:00
    busy is busy: kept
    idle is idle: kept until 12:07:00
    lost is lost: cordon
    overdue is idle: cordon
    ");
}

#[test]
fn a_machine_that_is_up_without_a_record_is_left_alone_and_told() {
    let mut world = fixed_world().with(fixed("a").launched("5h"));
    world.snapshot.agents.clear();
    assert_snapshot!(world.plan(), @r"
    no steps
    a is failed: kept, no record
    notice: i-a has no record
    ");
}

#[test]
fn a_machine_that_was_started_and_never_connects_is_stopped_again() {
    let world = || fixed_world().with(fixed("a").started("11m")).with(fixed("b").stopped("1h"));
    assert_snapshot!(world().tasks(1).plan(), @r"
    stop a (silent): never connected, launched 11:49:00
    task 1: held: p1 failed 1 times, until 12:01:00
    a is failed: stop
    b is stopped: kept, stopped
    ");
    let mut without_record = fixed_world().with(fixed("a").started("11m"));
    without_record.snapshot.agents.clear();
    assert_snapshot!(without_record.plan(), @r"
    stop a (never heard of): never connected, launched 11:49:00
    a is failed: stop
    ");
}

#[test]
fn what_was_heard_of_before_a_start_does_not_count() {
    let world = fixed_world().with(fixed("a").started("30s"));
    assert_snapshot!(world.tasks(2).plan(), @r"
    no steps
    task 1: boots a (p1)
    task 2: boots a (p1)
    a is booting: kept, boots until 12:09:30
    ");
}

#[test]
fn a_stopped_machine_takes_what_its_record_says() {
    let world = fixed_world().with(fixed("gpu").labels("type=gpu").slots(1).stopped("1h"));
    let world = world.with(task("1").labels("type=gpu")).with(task("2").labels("type=gpu"));
    assert_snapshot!(world.plan(), @r"
    start gpu: tasks: 1
    task 1: starts gpu (p1)
    task 2: held: p1 has nothing to start of 1
    gpu is stopped: start
    ");
}

#[test]
fn one_for_which_the_provider_has_no_room_is_passed_over_for_a_while() {
    let world = || kept_world().with(agent("a").stopped("1h")).tasks(1).sold_out("cx23", ahead("5m"));
    assert_snapshot!(world().plan(), @r"
    no steps
    task 1: held: p1 sold out until 12:05:00
    a is stopped: kept, stopped
    ");
    let fixed = fixed_world().with(fixed("a").stopped("1h")).tasks(1).sold_out("cx23", ahead("5m"));
    assert_snapshot!(fixed.plan(), @r"
    no steps
    task 1: held: p1 sold out until 12:05:00
    a is stopped: kept, stopped
    ");
}

#[test]
fn a_stopped_instance_is_deleted_when_it_is_old_or_its_settings_have_changed() {
    let world = kept_world().with(agent("old").stopped("169h")).with(agent("changed").other_settings().stopped("1h"));
    assert_snapshot!(world.tasks(1).plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    retire changed (silent): settings changed
    retire old (silent): stopped since 11:00:00
    task 1: boots new1 (p1)
    changed is stopped: retire
    old is stopped: retire
    ");
}

#[test]
fn stopped_instances_count_towards_the_maximum() {
    let world =
        kept_world().with(agent("a").stopped("1h").cordoned("1h")).with(agent("b").stopped("1h").cordoned("1h"));
    assert_snapshot!(world.tasks(6).plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    task 1: boots new1 (p1)
    task 2: boots new1 (p1)
    task 3: held: p1 has its maximum of 3
    task 4: held: p1 has its maximum of 3
    task 5: held: p1 has its maximum of 3
    task 6: held: p1 has its maximum of 3
    a is stopped: kept, cordoned by others
    b is stopped: kept, cordoned by others
    ");
}

#[test]
fn the_minimum_is_kept_by_starting() {
    let world =
        world().pool(pool().min(1).max(2).fixed()).with(fixed("a").stopped("1h")).with(fixed("b").stopped("1h"));
    assert_snapshot!(world.plan(), @r"
    start a: below the minimum of 1
    a is stopped: start
    b is stopped: kept, stopped
    ");
}

#[test]
fn an_instance_that_does_not_exist_is_told() {
    assert_snapshot!(fixed_world().plan(), @r"
    no steps
    notice: there is no i-none
    ");
}

#[test]
fn a_name_that_two_machines_have_tells_nothing() {
    let mut world = fixed_world().with(fixed("a").idle_for("11m")).with(fixed("b").idle_for("11m"));
    for listing in world.snapshot.instances.values_mut() {
        if let crate::model::snapshot::Listing::Known { instances, .. } = listing {
            for instance in instances {
                instance.known_as = vec!["a".to_owned()];
            }
        }
    }
    assert_snapshot!(world.plan(), @r"
    no steps
    a is failed: kept, no record
    b is failed: kept, no record
    notice: i-a has no record
    notice: i-b has no record
    ");
}
