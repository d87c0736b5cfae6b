//! `picus demo`: the real loop against a modelled Woodpecker and Hetzner Cloud on loopback; a small day of CI in under a
//! minute. Needs no settings and no credentials.

mod day;

use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::{fail, failed_start, say};
use crate::app::App;
use crate::clock::Clock;
use crate::model::ids::InstallationId;
use crate::model::later;
use crate::settings::Settings;
use crate::telemetry;
use crate::world::{Event, Happened, World, WorldOptions};

/// Seconds of the demo's day that pass in one: eleven hours in three quarters of a minute.
const SPEED: u32 = 900;
/// When the clock begins: early enough that Picus has started before the first push.
const MORNING: &str = "2026-12-01T07:30:00Z";
/// Nothing is waited for after this; the last paid hours end before.
const DAY: Duration = Duration::from_hours(12);
/// The type of which one, always on, is what the day's cost is compared with.
const ALWAYS_ON: &str = "cx23";
/// What is always on is paid for at night too.
const ALWAYS: u32 = 24;

pub(super) async fn demo(shutdown: CancellationToken) -> ExitCode {
    let Ok(morning) = MORNING.parse::<Timestamp>() else { return fail(1, "the demo's day has no morning") };
    let clock = Clock::fast(morning, SPEED);
    let options = WorldOptions { boot_spread: Duration::from_secs(30), ..WorldOptions::default() };
    let world = match World::start(clock.clone(), options).await {
        Ok(world) => world,
        Err(error) => return fail(1, &format!("the modelled servers can't listen on 127.0.0.1: {error}")),
    };
    let settings = match Settings::from_vars(variables(&world)) {
        Ok(settings) => settings,
        Err(problems) => return fail(2, &crate::app::list_problems(&problems)),
    };
    telemetry::start_demo(clock.clone(), say);
    introduce(&world);

    let installation = settings.installation.clone();
    let app = match App::new(settings, clock.clone(), rand::random()) {
        Ok(app) => app,
        Err(error) => return failed_start(&error),
    };
    let teller = tokio::spawn(tell(world.subscribe()));
    let ended = shutdown.child_token();
    let scene = async {
        day::live(&world, &clock, morning).await;
        wait_for_evening(&world, &clock, &installation, later(morning, DAY)).await;
        ended.cancel();
    };
    let (_, outcome) = tokio::join!(ended.run_until_cancelled(scene), app.run(ended.clone()));
    teller.abort();
    if let Err(error) = outcome {
        return failed_start(&error);
    }
    say("");
    let early = if shutdown.is_cancelled() { ", ended early" } else { "" };
    say(&format!("The day from {} to {}{early}:", time_of_day(morning), time_of_day(clock.now())));
    summary(&world, &installation);
    world.shutdown();
    ExitCode::SUCCESS
}

/// The settings of a user who has these two servers.
fn variables(world: &World) -> Vec<(String, String)> {
    [
        ("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str()),
        ("PICUS_WOODPECKER_TOKEN", world.admin_token()),
        ("PICUS_PROVIDER_TYPE", "hcloud"),
        ("PICUS_HCLOUD_TOKEN", world.hetzner_token()),
        ("PICUS_HCLOUD_ENDPOINT", world.hetzner_url().as_str()),
        ("PICUS_HTTP_ADDR", "127.0.0.1:0"),
        ("PICUS_ID", "demo"),
        ("PICUS_POLL_INTERVAL", "20s"),
        ("PICUS_POOLS", "amd64,arm64"),
        ("PICUS_MAX_AGENTS", "3"),
        ("PICUS_AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000"),
        ("PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS", "2"),
        ("PICUS_AGENT_WOODPECKER_AGENT_LABELS", "type=cloud"),
        ("PICUS_HCLOUD_SERVER_TYPE", "cx23"),
        ("PICUS_POOL_ARM64_HCLOUD_SERVER_TYPE", "cax11"),
        ("PICUS_POOL_ARM64_MAX_AGENTS", "1"),
        ("PICUS_HCLOUD_SSH_KEYS", "admin"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// Waits until every task is done and the last instance is gone.
async fn wait_for_evening(world: &World, clock: &Clock, installation: &InstallationId, latest: Timestamp) {
    while clock.now() < latest {
        if world.open_tasks().is_empty() && world.left_behind(installation).is_empty() {
            return;
        }
        clock.sleep(Duration::from_mins(1)).await;
    }
}

/// Tells what happens in the world as it happens.
async fn tell(mut events: Receiver<Happened>) {
    loop {
        match events.recv().await {
            Ok(Happened { at, event }) => {
                if worth_telling(&event) {
                    say(&format!("{}  {event}", time_of_day(at)));
                }
            }
            Err(RecvError::Lagged(missed)) => say(&format!("… {missed} more events")),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Picus tells itself what it does, and the day's scenes what is pushed; what comes of both is told here.
fn worth_telling(event: &Event) -> bool {
    match event {
        Event::TaskStarted { .. }
        | Event::JobKilled(_)
        | Event::TaskRequeued { .. }
        | Event::AgentConnected { .. }
        | Event::AgentFailed { .. } => true,
        Event::TaskDone { name, .. } => day::ends_pipeline(name),
        Event::TaskQueued { .. }
        | Event::RecordCreated { .. }
        | Event::Cordoned { .. }
        | Event::RecordDeleted { .. }
        | Event::ServerCreated { .. }
        | Event::ServerRunning { .. }
        | Event::ServerDeleted { .. } => false,
    }
}

fn introduce(world: &World) {
    say(&format!(
        "A day of CI, {SPEED} times as fast. Picus is the real one; the two servers that it talks to are modelled:"
    ));
    say(&format!("Woodpecker at {}, Hetzner Cloud at {}.", world.woodpecker_url(), world.hetzner_url()));
    say("");
    say(
        "Two pools: amd64 with up to 3 servers (cx23), arm64 with 1 (cax11), each for 2 tasks at once. A server is paid for",
    );
    say(
        "by the started hour, so an idle one is kept until shortly before its next hour begins. An agent named office is",
    );
    say(
        "always there, and not one of ours. \"picus:\" is what Picus does and why; \"--\" is what people do. Its status page",
    );
    say("can be opened while the day lasts.");
    say("");
}

fn summary(world: &World, installation: &InstallationId) {
    let day::Tally { done, waits } = day::tally(world);
    let bill = world.bill();
    let left = world.left_behind(installation);
    let count = u32::try_from(waits.len()).unwrap_or(u32::MAX);
    if let Some(mean) = waits.iter().sum::<Duration>().checked_div(count) {
        say(&format!("  waiting     {} s on average from a push until its first task ran", mean.as_secs()));
    }
    say(&format!("  cost        {:.4} EUR for {} started hours", bill.cost, bill.hours));
    if let Some(price) = world.hourly_price(ALWAYS_ON) {
        say(&format!(
            "              {:.4} EUR for one {ALWAYS_ON} that is always on ({ALWAYS} h): 2 tasks at once, and none for arm64",
            f64::from(ALWAYS) * price
        ));
    }
    say(&format!(
        "  tasks       {done} done, {} still open, {} killed",
        world.open_tasks().len(),
        world.killed_jobs().len()
    ));
    say(&format!("  servers     {} launched, {} left", bill.servers, left.servers.len()));
}

fn time_of_day(at: Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}
