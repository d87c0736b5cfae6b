//! Sends calls to Hetzner's API and reads what comes back: token, timeouts, bounded bodies, pages, and the memory that
//! no call leaves before a rate limit's reset. Knows no resource; those are its neighbours'.
//!
//! Debug output and errors hold neither the token nor a request's body.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hcloud::apis::configuration::Configuration;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::{Host, Url};

use super::failure::{Failure, Refusal};
use super::wire::{ErrorAnswer, Meta};
use crate::clock::Clock;
use crate::metrics::Calls;
use crate::model::later;

/// The address by which `hcloud` looks up where to send calls.
const HETZNER: &str = "https://api.hetzner.cloud/v1";
/// Most that Hetzner gives on a page.
const PER_PAGE: usize = 50;
/// 10,000 of anything; no project is that large, and a loop must end.
const MOST_PAGES: usize = 200;
/// A page of 50 server types with all their prices has some 200 KB.
const LARGEST_BODY: usize = 8 * 1024 * 1024;
/// After a 429 that does not say until when. The budget refills by one a second.
const UNKNOWN_RESET: Duration = Duration::from_mins(1);
/// The window of the budget: a reset that lies further ahead is a clock that differs.
const LONGEST_RESET: Duration = Duration::from_hours(1);
/// Clocks that differ by more than this are corrected for: an instance's age is counted from Hetzner's time.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);
/// Most of a text of the other side that is kept.
const LONGEST_TEXT: usize = 2000;

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Until there is a connection.
    pub(super) connect: Duration,
    /// For all of it, body included.
    pub(super) request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), request: Duration::from_secs(15) }
    }
}

/// A project at Hetzner Cloud.
pub(super) struct Client {
    /// Holds no token: its `Debug` would show it.
    configuration: Configuration,
    token: SecretString,
    clock: Clock,
    pub(super) calls: Calls,
    limited_until: Mutex<Option<Timestamp>>,
    /// How far Hetzner's clock is ahead of ours, by its last answer; nothing within the tolerance.
    ahead: Mutex<SignedDuration>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.configuration.get_default_base_path()).finish_non_exhaustive()
    }
}

/// All pages of a list.
pub(super) struct Pages<T> {
    pub(super) items: Vec<T>,
    /// How many there were. `None`: not told.
    pub(super) total: Option<u64>,
    /// There were as many at each page: nothing came or went in between.
    pub(super) steady: bool,
}

impl Client {
    pub(super) fn new(
        token: SecretString,
        endpoint: Url,
        clock: Clock,
        timeouts: Timeouts,
    ) -> Result<Self, reqwest::Error> {
        let agent = concat!("picus/", env!("CARGO_PKG_VERSION"));
        let mut builder = reqwest::Client::builder()
            .user_agent(agent)
            .connect_timeout(timeouts.connect)
            .timeout(timeouts.request)
            // The API has no redirects; what answers with one is something else.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&endpoint) {
            builder = builder.no_proxy();
        }
        // Without TLS the system's certificates need not be read.
        if endpoint.scheme() == "http" {
            builder = builder.tls_built_in_root_certs(false);
        }
        let base = String::from(endpoint).trim_end_matches('/').to_owned();
        // Each field by name: the default makes a client of its own, which reads all certificates of the system.
        let configuration = Configuration {
            base_path_mapping: [(HETZNER.to_owned(), base)].into_iter().collect(),
            user_agent: Some(agent.to_owned()),
            client: builder.build()?,
            basic_auth: None,
            oauth_access_token: None,
            bearer_access_token: None,
            api_key: None,
        };
        Ok(Self {
            configuration,
            token,
            clock,
            calls: Calls::default(),
            limited_until: Mutex::new(None),
            ahead: Mutex::default(),
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A time of Hetzner's by our clock.
    pub(super) fn by_our_clock(&self, time: Timestamp) -> Timestamp {
        time.checked_sub(self.ahead()).unwrap_or(time)
    }

    /// The time by Hetzner's clock.
    pub(super) fn now_there(&self) -> Timestamp {
        let now = self.clock.now();
        now.checked_add(self.ahead()).unwrap_or(now)
    }

    fn ahead(&self) -> SignedDuration {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compare_clocks(&self, headers: &HeaderMap) {
        let parser = rfc2822::DateTimeParser::new();
        let date = headers.get(DATE).and_then(|date| parser.parse_timestamp(date.to_str().ok()?).ok());
        let Some(ahead) = date.map(|date| date.duration_since(self.clock.now())) else { return };
        let ahead = if ahead.abs() <= CLOCK_TOLERANCE { SignedDuration::ZERO } else { ahead };
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = ahead;
    }

    /// Asks for one thing.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, Failure> {
        self.call(Method::GET, path, query, None).await
    }

    /// Reads the list `key` to its end.
    pub(super) async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        key: &str,
        query: &[(&str, &str)],
    ) -> Result<Pages<T>, Failure> {
        let unreadable = |what: &str| Failure::Unanswered(format!("GET {path}: {what}"));
        let mut items = Vec::new();
        let mut totals = BTreeSet::new();
        let mut page = 1;
        for _ in 0..MOST_PAGES {
            let (number, per_page) = (page.to_string(), PER_PAGE.to_string());
            let mut query = query.to_vec();
            query.extend([("page", number.as_str()), ("per_page", per_page.as_str())]);
            let mut answer: BTreeMap<String, Value> = self.get(path, &query).await?;

            let Some(Value::Array(elements)) = answer.remove(key) else {
                return Err(unreadable(&format!("an answer without the list `{key}`")));
            };
            let full = elements.len() >= PER_PAGE;
            for element in elements {
                // The parser's own words can repeat values: they are left out.
                let item = serde_json::from_value(element)
                    .map_err(|_| unreadable(&format!("an element of `{key}` without an id, or of another form")))?;
                items.push(item);
            }
            let meta: Option<Meta> = answer.remove("meta").and_then(|meta| serde_json::from_value(meta).ok());
            let next = match meta.and_then(|meta| meta.pagination) {
                Some(pagination) => {
                    totals.extend(pagination.total_entries);
                    pagination.next_page
                }
                None if full => return Err(unreadable("a full page that does not say whether it is the last")),
                None => None,
            };
            match next {
                None => return Ok(Pages { items, total: totals.last().copied(), steady: totals.len() <= 1 }),
                Some(next) if next > page => page = next,
                Some(_) => return Err(unreadable("its pages go round in a circle")),
            }
        }
        Err(unreadable("more pages than any project has"))
    }

    /// Sends `body` (which may hold secrets).
    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: Vec<u8>) -> Result<T, Failure> {
        self.call(Method::POST, path, &[], Some(body)).await
    }

    pub(super) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::DELETE, path, &[], None).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<T, Failure> {
        if let Some(until) = self.limited() {
            return Err(Failure::RateLimited { until });
        }
        let operation = operation(&method, path);
        let answered = self.send(method, path, query, body).await;
        let outcome = match &answered {
            Ok(_) => "ok",
            Err(Failure::Refused(_)) => "refused",
            Err(Failure::RateLimited { .. }) => "rate_limited",
            Err(Failure::Unanswered(_) | Failure::NotDone(_)) => "no_answer",
        };
        self.calls.note(operation, outcome);
        answered
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<T, Failure> {
        let call = format!("{method} {path}");
        let url = format!("{}{path}", self.configuration.get_default_base_path());
        let mut request =
            self.configuration.client.request(method, url).query(query).header(AUTHORIZATION, self.bearer()?);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| {
            let connected = !error.is_connect() && !error.is_builder();
            let text = format!("{call}: {}", chain(error));
            if connected { Failure::Unanswered(text) } else { Failure::NotDone(text) }
        })?;

        let (status, headers) = (response.status(), response.headers().clone());
        self.compare_clocks(&headers);
        let remaining = headers.get("ratelimit-remaining").and_then(|value| value.to_str().ok()?.trim().parse().ok());
        if let Some(remaining) = remaining.filter(|remaining: &f64| remaining.is_finite()) {
            self.calls.budget(remaining);
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(self.limit(&headers));
        }
        let body = read(response).await;
        if status.is_success() {
            let body = body.map_err(|why| Failure::Unanswered(format!("{call}: HTTP {status}, {why}")))?;
            let body = if status == StatusCode::NO_CONTENT { b"{}" } else { body.as_slice() };
            return serde_json::from_slice(body).map_err(|_| {
                let kind = kind(&headers);
                Failure::Unanswered(format!("{call}: HTTP {status} with an answer that is not Hetzner's ({kind})"))
            });
        }
        let refusal = body.ok().and_then(|body| serde_json::from_slice::<ErrorAnswer>(&body).ok());
        match refusal.map(|answer| answer.error) {
            Some(error) if error.code == "rate_limit_exceeded" => Err(self.limit(&headers)),
            Some(error) => Err(Failure::Refused(Refusal {
                call,
                status: status.as_u16(),
                fields: error.fields().iter().map(|field| self.presentable(field)).collect(),
                message: self.presentable(error.message.as_deref().unwrap_or_default()),
                code: self.presentable(&error.code),
            })),
            None => {
                let text =
                    format!("{call}: HTTP {status} from something that is not Hetzner's API ({})", kind(&headers));
                // A gateway that says 502 or 504 may have handed the call on.
                Err(if status.is_server_error() { Failure::Unanswered(text) } else { Failure::NotDone(text) })
            }
        }
    }

    fn bearer(&self) -> Result<HeaderValue, Failure> {
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", self.token.expose_secret()))
            .map_err(|_| Failure::NotDone("PICUS_HCLOUD_TOKEN has characters that no token has".to_owned()))?;
        bearer.set_sensitive(true);
        Ok(bearer)
    }

    /// Until when no call may leave. `None`: calls may.
    fn limited(&self) -> Option<Timestamp> {
        let mut limited_until = self.limited_until.lock().unwrap_or_else(PoisonError::into_inner);
        if limited_until.is_some_and(|until| until <= self.clock.now()) {
            *limited_until = None;
        }
        *limited_until
    }

    /// Remembers a 429.
    fn limit(&self, headers: &HeaderMap) -> Failure {
        let now = self.clock.now();
        let reset = headers
            .get("ratelimit-reset")
            .and_then(|value| Timestamp::from_second(value.to_str().ok()?.trim().parse().ok()?).ok())
            .map(|reset| self.by_our_clock(reset))
            .filter(|reset| *reset > now)
            .unwrap_or_else(|| later(now, UNKNOWN_RESET))
            .min(later(now, LONGEST_RESET));
        let mut limited_until = self.limited_until.lock().unwrap_or_else(PoisonError::into_inner);
        let until = limited_until.map_or(reset, |until| until.max(reset));
        *limited_until = Some(until);
        Failure::RateLimited { until }
    }

    /// Text of the other side, fit for a log line: short, on one line, without the token.
    fn presentable(&self, text: &str) -> String {
        let token = self.token.expose_secret();
        let text = if token.is_empty() { text.to_owned() } else { text.replace(token, "[token]") };
        text.chars().take(LONGEST_TEXT).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
    }
}

/// What a call is, for metrics: one of few words.
fn operation(method: &Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("GET", "/servers") => "list_servers",
        ("POST", "/servers") => "create_server",
        ("DELETE", _) => "delete_server",
        _ => "look_up",
    }
}

/// A proxy for the outside can't reach this machine itself.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The body, if it comes to an end and is not absurd.
async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(chain)? {
        if body.len() + chunk.len() > LARGEST_BODY {
            return Err(format!("more than {LARGEST_BODY} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn kind(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("no content type");
    kind.chars().take(60).collect()
}

/// An error with its causes, without the address and its query.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
