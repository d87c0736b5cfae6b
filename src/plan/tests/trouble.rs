//! Launches and boots that fail: growing pauses, one try at a time, a success ends it.

use std::time::Duration;

use insta::assert_snapshot;

use super::machine::agent;
use super::world::{ago, ahead, now, pool, span, world};
use crate::model::ids::{InstallationId, LaunchName, PoolName};
use crate::model::memory::{FIRST_PAUSE, LONGEST_PAUSE, Memory};

fn name(number: u64) -> LaunchName {
    LaunchName::new(&InstallationId::from("picus"), &PoolName::from("p1"), number)
}

#[test]
fn nothing_is_launched_during_the_pause() {
    let world = world().trouble("p1", 2, ahead("1m")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: held: p1 failed 2 times, until 12:01:00
    ");
    assert_eq!(world.decided().next_look, Some(ahead("1m")));
}

#[test]
fn after_the_pause_one_instance_at_a_time_is_tried() {
    let world = world().trouble("p1", 2, ago("0s")).tasks(5);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    task 1: boots new1 (p1)
    task 2: boots new1 (p1)
    task 3: held: p1 failed 2 times, until 12:00:00
    task 4: held: p1 failed 2 times, until 12:00:00
    task 5: held: p1 failed 2 times, until 12:00:00
    ");
    assert_snapshot!(world.executed().plan(), @r"
    no steps
    task 1: boots picus-p1-zz383jj8 (p1)
    task 2: boots picus-p1-zz383jj8 (p1)
    task 3: held: p1 failed 2 times, until 12:00:00
    task 4: held: p1 failed 2 times, until 12:00:00
    task 5: held: p1 failed 2 times, until 12:00:00
    picus-p1-zz383jj8 is booting: kept, boots until 12:10:00
    ");
}

#[test]
fn an_instance_that_failed_to_boot_counts_for_the_maximum_until_it_is_gone() {
    let world = world().pool(pool().max(1)).with(agent("a").booting().launched("11m")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    retire a (never heard of): never connected, launched 11:49:00
    task 1: held: p1 has its maximum of 1
    a is failed: retire
    ");
    assert_snapshot!(world.executed().plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    ");
}

#[test]
fn the_minimum_waits_for_the_pause_too() {
    let world = world().pool(pool().min(2)).trouble("p1", 1, ahead("1m"));
    assert_snapshot!(world.plan(), @"no steps");
}

#[test]
fn pauses_double_up_to_an_hour() {
    let pool = PoolName::from("p1");
    let mut memory = Memory::default();
    let mut at = now();
    let mut pauses = Vec::new();
    for number in 0..10 {
        memory.launch_failed(&pool, &name(number), "no".to_owned(), at);
        let until = memory.troubles[&pool].until;
        pauses.push(crate::model::age(until, at));
        at = until;
    }
    let minutes: Vec<u64> = pauses.iter().map(|pause| pause.as_secs() / 60).collect();
    assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
    assert_eq!((pauses[0], pauses[9]), (FIRST_PAUSE, LONGEST_PAUSE));
    assert_eq!(memory.troubles[&pool].failures, 10);
}

#[test]
fn failures_at_the_same_time_and_of_the_same_instance_count_once() {
    let pool = PoolName::from("p1");
    let mut memory = Memory::default();
    for number in 0..5 {
        memory.launch_failed(&pool, &name(number), "no".to_owned(), now());
    }
    assert_eq!(memory.troubles[&pool].failures, 1);
    memory.launch_failed(&pool, &name(0), "still no".to_owned(), now() + span("1h"));
    assert_eq!(memory.troubles[&pool].failures, 1, "its deletion is slow; it failed only once");
    memory.launch_failed(&pool, &name(9), "no".to_owned(), now() + span("1h"));
    assert_eq!(memory.troubles[&pool].failures, 2);
}

#[test]
fn one_success_ends_it() {
    let pool = PoolName::from("p1");
    let mut memory = Memory::default();
    memory.launch_failed(&pool, &name(1), "no".to_owned(), now());
    memory.launch_succeeded(&pool);
    assert!(memory.troubles.is_empty());
    memory.launch_failed(&pool, &name(2), "no".to_owned(), now());
    assert_eq!(crate::model::age(memory.troubles[&pool].until, now()), Duration::from_mins(1));
}

#[test]
fn a_pool_whose_instances_never_connect_is_tried_at_growing_intervals_and_never_above_its_maximum() {
    let mut world = world().pool(pool().max(2)).tasks(9);
    let mut launches = Vec::new();
    for pass in 0..(6 * 60 * 4) {
        let plan = world.decided();
        let total = &plan.totals[&PoolName::from("p1")];
        assert!(total.instances + total.launches <= 2);
        launches.extend(std::iter::repeat_n(pass / 6, total.launches as usize));
        for machine in &plan.machines {
            if let (crate::model::machine::Fate::Step { action: "retire" | "delete_instance", .. }, Some(name)) =
                (&machine.fate, LaunchName::parse(&machine.name, &InstallationId::from("picus"), &PoolName::from("p1")))
            {
                world.memory.launch_failed(&machine.pool, &name, "never connected".to_owned(), world.snapshot.now);
            }
        }
        world = world.executed().later("10s");
        world.show_launches();
    }
    // Minutes: both at first; then one at a time, with pauses of 1, 2, 4, … minutes after each boot timeout.
    assert_eq!(launches, [0, 0, 11, 23, 37, 55, 81, 123, 193]);
}
