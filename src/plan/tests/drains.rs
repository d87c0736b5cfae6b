//! Drains of our own that are undone, and cordons of others that are not.

use insta::assert_snapshot;

use super::machine::agent;
use super::world::{ago, pool, world};

fn three_draining() -> super::world::World {
    let draining = |short| agent(short).draining("1m").idle_for("2m");
    world().with(draining("a")).with(draining("b")).with(draining("c"))
}

#[test]
fn as_many_drains_are_undone_as_the_tasks_need() {
    assert_snapshot!(three_draining().tasks(1).plan(), @r"
    uncordon a: tasks: 1
    retire c: idle since 11:58:00
    retire b: idle since 11:58:00
    task 1: uncordons a (p1)
    a is cordoned: uncordon
    c is cordoned: retire
    b is cordoned: retire
    ");
}

#[test]
fn what_the_undone_drains_do_not_cover_is_launched() {
    assert_snapshot!(three_draining().tasks(7).plan(), @r"
    uncordon a: tasks: 2
    uncordon c: tasks: 2
    uncordon b: tasks: 2
    launch new1 cx23:nbg1: tasks: 1
    task 1: uncordons a (p1)
    task 2: uncordons a (p1)
    task 3: uncordons c (p1)
    task 4: uncordons c (p1)
    task 5: uncordons b (p1)
    task 6: uncordons b (p1)
    task 7: boots new1 (p1)
    a is cordoned: uncordon
    c is cordoned: uncordon
    b is cordoned: uncordon
    ");
}

#[test]
fn drains_that_are_still_full_leave_the_maximum_as_it_is() {
    let full = |short| agent(short).running(2).draining("1m");
    let world = world().pool(pool().max(2)).with(full("a")).with(full("b")).tasks(4);
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: held: p1 has its maximum of 2
    task 2: held: p1 has its maximum of 2
    task 3: held: p1 has its maximum of 2
    task 4: held: p1 has its maximum of 2
    a is cordoned: kept
    b is cordoned: kept
    ");
}

#[test]
fn a_drain_that_still_works_and_has_a_free_slot_is_undone() {
    let half = |short| agent(short).running(1).draining("1m");
    let world = world().pool(pool().max(2)).with(half("a")).with(half("b")).tasks(4);
    assert_snapshot!(world.plan(), @r"
    uncordon a: tasks: 1
    uncordon b: tasks: 1
    task 1: uncordons a (p1)
    task 2: uncordons b (p1)
    task 3: held: p1 has its maximum of 2
    task 4: held: p1 has its maximum of 2
    a is cordoned: uncordon
    b is cordoned: uncordon
    ");
}

#[test]
fn an_agent_cordoned_by_an_admin_is_left_alone() {
    let world = world().with(agent("busy").running(1).cordoned("1h")).with(agent("idle").cordoned("1h")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    idle is cordoned: kept, cordoned by others
    busy is cordoned: kept
    ");
}

#[test]
fn after_a_restart_a_cordon_counts_as_an_admins() {
    let world = world().with(agent("a").cordoned_unknown().idle_for("11m")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    a is cordoned: kept, settles until 12:00:10
    ");
}

#[test]
fn a_drain_that_is_not_connected_any_more_is_not_undone() {
    let world = world().with(agent("a").draining("2m").idle_for("2m").unseen_for("61s")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    retire a: lost since 11:58:59
    task 1: boots new1 (p1)
    a is cordoned: retire
    ");
}

#[test]
fn a_drain_that_would_not_be_given_the_task_is_not_undone() {
    let world = world().with(agent("a").draining("5s").labels("!type=old")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    a is cordoned: kept, settles until 12:00:05
    ");
}

#[test]
fn a_drain_whose_deletion_is_under_way_is_not_undone() {
    let world = world().with(agent("a").draining("1m").in_flight()).tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    a is cordoned: kept, under way
    ");
}

#[test]
fn a_drain_is_undone_also_while_the_provider_does_not_answer() {
    let world = world().with(agent("a").draining("1m")).listing_unknown().tasks(3);
    assert_snapshot!(world.plan(), @r"
    uncordon a: tasks: 2
    task 1: uncordons a (p1)
    task 2: uncordons a (p1)
    task 3: held: p1 listing unknown (503)
    a is cordoned: uncordon
    ");
}

#[test]
fn a_drain_is_undone_for_the_minimum_before_anything_is_launched() {
    let world = world().pool(pool().min(2)).with(agent("a").draining("1m"));
    assert_snapshot!(world.plan(), @r"
    uncordon a: below the minimum of 2
    launch new1 cx23:nbg1: below the minimum of 2
    a is cordoned: uncordon
    ");
}

#[test]
fn a_task_that_two_pools_could_take_undoes_the_drain_of_the_second_before_the_first_launches() {
    let world = world().pool(pool().named("a")).pool(pool().named("b")).with(agent("x").pool("b").draining("1m"));
    assert_snapshot!(world.tasks(1).plan(), @r"
    uncordon x: tasks: 1
    task 1: uncordons x (b)
    x is cordoned: uncordon
    ");
}

#[test]
fn a_drain_that_outlasted_its_paid_period_is_undone_because_the_next_one_is_paid_for() {
    let drain = agent("a").launched("63m").draining("5m").idle_for("30s");
    let world = world().pool(pool().billed_by("1h")).with(drain);
    assert_snapshot!(world.plan(), @r"
    uncordon a: paid again, until 12:54:40
    a is cordoned: uncordon
    ");
}

#[test]
fn a_drain_within_its_paid_periods_last_minutes_goes_on() {
    let drain = agent("a").launched("58m30s").draining("30s").idle_for("10m");
    let world = world().pool(pool().billed_by("1h")).with(drain);
    assert_snapshot!(world.plan(), @r"
    retire a: period ends 12:01:30
    a is cordoned: retire
    ");
}

#[test]
fn an_undone_drain_is_renamed_by_nobody() {
    let world = world().with(agent("a").renamed("big one").draining("1m")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    uncordon big one: tasks: 1
    task 1: uncordons a (p1)
    a is cordoned: uncordon
    ");
    assert_eq!(world.memory.cordons.values().next().map(|cordon| cordon.since), Some(ago("1m")));
}

#[test]
fn a_drain_undone_because_it_is_paid_for_counts_for_the_minimum() {
    let world = world()
        .pool(pool().billed_by("1h").min(1))
        .with(agent("ending").launched("58m").idle_for("10m").draining("1m"))
        .with(agent("paid").launched("63m").draining("5m"));
    assert_snapshot!(world.plan(), @r"
    uncordon paid: paid again, until 12:54:40
    retire ending: period ends 12:02:00
    paid is cordoned: uncordon
    ending is cordoned: retire
    ");
}
