//! Instances without record, records without instance, and what belongs to somebody else.

use insta::assert_snapshot;

use super::machine::{agent, foreign_record, instance, record, static_agent};
use super::task::task;
use super::world::{World, pool, world};
use crate::model::pool::AccountId;
use crate::model::snapshot::Listing;

#[test]
fn an_instance_is_spared_until_its_record_has_been_missing_for_a_while() {
    let missing = |world: World| world.with(instance("a").missing_for("59s")).with(instance("b").missing_for("60s"));
    assert_snapshot!(missing(world().with(static_agent("build7"))).plan(), @r"
    delete instance b: record gone
    a is orphan: kept, missing; looked again at 12:00:01
    b is orphan: delete_instance
    ");
    // That every record was deleted is less likely than a server that has lost its senses for a while.
    assert_snapshot!(missing(world()).plan(), @r"
    no steps
    a is orphan: kept, missing; looked again at 12:19:01
    b is orphan: kept, missing; looked again at 12:19:00
    ");
}

#[test]
fn young_and_lately_busy_instances_are_spared_although_their_record_is_missing() {
    let gone = |short| instance(short).missing_for("30m");
    let world = world()
        .with(gone("young").launched("9m"))
        .with(gone("lately-busy").seen_busy("9m"))
        .with(gone("neither").launched("11m").seen_busy("11m"));
    assert_snapshot!(world.plan(), @r"
    delete instance neither: record gone
    neither is orphan: delete_instance
    young is orphan: kept, missing; looked again at 12:01:00
    lately-busy is orphan: kept, missing; looked again at 12:01:00
    ");
}

#[test]
fn an_instance_whose_missing_record_still_has_a_task_is_busy() {
    let world = world().with(instance("a").missing_for("1h").running(1));
    assert_snapshot!(world.plan(), @r"
    no steps
    a is busy: kept
    ");
}

#[test]
fn an_empty_list_of_agents_deletes_nothing_that_works() {
    let busy = |short| agent(short).running(2);
    let mut world = world().with(busy("a")).with(busy("b")).with(agent("idle").idle_for("30m"));
    world.snapshot.agents.clear();
    assert_snapshot!(world.plan(), @r"
    no steps
    a is busy: kept
    idle is orphan: kept, missing; looked again at 12:20:00
    b is busy: kept
    ");
}

#[test]
fn an_instance_with_the_shared_secret_may_be_the_one_at_work_when_its_record_is_missing() {
    let shared = |short| agent(short).shared_secret().running(1);
    let mut world = world().pool(pool().shared_secret()).with(shared("a")).with(shared("b"));
    world.snapshot.agents.clear();
    assert_snapshot!(world.plan(), @r"
    no steps
    a is busy: kept
    b is busy: kept
    ");
}

#[test]
fn an_instance_whose_record_this_process_deleted_is_deleted_at_once() {
    let world = world().with(instance("a").record_deleted().launched("1m"));
    assert_snapshot!(world.plan(), @r"
    delete instance a: record gone
    a is orphan: delete_instance
    ");
}

#[test]
fn a_record_is_spared_until_its_instance_has_been_missing_for_a_while() {
    let world = world().with(record("new")).with(record("a").missing_for("119s")).with(record("b").missing_for("2m"));
    assert_snapshot!(world.plan(), @r"
    delete record of b (silent): instance gone
    a is orphan: kept, missing; looked again at 12:00:01
    new is orphan: kept, missing; looked again at 12:02:00
    b is orphan: retire
    ");
}

#[test]
fn no_record_is_deleted_while_its_agent_is_connected_or_at_work() {
    let missing = |short| record(short).missing_for("1h");
    let world = world()
        .with(missing("connected").unseen_for("5s"))
        .with(missing("at-work").running(1))
        .with(missing("draining").unseen_for("5s").draining("1m"));
    assert_snapshot!(world.plan(), @r"
    no steps
    at-work is busy: kept
    connected is idle: kept, instance not listed
    draining is cordoned: kept, instance not listed
    ");
}

#[test]
fn an_empty_or_unknown_list_of_instances_deletes_no_record_of_an_agent_at_work() {
    let mut world =
        world().with(agent("a").running(1)).with(agent("b").idle_for("11m")).with(agent("c").draining("1m"));
    assert_snapshot!(world.clone().listing_unknown().plan(), @r"
    no steps
    a is busy: kept
    c is cordoned: kept, listing unknown
    b is idle: kept, listing unknown
    ");
    let empty = Listing::Known { listed: super::world::now(), instances: Vec::new() };
    world.snapshot.instances.insert(AccountId(0), empty);
    assert_snapshot!(world.plan(), @r"
    no steps
    a is busy: kept
    c is cordoned: kept, instance not listed
    b is idle: kept, instance not listed
    ");
}

#[test]
fn a_cordoned_record_without_instance_goes_too() {
    let world = world().with(record("a").missing_for("1h").cordoned("1h"));
    assert_snapshot!(world.plan(), @r"
    delete record of a (silent): instance gone
    a is orphan: retire
    ");
}

#[test]
fn a_record_whose_instance_is_listed_late_is_not_touched() {
    let world = world().with(record("a").booting().launched("100s")).with(record("b").booting().launched("3m"));
    assert_snapshot!(world.plan(), @r"
    no steps
    a is booting: kept, boots until 12:08:20
    b is orphan: kept, missing; looked again at 12:02:00
    ");
}

#[test]
fn a_record_whose_pool_is_not_configured_is_invisible() {
    let world = world().with(record("a").pool("p2").missing_for("1h"));
    assert_snapshot!(world.plan(), @"no steps");
}

#[test]
fn records_of_other_installations_are_invisible() {
    for installation in ["picus-x", "picu", "x-picus", "1", "10"] {
        let world = world().with(foreign_record(installation));
        assert_eq!(world.plan(), "no steps\n", "{installation}");
    }
}

#[test]
fn agents_that_others_named_are_invisible() {
    for name in ["", "picus-p1-builder1", "picus-p1-", "build7"] {
        let world = world().with(static_agent(name).idle_for("5h").cordoned("1h"));
        assert_eq!(world.plan(), "no steps\n", "{name}");
    }
}

#[test]
fn an_instance_of_a_pool_that_is_not_configured_is_told_and_left_alone() {
    let world = world().with(instance("a").pool("p2").missing_for("1h"));
    assert_snapshot!(world.plan(), @r"
    no steps
    notice: stray a of pool p2
    ");
}

#[test]
fn a_renamed_agent_stays_ours() {
    let world = world().with(agent("a").renamed("big one").idle_for("11m"));
    assert_snapshot!(world.plan(), @r"
    cordon big one: idle since 11:49:00
    a is idle: cordon
    ");
}

#[test]
fn an_agent_with_the_shared_secret_is_found_by_its_name() {
    let world = world()
        .pool(pool().shared_secret())
        .with(agent("idle").shared_secret().idle_for("11m"))
        .with(instance("booting").shared_secret().launched("1m"))
        .with(instance("failed").shared_secret().launched("10m"));
    assert_snapshot!(world.plan(), @r"
    cordon idle: idle since 11:49:00
    delete instance failed: never connected, launched 11:50:00
    idle is idle: cordon
    booting is booting: kept, boots until 12:09:00
    failed is failed: delete_instance
    ");
}

#[test]
fn of_two_records_with_one_name_the_one_last_heard_of_has_the_instance() {
    let world = world()
        .pool(pool().shared_secret().max(2))
        .with(record("a").unseen_for("20m").missing_for("1m"))
        .with(agent("a").shared_secret())
        .tasks(5);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    task 1: covered by a
    task 2: covered by a
    task 3: boots new1 (p1)
    task 4: boots new1 (p1)
    task 5: held: p1 has its maximum of 2
    a is orphan: kept, missing; looked again at 12:01:00
    a is idle: kept, needed
    ");
}

#[test]
fn the_leftover_of_two_records_is_no_supply_while_it_still_looks_connected() {
    let world = world()
        .pool(pool().shared_secret().max(2))
        .with(record("a").unseen_for("50s"))
        .with(agent("a").shared_secret())
        .tasks(3);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: covered by a
    task 2: covered by a
    task 3: boots new1 (p1)
    a is orphan: kept, instance not listed
    a is idle: kept, needed
    ");
}

#[test]
fn orphans_and_idle_agents_are_dealt_with_while_launches_fail() {
    let world = world()
        .trouble("p1", 3, super::world::ahead("5m"))
        .with(agent("idle").idle_for("11m").platform("linux/arm64"))
        .with(instance("orphan").missing_for("5m"))
        .with(task("1").labels("platform=linux/amd64"));
    assert_snapshot!(world.plan(), @r"
    delete instance orphan: record gone
    cordon idle: idle since 11:49:00
    task 1: held: p1 failed 3 times, until 12:05:00
    orphan is orphan: delete_instance
    idle is idle: cordon
    ");
}

#[test]
fn an_instance_of_another_server_with_the_same_installation_is_left_alone_and_told() {
    let world = world()
        .pool(pool().max(1))
        .with(instance("theirs").of_another_server().launched("5h").missing_for("5h"))
        .tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    notice: theirs is of another server
    ");
}

#[test]
fn an_instance_whose_record_is_here_is_ours_although_the_server_had_another_address() {
    let world = world().with(agent("moved").of_another_server().idle_for("11m"));
    assert_snapshot!(world.plan(), @r"
    cordon moved: idle since 11:49:00
    moved is idle: cordon
    ");
    // The same number at another server is another agent.
    let namesake = world.with(agent("theirs").of_another_server().idle_for("11m").renamed("somebody"));
    assert_snapshot!(namesake.plan(), @r"
    cordon moved: idle since 11:49:00
    moved is idle: cordon
    notice: theirs is of another server
    ");
}
