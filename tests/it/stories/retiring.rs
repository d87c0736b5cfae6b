//! What is retired, when, and what is left alone.

use picus::model::machine::{Fate, Keep};
use picus::world::{AnswerFault, Endpoint, Event, Fault, Race, agent, task};

use crate::harness::{hours, kinds, minutes, picus, seconds};

/// Picus with one idle agent of its own, cordoned a moment ago because its time was over.
async fn with_a_fresh_cordon(race: Option<Race>) -> crate::harness::Picus {
    let p = picus().start().await;
    let first = p.world.push(task("first"));
    p.until_done(&[&first]).await;
    if let Some(race) = race {
        p.world.fault(Fault::race(race).times(1));
    }
    while kinds(&p.pass_after(seconds(10)).await) != ["cordon"] {}
    p
}

#[tokio::test]
async fn a_task_that_is_given_between_the_last_look_and_the_deletion_keeps_its_agent() {
    let p = with_a_fresh_cordon(Some(Race::OneMoreTask)).await;
    let looks = p.world.calls(Endpoint::AgentTasks);
    p.world.fault(Fault::on(Endpoint::AgentTasks, AnswerFault::Stall(std::time::Duration::from_millis(300))).times(1));
    p.world.advance(seconds(20));
    let slip_in = async {
        while p.world.calls(Endpoint::AgentTasks) == looks {
            tokio::task::yield_now().await;
        }
        let late = p.world.push(task("late").takes(minutes(30)));
        p.world.advance(seconds(1));
        assert!(p.is_running(&late), "{:?}", p.world.task(&late));
        late
    };
    let (plan, late) = tokio::join!(p.pass(), slip_in);
    assert_eq!(kinds(&plan), ["retire"]);
    assert_eq!((p.servers(), p.world.agents().len()), (1, 1), "409: it is busy");
    p.live(minutes(20)).await;
    assert!(p.is_running(&late));
    assert!(p.world.agents()[0].no_schedule, "it goes on draining");
    p.ends_clean().await;
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn a_task_that_slips_in_while_the_cordon_is_set_runs_to_its_end() {
    let p = with_a_fresh_cordon(Some(Race::OneMoreTask)).await;
    let late = p.world.push(task("late").takes(minutes(30)));
    p.live(minutes(5)).await;
    assert!(p.is_running(&late));
    p.ends_clean().await;
}

#[tokio::test]
async fn a_heartbeat_that_undoes_the_cordon_costs_only_time() {
    let p = with_a_fresh_cordon(Some(Race::WriteBack)).await;
    p.world.advance(seconds(10));
    let late = p.world.push(task("late").takes(minutes(5)));
    p.live(minutes(2)).await;
    assert!(p.is_running(&late), "the flag is gone, so the server gives it tasks");
    p.ends_clean().await;
}

#[tokio::test]
async fn an_agent_whose_tasks_can_not_be_read_counts_as_busy() {
    for fault in [AnswerFault::Status(404), AnswerFault::Status(500), AnswerFault::Html, AnswerFault::Empty] {
        let p = with_a_fresh_cordon(None).await;
        let on = p.world.fault(Fault::on(Endpoint::AgentTasks, fault.clone()));
        p.live(minutes(5)).await;
        assert_eq!((p.servers(), p.world.agents().len()), (1, 1), "{fault:?}");
        p.world.mend(on);
        p.ends_clean().await;
    }
}

#[tokio::test]
async fn an_agent_cordoned_by_an_admin_is_left_alone() {
    let p = picus().slots(2).start().await;
    let long = p.world.push(task("long").takes(minutes(40)));
    p.until_run(&[&long]).await;
    let ours = p.ours().agents[0].id;
    p.world.cordon(ours);
    p.world.push(task("second"));
    p.live(minutes(5)).await;
    assert_eq!(p.launched(), 2, "its free slot is no supply");
    assert!(p.world.agent(ours).expect("it is there").no_schedule, "nobody uncordons it");
    p.live(minutes(20)).await;
    assert!(p.is_running(&long), "and nobody retires it while it works");
    p.ends_clean().await;
}

#[tokio::test]
async fn an_agent_that_never_worked_is_idle_from_its_first_contact() {
    let p = picus().start().await;
    p.world.push(task("taken by others").takes(hours(3)));
    p.pass().await;
    p.world.add_agent(agent("office"));
    p.live_until("it connects", |world| world.servers().iter().any(|server| server.connected)).await;
    assert_eq!(p.world.agents()[0].last_work, None);
    let connected = p.now();
    p.live(minutes(9)).await;
    assert_eq!(p.servers(), 1);
    p.live_until("it is retired", |world| world.servers().is_empty()).await;
    let idle = picus::model::age(p.now(), connected);
    assert!(idle >= minutes(10) && idle < minutes(11), "{idle:?}");
    let open = p.world.open_tasks();
    p.ends_with(&open.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_renamed_agent_stays_ours_and_keeps_its_new_name() {
    let p = picus().start().await;
    let first = p.world.push(task("first").takes(minutes(5)));
    p.until_run(&[&first]).await;
    let ours = p.ours().agents[0].id;
    assert!(p.world.rename(ours, "the big one"));
    let _ = p.world.take_events();
    p.live_until("all is gone", |world| world.servers().is_empty() && world.agents().is_empty()).await;
    let cordons: Vec<String> = p
        .world
        .take_events()
        .into_iter()
        .filter_map(|happened| match happened.event {
            Event::Cordoned { name, no_schedule: true, .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(cordons, ["the big one"]);
    p.ends_clean().await;
}

#[tokio::test]
async fn what_one_agents_task_is_called_says_nothing_of_another_agent() {
    // Tasks and agents are both numbered from 1: task 3 runs on another agent than agent 3.
    let p = picus().slots(1).start().await;
    for _ in 0..3 {
        p.world.push(task("short").takes(minutes(1)));
    }
    p.live_until("all are done", |world| world.open_tasks().is_empty()).await;
    let long = p.world.push(task("long").takes(minutes(40)));
    p.live(minutes(20)).await;
    assert!(p.is_running(&long));
    assert_eq!(p.servers(), 1, "the idle ones went, the busy one did not");
    p.ends_clean().await;
}

#[tokio::test]
async fn a_paid_hour_is_used_to_its_last_minutes_and_never_missed() {
    for (poll, latest) in [("10s", 60), ("5m", 60)] {
        let p = picus().set("BILLING_PERIOD", "1h").set("POLL_INTERVAL", poll).start().await;
        let begun = p.now();
        p.world.push(task("short").takes(minutes(2)));
        p.pass().await;
        p.live(minutes(45)).await;
        assert_eq!(p.servers(), 1, "poll {poll}: idle, but the hour is paid for");
        p.live_until("it is retired", |world| world.servers().is_empty()).await;
        let age = picus::model::age(p.now(), begun);
        assert!(age > minutes(45) && age < minutes(latest), "poll {poll}: {age:?}");
        p.ends_clean().await;
    }
}

#[tokio::test]
async fn an_agent_at_work_when_its_hour_ends_is_kept_for_the_next() {
    let p = picus().set("BILLING_PERIOD", "1h").start().await;
    let begun = p.now();
    p.world.push(task("long").takes(minutes(64)));
    p.pass().await;
    p.live(minutes(115)).await;
    assert_eq!((p.servers(), p.world.open_tasks().len()), (1, 0));
    p.live_until("it is retired", |world| world.servers().is_empty()).await;
    let age = picus::model::age(p.now(), begun);
    assert!(age > minutes(117) && age < minutes(120), "{age:?}");
    assert_eq!(p.world.bill().hours, 2);
    p.ends_clean().await;
}

#[tokio::test]
async fn an_agent_that_a_waiting_task_is_about_to_need_is_kept() {
    let p = picus().slots(1).max(2).start().await;
    let lint = p.world.push(task("lint").takes(minutes(30)));
    let short = p.world.push(task("short").takes(minutes(1)));
    p.world.push(task("one").needs(&lint).takes(minutes(1)));
    p.world.push(task("two").needs(&lint).takes(minutes(1)));
    p.until_done(&[&short]).await;
    p.live(minutes(20)).await;
    let plan = p.look().await;
    assert_eq!(p.servers(), 2);
    let fates: Vec<&Fate> = plan.machines.iter().map(|machine| &machine.fate).collect();
    assert!(fates.contains(&&Fate::Kept { why: Keep::Needed }), "{fates:?}");
    p.ends_clean().await;
    assert_eq!(p.launched(), 2);
}
