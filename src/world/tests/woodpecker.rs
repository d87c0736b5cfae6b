//! Woodpecker's API through the socket, against answers of a real 3.17 server.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

use super::{NOON, call, register, secs, woodpecker, world};
use crate::model::ids::AgentId;
use crate::world::{Endpoint, Fault, Race, agent, task};

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/woodpecker-3.17/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect()
}

/// The type of each field: what a strict reader would trip over.
fn shape(value: &Value) -> Vec<(&str, &'static str)> {
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let mut shape: Vec<_> = value.as_object().unwrap().iter().map(|(key, value)| (key.as_str(), kind(value))).collect();
    shape.sort_unstable();
    shape
}

#[tokio::test]
async fn the_queue_has_the_shape_of_the_real_one() {
    let world = world().await;
    assert_eq!(woodpecker(&world, Method::GET, "api/queue/info", None).await.json(), fixture("queue-empty.json"));
    world.add_agent(agent("a"));
    let first = world.push(task("build"));
    world.push(task("check").needs(&first));
    world.push(task("other").label("type", "other"));
    world.advance(secs(1));
    let (real, ours) = (fixture("queue-busy.json"), woodpecker(&world, Method::GET, "api/queue/info", None).await);
    let ours = ours.json();
    assert_eq!(keys(&ours), keys(&real));
    assert_eq!(keys(&ours["stats"]), keys(&real["stats"]));
    for list in ["pending", "waiting_on_deps", "running"] {
        assert_eq!(ours[list].as_array().unwrap().len(), 1, "{list}");
        assert_eq!(shape(&ours[list][0]), shape(&real[list][0]), "{list}");
    }
    assert_eq!(ours["running"][0]["agent_name"], "a");
    assert_eq!(ours["waiting_on_deps"][0]["dependencies"], json!([first.0]));
    assert_eq!(ours["running"][0]["pipeline_id"], ours["waiting_on_deps"][0]["pipeline_id"]);
    world.pause_queue();
    let paused = woodpecker(&world, Method::GET, "api/queue/info", None).await.json();
    assert_eq!(paused["paused"], fixture("queue-paused.json")["paused"]);
}

#[tokio::test]
async fn agents_and_their_tasks_have_the_shape_of_the_real_ones() {
    let world = world().await;
    assert_eq!(woodpecker(&world, Method::GET, "api/agents", None).await.json(), fixture("agents-none.json"));
    let created = woodpecker(&world, Method::POST, "api/agents", Some(json!({ "name": "own" }))).await;
    assert_eq!(shape(&created.json()), shape(&fixture("agent-created.json")));
    let connected = world.add_agent(agent("static").label("type", "picus")).0;
    let path = format!("api/agents/{connected}/tasks");
    assert_eq!(woodpecker(&world, Method::GET, &path, None).await.json(), fixture("agent-tasks-none.json"));
    world.push(task("build").label("type", "picus"));
    world.advance(secs(1));
    let tasks = woodpecker(&world, Method::GET, &path, None).await.json();
    assert_eq!(shape(&tasks[0]), shape(&fixture("agent-tasks.json")[0]));
    let (ours, real) = (woodpecker(&world, Method::GET, "api/agents", None).await.json(), fixture("agents.json"));
    assert_eq!(shape(&ours[0]), shape(&real[1]), "one that never connected");
    assert_eq!(shape(&ours[1]), shape(&real[0]), "a connected one");
    let body = json!({ "name": "static", "no_schedule": true });
    let cordoned = woodpecker(&world, Method::PATCH, &format!("api/agents/{connected}"), Some(body)).await;
    assert_eq!(shape(&cordoned.json()), shape(&fixture("agent-cordoned.json")));
    assert_eq!(cordoned.json()["no_schedule"], true);
}

#[tokio::test]
async fn errors_are_those_of_the_real_server() {
    let world = world().await;
    let busy = world.add_agent(agent("busy"));
    assert_eq!(busy, AgentId(1));
    world.push(task("build"));
    world.advance(secs(1));
    for real in fixture("errors.json").as_array().unwrap() {
        let token = match real["as"].as_str().unwrap() {
            "admin" => world.admin_token(),
            "user" => world.user_token(),
            _ => "wrong",
        };
        let method: Method = real["method"].as_str().unwrap().parse().unwrap();
        let path = real["path"].as_str().unwrap();
        let body = match (real["status"].as_u64().unwrap(), method.as_str()) {
            (400, "POST") => Some(json!([])),
            (_, "PATCH") => Some(json!({ "name": "x" })),
            _ => None,
        };
        let url = world.woodpecker_url().as_str();
        let answer = call(url, path.trim_start_matches('/'), token, method, body).await.unwrap();
        assert_eq!(u64::from(answer.status), real["status"].as_u64().unwrap(), "{real}");
        assert_eq!(answer.text, real["body"].as_str().unwrap(), "{real}");
        assert_eq!(answer.header("content-type"), real["content_type"].as_str().unwrap_or(""), "{real}");
    }
}

#[tokio::test]
async fn version_health_and_user_answer_as_the_real_ones() {
    let world = world().await;
    let url = world.woodpecker_url().as_str();
    let version = call(url, "version", "", Method::GET, None).await.unwrap();
    assert_eq!(version.json(), fixture("version.json"));
    assert_eq!(version.header("date"), "Tue, 01 Dec 2026 12:00:00 GMT");
    assert_eq!(call(url, "healthz", "", Method::GET, None).await.unwrap().status, 200);
    let user = woodpecker(&world, Method::GET, "api/user", None).await.json();
    assert_eq!(shape(&user), shape(&fixture("user.json")));
    assert_eq!(user["admin"], true);
    let user = call(url, "api/user", world.user_token(), Method::GET, None).await.unwrap();
    assert_eq!(user.json()["admin"], false);
}

#[tokio::test]
async fn agents_come_in_pages_of_fifty_the_newest_last() {
    let world = world().await;
    for number in 0..60 {
        world.add_record(&format!("a{number}"));
    }
    for (query, first, length) in
        [("", 1, 50), ("?page=2&perPage=50", 51, 10), ("?perPage=500", 1, 50), ("?page=3&perPage=20", 41, 20)]
    {
        let page = woodpecker(&world, Method::GET, &format!("api/agents{query}"), None).await.json();
        assert_eq!((page[0]["id"].as_i64(), page.as_array().unwrap().len()), (Some(first), length), "{query}");
    }
    let beyond = woodpecker(&world, Method::GET, "api/agents?page=3", None).await;
    assert_eq!(beyond.json(), Value::Null);
    assert_eq!(world.calls(Endpoint::Agents), 5);
}

#[tokio::test]
async fn a_patch_without_a_name_blanks_it() {
    let world = world().await;
    let (id, _) = register(&world, "mine").await;
    woodpecker(&world, Method::PATCH, &format!("api/agents/{id}"), Some(json!({ "no_schedule": true }))).await;
    let agent = world.agent(AgentId(id)).unwrap();
    assert_eq!((agent.name.as_str(), agent.no_schedule), ("", true));
}

#[tokio::test]
async fn a_record_can_be_deleted_when_its_agent_is_idle_and_the_process_is_given_nothing_more() {
    let world = world().await;
    let id = world.add_agent(agent("a"));
    let path = format!("api/agents/{id}");
    world.push(task("build").takes(secs(60)));
    world.advance(secs(1));
    assert_eq!(woodpecker(&world, Method::DELETE, &path, None).await.status, 409);
    world.advance(secs(61));
    assert_eq!(woodpecker(&world, Method::DELETE, &path, None).await.status, 204);
    assert_eq!(woodpecker(&world, Method::DELETE, &path, None).await.status, 404);
    let next = world.push(task("build"));
    world.advance(secs(600));
    assert!(!world.task(&next).unwrap().is_running());
}

#[tokio::test]
async fn contact_moves_every_ten_seconds_and_work_at_most_once_a_minute() {
    let world = world().await;
    let id = world.add_agent(agent("a"));
    let seen = || {
        let agent = world.agent(id).unwrap();
        let since = |time: Option<jiff::Timestamp>| time.map(|time| time.as_second() - NOON);
        (since(agent.last_contact), since(agent.last_work))
    };
    assert_eq!(seen(), (Some(0), None));
    world.advance(secs(14));
    assert_eq!(seen(), (Some(10), None));
    world.advance(secs(86));
    world.push(task("short").takes(secs(16)));
    world.advance(secs(20));
    assert_eq!(seen(), (Some(120), Some(100)));
    world.push(task("again").takes(secs(16)));
    world.advance(secs(20));
    assert_eq!(seen(), (Some(140), Some(100)), "a second one within the minute leaves it");
    world.push(task("long").takes(secs(100)));
    world.advance(secs(500));
    assert_eq!(seen(), (Some(640), Some(220)), "it moved each minute while the long one ran");
    world.push(task("late"));
    world.advance(secs(1));
    assert_eq!(seen(), (Some(640), Some(640)));
    assert!(world.kill_agent(id));
    world.advance(secs(100));
    assert_eq!(seen(), (Some(640), Some(640)), "a dead one is not heard of");
}

#[tokio::test]
async fn a_heartbeat_can_write_the_flag_back() {
    let world = world().await;
    let id = world.add_agent(agent("a"));
    world.fault(Fault::race(Race::WriteBack).times(1));
    assert!(world.cordon(id));
    assert!(world.agent(id).unwrap().no_schedule);
    world.advance(secs(10));
    assert!(!world.agent(id).unwrap().no_schedule, "written back");
    assert!(world.cordon(id));
    world.advance(secs(60));
    assert!(world.agent(id).unwrap().no_schedule);
}

#[tokio::test]
async fn a_slot_that_polled_in_between_takes_one_more_task() {
    let world = world().await;
    let id = world.add_agent(agent("a").slots(4));
    world.fault(Fault::race(Race::OneMoreTask).times(1));
    assert!(world.cordon(id));
    world.push(task("one"));
    world.push(task("two"));
    world.advance(secs(10));
    assert_eq!(world.agent(id).unwrap().running.len(), 1);
}

#[tokio::test]
async fn the_event_stream_begins_with_a_ping_and_tells_of_pipelines_until_it_is_cut() {
    let world = world().await;
    let client = reqwest::Client::new();
    let url = world.woodpecker_url().join("api/stream/events").unwrap();
    let answer = client.get(url).bearer_auth(world.admin_token()).timeout(secs(20)).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut lines = answer.bytes_stream();
    assert_eq!(lines.next().await.unwrap().unwrap(), ": ping\n\n");
    let id = world.push(task("build").repo("acme/web"));
    let line = String::from_utf8(lines.next().await.unwrap().unwrap().to_vec()).unwrap();
    let data: Value = serde_json::from_str(line.strip_prefix("data: ").unwrap().trim_end()).unwrap();
    assert_eq!(data["repo"]["full_name"], "acme/web");
    assert_eq!(data["pipeline"]["status"], "pending");
    assert!(world.task(&id).is_some());
    world.cut_streams();
    assert!(lines.next().await.is_none());
}
