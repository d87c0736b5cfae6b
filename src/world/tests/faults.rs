//! Faults fire as they say, and only then.

use reqwest::Method;
use serde_json::{Value, json};

use super::{call, create, hetzner, order, register, secs, try_hetzner, woodpecker, world};
use crate::model::ids::InstanceId;
use crate::world::{AnswerFault, Endpoint, Fault, MachineFault, Side};

#[tokio::test]
async fn answers_are_replaced_on_either_side() {
    let world = world().await;
    register(&world, "a").await;
    create(&world, order("s", "")).await;
    for (fault, status, body) in [
        (AnswerFault::Status(503), 503, "something went wrong"),
        (AnswerFault::Empty, 200, ""),
        (AnswerFault::Null, 200, "null"),
    ] {
        for side in [Side::Woodpecker, Side::Hetzner] {
            world.fault(Fault::side(side, fault.clone()).times(1));
        }
        let ours = woodpecker(&world, Method::GET, "api/agents", None).await;
        assert_eq!((ours.status, ours.text.as_str()), (status, body));
        let theirs = hetzner(&world, Method::GET, "servers", None).await;
        assert_eq!((theirs.status, theirs.text.as_str()), (status, body));
    }
    world.fault(Fault::on(Endpoint::Agents, AnswerFault::Html).times(1));
    let page = woodpecker(&world, Method::GET, "api/agents", None).await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    world.fault(Fault::on(Endpoint::Agents, AnswerFault::EmptyList).times(1));
    assert_eq!(woodpecker(&world, Method::GET, "api/agents", None).await.json(), json!([]));
    world.fault(Fault::on(Endpoint::Servers, AnswerFault::EmptyList).times(1));
    let empty = hetzner(&world, Method::GET, "servers", None).await.json();
    assert_eq!((&empty["servers"], &empty["meta"]["pagination"]["next_page"]), (&json!([]), &Value::Null));
    world.fault(Fault::on(Endpoint::Servers, AnswerFault::Unauthorised).times(1));
    assert_eq!(hetzner(&world, Method::GET, "servers", None).await.status, 401);
    world.fault(Fault::on(Endpoint::Agents, AnswerFault::Forbidden).times(1));
    assert_eq!(woodpecker(&world, Method::GET, "api/agents", None).await.status, 403);
    world.fault(Fault::on(Endpoint::CreateServer, AnswerFault::Refused("placement_error")).times(1));
    assert_eq!(hetzner(&world, Method::POST, "servers", Some(order("t", ""))).await.status, 412);
    assert_eq!(hetzner(&world, Method::GET, "servers", None).await.json()["servers"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_cut_call_is_not_carried_out_and_a_lost_answer_is() {
    let world = world().await;
    for (fault, created) in [(AnswerFault::Cut, 0), (AnswerFault::LostAnswer, 1), (AnswerFault::CutBody, 2)] {
        world.fault(Fault::on(Endpoint::CreateServer, fault.clone()).times(1));
        let name = format!("s{created}");
        let answer = try_hetzner(&world, Method::POST, "servers", Some(order(&name, ""))).await;
        assert!(answer.is_err(), "{fault:?}");
        assert_eq!(world.servers().len(), created, "{fault:?}");
    }
}

#[tokio::test]
async fn a_stalled_call_is_carried_out_and_answered_late() {
    let world = world().await;
    world.fault(Fault::on(Endpoint::CreateServer, AnswerFault::Stall(secs(3600))).times(1));
    let url = format!("{}/servers", world.hetzner_url());
    let request = reqwest::Client::new().post(url).bearer_auth(world.hetzner_token()).json(&order("s", ""));
    let error = request.timeout(std::time::Duration::from_millis(300)).send().await.unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(world.servers().len(), 1);
}

#[tokio::test]
async fn faults_count_last_spare_and_end() {
    let world = world().await;
    let status = async || hetzner(&world, Method::GET, "servers", None).await.status;
    world.fault(Fault::on(Endpoint::Servers, AnswerFault::Status(500)).after(1).times(2));
    assert_eq!([status().await, status().await, status().await, status().await], [200, 500, 500, 200]);
    world.fault(Fault::on(Endpoint::Servers, AnswerFault::Status(502)).lasting(secs(60)));
    assert_eq!(status().await, 502);
    world.advance(secs(59));
    assert_eq!(status().await, 502);
    world.advance(secs(1));
    assert_eq!(status().await, 200);
    let fault = world.fault(Fault::side(Side::Hetzner, AnswerFault::Status(503)));
    assert_eq!(status().await, 503);
    assert_eq!(woodpecker(&world, Method::GET, "api/agents", None).await.status, 200);
    world.mend(fault);
    assert_eq!(status().await, 200);
    world.fault(Fault::on(Endpoint::Servers, AnswerFault::Status(500)).chance(0.5));
    let mut failed = 0;
    for _ in 0..100 {
        failed += u32::from(status().await == 500);
    }
    assert!((20..80).contains(&failed), "{failed}");
    world.mend_all();
    assert_eq!(status().await, 200);
}

#[tokio::test]
async fn after_a_429_nothing_is_carried_out_until_its_reset() {
    let world = world().await;
    world.fault(Fault::side(Side::Hetzner, AnswerFault::RateLimited(secs(300))).times(1));
    let first = hetzner(&world, Method::GET, "servers", None).await;
    assert_eq!((first.status, first.header("ratelimit-remaining")), (429, "0"));
    let reset: i64 = first.header("ratelimit-reset").parse().unwrap();
    assert_eq!(reset, world.now().as_second() + 300);
    world.advance(secs(299));
    assert_eq!(hetzner(&world, Method::GET, "servers", None).await.status, 429);
    world.advance(secs(1));
    assert_eq!(hetzner(&world, Method::GET, "servers", None).await.status, 200);
    world.fault(Fault::on(Endpoint::Queue, AnswerFault::RateLimited(secs(7))).times(1));
    let refused = woodpecker(&world, Method::GET, "api/queue/info", None).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "7"));
}

#[tokio::test]
async fn a_server_can_be_listed_late_locked_and_slow_to_go() {
    let world = world().await;
    world.fault(Fault::machine(MachineFault::ListedLate(secs(30))).times(1));
    world.fault(Fault::machine(MachineFault::DeletesSlowly(secs(20))).times(1));
    let id = create(&world, order("s", "")).await;
    let path = format!("servers/{id}");
    let listed = async || {
        let answer = hetzner(&world, Method::GET, "servers?label_selector=picus", None).await.json();
        answer["servers"].as_array().unwrap().len()
    };
    assert_eq!(listed().await, 0);
    assert_eq!(hetzner(&world, Method::GET, &path, None).await.status, 200);
    world.advance(secs(30));
    assert_eq!(listed().await, 1);
    assert!(world.lock_server(&InstanceId(id.to_string()), secs(10)));
    assert_eq!(hetzner(&world, Method::DELETE, &path, None).await.status, 423);
    world.advance(secs(10));
    assert_eq!(hetzner(&world, Method::DELETE, &path, None).await.status, 200);
    assert_eq!(hetzner(&world, Method::GET, &path, None).await.json()["server"]["status"], "deleting");
    world.advance(secs(20));
    assert_eq!(hetzner(&world, Method::GET, &path, None).await.status, 404);
}

#[tokio::test]
async fn a_world_that_was_shut_down_answers_nobody() {
    let world = world().await;
    let client = reqwest::Client::new();
    let url = world.woodpecker_url().join("version").unwrap();
    assert!(client.get(url.clone()).timeout(secs(20)).send().await.is_ok());
    world.shutdown();
    assert!(client.get(url).timeout(secs(20)).send().await.is_err(), "the old connection");
    assert!(call(world.hetzner_url().as_str(), "servers", "", Method::GET, None).await.is_err(), "a new one");
}
