//! The event stream over a real connection.

use std::time::Duration;

use super::server::{End, answer, client, failed, json, pieces, serve, start, timeouts};
use crate::woodpecker::Timeouts;

const STREAM: &str = include_str!("../../../tests/fixtures/woodpecker-3.17/events.txt");

fn stream(parts: Vec<&'static str>, end: End) -> axum::response::Response {
    answer(200, "text/event-stream", pieces(parts, end))
}

#[tokio::test]
async fn the_stream_of_a_real_server_tells_each_event_and_then_its_end() {
    let (client, log) = serve(|_| stream(vec![STREAM], End::Whole)).await;
    let mut events = client.events().await.unwrap();
    events.next().await.unwrap();
    events.next().await.unwrap();
    assert!(failed(events.next().await).to_string().ends_with("/api/stream/events: the event stream ended"));
    let asked = log.lock().unwrap()[0].clone();
    assert_eq!(
        (asked.line.as_str(), &asked.headers["accept"]),
        ("GET /api/stream/events", &"text/event-stream".parse().unwrap())
    );
    assert!(asked.headers.contains_key("authorization"));
    assert!(!format!("{events:?}").contains("eyJhbGci"));
}

#[tokio::test]
async fn events_come_in_pieces_between_pings() {
    let parts =
        vec![": ping\n\n", "da", "ta", ": {\"a\":", "1}\r", "\n\r\n: pi", "ng\n\n", "data: 2\n\ndata: 3\n", "\n"];
    let (client, _) = serve(move |_| stream(parts.clone(), End::Cut)).await;
    let mut events = client.events().await.unwrap();
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    assert!(failed(events.next().await).to_string().ends_with("the event stream broke"));
}

#[tokio::test]
async fn silence_ends_the_stream_however_often_it_is_asked() {
    let (url, _) = start(|_| stream(vec![": ping\n\n"], End::Stall)).await;
    let client = client(&url, Timeouts { silence: Duration::from_millis(300), ..timeouts() });
    let mut events = client.events().await.unwrap();
    // A caller that gives up early each time does not put the end off.
    let mut asked = 0;
    let error = loop {
        asked += 1;
        assert!(asked < 1000, "never told");
        if let Ok(result) = tokio::time::timeout(Duration::from_millis(20), events.next()).await {
            break failed(result);
        }
    };
    assert!(asked > 1);
    assert!(error.to_string().ends_with("the event stream was silent for 300ms"), "{error}");
}

#[tokio::test]
async fn pings_keep_the_stream_alive() {
    // In all three times as long as it may be silent.
    let every = Duration::from_millis(50);
    let (url, _) = start(move |_| stream(vec![], End::Pings { every, count: 30 })).await;
    let client = client(&url, Timeouts { silence: every * 10, ..timeouts() });
    client.events().await.unwrap().next().await.unwrap();
}

#[tokio::test]
async fn a_long_line_is_not_kept() {
    let (client, _) = serve(|_| stream(vec!["data: 1\n", "data: "], End::Endless)).await;
    let mut events = client.events().await.unwrap();
    events.next().await.unwrap();
    events.next().await.unwrap();
    // 64 KiB pieces without end; nothing comes of them, and nothing grows.
    assert!(tokio::time::timeout(Duration::from_millis(50), events.next()).await.is_err());
}

#[tokio::test]
async fn what_is_no_event_stream_is_an_error() {
    for kind in ["text/html", "application/json", ""] {
        let (client, _) = serve(move |_| answer(200, kind, "data: x\n\n")).await;
        assert!(failed(client.events().await).to_string().ends_with("not an event stream"));
    }
    let (client, _) = serve(|_| json("{}")).await;
    let error = failed(client.events().await);
    assert!(error.to_string().ends_with("200 OK with application/json; charset=utf-8, not an event stream"), "{error}");
    let (client, _) = serve(|_| answer(200, "Text/Event-Stream; charset=utf-8", "data: x\n\n")).await;
    client.events().await.unwrap().next().await.unwrap();
}
