//! `picus demo` as a stranger sees it.

use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::{LONG, bare};

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_ends_by_itself_in_under_a_minute_with_nothing_killed_and_nothing_left() {
    let ended = bare(&["demo"]).output().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
    let last: Vec<&str> = ended.out.lines().rev().take(2).collect();
    assert!(last[1].contains("43 done, 0 still open, 0 killed"), "{}", ended.out);
    assert!(last[0].ends_with(" launched, 0 left"), "{}", ended.out);
    for story in [
        "launch demo-arm64-",
        "old-windows",
        "the next candidate is tried",
        "idle, and the paid period ends at",
        "always on",
    ] {
        assert!(ended.out.contains(story), "nothing about {story:?} in\n{}", ended.out);
    }
    let lines = ended.out.lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_demo_ends_at_once_with_a_summary() {
    let running = bare(&["demo"]).start();
    running.says("started on demo-amd64-").await;
    let ended = running.ends_on(Signal::INT, LONG).await;
    assert!(ended.took < Duration::from_secs(2), "it took {:?}", ended.took);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("ended early:\n") && ended.out.contains(" 0 killed\n"), "{}", ended.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_that_nobody_reads_any_more_ends() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_picus"))
        .arg("demo")
        .env_clear()
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next_line().await.unwrap().is_some());
    drop(lines);
    let ended = tokio::time::timeout(LONG, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}
