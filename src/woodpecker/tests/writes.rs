//! Calls that change something, and what counts as gone.

use super::server::{TOKEN, answer, client, failed, html, json, lines, serve, timeouts};
use crate::model::ids::AgentId;

const VERSION: &str = r#"{"version":"3.17.0"}"#;

#[tokio::test]
async fn every_patch_carries_name_and_flag() {
    let (client, log) = serve(|_| json(r#"{"id":5,"name":"picus-a","no_schedule":true}"#)).await;
    client.set_no_schedule(AgentId(5), "picus-a", true).await.unwrap();
    client.set_no_schedule(AgentId(5), "with \"quotes\" ü", false).await.unwrap();
    client.set_no_schedule(AgentId(5), "", true).await.unwrap();
    let bodies: Vec<_> = log.lock().unwrap().iter().map(|asked| (asked.line.clone(), asked.body.clone())).collect();
    let line = || "PATCH /api/agents/5".to_owned();
    assert_eq!(
        bodies,
        [
            (line(), r#"{"name":"picus-a","no_schedule":true}"#.to_owned()),
            (line(), r#"{"name":"with \"quotes\" ü","no_schedule":false}"#.to_owned()),
            (line(), r#"{"name":"","no_schedule":true}"#.to_owned()),
        ]
    );
    assert_eq!(log.lock().unwrap()[0].headers["content-type"], "application/json");
}

#[tokio::test]
async fn a_registration_names_the_agent_and_leaves_it_schedulable() {
    let (client, log) = serve(|_| json(r#"{"id":7,"token":"secret-of-7"}"#)).await;
    assert_eq!(client.register("picus-default-abc").await.unwrap().id, AgentId(7));
    let asked = log.lock().unwrap()[0].clone();
    assert_eq!(asked.line, "POST /api/agents");
    assert_eq!(asked.body, r#"{"name":"picus-default-abc","no_schedule":false}"#);
}

#[tokio::test]
async fn a_deleted_record_is_deleted_and_a_busy_one_is_busy() {
    let (client, log) = serve(|_| answer(204, "", "")).await;
    client.delete_agent(AgentId(5)).await.unwrap();
    assert_eq!(lines(&log), ["DELETE /api/agents/5"]);
    let (client, _) = serve(|_| answer(409, "text/plain", "Agent has running tasks")).await;
    let error = failed(client.delete_agent(AgentId(5)).await);
    assert_eq!(error.kind(), "busy");
    assert!(error.to_string().ends_with("/api/agents/5: 409 (Agent has running tasks)"), "{error}");
}

#[tokio::test]
async fn deleting_what_is_not_there_is_done_when_woodpecker_says_so() {
    // Both statuses without a body are settled by looking.
    for status in [200, 404] {
        let (client, _) = serve(move |asked| match asked.line.as_str() {
            "GET /version" => json(VERSION),
            line if line.starts_with("DELETE") => answer(status, "", ""),
            _ => answer(404, "", ""),
        })
        .await;
        client.delete_agent(AgentId(5)).await.unwrap();
    }
}

#[tokio::test]
async fn what_woodpecker_signed_is_believed_without_another_question() {
    let (client, log) = serve(|_| {
        let mut response = answer(404, "", "");
        response.headers_mut().insert("x-woodpecker-version", "3.17.0".parse().unwrap());
        response
    })
    .await;
    assert_eq!(failed(client.agent(AgentId(5)).await).kind(), "not_found");
    assert_eq!(lines(&log), ["GET /api/agents/5"]);
}

#[tokio::test]
async fn a_proxy_that_answers_for_a_server_that_is_away_deletes_nothing() {
    for (status, kind, body) in [
        // Envoy without a route; a site that Caddy does not know.
        (404, "", ""),
        (200, "", ""),
        (404, "text/plain; charset=utf-8", "404 page not found\n"),
        (404, "text/plain", "default backend - 404"),
        (404, "text/html", "<html><center>nginx</center></html>"),
        (200, "text/html", "<html>Sign in</html>"),
        (200, "application/json", "{}"),
        (502, "", ""),
        (503, "text/plain", "no healthy upstream"),
        (504, "text/html", "<html>504</html>"),
    ] {
        let (client, _) = serve(move |_| answer(status, kind, body)).await;
        for result in [
            client.delete_agent(AgentId(5)).await,
            client.agent(AgentId(5)).await.map(drop),
            client.agent_tasks(AgentId(5)).await.map(drop),
            client.set_no_schedule(AgentId(5), "a", true).await,
        ] {
            assert_eq!(failed(result).kind(), "unavailable", "{status} {body}");
        }
    }
}

#[tokio::test]
async fn a_server_that_comes_back_while_we_look_is_asked_again() {
    // 404 from the proxy, then Woodpecker itself: the record is there after all.
    let (client, log) = serve(|asked| match asked.line.as_str() {
        "GET /version" => json(VERSION),
        line if line.starts_with("DELETE") => answer(404, "", ""),
        _ => json(r#"{"id":5,"name":"a"}"#),
    })
    .await;
    assert_eq!(failed(client.delete_agent(AgentId(5)).await).kind(), "unavailable");
    assert_eq!(lines(&log), ["DELETE /api/agents/5", "GET /api/agents/5"]);
}

#[tokio::test]
async fn a_write_is_never_redirected_or_repeated() {
    let (elsewhere, elsewhere_log) = super::server::start(|_| json(r#"{"id":5,"token":"t"}"#)).await;
    for status in [301, 302, 303, 307, 308] {
        let target = format!("{elsewhere}/login?token={TOKEN}");
        let (client, log) = serve(move |_| {
            let mut response = answer(status, "", "");
            response.headers_mut().insert("location", target.parse().unwrap());
            response
        })
        .await;
        for error in [
            failed(client.register("a").await),
            failed(client.set_no_schedule(AgentId(5), "a", true).await),
            failed(client.delete_agent(AgentId(5)).await),
            failed(client.queue().await.map(drop)),
            failed(client.events().await.map(drop)),
        ] {
            assert!(error.to_string().contains(&format!("redirects to {elsewhere}/login)")), "{error}");
            assert!(error.is_about_settings());
        }
        assert_eq!(log.lock().unwrap().len(), 5);
    }
    assert!(elsewhere_log.lock().unwrap().is_empty(), "the token stays here");
}

#[tokio::test]
async fn a_write_whose_connection_breaks_is_not_tried_again_and_a_question_is_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, mut connections) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Reads the request, then hangs up without a word.
            let mut request = [0; 4096];
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut request).await;
            sender.send(()).unwrap();
        }
    });
    let client = client(&url, timeouts());
    let mut count = || {
        let mut count = 0;
        while connections.try_recv().is_ok() {
            count += 1;
        }
        count
    };
    let error = failed(client.register("a").await);
    assert!(error.to_string().contains("the connection broke: "), "{error}");
    assert_eq!(count(), 1);
    failed(client.delete_agent(AgentId(5)).await);
    assert_eq!(count(), 1);
    failed(client.queue().await);
    assert_eq!(count(), 2);
}

#[tokio::test]
async fn a_login_page_is_not_a_success() {
    let (client, _) = serve(|_| html(200)).await;
    for error in [
        failed(client.register("a").await.map(drop)),
        failed(client.set_no_schedule(AgentId(5), "a", true).await),
        failed(client.delete_agent(AgentId(5)).await),
    ] {
        assert!(error.is_about_settings(), "{error}");
    }
}
