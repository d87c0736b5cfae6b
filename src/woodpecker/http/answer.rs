//! What came back: its status judged, its body described for people without showing what must not be shown.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, LOCATION, RETRY_AFTER};
use serde::de::DeserializeOwned;
use url::Url;

use super::{Call, Http};
use crate::woodpecker::error::Error;
use crate::woodpecker::wire;

/// Letters of a failing answer that are shown: a line.
const SHOWN: usize = 200;
/// Shown where something else than Woodpecker seems to answer.
const ADVICE: &str = "PICUS_WOODPECKER_SERVER must be the address at which Woodpecker itself answers, not a login page or a \
                      redirect";

const EMPTY: &str = "an empty body";
const HTML: &str = "an HTML page";

/// An answer with any status.
pub(in crate::woodpecker) struct Answer {
    call: Call,
    status: StatusCode,
    headers: HeaderMap,
    /// `None`: it could not be read.
    body: Option<Vec<u8>>,
}

impl Answer {
    pub(super) fn new(call: &Call, status: StatusCode, headers: HeaderMap, body: Option<Vec<u8>>) -> Self {
        Self { call: call.clone(), status, headers, body }
    }

    pub(in crate::woodpecker) fn status(&self) -> StatusCode {
        self.status
    }

    /// The body was read and is empty.
    pub(in crate::woodpecker) fn is_empty(&self) -> bool {
        self.body.as_ref().is_some_and(Vec::is_empty)
    }

    /// Woodpecker names its version on every answer (`server/router/middleware/version.go`). A proxy that answers in
    /// its place does not.
    pub(in crate::woodpecker) fn is_signed(&self) -> bool {
        self.headers.contains_key("x-woodpecker-version")
    }

    /// The server's clock, to the second.
    pub(in crate::woodpecker) fn date(&self) -> Option<Timestamp> {
        timestamp(self.headers.get(DATE)?.to_str().ok()?)
    }

    /// The value of a good answer.
    pub(in crate::woodpecker) fn json<T: DeserializeOwned>(&self, http: &Http) -> Result<T, Error> {
        if !self.status.is_success() {
            return Err(self.failure(http));
        }
        let body = self.body.as_deref().unwrap_or_default();
        if body.trim_ascii().is_empty() {
            return Err(self.unusable(EMPTY, false));
        }
        if self.is_html() {
            return Err(self.unusable(HTML, true));
        }
        serde_json::from_slice(body).map_err(|error| self.unusable(&wire::describe(&error, body.len()), false))
    }

    /// A good status with something else than was asked for.
    pub(in crate::woodpecker) fn unusable(&self, what: &str, stranger: bool) -> Error {
        Error::Unavailable {
            call: self.call.to_string(),
            status: Some(self.status.as_u16()),
            what: format!("{} with {what}", self.status),
            advice: stranger.then_some(ADVICE),
        }
    }

    /// The error that a failing status means on every route.
    pub(in crate::woodpecker) fn failure(&self, http: &Http) -> Error {
        let call = self.call.to_string();
        let said = self.describe(http);
        let elsewhere = self.status.is_redirection();
        // An HTML page with these statuses is a proxy's: it says nothing about the token.
        let stranger = self.is_html() && matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        match self.status {
            StatusCode::UNAUTHORIZED if !stranger => Error::Unauthorised { call, said },
            StatusCode::FORBIDDEN if !stranger => Error::Forbidden { call, said },
            StatusCode::TOO_MANY_REQUESTS => Error::RateLimited { call, retry_after: self.retry_after() },
            status => {
                let what = if elsewhere { format!("redirects to {}", self.target(http)) } else { said };
                Error::Unavailable {
                    call,
                    status: Some(status.as_u16()),
                    what: format!("{status} ({what})"),
                    advice: (elsewhere || stranger).then_some(ADVICE),
                }
            }
        }
    }

    /// 404 of a route for one agent, without proof that Woodpecker said so.
    pub(in crate::woodpecker) fn not_found(&self) -> Error {
        Error::NotFound { call: self.call.to_string() }
    }

    /// 409 of the route that deletes an agent.
    pub(in crate::woodpecker) fn busy(&self, http: &Http) -> Error {
        Error::Busy { call: self.call.to_string(), said: self.describe(http) }
    }

    fn is_html(&self) -> bool {
        let declared = self.content_type().is_some_and(|kind| kind.contains("html"));
        declared || self.body.as_ref().is_some_and(|body| body.trim_ascii_start().starts_with(b"<"))
    }

    fn content_type(&self) -> Option<&str> {
        self.headers.get(CONTENT_TYPE)?.to_str().ok()
    }

    /// A failing answer's body in a few words. Never asked of a good one, which may hold tokens.
    fn describe(&self, http: &Http) -> String {
        let Some(body) = &self.body else { return "its text could not be read".to_owned() };
        if body.trim_ascii().is_empty() {
            return EMPTY.to_owned();
        }
        if self.is_html() {
            return HTML.to_owned();
        }
        // The end may be cut in the middle of a letter; the first line is what counts.
        let text = String::from_utf8_lossy(body);
        if text.contains('\0') {
            return "a binary body".to_owned();
        }
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        http.scrub(line).chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(SHOWN).collect()
    }

    /// Where a redirect leads, without its query: that is where login pages keep their secrets.
    fn target(&self, http: &Http) -> String {
        let Some(location) = self.headers.get(LOCATION).and_then(|location| location.to_str().ok()) else {
            return "nowhere".to_owned();
        };
        let Ok(mut target) = Url::parse(&self.call.url).and_then(|url| url.join(location)) else {
            return "something that is no address".to_owned();
        };
        target.set_query(None);
        target.set_fragment(None);
        let _ = target.set_username("");
        let _ = target.set_password(None);
        http.scrub(target.as_str()).chars().take(SHOWN).collect()
    }

    /// `Retry-After` as a wait; a date is measured against the server's own clock.
    fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?;
        match text.trim().parse() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => Some(crate::model::age(timestamp(text)?, self.date()?)),
        }
    }
}

fn timestamp(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}
