//! EC2: the provider and moto, with a gate before it that has what moto lacks: idempotent launches and refusals.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::{Peer, Trouble};
use crate::clock::Clock;
use crate::provider::Provider;
use crate::provider::ec2::Ec2 as Client;
use crate::provider::ec2::tests::fake::{cut, refusal};
use crate::provider::ec2::tests::server::{KEY, Moto};
use crate::provider::ec2::tests::{pool, provider};
use crate::settings::PoolSettings;

pub(super) struct Ec2 {
    moto: Moto,
    gate: Arc<Gate>,
    clock: Clock,
    client: Client,
    pool: PoolSettings,
}

struct Gate {
    moto: String,
    trouble: Mutex<Option<Trouble>>,
    calls: Mutex<usize>,
    /// What was answered to a launch with this token.
    launched: Mutex<BTreeMap<String, Bytes>>,
}

impl Ec2 {
    /// `None`: moto can't be had here.
    pub(super) async fn start() -> Option<Self> {
        let moto = Moto::start().await?;
        let image = moto.image().await;
        let gate = Arc::new(Gate {
            moto: moto.address.clone(),
            trouble: Mutex::default(),
            calls: Mutex::default(),
            launched: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(pass).with_state(Arc::clone(&gate));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let subnets = moto.subnets().await[..2].join(",");
        let pool = pool(&[
            ("PICUS_AWS_INSTANCE_TYPE", "c5.large"),
            ("PICUS_AWS_AMI", &image),
            ("PICUS_AWS_SUBNETS", &subnets),
        ]);
        let clock = Clock::manual("2026-12-01T12:00:00Z".parse().expect("a time"));
        let client = provider(&address, std::slice::from_ref(&pool), clock.clone());
        Some(Self { moto, gate, clock, client, pool })
    }
}

/// Passes a call on to moto, or does not.
async fn pass(State(gate): State<Arc<Gate>>, request: Request) -> Response {
    *gate.calls.lock().expect("a lock") += 1;
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    let call: BTreeMap<String, String> = url::form_urlencoded::parse(&body).into_owned().collect();
    let launches = call.get("Action").is_some_and(|action| action == "RunInstances");
    let trouble = *gate.trouble.lock().expect("a lock");
    match trouble {
        Some(Trouble::Throttled) => return refusal("RequestLimitExceeded"),
        Some(Trouble::Broken) => return refusal("InternalError"),
        Some(Trouble::SoldOut) if launches => return refusal("InsufficientInstanceCapacity"),
        Some(Trouble::Quota) if launches => return refusal("VcpuLimitExceeded"),
        Some(Trouble::Unauthorised) if launches => return refusal("UnauthorizedOperation"),
        Some(Trouble::SoldOut | Trouble::Quota | Trouble::Unauthorised | Trouble::LostAnswer) | None => {}
    }
    let xml = |body: Bytes| ([(header::CONTENT_TYPE, "text/xml")], body).into_response();
    let token = call.get("ClientToken").filter(|_| launches).cloned();
    if let Some(token) = &token
        && let Some(known) = gate.launched.lock().expect("a lock").get(token).cloned()
    {
        return xml(known);
    }
    let sent = reqwest::Client::new().request(parts.method, &gate.moto).headers(parts.headers).body(body).send();
    let answer = sent.await.expect("moto answers");
    let (status, body) = (answer.status(), answer.bytes().await.expect("a body"));
    if let Some(token) = token.filter(|_| status == StatusCode::OK) {
        gate.launched.lock().expect("a lock").insert(token, body.clone());
    }
    match trouble {
        Some(Trouble::LostAnswer) if launches => cut(),
        _ => (status, xml(body)).into_response(),
    }
}

#[async_trait]
impl Peer for Ec2 {
    fn provider(&self) -> &dyn Provider {
        &self.client
    }

    fn pool(&self) -> &PoolSettings {
        &self.pool
    }

    fn wrong_pool(&self) -> (PoolSettings, Vec<&'static str>) {
        let wrong = [
            ("PICUS_AWS_INSTANCE_TYPE", "c5.large,z9.huge"),
            ("PICUS_AWS_AMI", "self/none-*"),
            ("PICUS_AWS_SUBNETS", "subnet-0123"),
            ("PICUS_AWS_SECURITY_GROUPS", "sg-0123"),
            ("PICUS_AWS_KEY_NAME", "nobodys"),
        ];
        (pool(&wrong), wrong.map(|(name, _)| name).to_vec())
    }

    fn secret(&self) -> &'static str {
        KEY
    }

    fn trouble(&self, trouble: Option<Trouble>) {
        *self.gate.trouble.lock().expect("a lock") = trouble;
    }

    fn calls(&self) -> usize {
        *self.gate.calls.lock().expect("a lock")
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    async fn strangers_instance(&self) {
        self.moto.machine("build7").await;
    }
}
