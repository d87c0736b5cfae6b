//! Failing statuses, hanging and broken connections: what the error says, and what it does not.

use std::time::Duration;

use serde::Deserialize;

use super::server::{End, TOKEN, answer, client, failed, html, json, pieces, serve, settings, start, timeouts};
use crate::model::ids::AgentId;
use crate::woodpecker::{Client, Error};

/// One recorded failure of a real server.
#[derive(Deserialize)]
struct Recorded {
    method: String,
    path: String,
    status: u16,
    content_type: Option<String>,
    body: String,
}

#[tokio::test]
async fn the_failures_of_a_real_server() {
    let recorded = include_str!("../../../tests/fixtures/woodpecker-3.17/errors.json");
    let recorded: Vec<Recorded> = serde_json::from_str(recorded).unwrap();
    let expected = [
        ("unauthorised", "401 (User not authorized): the token in PICUS_WOODPECKER_TOKEN is not valid"),
        ("forbidden", "403 (User not authorized): the user of the token in PICUS_WOODPECKER_TOKEN is not an admin"),
        ("not_found", "404: there is no such agent"),
        ("done", ""),
        ("busy", "409 (Agent has running tasks)"),
        ("not_found", "404: there is no such agent"),
        ("not_found", "404: there is no such agent"),
        ("unavailable", "400 Bad Request (an empty body)"),
        ("unavailable", "400 Bad Request (json: cannot unmarshal array into Go value of type model.Agent)"),
        ("unavailable", "404 Not Found (404 page not found)"),
    ];
    assert_eq!(recorded.len(), expected.len());
    for (row, (kind, text)) in recorded.into_iter().zip(expected) {
        let (method, path) = (row.method.clone(), row.path.clone());
        let (client, _) = serve(move |asked| {
            if asked.line == "GET /version" {
                return json(r#"{"version":"3.17.0"}"#);
            }
            answer(row.status, row.content_type.as_deref().unwrap_or_default(), row.body.clone())
        })
        .await;
        let result = match (method.as_str(), path.as_str()) {
            ("GET", "/api/queue/info") => client.queue().await.map(drop),
            ("GET", "/api/agents/999/tasks") => client.agent_tasks(AgentId(999)).await.map(drop),
            ("GET", _) => client.agent(AgentId(999)).await.map(drop),
            ("DELETE", _) => client.delete_agent(AgentId(999)).await,
            ("PATCH", _) => client.set_no_schedule(AgentId(999), "a", true).await,
            ("POST", _) => client.register("a").await.map(drop),
            _ => panic!("{method} {path}"),
        };
        if kind == "done" {
            result.unwrap();
            continue;
        }
        let error = failed(result);
        assert_eq!(error.kind(), kind, "{method} {path}");
        assert!(error.to_string().ends_with(text), "{method} {path}: {error}");
    }
}

/// Every call at once, and how each fails.
async fn every_failure(client: &Client) -> [Error; 10] {
    let id = AgentId(5);
    let failures = tokio::join!(
        async { failed(client.version().await) },
        async { failed(client.user().await) },
        async { failed(client.queue().await) },
        async { failed(client.agents().await) },
        async { failed(client.agent(id).await) },
        async { failed(client.agent_tasks(id).await) },
        async { failed(client.register("a").await) },
        async { failed(client.set_no_schedule(id, "a", true).await) },
        async { failed(client.delete_agent(id).await) },
        async { failed(client.events().await) },
    );
    failures.into()
}

#[tokio::test]
async fn no_failing_status_gives_the_token_away_on_any_call() {
    for (status, kind) in [
        (400, "unavailable"),
        (401, "unauthorised"),
        (403, "forbidden"),
        (404, "unavailable"),
        (418, "unavailable"),
        (429, "rate_limited"),
        (500, "unavailable"),
        (503, "unavailable"),
    ] {
        let (client, _) = serve(move |_| answer(status, "text/plain", format!("Bearer {TOKEN} refused {TOKEN}"))).await;
        for error in every_failure(&client).await {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(status == 429 || error.to_string().contains("Bearer [token] refused [token]"), "{error}");
        }
        // The same in HTML says nothing about the token, and is not shown.
        let (client, _) = serve(move |_| html(status)).await;
        for error in every_failure(&client).await {
            assert_eq!(error.kind(), if status == 429 { "rate_limited" } else { "unavailable" }, "{error}");
            assert!(status == 429 || error.to_string().contains("(an HTML page)"), "{error}");
            assert_eq!(error.is_about_settings(), status == 401 || status == 403, "{error}");
        }
    }
}

#[tokio::test]
async fn a_login_page_with_200_is_about_the_address() {
    let (client, _) = serve(|_| html(200)).await;
    for error in every_failure(&client).await {
        assert_eq!(error.kind(), "unavailable");
        assert!(error.to_string().contains("200 OK with "), "{error}");
    }
    let error = failed(client.queue().await);
    assert!(error.is_about_settings());
    assert!(
        error.to_string().contains("/api/queue/info: 200 OK with an HTML page: PICUS_WOODPECKER_SERVER must"),
        "{error}"
    );
}

#[tokio::test]
async fn of_a_failing_answer_one_line_is_shown_without_control_characters() {
    let long = "x".repeat(5000);
    for (body, shown) in [
        (format!("first\nsecond {TOKEN}"), "(first)".to_owned()),
        ("\n\n  indented \r\nnext".to_owned(), "(indented)".to_owned()),
        ("a\u{1b}[31mred".to_owned(), "(a [31mred)".to_owned()),
        ("a\0b".to_owned(), "(a binary body)".to_owned()),
        (long, format!("({})", "x".repeat(200))),
        (format!("{}{TOKEN}", "y".repeat(190)), format!("({}[token])", "y".repeat(190))),
        (r#"{"error":"locked"}"#.to_owned(), r#"({"error":"locked"})"#.to_owned()),
    ] {
        let (client, _) = serve(move |_| answer(500, "text/plain", body.clone())).await;
        let error = failed(client.queue().await);
        assert!(error.to_string().ends_with(&format!("500 Internal Server Error {shown}")), "{error}");
    }
}

#[tokio::test]
async fn a_limit_says_how_long_to_wait() {
    for (header, wait) in [
        (Some("30"), Some(Duration::from_secs(30))),
        (Some("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_mins(1))),
        (Some("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO)),
        (Some("soon"), None),
        (None, None),
    ] {
        let (client, _) = serve(move |_| {
            let mut response = answer(429, "", "");
            response.headers_mut().insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
            if let Some(header) = header {
                response.headers_mut().insert("retry-after", header.parse().unwrap());
            }
            response
        })
        .await;
        let error = failed(client.queue().await);
        let Error::RateLimited { retry_after, .. } = &error else { panic!("{error}") };
        assert_eq!(*retry_after, wait, "{header:?}");
    }
}

#[tokio::test]
async fn an_answer_that_stalls_ends_with_the_timeout() {
    let short = super::super::Timeouts { request: Duration::from_millis(300), ..timeouts() };
    for status in [200, 500] {
        let (url, _) = start(move |_| answer(status, "application/json", pieces(vec!["{"], End::Stall))).await;
        let client = client(&url, short);
        for error in every_failure(&client).await {
            assert_eq!(error.kind(), "unavailable", "{error}");
        }
        let error = failed(client.queue().await).to_string();
        let told = if status == 200 { "no whole answer within 300ms" } else { "500 Internal Server Error" };
        assert!(error.contains(told), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_ends_with_the_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let short = super::super::Timeouts { request: Duration::from_millis(200), ..timeouts() };
    for error in every_failure(&client(&url, short)).await {
        let told = error.to_string();
        assert!(told.contains("answer within 200ms") || told.contains("not read within"), "{told}");
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_told_as_such() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = failed(client(&url, timeouts()).queue().await);
    assert!(error.to_string().contains("no connection: Connection refused"), "{error}");
    assert!(!error.is_about_settings());
}

#[tokio::test]
async fn an_answer_that_is_cut_is_no_answer() {
    // Whole JSON is in the part that came: the cut alone makes it none.
    let whole = r#"{"pending":null,"waiting_on_deps":null,"running":null}"#;
    let (client, _) = serve(move |_| json(pieces(vec![whole], End::Cut))).await;
    let error = failed(client.queue().await);
    assert!(error.to_string().contains("the answer was cut short"), "{error}");
    let (client, _) = serve(|_| json(pieces(vec!["null"], End::Cut))).await;
    failed(client.agents().await);
    failed(client.agent_tasks(AgentId(5)).await);
    // A failing answer whose text is lost keeps its status; a 404 is then not an empty one.
    let (client, _) = serve(|_| answer(404, "", pieces(vec![], End::Cut))).await;
    let error = failed(client.agent(AgentId(5)).await);
    assert!(error.to_string().contains("404 Not Found (its text could not be read)"), "{error}");
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_the_end() {
    let (client, _) = serve(|_| json(pieces(vec!["["], End::Endless))).await;
    let error = failed(client.agents().await);
    assert!(error.to_string().ends_with("200 OK, but the answer is longer than 8192 KiB"), "{error}");
    // One that announces its length is not read at all.
    let (client, _) = serve(|_| {
        let mut response = json(pieces(vec![], End::Stall));
        response.headers_mut().insert("content-length", "1099511627776".parse().unwrap());
        response
    })
    .await;
    assert!(failed(client.queue().await).to_string().ends_with("longer than 65536 KiB"));
    // A failing one is read only as far as it is shown.
    let (client, _) = serve(|_| answer(500, "text/plain", pieces(vec!["no\n"], End::Endless))).await;
    assert!(failed(client.queue().await).to_string().ends_with("500 Internal Server Error (no)"));
}

#[test]
fn a_client_shows_its_address_and_nothing_else() {
    let client = Client::new(&settings("http://me:eyJhbGciPassword@127.0.0.1:1/ci?x=eyJhbGci")).unwrap();
    let told = format!("{client:?} {client:#?}");
    assert!(told.contains("http://127.0.0.1:1/ci"), "{told}");
    assert!(!told.contains("eyJhbGci"), "{told}");
}

#[test]
fn settings_that_no_client_can_be_made_of_are_named() {
    let mut broken = settings("http://127.0.0.1:1");
    broken.token = "eyJhbGci\nx".to_owned().into();
    let problem = Client::new(&broken).unwrap_err();
    assert_eq!((problem.variable.as_str(), problem.had), ("PICUS_WOODPECKER_TOKEN", None));
    assert!(!problem.message.contains("eyJhbGci"));

    let folder = tempfile::tempdir().unwrap();
    for (content, message) in [
        (None, "can't be read: "),
        (Some(""), "holds no certificate in PEM form"),
        (Some("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "holds no certificate in PEM form"),
        (
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            "holds a certificate that can't be used",
        ),
        (Some("-----BEGIN CERTIFICATE-----\n"), "is not a PEM bundle"),
    ] {
        let file = folder.path().join("ca.pem");
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let mut broken = settings("https://127.0.0.1:1");
        broken.ca_file = Some(file.clone());
        let problem = Client::new(&broken).unwrap_err();
        assert_eq!(problem.variable, "PICUS_WOODPECKER_CA_FILE");
        assert_eq!(problem.had, Some(file.display().to_string()));
        assert!(problem.message.starts_with(message), "{content:?}: {}", problem.message);
    }
}

#[test]
fn a_bundle_of_several_authorities_is_taken() {
    let mut trusting = settings("https://127.0.0.1:1");
    trusting.ca_file = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/authorities.pem").into());
    Client::new(&trusting).unwrap();
}
