//! `kill -9` at any moment: what is left is recognised and cleared, no job is killed, and every job is done.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use picus::app::App;
use picus::clock::Clock;
use picus::model::ids::InstallationId;
use picus::model::later;
use picus::settings::Settings;
use picus::world::{AnswerFault, Endpoint, Event, Fault, World, WorldOptions, task};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::{LONG, Running, eventually, picus, world};

/// So many times as fast runs the world, and the program that is killed.
const SPEED: u32 = 120;
/// When that world's clock begins.
const BEGIN: &str = "2026-12-01T12:00:00Z";
/// Holds the instant (in milliseconds of this machine's clock) at which that was.
const BEGAN: &str = "BEGAN";

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_create_call_hangs_leaves_what_the_next_start_adopts() {
    let world = world().await;
    let hanging = world.fault(Fault::on(Endpoint::CreateServer, AnswerFault::Stall(Duration::from_mins(5))));
    let job = world.push(task("build").takes(Duration::from_mins(10)));
    let running = picus(&world, &[]).start();
    eventually("the call hangs", || world.servers().len() == 1, || running.text()).await;
    running.kill().await;
    world.mend(hanging);

    let next = picus(&world, &[]).start();
    eventually("the job runs", || world.task(&job).is_some_and(|task| task.is_running()), || next.text()).await;
    next.looks(&world).await;
    assert_eq!(next.ends_on(Signal::TERM, LONG).await.code, Some(0));
    let left = world.left_behind(&InstallationId("picus".to_owned()));
    assert_eq!((left.servers.len(), left.agents.len()), (1, 1), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_moments_lose_no_job_and_leave_nothing() {
    let seed: u64 = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let began = now();
    let clock = clock(began, began);
    let options = WorldOptions { seed, boot_spread: Duration::from_mins(1), ..WorldOptions::default() };
    let world = World::start(clock.clone(), options).await.expect("free ports");
    let installation = InstallationId("picus".to_owned());
    for kills in 0..12 {
        for number in 0..random.random_range(0..4) {
            let minutes = Duration::from_mins(random.random_range(1..12));
            world.push(task(format!("job-{kills}-{number}")).takes(minutes));
        }
        let child = fast(&world, began);
        clock.sleep(Duration::from_secs(random.random_range(10..180))).await;
        child.kill().await;
    }
    let last = fast(&world, began);
    let quiet = || world.open_tasks().is_empty() && world.left_behind(&installation).is_empty();
    let state =
        || format!("seed {seed}: {:?}, {:?}\n{}", world.open_tasks(), world.left_behind(&installation), last.text());
    eventually("every job is done and nothing is left", quiet, state).await;
    assert_eq!(world.killed_jobs(), Vec::new(), "seed {seed}");
    let requeued = world.take_events().iter().filter(|told| matches!(told.event, Event::TaskRequeued { .. })).count();
    assert_eq!(requeued, 0, "seed {seed}: a job ran twice");
    last.kill().await;
}

/// The program with a clock as fast as the world's: this test binary, told to run [`the_loop_with_a_fast_clock`].
fn fast(world: &World, began: u64) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "program::killed::the_loop_with_a_fast_clock", "--ignored", "--nocapture"]);
    picus(world, &[])
        .set("PICUS_POLL_INTERVAL", "10s")
        .set("PICUS_MAX_IDLE_TIME", "5m")
        .set("PICUS_BILLING_PERIOD", "0s")
        .set("PICUS_MAX_AGENTS", "3")
        .set(BEGAN, &began.to_string())
        .start_as(command)
}

/// Not a test: what `picus run` does, by the clock of a world that another process began.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of another test's"]
#[expect(clippy::disallowed_methods, reason = "stands for `main`")]
async fn the_loop_with_a_fast_clock() {
    let mut variables: Vec<(String, String)> = std::env::vars().collect();
    let Some(began) = variables.iter().position(|(name, _)| name == BEGAN) else { return };
    let began = variables.swap_remove(began).1.parse().expect("a number");
    variables.retain(|(name, _)| name.starts_with("PICUS_"));
    let settings = Settings::from_vars(variables).expect("good settings");
    picus::telemetry::start(&settings.log);
    let app = App::new(settings, clock(began, now()), rand::random()).expect("a start");
    app.run(CancellationToken::new()).await.expect("a start");
}

/// The clock that began at `began` as it is at `now`.
fn clock(began: u64, now: u64) -> Clock {
    let morning: Timestamp = BEGIN.parse().expect("a time");
    Clock::fast(later(morning, Duration::from_millis(now - began) * SPEED), SPEED)
}

/// Milliseconds of this machine's clock, which both processes have.
#[expect(clippy::disallowed_methods, reason = "two processes agree on a clock of their own")]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("not that far")
}
