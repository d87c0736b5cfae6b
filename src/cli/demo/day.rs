//! What happens on the demo's day: pipelines from morning to evening, and a few things that go wrong.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Clock;
use crate::model::ids::TaskId;
use crate::model::{age, later};
use crate::world::{Event, Happened, TaskSpec, World, agent, task};

/// A minute of the day and what happens then.
type Scene = (u64, fn(&World));

/// The day, by the minute after its morning.
const SCENES: [Scene; 10] = [
    (5, |world| pipeline(world, "app", 3)),
    (50, |world| pipeline(world, "docs", 1)),
    (95, |world| {
        pipeline(world, "app", 5);
        arm(world, "app");
    }),
    (150, |world| pipeline(world, "lib", 2)),
    (200, |world| {
        // For somebody else's agents: no pool of ours could take it.
        world.push(task("installer").repo("acme/app").label("platform", "windows/amd64").takes(minutes(10)));
    }),
    (215, |world| {
        // The first place has none left for two hours: the next one is taken.
        world.sell_out("cx23", Some("nbg1"), Duration::from_hours(2));
        pipeline(world, "app", 6);
    }),
    (330, |world| {
        pipeline(world, "docs", 2);
        arm(world, "lib");
    }),
    (400, |world| {
        world.add_agent(agent("old-windows").platform("windows/amd64").slots(1));
    }),
    (430, |world| pipeline(world, "app", 4)),
    (520, |world| pipeline(world, "lib", 1)),
];

/// Tasks that wait for no other task.
const BEGIN: [&str; 2] = ["lint", "arm"];

/// Lives the day to its last scene.
pub(super) async fn live(world: &World, clock: &Clock, morning: Timestamp) {
    world.add_agent(agent("office").label("type", "office").slots(1));
    for (minute, scene) in SCENES {
        let due = later(morning, minutes(minute));
        clock.sleep(age(due, clock.now())).await;
        scene(world);
    }
}

/// What came of the day's tasks.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Tasks that ended.
    pub done: u32,
    /// How long each task that begins a pipeline waited for its agent.
    pub waits: Vec<Duration>,
}

/// Counts what happened until now.
pub(super) fn tally(world: &World) -> Tally {
    let mut queued: Vec<(TaskId, Timestamp)> = Vec::new();
    let mut tally = Tally::default();
    for Happened { at, event } in world.take_events() {
        match event {
            Event::TaskQueued { task, name } if BEGIN.contains(&name.as_str()) => queued.push((task, at)),
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

/// Lint, then so many tests beside each other, then a report on the office's agent.
fn pipeline(world: &World, repo: &str, tests: u64) {
    let repo = format!("acme/{repo}");
    let lint = world.push(cloud("lint", &repo).takes(minutes(3)));
    let mut report = task("report").repo(&repo).label("type", "office").takes(minutes(1));
    for number in 0..tests {
        let test = cloud(&format!("test-{}", number + 1), &repo).needs(&lint).takes(minutes(8 + 5 * number));
        report = report.needs(&world.push(test));
    }
    world.push(report);
}

fn arm(world: &World, repo: &str) {
    world.push(cloud("arm", &format!("acme/{repo}")).label("platform", "linux/arm64").takes(minutes(12)));
}

fn cloud(name: &str, repo: &str) -> TaskSpec {
    task(name).repo(repo).label("type", "cloud")
}

fn minutes(count: u64) -> Duration {
    Duration::from_mins(count)
}
