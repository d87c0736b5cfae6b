//! The two listeners. A request is read whole, answered under the lock by a plain function of the state, and the answer
//! is sent, or lost on its way as the faults say.
//!
//! A connection can be cut without an answer: each has a switch that its handler can throw, after which writing to it
//! fails and the socket is closed.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request as AxumRequest;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use url::{Url, form_urlencoded};

use super::Shared;
use super::endpoint::{Call, Endpoint, Side};
use super::faults::AnswerFault;
use super::state::State;

/// Largest body that is read; the largest honest one is a create call with its user data.
const LARGEST_BODY: usize = 1024 * 1024;
/// The real server's pause between two pings of the event stream. Real time: clients guard it with real timeouts.
const PING: Duration = Duration::from_secs(30);
/// `Mon, 01 Jan 2024 00:00:00 GMT`
const HTTP_DATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// A request as the models see it.
pub(super) struct Request<'a> {
    pub(super) endpoint: Endpoint,
    /// The id in the path.
    pub(super) id: Option<&'a str>,
    query: Vec<(String, String)>,
    /// What stands after `Bearer `.
    pub(super) token: Option<&'a str>,
    pub(super) body: &'a [u8],
}

impl Request<'_> {
    /// A parameter of the query; an empty one counts as absent.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters(name).next()
    }

    /// The values of a parameter that may come several times; empty ones count as absent.
    pub(super) fn parameters(&self, name: &str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// A parameter of the query as a number from 1 on.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.parameter(name).and_then(|value| value.parse().ok()).filter(|number| *number >= 1)
    }
}

/// An answer as the models give it.
pub(super) struct Answer {
    status: u16,
    content_type: Option<&'static str>,
    headers: Vec<(&'static str, String)>,
    body: Content,
}

enum Content {
    Whole(Vec<u8>),
    Feed(broadcast::Receiver<Feed>),
}

/// What goes out on the event streams.
#[derive(Debug, Clone)]
pub(super) enum Feed {
    /// A `data:` line.
    Data(Arc<str>),
    /// All streams end.
    End,
}

impl Answer {
    pub(super) fn json(status: u16, body: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => Self::new(status, Some("application/json; charset=utf-8"), body),
            Err(error) => Self::text(500, error.to_string()),
        }
    }

    pub(super) fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, Some("text/plain; charset=utf-8"), body.into().into_bytes())
    }

    pub(super) fn empty(status: u16) -> Self {
        Self::new(status, None, Vec::new())
    }

    pub(super) fn feed(feed: broadcast::Receiver<Feed>) -> Self {
        let mut answer = Self::new(200, Some("text/event-stream"), Vec::new());
        answer.body = Content::Feed(feed);
        answer.with("cache-control", "no-store")
    }

    fn html() -> Self {
        let page = "<!doctype html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>";
        Self::new(200, Some("text/html; charset=utf-8"), page.into())
    }

    fn new(status: u16, content_type: Option<&'static str>, body: Vec<u8>) -> Self {
        Self { status, content_type, headers: Vec::new(), body: Content::Whole(body) }
    }

    pub(super) fn with(mut self, header: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }
}

/// What becomes of an answer on its way.
enum Delivery {
    Whole,
    Cut,
    CutBody,
    After(Duration),
}

impl State {
    /// Takes in one request: counts it, lets the faults have their way, has it carried out.
    fn receive(&mut self, request: &Request<'_>) -> (Answer, Delivery) {
        let endpoint = request.endpoint;
        self.calls.record(Call { at: self.now, endpoint });
        let Some(fault) = self.faults.answer(endpoint, self.now, &mut self.rng) else {
            return (self.carry_out(request), Delivery::Whole);
        };
        let answer = match fault {
            AnswerFault::Status(status) => Answer::text(status, "something went wrong"),
            AnswerFault::Html => Answer::html(),
            AnswerFault::Empty => Answer::empty(200),
            AnswerFault::Null => Answer::json(200, &()),
            AnswerFault::EmptyList => match endpoint.side() {
                Side::Woodpecker => super::woodpecker::routes::nothing(endpoint),
                Side::Hetzner => super::hetzner::routes::nothing(endpoint),
            },
            AnswerFault::WrongJson => Answer::json(200, &serde_json::json!({ "answer": [42, { "id": "x" }] })),
            AnswerFault::Unauthorised => match endpoint.side() {
                Side::Woodpecker => super::woodpecker::routes::not_authorised(401),
                Side::Hetzner => super::hetzner::routes::error("unauthorized", "unable to authenticate"),
            },
            AnswerFault::Forbidden => match endpoint.side() {
                Side::Woodpecker => super::woodpecker::routes::not_authorised(403),
                Side::Hetzner => {
                    super::hetzner::routes::error("forbidden", "insufficient permissions for this request")
                }
            },
            AnswerFault::RateLimited(time) => match endpoint.side() {
                Side::Woodpecker => {
                    Answer::text(429, "too many requests").with("retry-after", time.as_secs().to_string())
                }
                Side::Hetzner => self.exhaust_budget(time),
            },
            AnswerFault::Refused(code) => super::hetzner::routes::error(code, "refused"),
            AnswerFault::Cut => return (Answer::empty(200), Delivery::Cut),
            AnswerFault::LostAnswer => return (self.carry_out(request), Delivery::Cut),
            AnswerFault::CutBody => return (self.carry_out(request), Delivery::CutBody),
            AnswerFault::Stall(time) => return (self.carry_out(request), Delivery::After(time)),
        };
        (answer, Delivery::Whole)
    }

    fn carry_out(&mut self, request: &Request<'_>) -> Answer {
        match request.endpoint.side() {
            Side::Woodpecker => self.answer_woodpecker(request),
            Side::Hetzner => self.answer_hetzner(request),
        }
    }
}

/// Binds one of the servers and serves it until the world closes. Returns its base URL.
pub(super) async fn listen(side: Side, shared: &Arc<Shared>, base: &str) -> io::Result<Url> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}/{base}", listener.local_addr()?);
    let url = Url::parse(&url).map_err(io::Error::other)?;
    let closing = shared.closing.clone();
    let shared = Arc::clone(shared);
    let router = Router::new().fallback(move |ConnectInfo(cord): ConnectInfo<Cord>, request: AxumRequest| {
        let shared = Arc::clone(&shared);
        async move { serve(side, &shared, &cord, request).await }
    });
    let server = axum::serve(Lines(listener), router.into_make_service_with_connect_info::<Cord>());
    tokio::spawn(async move {
        closing.run_until_cancelled(server.into_future()).await;
    });
    Ok(url)
}

async fn serve(side: Side, shared: &Shared, cord: &Cord, request: AxumRequest) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, LARGEST_BODY).await else {
        cord.cut();
        return Response::new(Body::empty());
    };
    if shared.closing.is_cancelled() {
        cord.cut();
        return Response::new(Body::empty());
    }
    let (endpoint, id) = Endpoint::of(side, &head.method, head.uri.path());
    let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let token = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer "));
    let request = Request { endpoint, id, query, token, body: &body };
    let (now, (answer, delivery)) = {
        let mut state = shared.now();
        (state.now, state.receive(&request))
    };
    let cut_body = match delivery {
        Delivery::Whole => false,
        Delivery::CutBody => true,
        Delivery::Cut => {
            cord.cut();
            false
        }
        Delivery::After(time) => {
            tokio::time::sleep(time).await;
            false
        }
    };
    respond(answer, now, cut_body, head.method == Method::HEAD, shared)
}

fn respond(answer: Answer, now: Timestamp, cut_body: bool, no_body: bool, shared: &Shared) -> Response {
    let mut length = None;
    let body = match answer.body {
        Content::Whole(_) if no_body => Body::empty(),
        Content::Whole(bytes) if cut_body => {
            length = Some(bytes.len());
            Body::from_stream(cut_in_half(bytes))
        }
        Content::Whole(bytes) => Body::from(bytes),
        Content::Feed(feed) => {
            let lines = stream::unfold((feed, true), next_line);
            Body::from_stream(lines.take_until(shared.closing.clone().cancelled_owned()))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set("date", &now.strftime(HTTP_DATE).to_string());
    if let Some(content_type) = answer.content_type {
        set("content-type", content_type);
    }
    if let Some(length) = length {
        set("content-length", &length.to_string());
    }
    for (name, value) in &answer.headers {
        set(name, value);
    }
    response
}

/// The first half, then an error: the connection ends before the promised length is reached.
fn cut_in_half(mut bytes: Vec<u8>) -> impl stream::Stream<Item = io::Result<Bytes>> {
    bytes.truncate(bytes.len() / 2);
    stream::iter([Ok(Bytes::from(bytes)), Err(io::ErrorKind::ConnectionReset.into())])
}

/// The next piece of an event stream; the first is a ping, as at the real server.
async fn next_line(
    (mut feed, first): (broadcast::Receiver<Feed>, bool),
) -> Option<(Result<Bytes, Infallible>, (broadcast::Receiver<Feed>, bool))> {
    let ping = Bytes::from_static(b": ping\n\n");
    if first {
        return Some((Ok(ping), (feed, false)));
    }
    let line = match tokio::time::timeout(PING, feed.recv()).await {
        Ok(Ok(Feed::Data(data))) => Bytes::from(format!("data: {data}\n\n")),
        // The real server drops events for a slow client too.
        Ok(Err(broadcast::error::RecvError::Lagged(_))) | Err(_) => ping,
        Ok(Ok(Feed::End) | Err(broadcast::error::RecvError::Closed)) => return None,
    };
    Some((Ok(line), (feed, false)))
}

/// The switch that cuts a connection.
#[derive(Debug, Clone, Default)]
struct Cord(Arc<AtomicBool>);

impl Cord {
    fn cut(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl Connected<IncomingStream<'_, Lines>> for Cord {
    fn connect_info(stream: IncomingStream<'_, Lines>) -> Self {
        stream.io().cord.clone()
    }
}

/// A listener whose connections can be cut.
struct Lines(TcpListener);

impl Listener for Lines {
    type Io = Line;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        // Only slower without it.
        let _ = stream.set_nodelay(true);
        (Line { stream, cord: Cord::default() }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// A connection that can be cut.
struct Line {
    stream: TcpStream,
    cord: Cord,
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.cord.check()?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.cord.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.cord.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.cord.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
