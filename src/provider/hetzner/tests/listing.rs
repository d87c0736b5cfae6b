use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fake::{Fake, Reply, Seen, TOKEN, installation, launch_name, list, now, our_labels, refusal, server};
use crate::model::ids::{AgentId, InstanceId, LaunchName};
use crate::model::instance::InstanceState;
use crate::model::later;
use crate::provider::{Provider, ProviderError};

async fn listing(servers: Value) -> Result<Vec<crate::model::instance::Instance>, ProviderError> {
    let fake = Fake::start(move |_| Reply::Json(200, list("servers", &servers))).await;
    fake.hetzner.list(&installation()).await
}

/// One page of `servers`.
fn page(servers: &[Value], seen: &Seen) -> Reply {
    let per_page: usize = seen.query["per_page"].parse().unwrap();
    let page: usize = seen.query["page"].parse().unwrap();
    let part: Vec<&Value> = servers.iter().skip((page - 1) * per_page).take(per_page).collect();
    let next = (page * per_page < servers.len()).then_some(page + 1);
    Reply::Json(
        200,
        json!({"servers": part, "meta": {"pagination": {"page": page, "next_page": next, "total_entries": servers.len()}}}),
    )
}

fn many(count: u64) -> Vec<Value> {
    (1..=count).map(|id| server(id, &format!("server-{id}"), &our_labels(Some(1)))).collect()
}

#[tokio::test]
async fn a_list_is_read_to_its_last_page() {
    for (count, pages) in [(0, 1), (49, 1), (50, 1), (51, 2), (120, 3)] {
        let servers = many(count);
        let fake = Fake::start(move |seen| page(&servers, seen)).await;
        let instances = fake.hetzner.list(&installation()).await.unwrap();
        let mut ids: Vec<u64> = instances.iter().map(|instance| instance.id.0.parse().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=count).collect::<Vec<_>>());
        let calls = fake.calls();
        assert_eq!(calls.len(), pages, "{count} servers");
        for call in calls {
            assert_eq!(call.call, "GET /servers");
            assert_eq!(call.query["label_selector"], "picus==p1");
            assert_eq!(call.query["per_page"], "50");
            assert_eq!(call.authorization, format!("Bearer {TOKEN}"));
            assert_eq!(call.user_agent, format!("picus/{}", env!("CARGO_PKG_VERSION")));
        }
    }
}

#[tokio::test]
async fn servers_that_come_and_go_while_the_pages_are_read_hide_no_other() {
    for one_comes in [false, true] {
        let servers = std::sync::Mutex::new(many(120));
        let fake = Fake::start(move |seen| {
            let mut servers = servers.lock().unwrap();
            let (first, last) = (servers[0]["id"].clone(), servers.last().unwrap()["id"].clone());
            if first == 1 && seen.query["page"] == "2" {
                servers.remove(0);
            }
            if one_comes && last == 120 && seen.query["page"] == "3" {
                servers.push(server(121, "server-121", &our_labels(Some(1))));
            }
            page(&servers, seen)
        })
        .await;
        let instances = fake.hetzner.list(&installation()).await.unwrap();
        let mut ids: Vec<u64> = instances.iter().map(|instance| instance.id.0.parse().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (2..=if one_comes { 121 } else { 120 }).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_list_that_makes_no_sense_is_no_list() {
    let whole = |next: Value| json!({"servers": many(50), "meta": {"pagination": {"next_page": next}}});
    let mut without_id = server(1, "a", &our_labels(None));
    without_id.as_object_mut().unwrap().remove("id");
    let cases: Vec<(&str, Value)> = vec![
        ("no list", json!({"meta": {}})),
        ("null", json!({"servers": null})),
        ("a page that says nothing", json!({})),
        ("not an object", json!([])),
        ("no id", list("servers", &json!([without_id]))),
        ("a circle", whole(json!(1))),
        ("a full page without an end", json!({"servers": many(50)})),
        ("fewer than it says", json!({"servers": [], "meta": {"pagination": {"next_page": null, "total_entries": 3}}})),
    ];
    for (what, answer) in cases {
        let fake = Fake::start(move |_| Reply::Json(200, answer.clone())).await;
        let error = fake.hetzner.list(&installation()).await.unwrap_err();
        assert_eq!(error.kind(), "unavailable", "{what}: {error}");
    }
}

#[tokio::test]
async fn pages_without_end_end() {
    let fake = Fake::start(|seen| {
        let page: u64 = seen.query["page"].parse().unwrap();
        Reply::Json(200, json!({"servers": [], "meta": {"pagination": {"next_page": page + 1}}}))
    })
    .await;
    assert_eq!(fake.hetzner.list(&installation()).await.unwrap_err().kind(), "unavailable");
}

#[tokio::test]
async fn an_instance_is_read_with_all_that_is_told() {
    let name = launch_name();
    let instances = listing(json!([server(7, name.as_str(), &our_labels(Some(5)))])).await.unwrap();
    let [instance] = instances.as_slice() else { panic!("{instances:?}") };
    assert_eq!(instance.id, InstanceId::from("7"));
    assert_eq!(instance.name, name);
    assert_eq!(instance.agent, Some(AgentId(5)));
    assert_eq!(instance.created, "2026-12-01T11:00:00Z".parse::<Timestamp>().unwrap());
    assert_eq!(instance.offer.to_string(), "cx23:nbg1");
}

#[tokio::test]
async fn every_status_has_a_state_and_an_unknown_one_is_unknown() {
    for (status, state) in [
        (json!("initializing"), InstanceState::Starting),
        (json!("starting"), InstanceState::Starting),
        (json!("running"), InstanceState::Running),
        (json!("stopping"), InstanceState::Stopping),
        (json!("off"), InstanceState::Stopped),
        (json!("deleting"), InstanceState::Deleting),
        (json!("rebuilding"), InstanceState::Unknown),
        (json!("migrating"), InstanceState::Unknown),
        (json!("unknown"), InstanceState::Unknown),
        (json!("frozen"), InstanceState::Unknown),
        (json!(null), InstanceState::Unknown),
    ] {
        let mut server = server(1, "a", &our_labels(None));
        server["status"] = status.clone();
        let instances = listing(json!([server])).await.unwrap();
        assert_eq!(instances[0].state, state, "{status}");
    }
}

#[tokio::test]
async fn older_and_barer_answers_are_read() {
    let mut older = server(1, launch_name().as_str(), &our_labels(None));
    older.as_object_mut().unwrap().remove("location");
    older["datacenter"] = json!({"name": "fsn1-dc14", "location": {"name": "fsn1"}});
    let bare = json!({"id": 2, "labels": our_labels(None)});
    let instances = listing(json!([older, bare])).await.unwrap();
    assert_eq!(instances[0].offer.location, "fsn1");
    let bare = &instances[1];
    assert_eq!((bare.id.0.as_str(), bare.state, bare.agent), ("2", InstanceState::Unknown, None));
    assert_eq!(bare.created, now(), "young: left alone");
}

#[tokio::test]
async fn only_exactly_our_labels_are_ours() {
    let theirs = [
        json!({"picus": "p10", "picus-pool": "default"}),
        json!({"picus": "P1", "picus-pool": "default"}),
        json!({"picus": "p1"}),
        json!({"picus": "p1", "picus-pool": ""}),
        json!({"picus-pool": "default"}),
        json!({}),
        json!(null),
    ];
    let servers: Vec<Value> =
        theirs.iter().zip(1..).map(|(labels, id)| server(id, launch_name().as_str(), labels)).collect();
    assert_eq!(listing(json!(servers)).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_server_that_was_renamed_by_hand_stays_ours() {
    let instances = listing(json!([server(1, "my-machine", &our_labels(Some(5)))])).await.unwrap();
    assert_eq!(instances[0].name, LaunchName::renamed("my-machine"));
    assert_eq!(LaunchName::parse("my-machine", &installation(), &"default".into()), None);
}

#[tokio::test]
async fn every_code_has_its_kind() {
    for (status, code, kind) in [
        (401, "unauthorized", "unauthorised"),
        (403, "forbidden", "unauthorised"),
        (403, "token_readonly", "unauthorised"),
        (403, "resource_limit_exceeded", "quota"),
        (404, "not_found", "rejected"),
        (409, "uniqueness_error", "rejected"),
        (409, "conflict", "locked"),
        (412, "resource_unavailable", "sold_out"),
        (412, "placement_error", "sold_out"),
        (422, "invalid_input", "rejected"),
        (423, "locked", "locked"),
        (403, "protected", "rejected"),
        (429, "rate_limit_exceeded", "rate_limited"),
        (503, "maintenance", "unavailable"),
        (503, "unavailable", "unavailable"),
        (500, "server_error", "unavailable"),
        (500, "a_new_one", "unavailable"),
        (418, "a_new_one", "rejected"),
    ] {
        let fake = Fake::start(move |_| Reply::Json(status, refusal(code))).await;
        let error = fake.hetzner.list(&installation()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {code}: {error}");
        if kind != "rate_limited" {
            for part in [code, &format!("HTTP {status}"), "GET /servers", "words about"] {
                assert!(error.to_string().contains(part), "{part} in {error}");
            }
        }
        assert_eq!(error.to_string().contains("PICUS_HCLOUD_TOKEN"), kind == "unauthorised");
    }
}

#[tokio::test]
async fn whatever_is_no_answer_makes_the_list_unknown() {
    type Make = fn() -> Reply;
    let replies: [(&str, Make); 8] = [
        ("502 in HTML", || Reply::Html(502)),
        ("a login page", || Reply::Html(200)),
        ("401 of a proxy", || Reply::Html(401)),
        ("404 of a proxy", || Reply::Html(404)),
        ("a redirect", || Reply::Html(302)),
        ("cut", || Reply::Cut(200)),
        ("a stall", || Reply::Stall),
        ("without end", || Reply::Huge),
    ];
    for (what, make) in replies {
        let fake = Fake::start_waiting(Duration::from_secs(1), move |_| make()).await;
        let error = fake.hetzner.list(&installation()).await.unwrap_err();
        assert_eq!(error.kind(), "unavailable", "{what}: {error}");
    }
}

#[tokio::test]
async fn nobody_listening_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let clock = crate::clock::Clock::manual(now());
    let hetzner = super::super::Hetzner::new(TOKEN.into(), endpoint, clock).unwrap();
    assert_eq!(hetzner.list(&installation()).await.unwrap_err().kind(), "unavailable");
}

#[tokio::test]
async fn after_a_429_no_call_leaves_before_its_reset() {
    let reset = later(now(), Duration::from_mins(5));
    for (header, until) in [
        (Some(reset.as_second().to_string()), reset),
        (None, later(now(), Duration::from_mins(1))),
        (Some("soon".to_owned()), later(now(), Duration::from_mins(1))),
        (Some("1".to_owned()), later(now(), Duration::from_mins(1))),
        (Some("9999999999".to_owned()), later(now(), Duration::from_hours(1))),
    ] {
        let first = std::sync::atomic::AtomicBool::new(true);
        let reply = header.clone();
        let fake = Fake::start(move |_| {
            if first.swap(false, std::sync::atomic::Ordering::Relaxed) {
                Reply::Limited(reply.clone())
            } else {
                Reply::Usual
            }
        })
        .await;
        let limited = ProviderError::RateLimited { until };
        assert_eq!(fake.hetzner.list(&installation()).await.unwrap_err(), limited, "{header:?}");

        let pool = super::fake::pool(&["cx23"], |_| {});
        fake.clock.advance(Duration::from_secs(59));
        for _ in 0..3 {
            assert_eq!(fake.hetzner.list(&installation()).await.unwrap_err(), limited);
            assert_eq!(fake.hetzner.delete(&"777".into()).await.unwrap_err(), limited);
            assert_eq!(fake.launch(&pool).await.unwrap_err(), limited);
            assert!(fake.hetzner.prepare(&pool).await.is_err());
        }
        assert_eq!(fake.calls().len(), 1, "{header:?}");

        fake.clock.advance(Duration::from_hours(1));
        assert_eq!(fake.hetzner.list(&installation()).await, Ok(Vec::new()));
    }
}

#[tokio::test]
async fn what_does_not_exist_is_deleted_but_only_hetzner_can_say_so() {
    let fake = Fake::start_waiting(Duration::from_secs(1), |seen| match seen.call.as_str() {
        "DELETE /servers/1" => Reply::Html(404),
        "DELETE /servers/2" => Reply::Json(423, refusal("locked")),
        "DELETE /servers/3" => Reply::Html(200),
        "DELETE /servers/4" => Reply::Stall,
        "DELETE /servers/5" => Reply::Json(200, json!({"action": {"status": "error"}})),
        _ => Reply::Usual,
    })
    .await;
    for (id, kind) in [
        ("777", None),
        ("778", None),
        ("1", Some("unavailable")),
        ("2", Some("locked")),
        ("3", Some("unavailable")),
        ("4", Some("unavailable")),
        ("5", Some("unavailable")),
        ("../ssh_keys/21", Some("rejected")),
    ] {
        let error = fake.hetzner.delete(&id.into()).await.err();
        assert_eq!(error.as_ref().map(ProviderError::kind), kind, "{id}: {error:?}");
    }
    assert!(fake.calls_of("DELETE /ssh_keys").is_empty());
}

#[tokio::test]
async fn the_age_of_an_instance_is_counted_by_hetzners_clock() {
    for minutes in [-30, 30] {
        let ahead = jiff::SignedDuration::from_mins(minutes);
        let servers = json!([server(1, launch_name().as_str(), &our_labels(Some(5)))]);
        let fake = Fake::start(move |_| Reply::ByAnotherClock(ahead, list("servers", &servers))).await;
        let instances = fake.hetzner.list(&installation()).await.unwrap();
        let created: Timestamp = "2026-12-01T11:00:00Z".parse().unwrap();
        assert_eq!(instances[0].created, created - ahead, "{minutes} minutes ahead");
    }
}
