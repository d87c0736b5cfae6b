//! The end of a process: soon, and in a state that the next start picks up.

use picus::clock::Clock;
use picus::world::{AnswerFault, Endpoint, Fault, task};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::{minutes, picus, seconds};

#[tokio::test]
async fn it_ends_in_time_while_a_create_call_hangs_and_the_next_start_adopts_the_instance() {
    let mut p = picus().start().await;
    let hangs = p.world.fault(Fault::on(Endpoint::CreateServer, AnswerFault::Stall(minutes(5))).times(1));
    let build = p.world.push(task("build"));
    let shutdown = CancellationToken::new();
    let stop = async {
        while p.world.calls(Endpoint::CreateServer) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        shutdown.cancel();
        Instant::now()
    };
    let (outcome, stopped) = tokio::join!(p.app().run(shutdown.clone()), stop);
    outcome.expect("a good start");
    assert!(stopped.elapsed() < seconds(10), "{:?}", stopped.elapsed());
    assert_eq!((p.servers(), p.world.agents().len()), (1, 1), "instances stay");
    p.world.mend(hangs);
    p.restart().await;
    p.ends_clean().await;
    assert!(p.is_done(&build));
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn what_was_begun_is_finished_before_it_ends() {
    let p = picus().start().await;
    let slow = AnswerFault::Stall(std::time::Duration::from_millis(500));
    p.world.fault(Fault::on(Endpoint::CreateServer, slow).times(1));
    p.world.push(task("build"));
    let shutdown = CancellationToken::new();
    let stop = async {
        while p.world.calls(Endpoint::CreateAgent) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        shutdown.cancel();
    };
    let (outcome, ()) = tokio::join!(p.app().run(shutdown.clone()), stop);
    outcome.expect("a good start");
    assert_eq!((p.servers(), p.world.agents().len()), (1, 1));
    p.ends_clean().await;
}

#[tokio::test]
async fn it_ends_at_once_while_it_waits_for_a_server_that_is_down() {
    let p = picus().build(Clock::System).await;
    p.world.fault(Fault::side(picus::world::Side::Woodpecker, AnswerFault::Status(503)));
    let shutdown = CancellationToken::new();
    let stop = async {
        while p.world.calls(Endpoint::User) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        shutdown.cancel();
        Instant::now()
    };
    let (outcome, stopped) = tokio::join!(p.app().run(shutdown.clone()), stop);
    outcome.expect("it was told to end");
    assert!(stopped.elapsed() < seconds(5));
}
