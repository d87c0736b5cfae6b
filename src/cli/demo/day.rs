//! What happens on the demo's day: pipelines from morning to evening, and a few things that go wrong.

use std::time::Duration;

use jiff::Timestamp;

use crate::cli::say;
use crate::clock::Clock;
use crate::model::ids::TaskId;
use crate::model::{age, later};
use crate::world::{Event, Happened, TaskSpec, World, agent, task};

/// When something happens, in minutes after the clock began, what is said of it, and what it is.
type Scene = (u64, &'static str, fn(&World));

/// The day.
const SCENES: [Scene; 10] = [
    (30, "a push to app: lint, then 3 tests beside each other, then a report on the office's agent", |world| {
        pipeline(world, "app", 3);
    }),
    (80, "a push to docs: lint, 1 test, report. The servers are still paid for, so nothing has to boot", |world| {
        pipeline(world, "docs", 1);
    }),
    (
        125,
        "a push to app: lint, 5 tests, report; and a task that asks for platform=linux/arm64, so only pool arm64 fits",
        |world| {
            pipeline(world, "app", 5);
            arm(world, "app");
        },
    ),
    (180, "a push to lib: lint, 2 tests, report", |world| pipeline(world, "lib", 2)),
    (
        230,
        "a task asks for platform=windows/amd64: not ours, no pool could take it, so Picus launches nothing for it",
        |world| {
            world.push(task("installer").repo("acme/app").label("platform", "windows/amd64").takes(minutes(10)));
        },
    ),
    // Half-way between two hourly looks at what is in stock, so that the launch is what finds out.
    (260, "nbg1 has no cx23 left for two hours; and a push to app: lint, 6 tests, report", |world| {
        world.sell_out("cx23", Some("nbg1"), Duration::from_hours(2));
        pipeline(world, "app", 6);
    }),
    (360, "a push to docs: lint, 2 tests, report; and a task for linux/arm64", |world| {
        pipeline(world, "docs", 2);
        arm(world, "lib");
    }),
    (430, "somebody switches on an old Windows machine: its agent may take the task that was left alone", |world| {
        world.add_agent(agent("old-windows").platform("windows/amd64").slots(1));
    }),
    (460, "a push to app: lint, 4 tests, report", |world| pipeline(world, "app", 4)),
    (550, "a push to lib: lint, 1 test, report", |world| pipeline(world, "lib", 1)),
];

/// Lives the day to its last scene.
pub(super) async fn live(world: &World, clock: &Clock, morning: Timestamp) {
    world.add_agent(agent("office").label("type", "office").slots(1));
    for (minute, told, scene) in SCENES {
        clock.sleep(age(later(morning, minutes(minute)), clock.now())).await;
        say(&format!("{}  -- {told}", super::time_of_day(clock.now())));
        scene(world);
    }
}

/// What came of the day's tasks.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Tasks that ended.
    pub done: u32,
    /// How long each task that waits for no other waited for its agent.
    pub waits: Vec<Duration>,
}

/// Counts what happened until now.
pub(super) fn tally(world: &World) -> Tally {
    let mut queued: Vec<(TaskId, Timestamp)> = Vec::new();
    let mut tally = Tally::default();
    for Happened { at, event } in world.take_events() {
        match event {
            Event::TaskQueued { task, name } if begins_pipeline(&name) => queued.push((task, at)),
            Event::TaskStarted { task, .. } => {
                tally.waits.extend(queued.iter().find(|(id, _)| *id == task).map(|(_, since)| age(at, *since)));
            }
            Event::TaskDone { .. } => tally.done += 1,
            Event::TaskQueued { .. }
            | Event::JobKilled(_)
            | Event::TaskRequeued { .. }
            | Event::RecordCreated { .. }
            | Event::Cordoned { .. }
            | Event::RecordDeleted { .. }
            | Event::AgentConnected { .. }
            | Event::AgentFailed { .. }
            | Event::ServerCreated { .. }
            | Event::ServerRunning { .. }
            | Event::ServerDeleted { .. } => {}
        }
    }
    tally
}

/// The task waits for no other.
fn begins_pipeline(name: &str) -> bool {
    name.ends_with("lint") || name.ends_with("arm")
}

/// No task waits for it.
pub(super) fn ends_pipeline(name: &str) -> bool {
    name.ends_with("report") || name.ends_with("arm") || name == "installer"
}

/// Lint, then so many tests beside each other, then a report on the office's agent.
fn pipeline(world: &World, repo: &str, tests: u64) {
    let lint = world.push(cloud(repo, "lint").takes(minutes(3)));
    let mut report = of(repo, "report").label("type", "office").takes(minutes(1));
    for number in 0..tests {
        let test = cloud(repo, &format!("test-{}", number + 1)).needs(&lint).takes(minutes(8 + 5 * number));
        report = report.needs(&world.push(test));
    }
    world.push(report);
}

fn arm(world: &World, repo: &str) {
    world.push(cloud(repo, "arm").label("platform", "linux/arm64").takes(minutes(12)));
}

fn cloud(repo: &str, name: &str) -> TaskSpec {
    of(repo, name).label("type", "cloud")
}

fn of(repo: &str, name: &str) -> TaskSpec {
    task(format!("{repo}-{name}")).repo(format!("acme/{repo}"))
}

fn minutes(count: u64) -> Duration {
    Duration::from_mins(count)
}
