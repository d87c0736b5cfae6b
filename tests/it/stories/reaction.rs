//! How soon a task is seen: by its event at once, without the event stream at the next look.

use std::time::Duration;

use picus::clock::Clock;
use picus::model::age;
use picus::world::{AnswerFault, Endpoint, Fault, World, task};
use tokio_util::sync::CancellationToken;

use crate::harness::{Picus, minutes, picus, seconds};

/// Waits, in real time, for something that others bring about.
async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = tokio::time::Instant::now() + seconds(30);
    while !holds() {
        assert!(tokio::time::Instant::now() < patience, "not within 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// From the task's event to the create call. Both are by the world's clock.
async fn reaction(world: &World) -> Duration {
    let before = world.calls(Endpoint::CreateServer);
    let pushed = world.now();
    world.push(task("build").takes(minutes(30)));
    wait_until("the create call leaves", || world.calls(Endpoint::CreateServer) > before).await;
    let log = world.call_log();
    let call = log.iter().rev().find(|call| call.endpoint == Endpoint::CreateServer).expect("it was called");
    age(call.at, pushed)
}

#[tokio::test]
async fn with_a_poll_interval_of_20_s_the_create_call_leaves_within_a_second_of_the_event() {
    let p = picus().slots(1).max(9).set("POLL_INTERVAL", "20s").build(Clock::System).await;
    let shutdown = CancellationToken::new();
    let story = async {
        wait_until("it listens", || p.world.calls(Endpoint::Events) == 1 && p.world.calls(Endpoint::Queue) > 0).await;
        let mut times = Vec::new();
        for _ in 0..2 {
            times.push(reaction(&p.world).await);
        }
        // The stream is cut as a proxy would; it is there again soon.
        p.world.cut_streams();
        wait_until("it listens again", || p.world.calls(Endpoint::Events) == 2).await;
        times.push(reaction(&p.world).await);
        times.sort();
        // The machine may have other things to do for a moment: what counts is what it takes as a rule.
        assert!(times[1] < seconds(1), "{times:?}");
        shutdown.cancel();
    };
    let (outcome, ()) = tokio::join!(p.app().run(shutdown.clone()), story);
    outcome.expect("a good start");
}

/// Runs the loop while `story` moves the clock.
async fn run_beside(p: &Picus, story: impl Future<Output = ()>) {
    let shutdown = CancellationToken::new();
    let reconciler = p.app().reconciler.clone();
    let token = shutdown.clone();
    let told = async {
        story.await;
        shutdown.cancel();
    };
    tokio::join!(reconciler.run(token), told);
}

/// One poll interval passes, and the look that it brings.
async fn next_look(p: &Picus) {
    let looks = p.world.calls(Endpoint::Queue);
    while p.world.calls(Endpoint::Queue) == looks {
        p.world.advance(seconds(1));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    p.app().reconciler.settled().await;
}

#[tokio::test]
async fn without_the_event_stream_the_poll_goes_on_and_the_stream_is_tried_again_ever_more_seldom() {
    for fault in [AnswerFault::Status(404), AnswerFault::Cut, AnswerFault::Html] {
        let p = picus().start().await;
        p.world.fault(Fault::on(Endpoint::Events, fault.clone()));
        run_beside(&p, async {
            let build = p.world.push(task("build"));
            let begun = p.now();
            while age(p.now(), begun) < minutes(40) {
                next_look(&p).await;
            }
            assert!(p.is_done(&build), "{fault:?}");
        })
        .await;
        let log = p.world.call_log();
        let tries: Vec<_> = log.iter().filter(|call| call.endpoint == Endpoint::Events).map(|call| call.at).collect();
        assert!((6..=25).contains(&tries.len()), "{fault:?}: {tries:?}");
        let gaps: Vec<_> = tries.windows(2).map(|pair| age(pair[1], pair[0])).collect();
        assert!(gaps[0] < seconds(10) && gaps[gaps.len() - 1] > minutes(2), "{fault:?}: {gaps:?}");
        p.ends_clean().await;
    }
}

#[tokio::test]
async fn an_event_stream_that_never_answers_holds_up_no_pass() {
    let p = picus().start().await;
    p.world.fault(Fault::on(Endpoint::Events, AnswerFault::Stall(minutes(10))));
    run_beside(&p, async {
        let build = p.world.push(task("build"));
        while !p.is_done(&build) {
            next_look(&p).await;
        }
    })
    .await;
    p.ends_clean().await;
}
