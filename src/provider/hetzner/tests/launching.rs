use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};

use super::fake::{Fake, Reply, Seen, TOKEN, USER_DATA, launch_name, list, now, our_labels, pool, refusal, server};
use crate::clock::Clock;
use crate::model::instance::InstanceState;
use crate::provider::{Provider, ProviderError};

/// Long enough for an answer from this machine, short enough to wait for one that never comes.
const WAIT: Duration = Duration::from_secs(1);

/// An API that answers the create call with `create` and then shows the servers `existing`.
async fn launch_against(
    create: fn() -> Reply,
    existing: Value,
) -> (Fake, Result<crate::model::instance::Instance, ProviderError>) {
    let fake = Fake::start_waiting(WAIT, move |seen: &Seen| match seen.call.as_str() {
        "POST /servers" => create(),
        "GET /servers" => Reply::Json(200, list("servers", &existing)),
        _ => Reply::Usual,
    })
    .await;
    let launched = fake.launch(&pool(&["cx23"], |_| {})).await;
    (fake, launched)
}

fn this_launchs() -> Value {
    json!([server(9, launch_name().as_str(), &our_labels(Some(5)))])
}

#[tokio::test]
async fn a_launch_orders_what_the_settings_say() {
    let fake = Fake::start(|_| Reply::Usual).await;
    let pool = pool(&["cx23"], |settings| {
        settings.ssh_keys = vec!["laptop".to_owned(), "22".to_owned()];
        settings.networks = vec!["inside".to_owned()];
        settings.firewalls = vec!["41".to_owned()];
        settings.placement_group = Some("apart".to_owned());
        settings.public_ipv4 = false;
        settings.labels = vec![("a".to_owned(), "b".to_owned()), ("picus".to_owned(), "forged".to_owned())];
    });
    let instance = fake.launch(&pool).await.unwrap();
    assert_eq!((instance.id.0.as_str(), &instance.name), ("777", &launch_name()));
    assert_eq!(instance.state, InstanceState::Starting);
    assert_eq!(instance.agent.map(|agent| agent.0), Some(5));
    assert_eq!(
        fake.calls_of("POST")[0].body,
        json!({
            "name": launch_name(), "server_type": "cx23", "location": "nbg1", "image": "11",
            "labels": {"a": "b", "picus": "p1", "picus-server": "bcdfghjk", "picus-pool": "default", "picus-agent": "5"},
            "ssh_keys": ["laptop", "desk"], "networks": [31], "firewalls": [{"firewall": 41}], "placement_group": 51,
            "public_net": {"enable_ipv4": false, "enable_ipv6": true}, "start_after_create": true,
            "user_data": USER_DATA,
        })
    );
}

#[tokio::test]
async fn what_a_pool_needs_is_looked_up_once() {
    let fake = Fake::start(|_| Reply::Usual).await;
    let pool = pool(&["cx23"], |_| {});
    fake.launch(&pool).await.unwrap();
    fake.launch(&pool).await.unwrap();
    assert_eq!(fake.calls_of("GET /server_types").len(), 1);
    assert_eq!(fake.calls_of("POST").len(), 2);
}

#[tokio::test]
async fn after_something_named_is_gone_the_next_launch_looks_again() {
    let (fake, launched) = launch_against(|| Reply::Json(404, refusal("not_found")), json!([])).await;
    assert_eq!(launched.unwrap_err().kind(), "rejected");
    fake.launch(&pool(&["cx23"], |_| {})).await.unwrap_err();
    assert_eq!(fake.calls_of("GET /server_types").len(), 2);
}

#[tokio::test]
async fn an_answer_with_unknown_words_is_a_server_all_the_same() {
    let create =
        || Reply::Json(201, json!({"server": {"id": 8, "status": "a new one", "image": {"os_flavor": "new"}}}));
    let (fake, launched) = launch_against(create, json!([])).await;
    let instance = launched.unwrap();
    assert_eq!((instance.id.0.as_str(), instance.state), ("8", InstanceState::Unknown));
    assert_eq!((instance.created, instance.offer.to_string()), (now(), "cx23:nbg1".to_owned()));
    assert_eq!(fake.calls_of("POST").len(), 1);
}

#[tokio::test]
async fn a_server_whose_answer_was_lost_is_adopted() {
    type Make = fn() -> Reply;
    let replies: [(&str, Make); 8] = [
        ("a stall", || Reply::Stall),
        ("cut", || Reply::Cut(201)),
        ("HTML", || Reply::Html(200)),
        ("no server in it", || Reply::Json(201, json!({"action": {}}))),
        ("a server without an id", || Reply::Json(201, json!({"server": {"name": "x"}}))),
        ("a gateway's 504", || Reply::Html(504)),
        ("an error of Hetzner's own", || Reply::Json(500, refusal("server_error"))),
        ("its name is taken", || Reply::Json(409, refusal("uniqueness_error"))),
    ];
    for (what, create) in replies {
        let (fake, launched) = launch_against(create, this_launchs()).await;
        assert_eq!(launched.map(|instance| instance.id.0), Ok("9".to_owned()), "{what}");
        assert_eq!(fake.calls_of("POST").len(), 1, "{what}");
        assert_eq!(fake.calls_of("GET /servers").last().unwrap().query["name"], launch_name().as_str());
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_after_a_lost_answer_may_yet_come() {
    type Make = fn() -> Reply;
    let replies: [Make; 4] = [
        || Reply::Stall,
        || Reply::Cut(201),
        || Reply::Html(502),
        // The name is taken, but not yet listed: our own lost one, or somebody's.
        || Reply::Json(409, refusal("uniqueness_error")),
    ];
    for create in replies {
        let (_, launched) = launch_against(create, json!([])).await;
        let error = launched.unwrap_err();
        assert_eq!(error.kind(), "unclear", "{error}");
        assert!(error.to_string().contains(launch_name().as_str()));
    }
}

#[tokio::test]
async fn a_name_that_somebody_else_has_is_rejected() {
    for labels in [
        json!({}),
        our_labels(None),
        our_labels(Some(6)),
        json!({"picus": "p2", "picus-server": "bcdfghjk", "picus-pool": "default", "picus-agent": "5"}),
        json!({"picus": "p1", "picus-server": "another2", "picus-pool": "default", "picus-agent": "5"}),
        json!({"picus": "p1", "picus-server": "bcdfghjk", "picus-pool": "other", "picus-agent": "5"}),
    ] {
        let existing = json!([server(9, launch_name().as_str(), &labels)]);
        let (_, launched) = launch_against(|| Reply::Json(409, refusal("uniqueness_error")), existing).await;
        assert_eq!(launched.unwrap_err().kind(), "rejected", "{labels}");
    }
}

#[tokio::test]
async fn a_look_that_fails_settles_nothing() {
    let fake = Fake::start_waiting(WAIT, |seen: &Seen| match seen.call.as_str() {
        "POST /servers" => Reply::Stall,
        "GET /servers" => Reply::Html(500),
        _ => Reply::Usual,
    })
    .await;
    let error = fake.launch(&pool(&["cx23"], |_| {})).await.unwrap_err();
    assert_eq!(error.kind(), "unclear", "{error}");
}

#[tokio::test]
async fn every_refusal_of_a_launch_has_its_kind_and_makes_no_server() {
    type Make = fn() -> Reply;
    let replies: [(&str, Make); 14] = [
        ("unauthorised", || Reply::Json(401, refusal("unauthorized"))),
        ("unauthorised", || Reply::Json(403, refusal("forbidden"))),
        ("quota", || Reply::Json(403, refusal("resource_limit_exceeded"))),
        ("sold_out", || Reply::Json(412, refusal("resource_unavailable"))),
        ("sold_out", || Reply::Json(412, refusal("placement_error"))),
        // Hetzner's answer for a type that the place does not offer.
        ("sold_out", || Reply::Json(422, refusal("invalid_input"))),
        ("sold_out", || {
            let details = json!({"fields": [{"name": "location", "messages": ["no"]}]});
            Reply::Json(422, json!({"error": {"code": "invalid_input", "message": "", "details": details}}))
        }),
        ("rejected", || {
            let details = json!({"fields": [{"name": "user_data", "messages": ["too long"]}]});
            Reply::Json(422, json!({"error": {"code": "invalid_input", "message": "", "details": details}}))
        }),
        ("rejected", || Reply::Json(404, refusal("not_found"))),
        ("locked", || Reply::Json(409, refusal("conflict"))),
        ("unavailable", || Reply::Json(503, refusal("maintenance"))),
        ("unavailable", || Reply::Html(403)),
        ("unavailable", || Reply::Html(404)),
        ("rate_limited", || Reply::Limited(None)),
    ];
    for (kind, create) in replies {
        let (fake, launched) = launch_against(create, this_launchs()).await;
        let error = launched.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(fake.calls_of("GET /servers").len(), 0, "nothing to settle");
    }
}

#[tokio::test]
async fn an_image_of_the_servers_architecture_is_ordered() {
    let fake = Fake::start(|_| Reply::Usual).await;
    fake.launch(&pool(&["cax11"], |_| {})).await.unwrap();
    assert_eq!(fake.calls_of("POST")[0].body["image"], "12");
}

#[tokio::test]
async fn neither_token_nor_user_data_is_in_anything_that_is_shown() {
    const SECRETS: [&str; 3] = [TOKEN, "secret-that-nobody-may-see", "#cloud-config"];
    // An API, or something before it, that repeats all that it was sent.
    let fake = Fake::start(|seen: &Seen| {
        let everything = format!("{} {}", seen.authorization, seen.body);
        let message = seen.body["user_data"].as_str().unwrap_or("none").replace("#cloud-config\n", "");
        match seen.call.as_str() {
            "POST /servers" => {
                let details = json!({"fields": [{"name": message}, {"name": everything}]});
                Reply::Json(422, json!({"error": {"code": everything, "message": message, "details": details}}))
            }
            "GET /servers" | "DELETE /servers/1" => {
                Reply::Json(400, json!({"error": {"code": everything, "message": everything}}))
            }
            _ => Reply::Usual,
        }
    })
    .await;
    let shown = [
        format!("{:?}", fake.hetzner),
        format!("{:#?}", fake.hetzner),
        format!("{0:?} {0}", fake.launch(&pool(&["cx23"], |_| {})).await.unwrap_err()),
        format!("{0:?} {0}", fake.hetzner.list(&"p1".into()).await.unwrap_err()),
        format!("{0:?} {0}", fake.hetzner.delete(&"1".into()).await.unwrap_err()),
    ];
    for text in shown {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[tokio::test]
async fn a_token_that_no_header_can_carry_is_not_shown() {
    let endpoint = "http://127.0.0.1:1/v1".parse().unwrap();
    let hetzner = super::super::Hetzner::new(SecretString::from("to\nken"), endpoint, Clock::manual(now())).unwrap();
    let error = hetzner.list(&"p1".into()).await.unwrap_err();
    assert!(error.to_string().contains("PICUS_HCLOUD_TOKEN") && !error.to_string().contains("ken\n"), "{error}");
    assert!(!error.to_string().contains("to\nken"));
}
