//! Clouds that say no, machines that never come up, limits of calls: tried again with growing pauses, told once.

use jiff::Timestamp;
use picus::model::age;
use picus::model::ids::AgentId;
use picus::world::{AnswerFault, Endpoint, Event, Fault, MachineFault, Side, task};
use tracing::level_filters::LevelFilter;

use crate::harness::log::collect;
use crate::harness::{Picus, hours, kinds, minutes, picus, seconds};

/// When servers were created since the last time this was asked.
fn created(p: &Picus) -> Vec<Timestamp> {
    let events = p.world.take_events().into_iter();
    events
        .filter(|happened| matches!(happened.event, Event::ServerCreated { .. }))
        .map(|happened| happened.at)
        .collect()
}

#[tokio::test]
async fn instances_that_never_connect_are_replaced_at_growing_intervals_and_one_success_ends_it() {
    let (log, _guard) = collect(LevelFilter::INFO);
    let p = picus().slots(1).max(3).set("POLL_INTERVAL", "30s").start().await;
    let broken = p.world.fault(Fault::machine(MachineFault::NeverBoots));
    for _ in 0..5 {
        p.world.push(task("build"));
    }
    p.live(hours(8)).await;
    let times = created(&p);
    assert_eq!(times.iter().filter(|at| **at == times[0]).count(), 3, "the maximum at first: {times:?}");
    let gaps: Vec<_> = times[2..].windows(2).map(|pair| age(pair[1], pair[0])).collect();
    assert!(gaps.len() >= 5 && gaps.is_sorted(), "one at a time, and ever more seldom: {gaps:?}");
    assert!(gaps[0] >= minutes(11) && gaps[gaps.len() - 1] >= hours(1), "{gaps:?}");
    let errors = log.lines_with(&["ERROR", "pool=default", "never connected", "PICUS_AGENT_WOODPECKER_SERVER"]);
    assert!(errors.len() >= 5 && errors.len() <= times.len(), "each failure once: {errors:#?}");

    p.world.mend(broken);
    p.live_until("one connects", |world| world.servers().iter().any(|server| server.connected)).await;
    p.live(seconds(30)).await;
    assert_eq!(p.servers(), 3, "one success, and the others are launched at once");
    p.ends_clean().await;
    assert!(!log.lines_with(&["pool=default", "launching works again"]).is_empty());
}

#[tokio::test]
async fn an_instance_that_never_connects_is_told_although_no_task_waits() {
    let (log, _guard) = collect(LevelFilter::INFO);
    let p = picus().min(1).start().await;
    p.world.fault(Fault::machine(MachineFault::StaysOff).times(1));
    p.live(minutes(30)).await;
    assert_eq!(log.lines_with(&["ERROR", "pool=default", "never connected"]).len(), 1, "{}", log.text());
    assert_eq!((p.launched(), p.servers()), (2, 1));
}

#[tokio::test]
async fn machines_that_stay_off_or_are_called_something_odd_are_no_riddle() {
    for fault in [MachineFault::StaysOff, MachineFault::OddStatus, MachineFault::BootsSlowly(minutes(5))] {
        let p = picus().start().await;
        p.world.fault(Fault::machine(fault).times(1));
        p.world.push(task("build"));
        p.ends_clean().await;
    }
}

#[tokio::test]
async fn a_cloud_that_refuses_for_a_hundred_passes_is_left_with_no_record() {
    for code in
        ["resource_limit_exceeded", "invalid_input", "resource_unavailable", "conflict", "maintenance", "forbidden"]
    {
        let p = picus().start().await;
        let refusing = p.world.fault(Fault::on(Endpoint::CreateServer, AnswerFault::Refused(code)));
        p.world.push(task("build"));
        p.live(seconds(1000)).await;
        let mut there: Vec<AgentId> = Vec::new();
        let mut tries = 0;
        for happened in p.world.take_events() {
            match happened.event {
                Event::RecordCreated { agent, .. } => {
                    there.push(agent);
                    tries += 1;
                }
                Event::RecordDeleted { agent, .. } => there.retain(|other| *other != agent),
                _ => {}
            }
            assert!(there.len() <= 1, "{code}: {there:?}");
        }
        assert!((1..=10).contains(&tries), "{code}: tried {tries} times in 17 minutes");
        assert_eq!(p.world.agents(), [], "{code}");
        p.world.mend(refusing);
        p.ends_clean().await;
        assert_eq!(p.launched(), 1);
    }
}

#[tokio::test]
async fn while_launches_fail_the_idle_and_the_orphaned_are_dealt_with_in_the_same_pass() {
    let p = picus().slots(1).start().await;
    for _ in 0..2 {
        p.world.push(task("first"));
    }
    p.live_until("all is done", |world| world.open_tasks().is_empty()).await;
    let [orphan, idle] = [0, 1].map(|index| p.ours().agents[index].id);
    p.live(seconds(30)).await;
    assert!(p.world.delete_record_by_hand(orphan));
    p.world.fault(Fault::on(Endpoint::CreateServer, AnswerFault::Status(503)));
    // Nobody's but a launch's: the idle one does not take it.
    p.world.cordon(idle);
    p.world.push(task("second").takes(minutes(5)));
    p.live(minutes(14)).await;
    assert_eq!(p.servers(), 0, "{}", p.situation());
    assert!(p.world.calls(Endpoint::CreateServer) > 2, "launching was tried meanwhile");
    p.world.mend_all();
    p.ends_clean().await;
}

#[tokio::test]
async fn a_refused_account_is_told_once_and_no_other_candidate_is_tried() {
    for code in ["resource_limit_exceeded", "unauthorized"] {
        let (log, _guard) = collect(LevelFilter::INFO);
        let p = picus().slots(1).set("HCLOUD_LOCATION", "nbg1,fsn1").start().await;
        let first = p.world.push(task("first").takes(minutes(1)));
        p.until_run(&[&first]).await;
        p.world.fault(Fault::on(Endpoint::CreateServer, AnswerFault::Refused(code)));
        let before = p.world.calls(Endpoint::CreateServer);
        let second = p.world.push(task("second").takes(minutes(1)));
        p.live(minutes(4)).await;
        assert_eq!(p.world.calls(Endpoint::CreateServer) - before, 1, "{code}: one try, then a pause");
        let told = log.lines_with(&["WARN", code]);
        assert!((1..=2).contains(&told.len()), "{code}: the try, and that tasks wait: {told:#?}");
        assert!(p.is_done(&second), "{code}: what is there goes on working");
        // And is retired as ever.
        p.ends_clean().await;
    }
}

#[tokio::test]
async fn an_hour_at_rest_takes_fewer_than_a_hundred_calls_to_the_cloud() {
    let p = picus().start().await;
    let before = p.world.calls_to(Side::Hetzner);
    p.live(hours(1)).await;
    let calls = p.world.calls_to(Side::Hetzner) - before;
    assert!(calls < 100, "{calls}");
}

#[tokio::test]
async fn an_hour_of_idle_agents_takes_fewer_than_four_hundred_calls_to_the_cloud() {
    let p = picus().min(3).start().await;
    let before = p.world.calls_to(Side::Hetzner);
    p.live(hours(1)).await;
    let calls = p.world.calls_to(Side::Hetzner) - before;
    assert!(calls < 400, "{calls}");
}

#[tokio::test]
async fn after_a_429_no_call_goes_to_the_cloud_before_its_reset() {
    for endpoint in [Endpoint::Servers, Endpoint::CreateServer] {
        let p = picus().start().await;
        p.world.fault(Fault::on(endpoint, AnswerFault::RateLimited(minutes(7))).times(1));
        let limited = p.world.calls(endpoint);
        p.world.push(task("build"));
        p.live_until("it is told", |world| world.calls(endpoint) > limited).await;
        let calls = p.world.calls_to(Side::Hetzner);
        for _ in 0..41 {
            p.live(seconds(10)).await;
            assert_eq!(p.world.calls_to(Side::Hetzner), calls, "{endpoint:?} at {}", p.now());
        }
        p.ends_clean().await;
        assert_eq!(p.launched(), 1);
    }
}

#[tokio::test]
async fn a_create_call_whose_answer_is_lost_leaves_one_instance() {
    for fault in [AnswerFault::LostAnswer, AnswerFault::CutBody] {
        for late in [0, 45, 170] {
            let p = picus().start().await;
            p.world.fault(Fault::on(Endpoint::CreateServer, fault.clone()).times(1));
            p.world.fault(Fault::machine(MachineFault::ListedLate(seconds(late))).times(1));
            let build = p.world.push(task("build"));
            p.live(minutes(5)).await;
            assert!(p.is_done(&build), "{fault:?}, listed {late} s late");
            p.ends_clean().await;
            assert_eq!(p.launched(), 1, "{fault:?}, listed {late} s late");
        }
    }
}

#[tokio::test]
async fn a_create_call_that_never_arrived_is_made_again() {
    for fault in [AnswerFault::Cut, AnswerFault::Status(502), AnswerFault::Html, AnswerFault::Empty] {
        let p = picus().start().await;
        p.world.fault(Fault::on(Endpoint::CreateServer, fault.clone()).times(1));
        p.world.push(task("build"));
        p.ends_clean().await;
        assert_eq!(p.launched(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_registration_whose_answer_is_lost_leaves_no_record_behind() {
    let p = picus().start().await;
    p.world.fault(Fault::on(Endpoint::CreateAgent, AnswerFault::LostAnswer).times(1));
    p.world.push(task("build"));
    assert_eq!(kinds(&p.pass().await), ["launch"]);
    assert_eq!(p.ours().agents.len(), 1, "nobody knows its token");
    p.ends_clean().await;
    assert_eq!(p.launched(), 1);
}
