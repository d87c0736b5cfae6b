//! SIGTERM and SIGINT: in time, with code 0, whatever it is at; instances stay, and the next start goes on.

use std::time::Duration;

use picus::model::ids::InstallationId;
use picus::world::{AnswerFault, Endpoint, Fault, Side, task};
use rustix::process::Signal;

use super::{eventually, picus, world};

/// Orchestrators kill after this.
const IN_TIME: Duration = Duration::from_secs(10);
/// Longer than the program waits for any answer.
const HANGING: AnswerFault = AnswerFault::Stall(Duration::from_mins(5));

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_idle_loop_and_instances_stay() {
    for signal in [Signal::TERM, Signal::INT] {
        let world = world().await;
        let job = world.push(task("build").takes(Duration::from_mins(10)));
        let running = picus(&world, &["run"]).start();
        eventually("a server boots for the job", || world.calls(Endpoint::CreateServer) == 1, || running.text()).await;
        running.says("watching").await;
        let ended = running.ends_on(signal, IN_TIME).await;
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("instances stay"), "{}", ended.err);
        assert_eq!(world.servers().len(), 1);

        let next = picus(&world, &["run"]).start();
        eventually("the job runs", || world.task(&job).is_some_and(|task| task.is_running()), || next.text()).await;
        next.looks(&world).await;
        assert_eq!(next.ends_on(signal, IN_TIME).await.code, Some(0));
        assert_eq!((world.servers().len(), world.agents().len()), (1, 1), "the instance was adopted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_while_a_create_call_hangs_and_the_next_start_adopts_what_came_of_it() {
    let world = world().await;
    let hanging = world.fault(Fault::on(Endpoint::CreateServer, HANGING));
    let job = world.push(task("build").takes(Duration::from_mins(10)));
    let running = picus(&world, &[]).start();
    eventually("the call hangs", || world.calls(Endpoint::CreateServer) == 1, || running.text()).await;
    let ended = running.ends_on(Signal::TERM, IN_TIME).await;
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    world.mend(hanging);

    let next = picus(&world, &[]).start();
    eventually("the job runs", || world.task(&job).is_some_and(|task| task.is_running()), || next.text()).await;
    next.looks(&world).await;
    assert_eq!(next.ends_on(Signal::TERM, IN_TIME).await.code, Some(0));
    let left = world.left_behind(&InstallationId("picus".to_owned()));
    assert_eq!((left.servers.len(), left.agents.len()), (1, 1), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_every_command_while_the_servers_hang() {
    let arguments: [&[&str]; 3] = [&["run"], &["plan"], &["check"]];
    for side in [Side::Woodpecker, Side::Hetzner] {
        for arguments in arguments {
            let world = world().await;
            world.fault(Fault::side(side, HANGING));
            let running = picus(&world, arguments).start();
            eventually("it asks", || world.calls_to(side) > 0, || running.text()).await;
            let ended = running.ends_on(Signal::INT, IN_TIME).await;
            assert_eq!(ended.code, Some(0), "{arguments:?}, {side:?}: {}", ended.err);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_while_it_waits_for_the_server() {
    let world = world().await;
    let running = picus(&world, &[]).set("PICUS_WOODPECKER_SERVER", "http://127.0.0.1:1").start();
    running.says("waiting for the Woodpecker server").await;
    assert_eq!(running.ends_on(Signal::TERM, IN_TIME).await.code, Some(0));
}
