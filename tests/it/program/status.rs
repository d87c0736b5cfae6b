//! What a running program serves, and `picus status`, which asks it.

use std::net::TcpListener;
use std::time::Duration;

use picus::world::task;
use rustix::process::Signal;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::{LONG, Running, bare, eventually, picus, world};

const TOKEN: &str = "0123456789abcdef";

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").to_string()
}

/// Where a program says that its page is.
async fn page_of(running: &Running) -> String {
    let line = |text: String| {
        text.lines().find_map(|line| Some(line.split_once("at http://")?.1.trim_end_matches('/').to_owned()))
    };
    eventually("it says where its page is", || line(running.text()).is_some(), || running.text()).await;
    line(running.text()).expect("an address")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_program_is_asked_with_the_same_settings() {
    let world = world().await;
    let address = free_address();
    let running = picus(&world, &["run"]).set("PICUS_HTTP_ADDR", &address).set("PICUS_HTTP_TOKEN", TOKEN).start();
    world.push(task("build").repo("acme/site").label("type", "mac"));
    world.push(task("test").repo("acme/site").takes(Duration::from_mins(10)));
    running.looks(&world).await;
    let ask = |arguments: &[&'static str]| bare(arguments).set("PICUS_HTTP_ADDR", &address);
    let asked = ask(&["status"]).set("PICUS_HTTP_TOKEN", TOKEN).output().await;
    assert_eq!((asked.code, asked.err.as_str()), (Some(0), ""), "{}", asked.out);
    for told in ["Queue: ", "(1 not ours)", "Pool default (hetzner)", "Last steps:", "launch picus-default-"] {
        assert!(asked.out.contains(told), "nothing of {told:?} in\n{}", asked.out);
    }
    let json = ask(&["status", "--output", "json"]).set("PICUS_HTTP_TOKEN", TOKEN).output().await;
    assert!(serde_json::from_str::<serde_json::Value>(&json.out).is_ok(), "{}", json.out);
    let healthy = ask(&["status", "--healthz"]).output().await;
    assert_eq!((healthy.code, healthy.out.as_str()), (Some(0), "ok: passes complete\n"), "{}", healthy.err);

    let without = ask(&["status"]).output().await;
    assert_eq!(without.code, Some(1));
    assert!(without.err.contains("PICUS_HTTP_TOKEN"), "{}", without.err);
    // Also while somebody holds a connection, it ends in time.
    let mut held = TcpStream::connect(&address).await.expect("a connection");
    let ended = running.ends_on(Signal::TERM, LONG).await;
    assert_eq!(ended.code, Some(0));
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
    assert!(!ended.out.contains(TOKEN) && !ended.err.contains(TOKEN));
    let _ = held.read(&mut [0; 1]).await;
    let gone = ask(&["status", "--healthz"]).output().await;
    assert_eq!(gone.code, Some(1));
    assert!(gone.err.contains("does Picus run there"), "{}", gone.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_served_while_the_server_is_waited_for() {
    let world = world().await;
    let running = picus(&world, &["run"])
        .set("PICUS_WOODPECKER_SERVER", "http://127.0.0.1:1")
        .set("PICUS_HTTP_ADDR", "127.0.0.1:0")
        .start();
    let address = page_of(&running).await;
    running.says("waiting for the Woodpecker server").await;
    let answer = async |path: &str| reqwest::get(format!("http://{address}{path}")).await.expect("an answer");
    assert_eq!(answer("/healthz").await.status(), 200);
    assert_eq!(answer("/readyz").await.status(), 503);
    let page = answer("/").await.text().await.expect("a page");
    assert!(page.contains("Starting") && page.contains("are asked first"), "{page}");
    assert_eq!(running.ends_on(Signal::TERM, LONG).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_ends_the_start_with_the_variable() {
    let world = world().await;
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let ended = picus(&world, &["run"]).set("PICUS_HTTP_ADDR", &address).output().await;
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(
        ended.err.contains(&format!("PICUS_HTTP_ADDR=\"{address}\"")) && ended.err.contains("`off`"),
        "{}",
        ended.err
    );
}
