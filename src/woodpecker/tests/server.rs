//! A server whose every answer is a function of what was asked, and a client for it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::stream::{self, Stream, StreamExt};
use url::Url;

use crate::settings::WoodpeckerSettings;
use crate::woodpecker::{Client, Error, Timeouts};

/// The token of every test. Must not be in any output.
pub const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.dGhlLXNlY3JldA.7n2xkQw";
/// A token of an agent, in answers.
pub const AGENT_TOKEN: &str = "REDACTED77777777777777777777777777777777777777777777====";

/// A piece of an answer without end.
static SPACES: &[u8] = &[b' '; 65536];

/// One request.
#[derive(Debug, Clone)]
pub struct Asked {
    pub line: String,
    pub headers: HeaderMap,
    pub body: String,
}

/// What was asked so far, as `GET /path?query`.
pub type Log = Arc<Mutex<Vec<Asked>>>;

/// A server that answers with `answer`, a client for it, and what the server was asked.
pub async fn serve(answer: impl Fn(&Asked) -> Response + Clone + Send + Sync + 'static) -> (Client, Log) {
    let (url, log) = start(answer).await;
    (client(&url, timeouts()), log)
}

pub async fn start(answer: impl Fn(&Asked) -> Response + Clone + Send + Sync + 'static) -> (String, Log) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = Log::default();
    let seen = Arc::clone(&log);
    let routes = axum::Router::new().fallback(move |request: Request| {
        let (answer, seen) = (answer.clone(), Arc::clone(&seen));
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let asked = Asked {
                line: format!("{} {}", head.method, head.uri),
                headers: head.headers,
                body: String::from_utf8(body.to_vec()).unwrap(),
            };
            seen.lock().unwrap().push(asked.clone());
            answer(&asked)
        }
    });
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (url, log)
}

/// Short, so that a test of a stall is short, and long enough for a busy machine.
pub fn timeouts() -> Timeouts {
    Timeouts { connect: Duration::from_secs(5), request: Duration::from_secs(10), silence: Duration::from_secs(10) }
}

pub fn client(url: &str, timeouts: Timeouts) -> Client {
    Client::with_timeouts(&settings(url), timeouts).unwrap()
}

pub fn settings(url: &str) -> WoodpeckerSettings {
    WoodpeckerSettings { server: Url::parse(url).unwrap(), token: TOKEN.to_owned().into(), ca_file: None }
}

pub fn lines(log: &Log) -> Vec<String> {
    log.lock().unwrap().iter().map(|asked| asked.line.clone()).collect()
}

/// The error of a call that had to fail, after a look that it gives nothing away.
pub fn failed<T>(result: Result<T, Error>) -> Error {
    let Err(error) = result else { panic!("the call succeeded") };
    let told = format!("{error} {error:?} {error:#?}");
    assert!(!told.contains(TOKEN) && !told.contains("eyJhbGci"), "{told}");
    assert!(!told.contains(AGENT_TOKEN), "{told}");
    assert!(!told.contains("EOF while"), "{told}");
    assert!(told.contains("http://127.0.0.1:"), "names the URL: {told}");
    error
}

/// An answer with a body of this type; empty type: none.
pub fn answer(status: u16, kind: &str, body: impl Into<Body>) -> Response {
    let mut response = Response::builder().status(status);
    if !kind.is_empty() {
        response = response.header("content-type", kind);
    }
    response.body(body.into()).unwrap()
}

pub fn json(body: impl Into<Body>) -> Response {
    answer(200, "application/json; charset=utf-8", body)
}

pub fn html(status: u16) -> Response {
    answer(status, "text/html", format!("<!doctype html><title>Sign in</title><p>{TOKEN}"))
}

/// Pieces, then whatever `end` does.
pub fn pieces(pieces: Vec<&'static str>, end: End) -> Body {
    let pieces = stream::iter(pieces).map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
    let end: std::pin::Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>> = match end {
        End::Whole => Box::pin(stream::empty()),
        // After a pause in which what came before is sent.
        End::Cut => Box::pin(stream::once(async {
            tokio::task::yield_now().await;
            Err(io::Error::other("cut"))
        })),
        End::Stall => Box::pin(stream::pending()),
        End::Pings { every, count } => Box::pin(stream::unfold(0, move |told| async move {
            tokio::time::sleep(every).await;
            let line: &[u8] = if told < count { b": ping\n\n" } else { b"data: {}\n\n" };
            Some((Ok(Bytes::from_static(line)), told + 1))
        })),
        End::Endless => Box::pin(stream::repeat_with(|| Ok(Bytes::from_static(SPACES)))),
    };
    Body::from_stream(pieces.chain(end))
}

#[derive(Clone, Copy)]
pub enum End {
    Whole,
    Cut,
    Stall,
    Endless,
    /// Pings, then an event.
    Pings {
        every: Duration,
        count: usize,
    },
}
