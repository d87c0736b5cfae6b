//! What covers tasks, and what is launched for the rest and for the minimum.

use insta::assert_snapshot;

use super::machine::{agent, instance, record, static_agent};
use super::task::{launching, task};
use super::world::{ago, ahead, pool, world};
use crate::model::instance::InstanceState;
use crate::model::pool::AccountId;
use crate::model::snapshot::Listing;

#[test]
fn a_booting_agent_covers_as_many_tasks_as_it_will_have_slots() {
    let world = world().with(agent("a").booting().launched("40s"));
    assert_snapshot!(world.clone().tasks(2).plan(), @r"
    no steps
    task 1: boots a (p1)
    task 2: boots a (p1)
    a is booting: kept, boots until 12:09:20
    ");
    assert_snapshot!(world.tasks(5).plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    launch new2 cx23:nbg1: tasks: 1
    task 1: boots a (p1)
    task 2: boots a (p1)
    task 3: boots new1 (p1)
    task 4: boots new1 (p1)
    task 5: boots new2 (p1)
    a is booting: kept, boots until 12:09:20
    ");
}

#[test]
fn ten_passes_with_nothing_new_leave_one_instance() {
    let mut world = world().tasks(2);
    for _ in 0..10 {
        world = world.executed().later("10s");
    }
    assert_eq!(world.snapshot.in_flight.launches.len(), 1);
}

#[test]
fn a_launch_that_no_listing_shows_yet_is_counted_once() {
    let world = world().with(launching("l").since("90s")).tasks(2);
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: boots l (p1)
    task 2: boots l (p1)
    l is booting: kept, boots until 12:08:30
    ");
}

#[test]
fn a_record_of_ours_whose_instance_the_listing_lacks_is_supply_while_it_boots() {
    let world = world().with(record("r").booting().launched("90s")).tasks(2);
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: boots r (p1)
    task 2: boots r (p1)
    r is booting: kept, boots until 12:08:30
    ");
}

#[test]
fn full_agents_cover_nothing() {
    let full = |short| agent(short).running(2);
    let world = world().pool(pool().max(10)).with(full("a")).with(full("b")).with(full("c")).tasks(2);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    task 1: boots new1 (p1)
    task 2: boots new1 (p1)
    a is busy: kept
    c is busy: kept
    b is busy: kept
    ");
}

#[test]
fn an_idle_agent_with_other_labels_covers_nothing() {
    let world = world().with(static_agent("s").labels("!type=gpu")).with(task("1").labels("platform=linux/amd64"));
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    ");
}

#[test]
fn an_idle_agent_of_others_covers_as_many_tasks_as_it_has_free_slots() {
    let world = world().with(static_agent("s").slots(3).running(1)).tasks(3);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: covered by s
    task 2: covered by s
    task 3: boots new1 (p1)
    ");
}

#[test]
fn busy_cordoned_unseen_and_other_organisations_agents_cover_nothing() {
    let world = world()
        .with(static_agent("busy").running(2))
        .with(static_agent("cordoned").cordoned("1h"))
        .with(static_agent("unseen").unseen_for("61s"))
        .with(static_agent("theirs").organisation(4))
        .with(static_agent("arm").platform("linux/arm64"))
        .with(task("1").labels("platform=linux/amd64"));
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    ");
}

#[test]
fn a_slot_that_only_fits_one_kind_of_task_is_not_spent_on_another() {
    let world = world()
        .with(static_agent("a-any").slots(1).labels("type=*"))
        .with(static_agent("b-plain").slots(1).platform("linux/amd64"))
        .with(task("1"))
        .with(task("2").labels("type=gpu"));
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: covered by b-plain
    task 2: covered by a-any
    ");
}

#[test]
fn the_best_score_is_given_the_task_as_at_the_server() {
    let world = world()
        .with(static_agent("a-wild").slots(1).labels("type=*"))
        .with(static_agent("b-exact").slots(1).labels("type=picus"))
        .with(task("1").labels("type=picus"));
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: covered by b-exact
    ");
}

#[test]
fn earlier_tasks_make_room_for_a_later_one_that_fits_only_their_slot() {
    let world = world()
        .with(static_agent("a").slots(1).labels("type=picus,zone=*"))
        .with(static_agent("b").slots(1).labels("type=*"))
        .with(task("1").labels("type=picus"))
        .with(task("2").labels("zone=eu"));
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: covered by b
    task 2: covered by a
    ");
}

#[test]
fn every_instance_counts_for_the_maximum_in_whatever_state() {
    let world = world()
        .pool(pool().max(5))
        .with(agent("busy").running(2))
        .with(agent("lost").unseen_for("5m"))
        .with(instance("off").state(InstanceState::Stopped))
        .with(instance("leaving").state(InstanceState::Deleting))
        .with(agent("draining").running(2).draining("1m"))
        .tasks(9);
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: held: p1 has its maximum of 5
    task 2: held: p1 has its maximum of 5
    task 3: held: p1 has its maximum of 5
    task 4: held: p1 has its maximum of 5
    task 5: held: p1 has its maximum of 5
    task 6: held: p1 has its maximum of 5
    task 7: held: p1 has its maximum of 5
    task 8: held: p1 has its maximum of 5
    task 9: held: p1 has its maximum of 5
    leaving is deleting: kept, goes away
    lost is lost: kept, lost; given up at 12:05:00
    busy is busy: kept
    draining is cordoned: kept
    off is orphan: kept, missing; looked again at 12:01:00
    ");
}

#[test]
fn launches_stop_at_the_maximum() {
    let world = world().pool(pool().max(2).slots(1)).tasks(3);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    launch new2 cx23:nbg1: tasks: 1
    task 1: boots new1 (p1)
    task 2: boots new2 (p1)
    task 3: held: p1 has its maximum of 2
    ");
}

#[test]
fn more_than_the_maximum_launches_nothing_and_retires_nothing_that_works() {
    let busy = |short| agent(short).running(2);
    let world = world().pool(pool().max(1)).with(busy("a")).with(busy("b")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: held: p1 has its maximum of 1
    a is busy: kept
    b is busy: kept
    ");
}

#[test]
fn a_sold_out_candidate_is_skipped_and_the_next_one_ordered() {
    let world = world().pool(pool().offers(&["a", "b", "c"])).sold_out("a", ahead("9m")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 b:nbg1: tasks: 1
    task 1: boots new1 (p1)
    ");
}

#[test]
fn a_candidate_is_tried_again_once_its_pause_is_over() {
    let world = world().pool(pool().offers(&["a", "b"])).sold_out("a", ago("0s")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 a:nbg1: tasks: 1
    task 1: boots new1 (p1)
    ");
}

#[test]
fn when_everything_is_sold_out_the_first_to_come_back_is_waited_for() {
    let world = world().pool(pool().offers(&["a", "b"])).sold_out("a", ahead("9m")).sold_out("b", ahead("5m")).tasks(1);
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: held: p1 sold out until 12:05:00
    ");
    assert_eq!(world.decided().next_look, Some(ahead("5m")));
}

#[test]
fn an_account_that_refuses_launches_nothing_and_retires_as_ever() {
    let world = world()
        .pool(pool().offers(&["a", "b"]))
        .refused("quota", ahead("5m"))
        .with(agent("idle").labels("other=1").platform("linux/arm64").idle_for("11m"))
        .with(task("1").labels("platform=linux/amd64"));
    assert_snapshot!(world.plan(), @r"
    cordon idle: idle since 11:49:00
    task 1: held: p1 refused (quota) until 12:05:00
    idle is idle: cordon
    ");
}

#[test]
fn a_second_pool_is_the_fall_back_of_the_first() {
    let two = || world().pool(pool().named("a").max(1)).pool(pool().named("b").account(1));
    assert_snapshot!(two().tasks(3).plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    launch new2 cx23:nbg1: tasks: 1
    task 1: boots new1 (a)
    task 2: boots new1 (a)
    task 3: boots new2 (b)
    ");
    assert_snapshot!(two().refused("quota", ahead("5m")).tasks(1).plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (b)
    ");
    assert_snapshot!(two().sold_out("cx23", ahead("5m")).tasks(1).plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (b)
    ");
    assert_snapshot!(two().trouble("a", 2, ahead("1m")).tasks(1).plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (b)
    ");
    assert_snapshot!(two().listing_unknown().tasks(1).plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    task 1: boots new1 (b)
    ");
}

#[test]
fn a_provider_that_could_not_be_asked_yet_launches_nothing() {
    let world = world().pool(pool().not_ready()).tasks(1);
    assert_snapshot!(world.plan(), @r"
    no steps
    task 1: held: p1 not ready (no answer)
    ");
}

#[test]
fn a_slot_left_over_in_another_pools_launch_is_used_before_one_more_is_launched() {
    let world = world()
        .pool(pool().named("a"))
        .pool(pool().named("b").labels("type=picus"))
        .with(task("1").labels("type=picus"))
        .with(task("2"));
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 2
    task 1: boots new1 (b)
    task 2: boots new1 (b)
    ");
}

#[test]
fn the_minimum_is_launched_without_any_task() {
    let world = world().pool(pool().min(1));
    assert_snapshot!(world.plan(), @"launch new1 cx23:nbg1: below the minimum of 1");
    assert_snapshot!(world.executed().plan(), @r"
    no steps
    picus-p1-zz383jj8 is booting: kept, boots until 12:10:00
    ");
}

#[test]
fn launches_for_tasks_count_for_the_minimum() {
    let world = world().pool(pool().min(2)).tasks(1);
    assert_snapshot!(world.plan(), @r"
    launch new1 cx23:nbg1: tasks: 1
    launch new2 cx23:nbg1: below the minimum of 2
    task 1: boots new1 (p1)
    ");
}

#[test]
fn only_what_can_take_work_of_ours_counts_for_the_minimum() {
    for of_no_use in [
        agent("a").labels("type=old"),
        agent("a").cordoned("1m"),
        agent("a").unseen_for("2m"),
        agent("a").organisation(7),
        agent("a").in_flight(),
    ] {
        let plan = world().pool(pool().min(1)).with(of_no_use).plan();
        assert!(plan.starts_with("launch new1 cx23:nbg1: below the minimum of 1\n"), "{plan}");
    }
    for of_use in [agent("a"), agent("a").running(2), agent("a").booting().launched("9m")] {
        let plan = world().pool(pool().min(1)).with(of_use).plan();
        assert!(plan.starts_with("no steps\n"), "{plan}");
    }
}

#[test]
fn the_minimum_does_not_exceed_the_maximum() {
    let world = world().pool(pool().min(1).max(1)).with(agent("a").unseen_for("5m"));
    assert_snapshot!(world.plan(), @r"
    no steps
    a is lost: kept, lost; given up at 12:05:00
    ");
}

#[test]
fn a_launch_name_that_something_has_already_is_not_used_again() {
    let mut world = world().tasks(1);
    let taken = crate::model::ids::LaunchName::new(
        &world.snapshot.installation,
        &world.snapshot.pools[0].name,
        world.memory.next_launch,
    );
    world = world.with(static_agent(taken.as_str()).cordoned("1m"));
    let plan = world.decided();
    assert_eq!(plan.names_used, 2);
    assert!(!format!("{:?}", plan.steps).contains(taken.as_str()));
}

#[test]
fn steps_that_create_or_remove_ask_for_a_fresh_listing() {
    let old = |mut world: super::world::World| {
        world.snapshot.instances.insert(AccountId(0), Listing::Known { listed: ago("30s"), instances: Vec::new() });
        world.decided().stale
    };
    assert_eq!(old(world().tasks(1)), [AccountId(0)]);
    assert_eq!(old(world()), []);
    assert_eq!(world().tasks(1).decided().stale, []);
}
