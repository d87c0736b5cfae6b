//! Tests of the world itself, through its sockets where it is about HTTP.

mod boot;
mod cloud;
mod faults;
mod queue;
mod woodpecker;

use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use super::{World, WorldOptions};
use crate::clock::Clock;

/// 2026-12-01 12:00
const NOON: i64 = 1_796_126_400;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn world() -> World {
    world_with(WorldOptions::default()).await
}

async fn world_with(options: WorldOptions) -> World {
    World::start(Clock::manual(Timestamp::from_second(NOON).unwrap()), options).await.unwrap()
}

/// Status and body of an answer.
struct Answer {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn call(
    url: &str,
    path: &str,
    token: &str,
    method: Method,
    body: Option<Value>,
) -> Result<Answer, reqwest::Error> {
    // The system's certificates take long to read and are of no use here.
    let client = reqwest::Client::builder().tls_built_in_root_certs(false).timeout(secs(20)).build()?;
    let mut request = client.request(method, format!("{}/{path}", url.trim_end_matches('/'))).bearer_auth(token);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Ok(Answer { status, headers, text: answer.text().await? })
}

/// Calls Woodpecker as its administrator.
async fn woodpecker(world: &World, method: Method, path: &str, body: Option<Value>) -> Answer {
    call(world.woodpecker_url().as_str(), path, world.admin_token(), method, body).await.unwrap()
}

/// Calls Hetzner with the project's token.
async fn hetzner(world: &World, method: Method, path: &str, body: Option<Value>) -> Answer {
    try_hetzner(world, method, path, body).await.unwrap()
}

async fn try_hetzner(world: &World, method: Method, path: &str, body: Option<Value>) -> Result<Answer, reqwest::Error> {
    call(world.hetzner_url().as_str(), path, world.hetzner_token(), method, body).await
}

/// Registers an agent; returns its id and token.
async fn register(world: &World, name: &str) -> (i64, String) {
    let agent = woodpecker(world, Method::POST, "api/agents", Some(json!({ "name": name }))).await.json();
    (agent["id"].as_i64().unwrap(), agent["token"].as_str().unwrap().to_owned())
}

fn user_data(token: &str, more: &str) -> String {
    let environment = format!("WOODPECKER_SERVER=ci.example.test:9000\nWOODPECKER_AGENT_SECRET={token}\n{more}");
    let file = json!({ "path": "/etc/picus/agent.env", "content": environment, "permissions": "0600" });
    // JSON is YAML.
    format!("#cloud-config\n{}\n", json!({ "write_files": [file], "runcmd": [["true"]] }))
}

fn order(name: &str, user_data: &str) -> Value {
    json!({
        "name": name, "server_type": "cx23", "location": "nbg1", "image": "docker-ce", "user_data": user_data,
        "labels": { "picus": "picus", "picus-pool": "default" }, "start_after_create": true,
    })
}

/// Creates a server; returns its id.
async fn create(world: &World, order: Value) -> u64 {
    let answer = hetzner(world, Method::POST, "servers", Some(order)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["server"]["id"].as_u64().unwrap()
}
