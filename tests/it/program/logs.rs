//! What the loop writes: form, filter, and a run that only says what it would do.

use picus::model::ids::InstallationId;
use picus::world::{Endpoint, World, task};
use rustix::process::Signal;

use super::{Ended, LONG, Program, eventually, picus, world};

/// Runs the loop until it has looked a few times.
async fn some_passes(world: &World, program: Program) -> Ended {
    let running = program.start();
    let before = world.calls(Endpoint::Queue);
    eventually("some passes", || world.calls(Endpoint::Queue) >= before + 3, || running.text()).await;
    running.ends_on(Signal::TERM, LONG).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_of_a_json_log_is_an_object_with_the_message_and_its_fields() {
    let world = world().await;
    world.push(task("build"));
    let ended = some_passes(&world, picus(&world, &[]).set("PICUS_LOG_FORMAT", "json")).await;
    let lines: Vec<serde_json::Value> = ended
        .err
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(
        lines
            .iter()
            .all(|line| line["message"].is_string() && line["level"].is_string() && line["timestamp"].is_string())
    );
    let launch = lines.iter().find(|line| line["kind"] == "launch").expect("the launch is told");
    assert_eq!(launch["pool"], "default");
    assert_eq!(ended.out, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_log_has_one_line_an_event_and_no_colours() {
    let world = world().await;
    world.push(task("build"));
    let ended = some_passes(&world, picus(&world, &[])).await;
    assert!(ended.err.lines().all(|line| line.contains(" INFO ") || line.contains(" WARN ")), "{}", ended.err);
    assert!(ended.err.contains("1 task waits") && !ended.err.contains('\u{1b}'), "{}", ended.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_decides_what_is_logged() {
    let world = world().await;
    let quiet = some_passes(&world, picus(&world, &[]).set("PICUS_LOG", "error")).await;
    assert_eq!(quiet.err, "");
    let talkative = some_passes(&world, picus(&world, &[]).set("PICUS_LOG", "warn,picus::reconcile=debug")).await;
    assert!(talkative.err.contains("DEBUG"), "{}", talkative.err);
    assert!(!talkative.err.contains("watching"), "{}", talkative.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_and_does_nothing() {
    let world = world().await;
    world.push(task("build"));
    let ended = some_passes(&world, picus(&world, &[]).set("PICUS_DRY_RUN", "true")).await;
    assert!(ended.err.contains("launch picus-default-"), "{}", ended.err);
    assert!(ended.err.contains("dry_run=true"), "{}", ended.err);
    assert!(world.left_behind(&InstallationId("picus".to_owned())).is_empty());
    assert_eq!(world.calls(Endpoint::CreateAgent), 0);
}
