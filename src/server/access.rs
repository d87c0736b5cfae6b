//! Who may see what. Names of repositories are nobody else's business.
//!
//! Health is open to all. With `PICUS_HTTP_TOKEN` everything else takes the token: as `Authorization: Bearer …`, or in the
//! cookie that the sign-in form sets. Without it whoever is on this machine sees all, and everybody else health and metrics.
//!
//! A web page of somebody else's can make a browser on this machine ask here, under a name of its own that it lets point here
//! (DNS rebinding). So a request over loopback is believed only under a name of loopback, and only if no proxy handed it on.

use std::net::IpAddr;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Json};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq as _;

use super::connections::Peer;
use super::{Shared, page};

const COOKIE: &str = "picus_token";
/// The form has one field; a token is not longer.
const LONGEST_FORM: usize = 4 * 1024;
/// Headers by which a proxy says that it hands on the request of another.
const HANDED_ON: [&str; 4] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"];

/// The key, if there is one.
#[derive(Debug)]
pub(super) struct Access {
    token: Option<SecretString>,
}

/// Whether a request is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// To everything.
    Whole,
    /// To health and metrics: no token is set, and it comes from elsewhere.
    FromElsewhere,
    /// It comes over loopback under a name that is none of loopback's.
    ForeignName,
    /// A token is set, and it has none, or another.
    NoToken,
}

impl Access {
    pub(super) fn new(token: Option<SecretString>) -> Self {
        Self { token }
    }

    fn is_token(&self, given: &str) -> bool {
        self.token.as_ref().is_some_and(|token| token.expose_secret().as_bytes().ct_eq(given.as_bytes()).into())
    }

    pub(super) fn admits(&self, headers: &HeaderMap, peer: IpAddr) -> Admission {
        if self.token.is_some() {
            let given = bearer(headers).map(str::to_owned).or_else(|| cookie(headers));
            return if given.is_some_and(|given| self.is_token(&given)) {
                Admission::Whole
            } else {
                Admission::NoToken
            };
        }
        if !peer.is_loopback() {
            return Admission::FromElsewhere;
        }
        if !is_loopback_name(headers) {
            return Admission::ForeignName;
        }
        let handed_on = HANDED_ON.iter().any(|name| headers.contains_key(*name));
        if handed_on { Admission::FromElsewhere } else { Admission::Whole }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == COOKIE)?;
    // Written by `sign_in`: one pair of a form without its name.
    url::form_urlencoded::parse(format!("t={value}").as_bytes()).next().map(|(_, token)| token.into_owned())
}

/// Whether somebody has signed in.
pub(super) fn has_cookie(headers: &HeaderMap) -> bool {
    cookie(headers).is_some()
}

/// `localhost`, `127.0.0.1`, `[::1]`, with or without a port.
fn is_loopback_name(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    match host.parse::<axum::http::uri::Authority>() {
        Ok(authority) => {
            let name = authority.host().trim_start_matches('[').trim_end_matches(']');
            name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Err(_) => false,
    }
}

/// Lets a request in, or says what to do about it.
pub(super) async fn guard(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    if matches!(path, "/healthz" | "/readyz" | "/style.css" | "/script.js" | "/icon.svg") {
        return next.run(request).await;
    }
    let admission = shared.access.admits(request.headers(), peer.address.ip());
    match admission {
        Admission::Whole => next.run(request).await,
        Admission::FromElsewhere if path == "/metrics" => next.run(request).await,
        Admission::NoToken if path == "/sign-in" => next.run(request).await,
        Admission::FromElsewhere | Admission::ForeignName | Admission::NoToken => refusal(path, admission),
    }
}

fn refusal(path: &str, admission: Admission) -> Response {
    let (status, why) = match admission {
        Admission::NoToken => (StatusCode::UNAUTHORIZED, "the token of PICUS_HTTP_TOKEN is needed"),
        Admission::ForeignName => (
            StatusCode::MISDIRECTED_REQUEST,
            "this machine is asked under a name that is not its own: ask for localhost, or set PICUS_HTTP_TOKEN",
        ),
        Admission::FromElsewhere | Admission::Whole => (
            StatusCode::FORBIDDEN,
            "without PICUS_HTTP_TOKEN only health and metrics are shown beyond this machine: set it, and sign in with it",
        ),
    };
    let mut response = if path == "/" {
        (status, page::closed(admission == Admission::NoToken, false, why)).into_response()
    } else if path.starts_with("/api/") {
        (status, Json(serde_json::json!({"error": why}))).into_response()
    } else {
        (status, format!("{why}\n")).into_response()
    };
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Takes the token from the form into a cookie.
pub(super) async fn sign_in(State(shared): State<Shared>, headers: HeaderMap, request: Request) -> Response {
    let body = axum::body::to_bytes(request.into_body(), LONGEST_FORM).await.unwrap_or_else(|_| Bytes::new());
    let token = url::form_urlencoded::parse(&body).find(|(name, _)| name == "token").map(|(_, token)| token);
    let Some(token) = token.filter(|token| shared.access.is_token(token.trim())) else {
        let why = "that is not the token of PICUS_HTTP_TOKEN";
        return (StatusCode::UNAUTHORIZED, page::closed(true, true, why)).into_response();
    };
    let value: String = url::form_urlencoded::byte_serialize(token.trim().as_bytes()).collect();
    signed(&headers, &value, "")
}

/// Forgets the cookie.
pub(super) async fn sign_out(headers: HeaderMap) -> Response {
    signed(&headers, "", "; Max-Age=0")
}

fn signed(headers: &HeaderMap, value: &str, more: &str) -> Response {
    // Behind a proxy that speaks TLS the cookie is for TLS alone.
    let secure = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let secure = if secure { "; Secure" } else { "" };
    let mut response = Redirect::to("/").into_response();
    let cookie = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    // Everything in it is a letter of a form, which a header can carry.
    if let Ok(mut cookie) = HeaderValue::from_str(&cookie) {
        cookie.set_sensitive(true);
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
