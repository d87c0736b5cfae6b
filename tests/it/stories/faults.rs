//! Every call answered with everything that is no answer: the process lives on, kills no job and leaves nothing behind.

use std::time::Duration;

use picus::world::{AnswerFault, Endpoint, Fault, MachineFault, Side, task};

use crate::harness::{minutes, picus, seconds};

const WOODPECKER: [Endpoint; 8] = [
    Endpoint::Queue,
    Endpoint::Agents,
    Endpoint::Agent,
    Endpoint::AgentTasks,
    Endpoint::CreateAgent,
    Endpoint::PatchAgent,
    Endpoint::DeleteAgent,
    Endpoint::Version,
];
const HETZNER: [Endpoint; 5] =
    [Endpoint::Servers, Endpoint::CreateServer, Endpoint::DeleteServer, Endpoint::ServerTypes, Endpoint::Images];

fn no_answers() -> Vec<AnswerFault> {
    vec![
        AnswerFault::Status(500),
        AnswerFault::Status(404),
        AnswerFault::Html,
        AnswerFault::Empty,
        AnswerFault::Null,
        AnswerFault::EmptyList,
        AnswerFault::WrongJson,
        AnswerFault::Unauthorised,
        AnswerFault::Cut,
        AnswerFault::LostAnswer,
        AnswerFault::CutBody,
    ]
}

/// Two short tasks, one after the other with idle time between, while the first calls of each kind fail.
async fn live_through(endpoints: &[Endpoint], fault: &AnswerFault, times: u32) {
    let p = picus().slots(1).set("MAX_IDLE_TIME", "1m").start().await;
    for endpoint in endpoints {
        p.world.fault(Fault::on(*endpoint, fault.clone()).times(times));
    }
    let first = p.world.push(task("first").takes(minutes(2)));
    p.until_done(&[&first]).await;
    p.live(minutes(3)).await;
    let second = p.world.push(task("second").takes(minutes(2)));
    p.until_done(&[&second]).await;
    p.ends_clean().await;
    // One for each task; one more if the server says, twice, that there are no agents.
    assert!(p.launched() <= 3, "{endpoints:?} answer {fault:?}: {} instances", p.launched());
}

#[tokio::test]
async fn every_call_to_woodpecker_may_fail_in_every_way() {
    for fault in no_answers() {
        live_through(&WOODPECKER, &fault, 2).await;
    }
}

#[tokio::test]
async fn every_call_to_the_cloud_may_fail_in_every_way() {
    for fault in no_answers() {
        live_through(&HETZNER, &fault, 2).await;
    }
}

#[tokio::test]
async fn the_lists_of_agents_and_of_servers_may_fail_thrice_in_a_row() {
    for endpoint in [Endpoint::Agents, Endpoint::Servers] {
        for fault in [AnswerFault::Null, AnswerFault::EmptyList, AnswerFault::Html] {
            live_through(&[endpoint], &fault, 3).await;
        }
    }
}

#[tokio::test]
async fn a_bad_spell_on_either_side_passes_without_action() {
    for side in [Side::Woodpecker, Side::Hetzner] {
        let p = picus().slots(1).start().await;
        let first = p.world.push(task("first").takes(minutes(4)));
        p.until_run(&[&first]).await;
        let spell = [
            AnswerFault::Status(503),
            AnswerFault::Cut,
            AnswerFault::Empty,
            AnswerFault::Html,
            AnswerFault::Stall(Duration::from_millis(200)),
        ];
        p.world.push(task("second").takes(minutes(4)));
        for fault in spell {
            let bad = p.world.fault(Fault::side(side, fault.clone()));
            let slow = matches!(fault, AnswerFault::Stall(_));
            p.live(seconds(30)).await;
            p.world.mend(bad);
            assert!(slow || p.launched() == 1, "{side:?} {fault:?}");
        }
        p.ends_clean().await;
        assert_eq!(p.launched(), 2, "{side:?}");
    }
}

#[tokio::test]
async fn calls_that_hang_end_with_their_timeouts_and_hold_up_nothing_else() {
    let p = picus().slots(1).start().await;
    let first = p.world.push(task("first").takes(minutes(10)));
    p.until_run(&[&first]).await;
    // The cloud hangs: the pass goes on without its listing, and Woodpecker is read as ever.
    let cloud = p.world.fault(Fault::on(Endpoint::Servers, AnswerFault::Stall(seconds(60))).times(1));
    p.world.push(task("second").takes(minutes(1)));
    let begun = tokio::time::Instant::now();
    let plan = p.try_pass_plan(minutes(1)).await.expect("Woodpecker answers");
    assert!(begun.elapsed() < seconds(9), "a pass waits 5 s for a listing");
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    p.world.mend(cloud);
    // Woodpecker hangs: the pass is skipped after 10 s. By then the cloud's call has ended too.
    let server = p.world.fault(Fault::on(Endpoint::Queue, AnswerFault::Stall(seconds(60))).times(1));
    assert!(p.try_pass_plan(seconds(10)).await.is_none(), "the queue is unknown");
    p.world.mend(server);
    assert!(begun.elapsed() < seconds(25));
    p.ends_clean().await;
    assert_eq!(p.launched(), 2);
}

#[tokio::test]
async fn bad_weather_everywhere_for_an_hour() {
    for seed in 1..=2 {
        let p = picus().world(|world| world.seed = seed).start().await;
        for side in [Side::Woodpecker, Side::Hetzner] {
            for fault in [AnswerFault::Status(502), AnswerFault::Html, AnswerFault::LostAnswer, AnswerFault::CutBody] {
                p.world.fault(Fault::side(side, fault).chance(0.06));
            }
        }
        p.world.fault(Fault::machine(MachineFault::NeverBoots).chance(0.2));
        p.world.fault(Fault::machine(MachineFault::ListedLate(seconds(40))).chance(0.3));
        for number in 0..12 {
            p.world.push(task(format!("task-{number}")).takes(minutes(4)));
            p.live(minutes(5)).await;
        }
        p.world.mend_all();
        p.ends_clean().await;
    }
}
