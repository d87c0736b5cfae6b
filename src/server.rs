//! Health, metrics, API and status page over HTTP. Only reads what the loop left on the [`Board`]; never waits for a pass.
//!
//! | file | holds |
//! |---|---|
//! | `connections` | how many connections there may be, and how long each may take |
//! | `access` | who may see what |
//! | `page` | the status page |
//! | `plot` | its plots |

mod access;
mod connections;
mod page;
mod plot;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::access::Access;
use self::connections::Peer;
use crate::settings::HttpSettings;
use crate::status::Board;

/// A request is answered in less; one whose body does not come is not.
const REQUEST: Duration = Duration::from_secs(10);

/// What every handler needs.
#[derive(Clone)]
struct Shared {
    board: Arc<Board>,
    access: Arc<Access>,
}

/// A server that listens and does not answer yet.
pub struct Server {
    listener: TcpListener,
    router: Router,
}

impl Server {
    /// Listens at the address.
    ///
    /// # Errors
    ///
    /// The address is taken, not this machine's, or not allowed.
    pub async fn bind(address: SocketAddr, settings: &HttpSettings, board: Arc<Board>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let access = Arc::new(Access::new(settings.token.clone()));
        Ok(Self { listener, router: router(Shared { board, access }) })
    }

    /// Where it listens: with port 0 the system chose one.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `shutdown`.
    pub async fn serve(self, shutdown: CancellationToken) {
        connections::serve(self.listener, self.router, shutdown).await;
    }
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/v1/status", get(status))
        .route("/api/v1/decisions", get(decisions))
        .route("/", get(page::page))
        .route("/live", get(page::live))
        .route("/sign-in", post(access::sign_in))
        .route("/sign-out", post(access::sign_out))
        .route("/style.css", get(async || asset("text/css; charset=utf-8", include_str!("server/style.css"))))
        .route("/script.js", get(async || asset("text/javascript; charset=utf-8", include_str!("server/script.js"))))
        .route("/icon.svg", get(async || asset("image/svg+xml", include_str!("server/icon.svg"))))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is nothing here\n") })
        .layer(middleware::from_fn_with_state(shared.clone(), access::guard))
        .layer(middleware::from_fn(in_time))
        .with_state(shared)
}

/// Gives up on a request that takes too long, and says for each answer what a browser may do with it.
async fn in_time(Extension(peer): Extension<Peer>, request: Request, next: Next) -> Response {
    let mut response = tokio::time::timeout(REQUEST, next.run(request))
        .await
        .unwrap_or_else(|_| (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response());
    let policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
                  base-uri 'none'; frame-ancestors 'none'";
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if peer.is_old() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn healthz(State(shared): State<Shared>) -> Response {
    answer(shared.board.health(), "passes complete")
}

async fn readyz(State(shared): State<Shared>) -> Response {
    answer(shared.board.readiness(), "the first pass is done")
}

fn answer(judged: Result<(), String>, good: &str) -> Response {
    match judged {
        Ok(()) => (StatusCode::OK, format!("ok: {good}\n")).into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], shared.board.metrics().text()).into_response()
}

async fn status(State(shared): State<Shared>) -> Response {
    match shared.board.latest() {
        Some(status) => Json(&*status).into_response(),
        None => not_yet(&shared),
    }
}

async fn decisions(State(shared): State<Shared>) -> Response {
    Json(serde_json::json!({"version": crate::status::view::VERSION, "decisions": shared.board.decisions()}))
        .into_response()
}

fn not_yet(shared: &Shared) -> Response {
    let why = shared.board.readiness().err().unwrap_or_default();
    (StatusCode::SERVICE_UNAVAILABLE, Json(serde_json::json!({"error": why}))).into_response()
}

/// A file that belongs to the release.
fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}
