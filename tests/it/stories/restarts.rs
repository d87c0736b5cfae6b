//! The process dies and begins again, at any step; two processes run at once.

use picus::model::ids::TaskId;
use picus::world::{Endpoint, Fault, MachineFault, task};

use crate::harness::{Picus, hours, kinds, minutes, picus, seconds};

#[tokio::test]
async fn restarts_all_the_time_change_nothing() {
    let mut p = picus().start().await;
    let first: Vec<TaskId> = (0..3).map(|_| p.world.push(task("build").takes(minutes(3)))).collect();
    for _ in 0..10 {
        p.live(seconds(30)).await;
        p.restart().await;
    }
    assert!(first.iter().all(|task| p.is_done(task)), "{}", p.situation());
    // What is idle goes once a process lives long enough to see a drain through: a cordon of a former life is kept
    // until the agent's own time is over, and that is read back from its record.
    for _ in 0..12 {
        p.live(minutes(1)).await;
        p.restart().await;
    }
    p.ends_clean().await;
    assert_eq!(p.launched(), 2);
}

#[tokio::test]
async fn killed_during_any_call_it_goes_on_where_it_was() {
    let launching = [Endpoint::Queue, Endpoint::Agents, Endpoint::Servers, Endpoint::Version];
    let launching = launching.into_iter().chain([Endpoint::CreateAgent, Endpoint::CreateServer]);
    let retiring = [Endpoint::Agent, Endpoint::PatchAgent, Endpoint::AgentTasks];
    let retiring = retiring.into_iter().chain([Endpoint::DeleteAgent, Endpoint::DeleteServer]);
    for endpoint in launching.chain(retiring) {
        let mut p = picus().start().await;
        let build = p.world.push(task("build"));
        assert!(p.killed_during(endpoint, minutes(30)).await, "{endpoint:?} was not called");
        p.ends_clean().await;
        assert!(p.is_done(&build), "{endpoint:?}");
        assert_eq!(p.launched(), 1, "{endpoint:?}");
    }
}

#[tokio::test]
async fn killed_between_the_create_call_and_its_answer_while_the_listing_is_late() {
    let mut p = picus().start().await;
    p.world.fault(Fault::machine(MachineFault::ListedLate(seconds(60))));
    let build = p.world.push(task("build"));
    assert!(p.killed_during(Endpoint::CreateServer, minutes(1)).await);
    p.ends_clean().await;
    assert!(p.is_done(&build));
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn killed_again_and_again_while_it_launches_it_leaves_nothing_behind() {
    let mut p = picus().start().await;
    let build = p.world.push(task("build"));
    for _ in 0..4 {
        // Each life makes at most one record, and the next one waits until it is certain that it has no instance.
        p.killed_during(Endpoint::CreateAgent, minutes(3)).await;
    }
    assert!(p.ours().agents.len() <= 4, "{}", p.situation());
    p.ends_clean().await;
    assert!(p.is_done(&build));
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn a_second_process_decides_as_the_first_would() {
    let p = picus().slots(1).max(9).set("MAX_IDLE_TIME", "30m").start().await;
    let busy = p.world.push(task("busy").takes(hours(1)));
    for name in ["idle", "without record", "without instance"] {
        p.world.push(task(name).takes(minutes(1)));
    }
    p.live_until("only one works", |world| world.open_tasks() == [busy.clone()]).await;
    p.live(minutes(2)).await;
    let mut idle = p.ours().agents.into_iter().filter(|agent| agent.running.is_empty());
    let (no_record, no_instance) = (idle.next().expect("one"), idle.next().expect("two"));
    assert!(p.world.delete_record_by_hand(no_record.id));
    let server = p.world.servers().into_iter().find(|server| server.name == no_instance.name).expect("it is there");
    assert!(p.world.delete_server_by_hand(&server.id));
    p.world.fault(Fault::machine(MachineFault::NeverBoots).times(1));
    let boots = p.world.push(task("boots").label("platform", "linux/amd64"));
    p.world.cordon(idle.next().expect("three").id);
    p.live(minutes(3)).await;
    assert!(!p.is_done(&boots));

    let twin = p.twin().await;
    let decided = |plan: &picus::model::action::Plan| {
        let machines = plan.machines.iter();
        let machines: Vec<_> = machines.map(|machine| (machine.name.clone(), machine.state)).collect();
        (kinds(plan), machines, plan.tasks.clone())
    };
    assert_eq!(decided(&p.look().await), decided(&twin.look().await));
    drop(p);
    twin.is_alone();
    twin.ends_clean().await;
}

#[tokio::test]
async fn a_booting_instance_keeps_its_deadline_over_a_restart() {
    let mut p = picus().start().await;
    p.world.fault(Fault::machine(MachineFault::NeverBoots).times(1));
    p.world.push(task("build"));
    p.pass().await;
    p.live(minutes(3)).await;
    p.restart().await;
    p.live(minutes(6) + seconds(50)).await;
    assert_eq!((p.launched(), p.servers()), (1, 1));
    p.live(seconds(20)).await;
    assert_eq!(p.servers(), 0, "ten minutes after its launch");
    p.ends_clean().await;
    assert_eq!(p.launched(), 2);
}

/// Two processes live side by side for so long, each at its own pace.
async fn side_by_side(one: &Picus, other: &Picus, rounds: usize) {
    for round in 0..rounds {
        one.world.advance(seconds(5));
        match round % 3 {
            0 => drop(tokio::join!(one.try_pass(), other.try_pass())),
            1 => drop(one.try_pass().await),
            _ => drop(other.try_pass().await),
        }
    }
}

#[tokio::test]
async fn two_processes_end_with_what_one_would_have() {
    let p = picus().start().await;
    let twin = p.twin().await;
    let tasks: Vec<TaskId> = (0..4).map(|_| p.world.push(task("build").takes(minutes(5)))).collect();
    side_by_side(&p, &twin, 200).await;
    assert!(tasks.iter().all(|task| p.is_done(task)), "{}", p.situation());
    drop(p);
    twin.is_alone();
    twin.ends_clean().await;
    assert!(twin.launched() <= 4, "each launched at most what one would have: {}", twin.launched());
}

#[tokio::test]
async fn two_processes_with_a_minimum_end_with_the_minimum() {
    let p = picus().min(1).max(2).set("POLL_INTERVAL", "30s").start().await;
    let twin = p.twin().await;
    side_by_side(&p, &twin, 360).await;
    drop(twin);
    p.live(minutes(40)).await;
    p.is_alone();
    p.live(hours(1)).await;
    assert_eq!((p.servers(), p.world.agents().len()), (1, 1), "{}", p.situation());
    assert!(!p.world.agents()[0].no_schedule);
}

#[tokio::test]
async fn what_one_process_drains_the_other_leaves_alone_until_its_time_is_over() {
    let p = picus().start().await;
    let twin = p.twin().await;
    let first = p.world.push(task("first"));
    p.until_done(&[&first]).await;
    while kinds(&p.pass_after(seconds(10)).await) != ["cordon"] {}
    // The first is gone in the middle of its drain.
    drop(p);
    let second = twin.world.push(task("second"));
    twin.live(minutes(5)).await;
    assert!(twin.is_done(&second));
    twin.is_alone();
    twin.ends_clean().await;
}
