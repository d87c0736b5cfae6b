//! A scripted Hetzner API, and what the tests share.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::super::{Hetzner, Timeouts};
use crate::clock::Clock;
use crate::model::ids::{AgentId, InstallationId, LaunchName, ServerMark};
use crate::model::instance::OfferKey;
use crate::model::labels::Labels;
use crate::model::pool::{AccountId, Billing};
use crate::provider::Launch;
use crate::settings::{AgentSettings, HetznerSettings, LaunchSettings, PoolSettings, ServerTypeChoice};

pub(super) const TOKEN: &str = "token-that-nobody-may-see";
pub(super) const USER_DATA: &str = "#cloud-config\n    WOODPECKER_AGENT_SECRET=secret-that-nobody-may-see\n";

/// A call that arrived.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// `GET /servers`
    pub(super) call: String,
    pub(super) query: HashMap<String, String>,
    pub(super) authorization: String,
    pub(super) user_agent: String,
    pub(super) body: Value,
}

/// How the API answers.
pub(super) enum Reply {
    Json(u16, Value),
    /// From an API whose clock is ahead.
    ByAnotherClock(SignedDuration, Value),
    /// A 429 with this `RateLimit-Reset`.
    Limited(Option<String>),
    Html(u16),
    /// Begins an answer of this status and cuts the connection.
    Cut(u16),
    /// Never answers.
    Stall,
    /// More than anyone should read.
    Huge,
    /// The rest of the catalogue.
    Usual,
}

type Script = Box<dyn Fn(&Seen) -> Reply + Send + Sync>;

pub(super) struct Fake {
    pub(super) hetzner: Hetzner,
    pub(super) clock: Clock,
    calls: Arc<Mutex<Vec<Seen>>>,
}

impl Fake {
    /// An API that answers as `script` says, and a provider that talks to it.
    pub(super) async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_waiting(Duration::from_secs(15), script).await
    }

    /// The same with a provider that waits so long for an answer: for scripts that stall.
    pub(super) async fn start_waiting(
        request: Duration,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let script: Script = Box::new(script);
        let clock = Clock::manual(now());
        let state = Arc::new((script, Arc::clone(&calls), clock.clone()));
        let app = axum::Router::new().fallback(answer).with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, app).await });
        let timeouts = Timeouts { connect: Duration::from_secs(5), request };
        let token = SecretString::from(TOKEN);
        let hetzner = Hetzner::with_timeouts(token, endpoint.parse().unwrap(), clock.clone(), timeouts).unwrap();
        Self { hetzner, clock, calls }
    }

    pub(super) fn calls(&self) -> Vec<Seen> {
        self.calls.lock().unwrap().clone()
    }

    /// The calls that begin like this.
    pub(super) fn calls_of(&self, call: &str) -> Vec<Seen> {
        self.calls().into_iter().filter(|seen| seen.call.starts_with(call)).collect()
    }
}

type Shared = Arc<(Script, Arc<Mutex<Vec<Seen>>>, Clock)>;

async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    let (script, calls, clock) = &*shared;
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let header =
        |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let seen = Seen {
        call: format!("{} {}", parts.method, parts.uri.path().strip_prefix("/v1").unwrap()),
        query,
        authorization: header("authorization"),
        user_agent: header("user-agent"),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    calls.lock().unwrap().push(seen.clone());
    let reply = match script(&seen) {
        Reply::Usual => catalogue(&seen),
        other => other,
    };
    let ahead = if let Reply::ByAnotherClock(ahead, _) = &reply { *ahead } else { SignedDuration::ZERO };
    let date = (clock.now() + ahead).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let response = Response::builder().header("date", date);
    match reply {
        Reply::ByAnotherClock(_, value) => {
            response.header("content-type", "application/json").body(value.to_string().into())
        }
        Reply::Json(status, value) => {
            response.status(status).header("content-type", "application/json").body(value.to_string().into())
        }
        Reply::Limited(reset) => {
            let response = match reset {
                Some(reset) => response.header("RateLimit-Reset", reset),
                None => response,
            };
            response.status(429).body(refusal("rate_limit_exceeded").to_string().into())
        }
        Reply::Html(status) => {
            response.status(status).header("content-type", "text/html").body("<html>no</html>".into())
        }
        Reply::Cut(status) => {
            let pieces = [Ok(Bytes::from_static(b"{\"server\": {")), Err(std::io::Error::other("cut"))];
            response.status(status).body(Body::from_stream(futures_util::stream::iter(pieces)))
        }
        Reply::Stall => std::future::pending().await,
        Reply::Huge => {
            let piece = || Ok::<_, Infallible>(Bytes::from(vec![b' '; 1 << 20]));
            response.body(Body::from_stream(futures_util::stream::iter(std::iter::repeat_with(piece).take(64))))
        }
        Reply::Usual => unreachable!(),
    }
    .unwrap()
}

pub(super) fn refusal(code: &str) -> Value {
    json!({"error": {"code": code, "message": format!("words about {code}"), "details": {}}})
}

/// A list with its `meta`, on one page.
pub(super) fn list(key: &str, items: &Value) -> Value {
    let total = items.as_array().unwrap().len();
    json!({key: items, "meta": {"pagination": {"page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1, "total_entries": total}}})
}

pub(super) fn server(id: u64, name: &str, labels: &Value) -> Value {
    json!({
        "id": id, "name": name, "status": "running", "created": "2026-12-01T11:00:00+00:00", "labels": labels,
        "server_type": {"id": 1, "name": "cx23", "cpu_type": "a new one", "architecture": "x86"},
        "location": {"id": 2, "name": "nbg1"}, "public_net": null, "protection": {"delete": false},
    })
}

pub(super) fn our_labels(agent: Option<i64>) -> Value {
    let mut labels = json!({"picus": "p1", "picus-server": "bcdfghjk", "picus-pool": "default"});
    if let Some(agent) = agent {
        labels["picus-agent"] = json!(agent.to_string());
    }
    labels
}

pub(super) fn server_type(name: &str, architecture: &str, places: &[&str]) -> Value {
    let places: Vec<Value> =
        places.iter().map(|place| json!({"name": place, "available": true, "deprecation": null})).collect();
    let price =
        |place: &str, gross: &str| json!({"location": place, "price_hourly": {"net": "0.0050", "gross": gross}});
    json!({
        "id": 1, "name": name, "architecture": architecture, "deprecation": null, "locations": places,
        "prices": [price("nbg1", "0.0060000000000000"), price("fsn1", "0.0070000000000000")],
    })
}

/// What exists in the project that the tests use.
fn catalogue(seen: &Seen) -> Reply {
    let named = |key: &str, items: &[(u64, &str)]| {
        let items: Vec<Value> = items.iter().map(|(id, name)| json!({"id": id, "name": name})).collect();
        list(key, &json!(items))
    };
    let image = |id: u64, architecture: &str| json!({"id": id, "name": "docker-ce", "type": "app", "status": "available", "architecture": architecture, "deprecated": null});
    Reply::Json(
        200,
        match seen.call.as_str() {
            "GET /server_types" => {
                let all = ["nbg1", "fsn1", "hel1"];
                let types = [
                    server_type("cx23", "x86", &all),
                    server_type("cpx32", "x86", &all),
                    server_type("cax11", "arm", &all),
                ];
                list("server_types", &json!(types))
            }
            "GET /locations" => named("locations", &[(1, "fsn1"), (2, "nbg1"), (3, "hel1"), (4, "ash")]),
            "GET /images" => {
                let images = [image(11, "x86"), image(12, "arm")].into_iter().filter(|image| {
                    let asked = |key: &str| seen.query.get(key).is_none_or(|asked| image[key] == json!(asked));
                    asked("name") && asked("architecture")
                });
                list("images", &images.collect())
            }
            "GET /images/11" => json!({"image": image(11, "x86")}),
            "GET /images/12" => json!({"image": image(12, "arm")}),
            "GET /ssh_keys" => named("ssh_keys", &[(21, "laptop"), (22, "desk")]),
            "GET /networks" => named("networks", &[(31, "inside")]),
            "GET /firewalls" => named("firewalls", &[(41, "closed")]),
            "GET /placement_groups" => named("placement_groups", &[(51, "apart")]),
            "GET /servers" => list("servers", &json!([])),
            "POST /servers" => {
                let name = seen.body["name"].as_str().unwrap();
                let mut server = server(777, name, &seen.body["labels"]);
                server["status"] = json!("initializing");
                return Reply::Json(
                    201,
                    json!({"server": server, "action": {}, "next_actions": [], "root_password": "hidden"}),
                );
            }
            "DELETE /servers/777" => json!({"action": {"id": 1, "status": "running"}}),
            _ => return Reply::Json(404, refusal("not_found")),
        },
    )
}

pub(super) fn now() -> Timestamp {
    "2026-12-01T12:00:00Z".parse().unwrap()
}

pub(super) fn woodpecker() -> ServerMark {
    ServerMark::from("bcdfghjk")
}

pub(super) fn installation() -> InstallationId {
    "p1".into()
}

/// A pool with these types, and the settings that a test changes.
pub(super) fn pool(types: &[&str], change: impl FnOnce(&mut HetznerSettings)) -> PoolSettings {
    let choice = |text: &&str| match text.split_once(':') {
        Some((name, place)) => ServerTypeChoice { name: name.to_owned(), location: Some(place.to_owned()) },
        None => ServerTypeChoice { name: (*text).to_owned(), location: None },
    };
    let mut settings = HetznerSettings {
        prefix: "PICUS_HCLOUD_".to_owned(),
        server_types: types.iter().map(choice).collect(),
        locations: vec!["nbg1".to_owned(), "fsn1".to_owned()],
        image: "docker-ce".to_owned(),
        ssh_keys: Vec::new(),
        networks: Vec::new(),
        firewalls: Vec::new(),
        placement_group: None,
        labels: Vec::new(),
        public_ipv4: true,
        public_ipv6: true,
    };
    change(&mut settings);
    PoolSettings {
        name: "default".into(),
        account: AccountId(0),
        min: 0,
        max: 1,
        idle_timeout: Duration::from_mins(30),
        billing: Billing::BySecond,
        boot_timeout: Duration::from_mins(10),
        agent: AgentSettings {
            image: None,
            server: "ci.example:9000".to_owned(),
            labels: Labels::default(),
            slots: 1,
            backend: "docker".to_owned(),
            shared_secret: None,
            environment: Vec::new(),
        },
        launch: LaunchSettings::Hetzner(settings),
    }
}

pub(super) fn launch_name() -> LaunchName {
    LaunchName::new(&installation(), &"default".into(), 1)
}

impl Fake {
    /// Launches agent 5 of `pool` as cx23 in nbg1.
    pub(super) async fn launch(
        &self,
        pool: &PoolSettings,
    ) -> Result<crate::model::instance::Instance, crate::provider::ProviderError> {
        use crate::provider::Provider;
        let offer = OfferKey { server_type: "cx23".to_owned(), location: "nbg1".to_owned() };
        self.hetzner
            .launch(&Launch {
                installation: &installation(),
                server: &woodpecker(),
                pool,
                name: &launch_name(),
                agent: Some(AgentId(5)),
                offer: &offer,
                user_data: &SecretString::from(USER_DATA),
            })
            .await
    }
}
