//! One HTTP call: sent with the token, answered in bounded time and memory, and judged by its status.
//!
//! Decides what counts as an answer of Woodpecker's. No redirect is followed: a write would turn into a read, and the
//! token could travel to another host. Knows nothing of routes (`super::client`) or shapes (`super::wire`).

mod answer;

use std::error::Error as _;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::error::Error;
use crate::metrics::Calls;
use crate::settings::{Problem, WoodpeckerSettings};
pub(super) use answer::Answer;

/// At most so much of a failing answer is read; one line of it is shown.
const FAILURE_LIMIT: usize = 4 * 1024;
/// Pause before the one second try of a question whose connection broke: time for a proxy to drop its dead connection.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long to wait for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// Until a whole answer is there; a listing of many pages may take [`Self::listing`].
    pub request: Duration,
    /// How long the event stream may be silent.
    pub silence: Duration,
}

impl Default for Timeouts {
    /// A server answers within milliseconds; ten seconds are for a busy database. The stream pings every 30 s, so 75 s
    /// are two lost pings and some.
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), request: Duration::from_secs(10), silence: Duration::from_secs(75) }
    }
}

impl Timeouts {
    /// Until a listing is read, all its pages and second looks together.
    #[must_use]
    pub fn listing(&self) -> Duration {
        self.request.saturating_mul(6)
    }
}

/// Client, address and token.
pub(super) struct Http {
    client: reqwest::Client,
    /// Without a slash at its end.
    base: String,
    token: SecretString,
    authorization: HeaderValue,
    pub(super) timeouts: Timeouts,
    pub(super) calls: Calls,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("base", &self.base).field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

/// What is asked.
#[derive(Debug, Clone)]
pub(super) struct Call {
    method: Method,
    url: String,
    /// One word for it, for metrics.
    operation: &'static str,
    body: Option<Vec<u8>>,
    /// Longest answer, in bytes.
    limit: usize,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}

impl Call {
    /// The error for an answer that is none.
    pub(super) fn unavailable(&self, status: Option<u16>, what: impl Into<String>) -> Error {
        Error::Unavailable { call: self.to_string(), status, what: what.into(), advice: None }
    }
}

/// A call that came to nothing.
struct Failure {
    error: Error,
    /// The connection broke before an answer began; a question can be asked again.
    broke: bool,
}

impl Http {
    pub(super) fn new(settings: &WoodpeckerSettings, timeouts: Timeouts) -> Result<Self, Problem> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("picus/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(timeouts.connect)
            .redirect(reqwest::redirect::Policy::none());
        if let Some(file) = &settings.ca_file {
            for certificate in certificates(file).map_err(|message| ca_problem(file, message))? {
                builder = builder.add_root_certificate(certificate);
            }
        }
        // Without TLS, and no redirect is followed, the system's certificates need not be read.
        if settings.server.scheme() == "http" {
            builder = builder.tls_built_in_root_certs(false);
        }
        // As curl's and Go's users expect: a server on this machine is not asked through the proxy.
        if is_loopback(&settings.server) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| match &settings.ca_file {
            Some(file) => ca_problem(file, format!("holds a certificate that can't be used: {}", root_cause(&error))),
            None => Problem {
                variable: "PICUS_WOODPECKER_SERVER".to_owned(),
                had: None,
                message: format!("no HTTP client can be made for it: {}", root_cause(&error)),
            },
        })?;
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {}", settings.token.expose_secret())).map_err(|_| Problem {
                variable: "PICUS_WOODPECKER_TOKEN".to_owned(),
                had: None,
                message: "holds a character that no token has (a line break?)".to_owned(),
            })?;
        authorization.set_sensitive(true);
        Ok(Self {
            client,
            base: base(&settings.server),
            token: settings.token.clone(),
            authorization,
            timeouts,
            calls: Calls::default(),
        })
    }

    /// A call of `path`, which begins with a slash.
    pub(super) fn call(&self, method: Method, path: &str, limit: usize) -> Call {
        let operation = operation(&method, path);
        Call { method, url: format!("{}{path}", self.base), operation, body: None, limit }
    }

    /// A call with a JSON body.
    pub(super) fn call_with(&self, method: Method, path: &str, body: Vec<u8>, limit: usize) -> Call {
        Call { body: Some(body), ..self.call(method, path, limit) }
    }

    /// Asks a question; once more if the connection breaks before the answer begins (a kept connection that the other
    /// side had closed).
    pub(super) async fn ask(&self, call: &Call) -> Result<Answer, Error> {
        (|| self.send(call))
            .retry(ConstantBuilder::default().with_delay(RETRY_PAUSE).with_max_times(1))
            .sleep(tokio::time::sleep)
            .when(|failure: &Failure| failure.broke)
            .await
            .map_err(|failure| failure.error)
    }

    /// Asks for a change; never twice.
    pub(super) async fn write(&self, call: &Call) -> Result<Answer, Error> {
        self.send(call).await.map_err(|failure| failure.error)
    }

    /// Opens a stream: the answer's head must be there in time, its body may last for ever.
    pub(super) async fn open(&self, call: &Call) -> Result<Response, Error> {
        let request = self.request(call).header(ACCEPT, "text/event-stream").send();
        let response = tokio::time::timeout(self.timeouts.request, request)
            .await
            .map_err(|_| call.unavailable(None, format!("no answer within {:?}", self.timeouts.request)))
            .and_then(|answered| answered.map_err(|error| self.broken(call, None, &error)));
        self.calls.note(call.operation, response.as_ref().map_or("no_answer", |answer| outcome(answer.status())));
        let response = response?;
        if !response.status().is_success() {
            let reading = tokio::time::timeout(self.timeouts.request, self.read_failure(call, response));
            let answer = reading.await.map_err(|_| call.unavailable(None, "the answer stalled"))?;
            return Err(answer.failure(self));
        }
        Ok(response)
    }

    async fn send(&self, call: &Call) -> Result<Answer, Failure> {
        let mut request = self.request(call).header(ACCEPT, "application/json").timeout(self.timeouts.request);
        if let Some(body) = &call.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let response = request.send().await;
        self.calls.note(call.operation, response.as_ref().map_or("no_answer", |answer| outcome(answer.status())));
        let response = response.map_err(|error| Failure {
            broke: error.is_request() && !error.is_connect() && !error.is_timeout(),
            error: self.broken(call, None, &error),
        })?;
        if response.status().is_success() {
            self.read(call, response).await.map_err(|error| Failure { error, broke: false })
        } else {
            Ok(self.read_failure(call, response).await)
        }
    }

    fn request(&self, call: &Call) -> reqwest::RequestBuilder {
        self.client.request(call.method.clone(), &call.url).header(AUTHORIZATION, self.authorization.clone())
    }

    /// Reads a whole answer, up to the limit.
    async fn read(&self, call: &Call, mut response: Response) -> Result<Answer, Error> {
        let status = response.status();
        let too_long = || {
            let limit = call.limit / 1024;
            call.unavailable(Some(status.as_u16()), format!("{status}, but the answer is longer than {limit} KiB"))
        };
        if response.content_length().is_some_and(|length| length > call.limit as u64) {
            return Err(too_long());
        }
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > call.limit => return Err(too_long()),
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return Err(self.broken(call, Some(status.as_u16()), &error)),
            }
        }
        Ok(Answer::new(call, status, response.headers().clone(), Some(body)))
    }

    /// Reads the beginning of a failing answer. Its status counts even if nothing more comes.
    async fn read_failure(&self, call: &Call, mut response: Response) -> Answer {
        let mut body = Some(Vec::new());
        while let Some(read) = &mut body
            && read.len() < FAILURE_LIMIT
        {
            match response.chunk().await {
                Ok(Some(chunk)) => read.extend_from_slice(&chunk[..chunk.len().min(FAILURE_LIMIT - read.len())]),
                Ok(None) => break,
                // A body that could not be read is not an empty one.
                Err(_) => body = None,
            }
        }
        Answer::new(call, response.status(), response.headers().clone(), body)
    }

    /// The error for a call that ended without a whole answer.
    fn broken(&self, call: &Call, status: Option<u16>, error: &reqwest::Error) -> Error {
        let cause = root_cause(error);
        let what = if error.is_timeout() && error.is_connect() {
            format!("no connection within {:?}", self.timeouts.connect)
        } else if error.is_timeout() {
            format!("no whole answer within {:?}", self.timeouts.request)
        } else if error.is_connect() && cause.contains("certificate") {
            format!("no connection: {cause} (PICUS_WOODPECKER_CA_FILE names an authority to trust)")
        } else if error.is_connect() {
            format!("no connection: {cause}")
        } else if status.is_some() {
            format!("the answer was cut short: {cause}")
        } else {
            format!("the connection broke: {cause}")
        };
        call.unavailable(status, self.scrub(&what))
    }

    /// `text` without the token, should somebody have echoed it.
    pub(super) fn scrub(&self, text: &str) -> String {
        let token = self.token.expose_secret();
        if token.is_empty() { text.to_owned() } else { text.replace(token, "[token]") }
    }
}

/// What a call is, for metrics: one of few words, whatever ids are in its path.
fn operation(method: &Method, path: &str) -> &'static str {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["version"]) => "version",
        ("GET", ["api", "user"]) => "user",
        ("GET", ["api", "queue", "info"]) => "queue",
        ("GET", ["api", "stream", "events"]) => "events",
        ("GET", ["api", "agents"]) => "list_agents",
        ("GET", ["api", "agents", _]) => "agent",
        ("GET", ["api", "agents", _, "tasks"]) => "agent_tasks",
        ("POST", ["api", "agents"]) => "register_agent",
        ("PATCH", ["api", "agents", _]) => "update_agent",
        ("DELETE", ["api", "agents", _]) => "delete_agent",
        _ => "other",
    }
}

/// What an answer's status says, for metrics.
fn outcome(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "unauthorised",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::CONFLICT => "conflict",
        StatusCode::TOO_MANY_REQUESTS => "rate_limited",
        status if status.is_success() => "ok",
        status if status.is_server_error() => "server_error",
        _ => "refused",
    }
}

/// The address without what no call needs; credentials in it must not reach an error.
fn base(server: &Url) -> String {
    let mut server = server.clone();
    server.set_query(None);
    server.set_fragment(None);
    // These fail only for addresses without a host, which hold no credentials either.
    let _ = server.set_username("");
    let _ = server.set_password(None);
    server.as_str().trim_end_matches('/').to_owned()
}

fn is_loopback(server: &Url) -> bool {
    match server.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn certificates(file: &Path) -> Result<Vec<reqwest::Certificate>, String> {
    let pem = std::fs::read(file).map_err(|error| format!("can't be read: {error}"))?;
    match reqwest::Certificate::from_pem_bundle(&pem) {
        Ok(found) if found.is_empty() => Err("holds no certificate in PEM form".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("is not a PEM bundle: {}", root_cause(&error))),
    }
}

fn ca_problem(file: &Path, message: String) -> Problem {
    Problem { variable: "PICUS_WOODPECKER_CA_FILE".to_owned(), had: Some(file.display().to_string()), message }
}

/// The innermost cause: the layers above it say no more than "error sending request".
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    // The outermost layer alone would repeat the URL.
    if error.source().is_none() { "the call could not be made".to_owned() } else { cause.to_string() }
}
