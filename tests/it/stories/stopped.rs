//! Machines that somebody else made are started for demand and stopped when they idle; their records stay.

use picus::model::decision::TaskDecision;
use picus::model::instance::InstanceState::{Running, Stopped};
use picus::provider::ProviderError;
use picus::world::task;
use tracing::level_filters::LevelFilter;

use crate::harness::fixed::Fixed;
use crate::harness::log::collect;
use crate::harness::minutes;

#[tokio::test]
async fn demand_starts_a_machine_and_idleness_stops_it_again_and_again() {
    let p = Fixed::begin(2).await;
    p.minutes(5).await;
    assert_eq!((p.starts(1), p.starts(2)), (0, 0), "without demand nothing is started");
    for times in 1..=3 {
        let build = p.world.push(task("build").takes(minutes(3)));
        p.until("it is done", |p| p.is_done(&build)).await;
        p.until("all are stopped", |p| p.state(1) == Stopped && p.state(2) == Stopped).await;
        assert_eq!(p.starts(1) + p.starts(2), times);
        p.minutes(2).await;
        assert!(!p.cordoned(1) && !p.cordoned(2), "a stopped machine's record is schedulable");
    }
    assert_eq!(p.world.agents().len(), 2);
}

#[tokio::test]
async fn as_many_are_started_as_the_tasks_need() {
    let p = Fixed::begin(3).await;
    let tasks: Vec<_> = (0..2).map(|_| p.world.push(task("build").takes(minutes(3)))).collect();
    p.until("they are done", |p| tasks.iter().all(|task| p.is_done(task))).await;
    assert_eq!((1..=3).map(|number| p.starts(number)).sum::<u32>(), 2);
}

#[tokio::test]
async fn a_machine_that_is_being_stopped_is_started_once_it_is() {
    let p = Fixed::begin(1).await;
    let first = p.world.push(task("first").takes(minutes(1)));
    p.until("it is done", |p| p.is_done(&first)).await;
    p.until("it is being stopped", |p| p.state(1) != Running).await;
    let second = p.world.push(task("second").takes(minutes(1)));
    let plan = p.pass().await;
    assert!(matches!(&plan.tasks[0].1, TaskDecision::Starting { by, .. } if by == "i-1"), "{:?}", plan.tasks);
    p.until("it is done", |p| p.is_done(&second)).await;
    assert_eq!(p.starts(1), 2);
}

#[tokio::test]
async fn a_drain_is_known_as_ours_after_a_restart() {
    let mut p = Fixed::begin(1).await;
    let first = p.world.push(task("first").takes(minutes(1)));
    p.until("it is done", |p| p.is_done(&first)).await;
    p.until("it is cordoned", |p| p.cordoned(1)).await;
    p.restart().await;
    let second = p.world.push(task("second").takes(minutes(1)));
    p.until("it is done", |p| p.is_done(&second)).await;
    assert_eq!(p.starts(1), 1, "the drain was undone");
    // And one that ends in a stop while nobody looks.
    p.until("it is cordoned", |p| p.cordoned(1)).await;
    p.until("it is being stopped", |p| p.state(1) != Running).await;
    p.restart().await;
    let third = p.world.push(task("third").takes(minutes(1)));
    p.until("it is done", |p| p.is_done(&third)).await;
    assert_eq!(p.starts(1), 2);
}

#[tokio::test]
async fn a_machine_that_an_administrator_cordoned_is_not_started() {
    let mut p = Fixed::begin(1).await;
    p.world.cordon(p.record(1));
    let build = p.world.push(task("build").takes(minutes(1)));
    p.minutes(10).await;
    p.restart().await;
    p.minutes(10).await;
    assert_eq!((p.starts(1), p.cordoned(1)), (0, true));
    p.world.uncordon(p.record(1));
    p.until("it is done", |p| p.is_done(&build)).await;
}

#[tokio::test]
async fn a_machine_that_has_been_up_before_picus_is_judged_by_its_record() {
    let mut p = Fixed::begin(1).await;
    let long = p.world.push(task("long").takes(minutes(30)));
    p.until("it runs", |p| p.world.task(&long).is_some_and(|task| task.is_running())).await;
    p.restart().await;
    p.until("it is done", |p| p.is_done(&long)).await;
    p.minutes(8).await;
    assert_eq!(p.state(1), Running, "its idle time is not over");
    p.until("it is stopped", |p| p.state(1) == Stopped).await;
}

#[tokio::test]
async fn no_room_at_the_provider_holds_the_task_and_is_tried_again() {
    let p = Fixed::begin(1).await;
    p.refuse(Some(ProviderError::SoldOut("InsufficientInstanceCapacity".to_owned())));
    let build = p.world.push(task("build").takes(minutes(1)));
    p.minutes(5).await;
    let plan = p.pass().await;
    assert!(matches!(&plan.tasks[0].1, TaskDecision::Held { .. }), "{:?}", plan.tasks);
    p.refuse(None);
    p.until("it is done", |p| p.is_done(&build)).await;
}

#[tokio::test]
async fn a_machine_that_never_connects_is_stopped_and_started_at_growing_intervals() {
    let (log, _guard) = collect(LevelFilter::INFO);
    let p = Fixed::begin(1).await;
    p.break_agents();
    p.world.push(task("build").takes(minutes(1)));
    p.minutes(60).await;
    let starts = p.starts(1);
    assert!((3..=5).contains(&starts), "{starts} starts in an hour");
    assert!(!log.lines_with(&["ERROR", "never connected; its console ends with"]).is_empty(), "{}", log.text());
    assert!(!log.lines_with(&["  | no route to the server"]).is_empty(), "{}", log.text());
}
