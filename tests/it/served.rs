//! What Picus serves over HTTP: health, metrics, API and page, of the real loop in the modelled world.

mod abuse;
mod access;
mod answers;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use picus::server::Server;
use picus::settings::HttpSettings;
use reqwest::{Client, StatusCode};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::harness::Picus;

/// A running server.
pub struct Served {
    pub address: SocketAddr,
    _closed: DropGuard,
}

impl Served {
    /// What `p` serves, with the token of these settings.
    pub async fn of(p: &Picus, token: Option<&str>) -> Self {
        let settings = HttpSettings { address: None, token: token.map(Into::into) };
        let free = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let server = Server::bind(free, &settings, Arc::clone(&p.app().board)).await.expect("a free port");
        let address = server.address().expect("an address");
        let closing = CancellationToken::new();
        tokio::spawn(server.serve(closing.clone()));
        Self { address, _closed: closing.drop_guard() }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Status and body of a path.
    pub async fn get(&self, path: &str) -> (StatusCode, String) {
        let answer = client().get(self.url(path)).send().await.expect("an answer");
        (answer.status(), answer.text().await.expect("a body"))
    }

    pub async fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }
}

pub fn client() -> Client {
    let builder = Client::builder().no_proxy().timeout(Duration::from_secs(30));
    builder.redirect(reqwest::redirect::Policy::none()).build().expect("a client")
}
