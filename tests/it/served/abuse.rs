//! Clients that are slow, half-open, many or rude hold up neither a probe nor a pass.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use reqwest::{Client, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::Served;
use crate::harness::picus;

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_is_answered_and_passes_go_on_while_one_client_holds_all_that_it_can_get() {
    let p = picus().start().await;
    p.pass().await;
    let served = Served::of(&p, None).await;
    let mut held = Vec::new();
    for number in 0..400 {
        let mut stream = TcpStream::connect(served.address).await.expect("a connection");
        // Some say nothing, some begin a request and go on for ever.
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await;
        }
        held.push(stream);
    }
    let prober = Client::builder().no_proxy().local_address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    let prober = prober.timeout(Duration::from_secs(30)).build().expect("a client");
    let answer = prober.get(served.url("/healthz")).send().await.expect("an answer although others hold connections");
    assert_eq!(answer.status(), StatusCode::OK);
    p.pass().await;
    // They are let go in time, so the same address is answered again.
    let begun = Instant::now();
    for stream in &mut held {
        let mut rest = Vec::new();
        let closed = timeout(Duration::from_mins(1), stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "still open after {:?}", begun.elapsed());
    }
    assert_eq!(served.get("/healthz").await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_never_ends_is_answered_for_all_that() {
    let p = picus().start().await;
    p.pass().await;
    let served = Served::of(&p, Some("0123456789abcdef")).await;
    let mut form = TcpStream::connect(served.address).await.expect("a connection");
    let head = "POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\ntoken=";
    form.write_all(head.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    let read = timeout(Duration::from_mins(1), form.read_to_string(&mut answer)).await;
    assert!(read.is_ok(), "still open");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_no_request_is_refused() {
    let p = picus().start().await;
    p.pass().await;
    let served = Served::of(&p, None).await;
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(1 << 20));
    for sent in [
        "\x16\x03\x01\x02\x00\x01",
        "hello\r\n\r\n",
        long.as_str(),
        "GET / HTTP/9.9\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(served.address).await.expect("a connection");
        let _ = stream.write_all(sent.as_bytes()).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = timeout(Duration::from_mins(1), stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "still open: {}", &sent[..sent.len().min(20)]);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
    let (status, _) = served.get(&format!("/nothing?{}", "x".repeat(2000))).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(served.get("/healthz").await.0, StatusCode::OK);
}
