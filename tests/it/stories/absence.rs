//! Unknown is not absent: listings that fail, lie, come late or in pages; things that somebody deleted by hand.

use picus::model::ids::{InstallationId, LaunchName, PoolName};
use picus::world::{AnswerFault, Endpoint, Fault, MachineFault, agent, task};

use tracing::level_filters::LevelFilter;

use crate::harness::log::collect;
use crate::harness::{Picus, hours, kinds, launches, minutes, picus, seconds};

/// What a listing can be answered with that is none.
fn no_answers() -> [AnswerFault; 7] {
    [
        AnswerFault::Status(500),
        AnswerFault::Html,
        AnswerFault::Null,
        AnswerFault::EmptyList,
        AnswerFault::Cut,
        AnswerFault::CutBody,
        AnswerFault::WrongJson,
    ]
}

async fn with_busy_instances(count: u32) -> Picus {
    let p = picus().slots(1).set("POLL_INTERVAL", "30s").start().await;
    for _ in 0..count {
        p.world.push(task("long").takes(minutes(18)));
    }
    let all = count as usize;
    p.live_until("all run", |world| world.agents().iter().filter(|agent| !agent.running.is_empty()).count() == all)
        .await;
    p
}

#[tokio::test]
async fn ours_is_found_on_the_last_page_of_the_agents() {
    for others in [49, 50, 59] {
        let p = picus().start().await;
        for number in 0..others {
            p.world.add_agent(agent(format!("theirs-{number}")).organisation(99));
        }
        p.world.push(task("build"));
        assert_eq!(launches(&p.pass().await), 1, "{others} agents of others");
        for _ in 0..6 {
            let plan = p.pass_after(seconds(5)).await;
            assert!(plan.steps.is_empty(), "{others} agents of others: {:?}", plan.steps);
        }
        p.ends_clean().await;
        assert_eq!((p.launched(), p.world.agents().len()), (1, others));
    }
}

#[tokio::test]
async fn no_instance_is_deleted_because_the_agents_can_not_be_listed() {
    for fault in no_answers() {
        let p = with_busy_instances(3).await;
        let on = p.world.fault(Fault::on(Endpoint::Agents, fault.clone()));
        p.live(minutes(13)).await;
        assert_eq!(p.servers(), 3, "{fault:?}");
        p.world.mend(on);
        p.ends_clean().await;
        assert_eq!(p.launched(), 3, "{fault:?}");
    }
}

#[tokio::test]
async fn young_and_lately_busy_instances_are_spared_although_the_agents_list_is_empty_twice() {
    let p = with_busy_instances(1).await;
    p.live_until("it is done", |world| world.open_tasks().is_empty()).await;
    p.live(seconds(30)).await;
    p.world.fault(Fault::on(Endpoint::Agents, AnswerFault::EmptyList));
    for _ in 0..30 {
        let plan = p.try_pass_plan(seconds(10)).await;
        assert!(plan.is_none_or(|plan| kinds(&plan).is_empty()), "it worked five minutes ago");
    }
    p.world.mend_all();
    p.ends_clean().await;
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn no_record_is_deleted_because_the_cloud_can_not_be_listed() {
    for fault in no_answers() {
        let p = with_busy_instances(2).await;
        let on = p.world.fault(Fault::on(Endpoint::Servers, fault.clone()));
        p.live(minutes(13)).await;
        assert_eq!((p.servers(), p.world.agents().len()), (2, 2), "{fault:?}");
        p.world.mend(on);
        p.ends_clean().await;
        assert_eq!(p.launched(), 2, "{fault:?}");
    }
}

#[tokio::test]
async fn an_instance_that_the_cloud_lists_late_is_not_launched_twice() {
    for late in [35, 100, 170] {
        let p = picus().start().await;
        p.world.fault(Fault::machine(MachineFault::ListedLate(seconds(late))));
        let build = p.world.push(task("build"));
        p.live(minutes(5)).await;
        assert!(p.is_done(&build), "{late} s late");
        p.ends_clean().await;
        assert_eq!(p.launched(), 1, "{late} s late");
    }
}

#[tokio::test]
async fn more_instances_than_a_page_holds_are_launched_and_retired() {
    let p = picus().slots(1).max(60).start().await;
    for number in 0..60 {
        p.world.push(task(format!("task-{number}")).takes(minutes(3)));
    }
    p.live(minutes(2)).await;
    assert_eq!((p.servers(), p.world.agents().len()), (60, 60));
    p.live_until("some are retired", |world| world.servers().len() < 60).await;
    p.ends_clean().await;
    assert_eq!(p.launched(), 60);
}

#[tokio::test]
async fn a_record_without_instance_is_removed_and_another_pools_is_kept() {
    let p = picus().start().await;
    let name = |installation: &str, pool: &str| {
        LaunchName::new(&InstallationId::from(installation), &PoolName::from(pool), 99).to_string()
    };
    p.world.add_record(&name("p1", "default"));
    let kept = [name("p1", "other"), name("p10", "default"), "p1-default-builder1".to_owned()];
    for name in &kept {
        p.world.add_record(name);
    }
    p.live(minutes(10)).await;
    let left: Vec<String> = p.world.agents().into_iter().map(|agent| agent.name).collect();
    assert_eq!(left, kept);
    assert_eq!(p.launched(), 0);
}

#[tokio::test]
async fn an_idle_instance_deleted_by_hand_takes_its_record_with_it() {
    let p = picus().start().await;
    p.world.push(task("first"));
    p.live_until("it is done", |world| world.open_tasks().is_empty()).await;
    let server = p.world.servers()[0].id.clone();
    assert!(p.world.delete_server_by_hand(&server));
    p.live(minutes(5)).await;
    assert!(p.ours().is_empty(), "{}", p.situation());
    p.ends_clean().await;
}

#[tokio::test]
async fn a_busy_instance_deleted_by_hand_is_replaced_and_its_task_runs_again() {
    let p = picus().max(1).start().await;
    let build = p.world.push(task("build").takes(minutes(10)));
    p.until_run(&[&build]).await;
    let server = p.world.servers()[0].id.clone();
    assert!(p.world.delete_server_by_hand(&server));
    p.ends_clean().await;
    assert!(p.is_done(&build));
    assert_eq!((p.launched(), p.world.lost_jobs().len()), (2, 1));
}

#[tokio::test]
async fn a_booting_instance_deleted_by_hand_is_replaced() {
    let p = picus().start().await;
    p.world.push(task("build"));
    p.pass().await;
    p.live(seconds(20)).await;
    let server = p.world.servers()[0].id.clone();
    assert!(p.world.delete_server_by_hand(&server));
    p.ends_clean().await;
    assert_eq!(p.launched(), 2);
}

#[tokio::test]
async fn a_record_deleted_by_hand_takes_its_instance_with_it() {
    let p = picus().start().await;
    p.world.push(task("first"));
    p.live_until("it is done", |world| world.open_tasks().is_empty()).await;
    let ours = p.ours().agents[0].id;
    assert!(p.world.delete_record_by_hand(ours));
    let second = p.world.push(task("second"));
    p.live(minutes(5)).await;
    assert!(p.is_done(&second), "the process is given nothing, so another one is launched");
    p.ends_clean().await;
    assert_eq!(p.launched(), 2);
}

#[tokio::test]
async fn one_instance_that_can_not_be_deleted_does_not_hold_up_the_next_and_is_told_once() {
    let (log, _guard) = collect(LevelFilter::INFO);
    let p = picus().slots(1).start().await;
    for _ in 0..2 {
        p.world.push(task("short"));
    }
    p.live_until("they are done", |world| world.open_tasks().is_empty()).await;
    let locked = p.world.servers()[0].id.clone();
    assert!(p.world.lock_server(&locked, hours(1)));
    p.live(minutes(20)).await;
    let left: Vec<_> = p.world.servers().into_iter().map(|server| server.id).collect();
    assert_eq!(left, [locked]);
    let told = log.lines_with(&["WARN", "locked"]);
    assert!((1..=2).contains(&told.len()), "the retirement, and what is left of it: {told:#?}");
    let said = log.lines_with(&["INFO", &format!("(instance {})", p.world.servers()[0].id)]);
    assert!(said.len() <= 3, "{said:#?}");
    p.ends_clean().await;
}

#[tokio::test]
async fn an_instance_that_is_slow_to_go_is_waited_for() {
    let p = picus().max(1).start().await;
    p.world.fault(Fault::machine(MachineFault::DeletesSlowly(minutes(3))));
    p.world.push(task("first"));
    p.live_until("it goes", |world| world.servers().iter().any(|server| server.status == "deleting")).await;
    let second = p.world.push(task("second"));
    p.ends_clean().await;
    assert!(p.is_done(&second));
    assert_eq!(p.launched(), 2);
}

#[tokio::test]
async fn an_agent_whose_process_died_is_given_up_and_replaced() {
    for busy in [false, true] {
        let p = picus().max(1).set("MAX_IDLE_TIME", "1h").start().await;
        let first = p.world.push(task("first").takes(if busy { hours(1) } else { seconds(1) }));
        if busy {
            p.until_run(&[&first]).await;
        } else {
            p.until_done(&[&first]).await;
        }
        assert!(p.world.kill_agent(p.ours().agents[0].id));
        let second = p.world.push(task("second"));
        p.live(minutes(14)).await;
        assert_eq!(p.launched(), 2, "busy {busy}: given up after the boot timeout\n{}", p.situation());
        p.until_done(&[&first, &second]).await;
        p.ends_clean().await;
        assert_eq!(p.launched(), 2, "busy {busy}");
    }
}

#[tokio::test]
async fn the_same_installation_at_another_woodpecker_server_touches_nothing_of_this_one() {
    let p = picus().slots(1).max(3).start().await;
    for _ in 0..2 {
        p.world.push(task("long").takes(hours(2)));
    }
    p.live_until("both run", |world| world.agents().iter().filter(|agent| !agent.running.is_empty()).count() == 2)
        .await;
    let other = picus()
        .max(1)
        .set("HCLOUD_ENDPOINT", p.world.hetzner_url())
        .set("HCLOUD_TOKEN", p.world.hetzner_token())
        .build(p.clock.clone())
        .await;
    other.ready().await;
    other.live(minutes(40)).await;
    assert_eq!(p.servers(), 2);
    let build = other.world.push(task("build"));
    let plan = other.pass_after(seconds(10)).await;
    assert_eq!((plan.notices.len(), launches(&plan)), (2, 1), "{:?} {build}", plan.notices);
    // Both draw the same names here, so the first two are taken: that is no adoption.
    other.live(minutes(5)).await;
    assert_eq!(p.servers(), 3, "{}", p.situation());
    // The new one is the other's: the first leaves it alone too.
    p.live(minutes(40)).await;
    assert_eq!(p.servers(), 3);
}

#[tokio::test]
async fn after_the_servers_address_has_changed_its_instances_are_still_ours() {
    let mut p = picus().start().await;
    let build = p.world.push(task("build").takes(minutes(20)));
    p.until_run(&[&build]).await;
    let address = p.world.woodpecker_url().as_str().replace("127.0.0.1", "localhost");
    p.settings.woodpecker.server = address.parse().expect("an address");
    p.restart().await;
    p.until_done(&[&build]).await;
    p.ends_clean().await;
    assert_eq!(p.launched(), 1);
}
