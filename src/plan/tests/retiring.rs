//! When idle agents, failed boots and lost ones are retired, and when they are kept.

use insta::assert_snapshot;
use jiff::Timestamp;

use super::machine::{agent, instance, record, static_agent};
use super::task::task;
use super::world::{ago, ahead, pool, span, world};

#[test]
fn an_idle_agent_is_cordoned_after_its_timeout_then_retired_once_the_cordon_has_settled() {
    let world = world().with(agent("young").idle_for("9m59s")).with(agent("old").idle_for("10m"));
    assert_snapshot!(world.plan(), @r"
    cordon old: idle since 11:50:00
    old is idle: cordon
    young is idle: kept until 12:00:01
    ");
    let world = world.executed().later("9s");
    assert_snapshot!(world.plan(), @r"
    cordon young: idle since 11:50:01
    old is cordoned: kept, settles until 12:00:10
    young is idle: cordon
    ");
    let world = world.later("1s");
    assert_snapshot!(world.plan(), @r"
    retire old: idle since 11:50:00
    cordon young: idle since 11:50:01
    old is cordoned: retire
    young is idle: cordon
    ");
    assert_snapshot!(world.executed().plan(), @r"
    no steps
    young is cordoned: kept, settles until 12:00:20
    ");
}

#[test]
fn a_task_that_slipped_in_while_the_cordon_was_set_keeps_the_agent() {
    let world = world().with(agent("a").draining("20s").running(1).idle_for("11m"));
    assert_snapshot!(world.plan(), @r"
    no steps
    a is cordoned: kept
    ");
}

#[test]
fn with_a_shared_secret_an_agent_that_never_worked_is_idle_from_the_beginning_of_its_record() {
    let fresh = || agent("a").shared_secret().launched("12m").last_work(None);
    let world = || world().pool(pool().shared_secret());
    assert_snapshot!(world().with(fresh().registered("9m")).plan(), @r"
    no steps
    a is idle: kept until 12:01:00
    ");
    assert_snapshot!(world().with(fresh().registered("10m")).plan(), @r"
    cordon a: idle since 11:50:00
    a is idle: cordon
    ");
}

#[test]
fn an_agent_that_never_worked_is_idle_from_its_first_contact() {
    let fresh = || agent("a").launched("12m").last_work(None);
    assert_snapshot!(world().with(fresh().launched("2m")).plan(), @r"
    no steps
    a is idle: kept until 12:08:00
    ");
    assert_snapshot!(world().with(fresh().connected("9m")).plan(), @r"
    no steps
    a is idle: kept until 12:01:00
    ");
    assert_snapshot!(world().with(fresh().connected("10m")).plan(), @r"
    cordon a: idle since 11:50:00
    a is idle: cordon
    ");
    assert_snapshot!(world().with(fresh()).plan(), @r"
    cordon a: idle since 11:48:00
    a is idle: cordon
    ");
}

#[test]
fn work_that_the_loop_saw_counts_although_the_record_lags_behind() {
    let world = world().with(agent("a").idle_for("10m30s").seen_busy("9m40s"));
    assert_snapshot!(world.plan(), @r"
    no steps
    a is idle: kept until 12:00:20
    ");
}

#[test]
fn work_in_the_future_was_just_now() {
    let world = world().with(agent("a").last_work(Some(ahead("90s"))));
    assert_snapshot!(world.plan(), @r"
    no steps
    a is idle: kept until 12:10:00
    ");
}

#[test]
fn a_busy_agent_is_never_retired() {
    let world = world().with(agent("a").running(1).idle_for("1h")).with(agent("b").running(1).cordoned("1h"));
    assert_snapshot!(world.plan(), @r"
    no steps
    a is busy: kept
    b is cordoned: kept
    ");
}

#[test]
fn a_tasks_id_is_not_an_agents() {
    let world = world()
        .with(agent("three").id(3).idle_for("11m"))
        .with(agent("five").id(5).idle_for("11m"))
        .with(task("3").running_on(5));
    assert_snapshot!(world.plan(), @r"
    cordon three: idle since 11:49:00
    five is busy: kept
    three is idle: cordon
    ");
}

#[test]
fn an_agent_that_a_pending_task_will_take_is_kept() {
    let world = world().with(agent("a").idle_for("11m")).with(agent("b").idle_for("11m")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    cordon b: idle since 11:49:00
    task 1: covered by a
    a is idle: kept, needed
    b is idle: cordon
    ");
}

#[test]
fn an_agent_that_a_waiting_task_is_about_to_need_is_kept() {
    let world = world()
        .with(static_agent("s").id(99).slots(1).running(1))
        .with(agent("a").idle_for("11m"))
        .with(agent("b").idle_for("11m"))
        .with(task("1").needs(&["s-0"]).waiting())
        .with(task("2").needs(&["s-0"]).waiting());
    assert_snapshot!(world.plan(), @r"
    cordon b: idle since 11:49:00
    task 1: needs s-0
    task 2: needs s-0
    a is idle: kept, needed
    b is idle: cordon
    ");
}

#[test]
fn the_tail_of_a_long_chain_keeps_no_agent() {
    let world = world()
        .with(static_agent("s").slots(1).running(1))
        .with(agent("a").idle_for("11m"))
        .with(task("1").needs(&["s-0"]).waiting())
        .with(task("2").needs(&["1"]).waiting())
        .with(task("3").needs(&["2"]).waiting());
    assert_snapshot!(world.plan(), @r"
    cordon a: idle since 11:49:00
    task 1: needs s-0
    task 2: needs 1
    task 3: needs 2
    a is idle: cordon
    ");
}

#[test]
fn an_administrators_cordon_is_retired_when_its_time_is_over_and_not_before() {
    let world = world().with(agent("a").cordoned("1h").idle_for("9m")).with(agent("b").cordoned("1h").idle_for("10m"));
    assert_snapshot!(world.plan(), @r"
    retire b: idle since 11:50:00
    a is cordoned: kept, cordoned by others
    b is cordoned: retire
    ");
}

#[test]
fn the_minimum_keeps_those_that_were_idle_for_the_shortest_time() {
    let world = world()
        .pool(pool().min(1))
        .with(agent("a").idle_for("12m"))
        .with(agent("b").idle_for("11m"))
        .with(agent("c").idle_for("13m"));
    assert_snapshot!(world.plan(), @r"
    cordon a: idle since 11:48:00
    cordon c: idle since 11:47:00
    a is idle: cordon
    c is idle: cordon
    b is idle: kept, minimum
    ");
}

#[test]
fn an_agent_with_labels_of_old_settings_is_not_kept_for_the_minimum() {
    let world = world().pool(pool().min(1).max(1)).with(agent("a").labels("type=old").idle_for("11m"));
    assert_snapshot!(world.plan(), @r"
    cordon a: idle since 11:49:00
    a is idle: cordon
    ");
}

#[test]
fn busy_agents_count_for_the_minimum() {
    let world = world().pool(pool().min(1)).with(agent("a").running(1)).with(agent("b").idle_for("11m"));
    assert_snapshot!(world.plan(), @r"
    cordon b: idle since 11:49:00
    a is busy: kept
    b is idle: cordon
    ");
}

/// What becomes of an agent launched at noon, looked at so long after, idle since a time before that.
fn by_the_hour(at: &str, idle_for: &str, poll: &str) -> String {
    let mut world = world().pool(pool().billed_by("1h")).poll(poll);
    world = world.with(agent("a").launched_at(super::world::now()).last_work(None)).later(at);
    let last_work = world.snapshot.now - span(idle_for);
    world.snapshot.agents[0].last_work = Some(last_work);
    let plan = world.plan();
    plan.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_rest_of_a_paid_hour_is_kept() {
    assert_snapshot!(by_the_hour("20m", "15m", "10s"), @"a is idle: kept, paid until 12:57:40");
    assert_snapshot!(by_the_hour("57m", "50m", "10s"), @"a is idle: kept, paid until 12:57:40");
}

#[test]
fn an_idle_agent_goes_in_the_last_minutes_of_its_paid_hour() {
    assert_snapshot!(by_the_hour("57m40s", "50m", "10s"), @"a is idle: cordon");
    assert_snapshot!(by_the_hour("59m39s", "1m", "10s"), @"a is idle: cordon");
}

#[test]
fn an_agent_that_can_not_be_gone_by_the_end_of_its_paid_hour_is_kept_for_the_next() {
    assert_snapshot!(by_the_hour("59m41s", "1s", "10s"), @"a is idle: kept, paid until 13:57:40");
}

#[test]
fn an_agent_that_worked_into_the_next_hour_is_kept_until_that_one_ends() {
    assert_snapshot!(by_the_hour("65m", "1s", "10s"), @"a is idle: kept, paid until 13:57:40");
    assert_snapshot!(by_the_hour("117m40s", "52m", "10s"), @"a is idle: cordon");
}

#[test]
fn the_last_minutes_are_never_missed_however_sparse_the_passes() {
    for first in 0..300 {
        let mut world = world()
            .pool(pool().billed_by("1h"))
            .poll("5m")
            .with(agent("a").launched_at(super::world::now()).last_work(None))
            .later(&format!("{first}s"));
        while !world.snapshot.agents.is_empty() {
            assert!(world.snapshot.now < ahead("1h"), "the first pass {first} s after the launch");
            world = world.executed().later("5m");
        }
    }
}

#[test]
fn a_boot_that_never_connects_is_replaced_after_its_timeout() {
    let booting = |short, words| agent(short).booting().launched(words);
    let world = world().with(booting("young", "9m59s")).with(booting("old", "10m"));
    assert_snapshot!(world.plan(), @r"
    retire old (never heard of): never connected, launched 11:50:00
    old is failed: retire
    young is booting: kept, boots until 12:00:01
    ");
}

#[test]
fn a_booting_agent_that_an_administrator_cordoned_keeps_its_deadline_and_covers_nothing() {
    let booting = |short, words| agent(short).booting().cordoned("1m").launched(words);
    let world = world().with(booting("young", "9m59s")).with(booting("old", "10m")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    retire old (never heard of): never connected, launched 11:50:00
    task 1: boots new1 (p1)
    old is cordoned: retire
    young is cordoned: kept, boots until 12:00:01
    ");
}

#[test]
fn a_slow_boot_outlasts_the_idle_timeout_although_it_is_cordoned() {
    let booting = agent("a").booting().cordoned("1m").launched("20m");
    let world = world().pool(pool().boot_timeout("30m")).with(booting);
    assert_snapshot!(world.plan(), @r"
    no steps
    a is cordoned: kept, boots until 12:10:00
    ");
}

#[test]
fn a_lost_agent_is_given_up_after_the_boot_timeout() {
    let world = world().with(agent("a").unseen_for("9m")).with(agent("b").idle_for("9m").unseen_for("10m"));
    assert_snapshot!(world.plan(), @r"
    cordon b: lost since 11:50:00
    a is lost: kept, lost; given up at 12:01:00
    b is lost: cordon
    ");
    let world = world.executed().later("10s");
    assert_snapshot!(world.plan(), @r"
    retire b: lost since 11:50:00
    a is lost: kept, lost; given up at 12:01:00
    b is cordoned: retire
    ");
}

#[test]
fn a_lost_agent_that_the_server_still_has_at_work_is_kept() {
    let world = world().with(agent("a").unseen_for("30m").running(1));
    assert_snapshot!(world.plan(), @r"
    no steps
    a is busy: kept
    ");
}

#[test]
fn nothing_is_retired_while_the_provider_does_not_answer() {
    let world = world()
        .with(agent("idle").idle_for("1h"))
        .with(agent("failed").booting().launched("1h"))
        .with(record("old"))
        .listing_unknown();
    assert_snapshot!(world.plan(), @r"
    no steps
    idle is idle: kept, listing unknown
    old is lost: kept, listing unknown
    failed is failed: kept, listing unknown
    ");
}

#[test]
fn what_is_under_way_is_left_to_its_end() {
    let world = world().with(agent("a").idle_for("1h").in_flight()).with(agent("b").draining("1m").in_flight());
    assert_snapshot!(world.plan(), @r"
    no steps
    a is idle: kept, under way
    b is cordoned: kept, under way
    ");
}

#[test]
fn a_restart_decides_as_before() {
    let before = world()
        .with(agent("busy").running(1).seen_busy("0s"))
        .with(agent("idle").idle_for("5m").seen_busy("5m").connected("50m"))
        .with(instance("no-record").missing_for("30s"))
        .with(record("no-instance").missing_for("30s"))
        .with(agent("booting").booting().launched("3m"));
    assert_snapshot!(before.plan(), @r"
    no steps
    no-instance is orphan: kept, missing; looked again at 12:01:30
    idle is idle: kept until 12:05:00
    busy is busy: kept
    no-record is orphan: kept, missing; looked again at 12:00:30
    booting is booting: kept, boots until 12:07:00
    ");
    let mut after = before.clone();
    after.memory = crate::model::memory::Memory { next_launch: 5, ..Default::default() };
    assert_snapshot!(after.plan(), @r"
    no steps
    no-instance is orphan: kept, missing; looked again at 12:02:00
    idle is idle: kept until 12:05:00
    busy is busy: kept
    no-record is orphan: kept, missing; looked again at 12:01:00
    booting is booting: kept, boots until 12:07:00
    ");
}

#[test]
fn the_next_look_is_when_the_first_wait_ends() {
    let world = world().with(agent("a").idle_for("4m")).with(agent("b").booting().launched("5m"));
    assert_eq!(world.decided().next_look, Some(ahead("5m")));
    let busy = super::world::world().with(agent("a").running(1));
    assert_eq!(busy.decided().next_look, None::<Timestamp>);
    assert_eq!(ago("0s"), super::world::now());
}
