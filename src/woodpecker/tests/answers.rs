//! Good answers of every version, and good statuses with something else.

use secrecy::ExposeSecret;

use super::server::{AGENT_TOKEN, TOKEN, answer, failed, json, lines, serve};
use crate::model::agent::Agent;
use crate::model::ids::{AgentId, TaskId};
use crate::model::labels::Labels;
use crate::model::snapshot::Queue;
use crate::woodpecker::{Error, User};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/woodpecker-3.17/", $name))
    };
}

async fn queue(body: &'static str) -> Result<Queue, Error> {
    serve(move |_| json(body)).await.0.queue().await
}

async fn agents(body: &'static str) -> Result<Vec<Agent>, Error> {
    serve(move |_| json(body)).await.0.agents().await.map(|agents| agents.agents)
}

fn second(seconds: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(seconds).unwrap()
}

fn ids(tasks: &[crate::model::task::Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.0.as_str()).collect()
}

#[tokio::test]
async fn the_queue_of_a_real_server() {
    let busy = queue(fixture!("queue-busy.json")).await.unwrap();
    assert!(!busy.paused);
    assert_eq!(
        (ids(&busy.pending), ids(&busy.waiting), ids(&busy.running)),
        (vec!["3", "6"], vec!["2"], vec!["1", "5"])
    );
    let limited = &busy.pending[1];
    assert_eq!((limited.concurrency_limit, limited.concurrency_group.as_str()), (Some(1), "1/w0/"));
    assert_eq!((limited.pipeline, limited.pipeline_number, limited.name.as_str()), (3, 3, "w0"));
    assert_eq!((limited.agent, limited.created), (None, Some(second(1_796_088_127))));
    assert_eq!((limited.repo(), limited.labels.get("gpu")), ("test-owner/test-repo", Some("true")));
    assert_eq!(limited.labels.get("woodpecker-ci.org/branch"), Some("main"));
    assert_eq!(busy.pending[0].concurrency_limit, None);
    assert_eq!(busy.waiting[0].dependencies, [TaskId::from("1")]);
    assert_eq!(busy.running[1].agent, Some(AgentId(3)));

    let paused = queue(fixture!("queue-paused.json")).await.unwrap();
    assert!(paused.paused);
    assert_eq!(paused.pending, busy.pending);
    let empty = queue(fixture!("queue-empty.json")).await.unwrap();
    assert!(empty.pending.is_empty() && empty.waiting.is_empty() && empty.running.is_empty() && !empty.paused);
}

#[tokio::test]
async fn the_agents_of_a_real_server() {
    let all = agents(fixture!("agents.json")).await.unwrap();
    assert_eq!(all.iter().map(|agent| agent.id.0).collect::<Vec<_>>(), [1, 2, 3]);
    let never = &all[1];
    assert_eq!((never.last_contact, never.last_work, never.capacity), (None, None, 0));
    assert_eq!((never.created, never.platform.as_str()), (second(1_796_088_125), ""));
    assert_eq!((&never.custom_labels, never.organisation), (&Some(Labels::default()), None));
    let shared = &all[2];
    assert_eq!(shared.custom_labels.as_ref().unwrap().to_string(), "!gpu=true,zone=*");
    assert_eq!((shared.last_contact, shared.last_work), (Some(second(1_796_088_125)), Some(second(1_796_088_127))));
    assert!(agents(fixture!("agents-none.json")).await.unwrap().is_empty());

    let (client, _) = serve(|_| json(fixture!("agent-cordoned.json"))).await;
    let cordoned = client.agent(AgentId(1)).await.unwrap();
    assert_eq!((cordoned.no_schedule, cordoned.name.as_str(), cordoned.capacity), (true, "own-token", 2));
    assert!(!format!("{cordoned:?} {all:?}").contains(AGENT_TOKEN));
}

#[tokio::test]
async fn the_other_answers_of_a_real_server() {
    let (client, log) = serve(|asked| match asked.line.as_str() {
        "GET /version" => json(fixture!("version.json")),
        "GET /api/user" => json(fixture!("user.json")),
        "GET /api/agents/1/tasks" => json(fixture!("agent-tasks.json")),
        "GET /api/agents/2/tasks" => json(fixture!("agent-tasks-none.json")),
        "POST /api/agents" => json(fixture!("agent-created.json")),
        _ => answer(404, "", ""),
    })
    .await;
    assert_eq!(client.version().await.unwrap(), "3.17.0");
    assert_eq!(client.user().await.unwrap(), User { login: "test-owner".to_owned(), admin: true });
    assert_eq!(client.agent_tasks(AgentId(1)).await.unwrap(), [TaskId::from("1")]);
    assert!(client.agent_tasks(AgentId(2)).await.unwrap().is_empty());
    let registered = client.register("own-token").await.unwrap();
    assert_eq!((registered.id, registered.token.expose_secret()), (AgentId(1), AGENT_TOKEN));
    assert!(!format!("{registered:?}").contains("REDACTED7"));
    for asked in log.lock().unwrap().iter() {
        assert_eq!(asked.headers["authorization"], format!("Bearer {TOKEN}"));
        assert_eq!(asked.headers["user-agent"], concat!("picus/", env!("CARGO_PKG_VERSION")));
    }
}

#[tokio::test]
async fn the_queues_of_older_servers() {
    for (version, body) in [
        (
            "2.8",
            r#"{"pending":[{"id":"9007199254740993","data":"eyJpZCI6IjEifQ==","labels":{"platform":"","repo":"a/b"},
                "dependencies":null,"run_on":null,"dep_status":null,"agent_id":0}],
                "waiting_on_deps":null,"running":null,"stats":{"worker_count":0,"pending_count":1,
                "waiting_on_deps_count":0,"running_count":0,"completed_count":0},"paused":false}"#,
        ),
        (
            "3.0",
            r#"{"pending":[{"id":"9007199254740993","labels":{"platform":"","repo":"a/b","org-id":"1"},
                "dependencies":[],"run_on":[],"dep_status":{},"agent_id":0}],
                "waiting_on_deps":[],"running":null,"paused":false}"#,
        ),
        (
            "3.9",
            r#"{"pending":[{"id":"9007199254740993","labels":{"repo":"a/b","platform":""},"dependencies":null,
                "run_on":["success"],"dep_status":{"1":"success"},"agent_id":-1}],"waiting_on_deps":null,
                "running":[],"stats":null,"paused":false}"#,
        ),
        (
            "3.10",
            r#"{"pending":[{"id":"9007199254740993","pid":1,"name":"","labels":{"repo":"a/b","platform":null},
                "dependencies":null,"run_on":null,"dep_status":{},"agent_id":0,"pipeline_id":0,"repo_id":9223372036854775807,
                "pipeline_number":0,"agent_name":""}],"waiting_on_deps":null,"running":null,"paused":null}"#,
        ),
    ] {
        let queue = queue(body).await.unwrap();
        let task = &queue.pending[0];
        assert_eq!(task.id.0, "9007199254740993", "{version}");
        assert_eq!((task.repo(), task.labels.get("platform")), ("a/b", Some("")), "{version}");
        assert_eq!((task.agent, task.created, task.concurrency_limit), (None, None, None), "{version}");
        assert_eq!((task.pipeline, task.name.as_str(), task.concurrency_group.as_str()), (0, "", ""), "{version}");
        assert!(queue.waiting.is_empty() && queue.running.is_empty() && !queue.paused, "{version}");
    }
}

#[tokio::test]
async fn the_agents_of_older_servers() {
    let body = r#"[
        {"id":9223372036854775807,"created":1700000000,"updated":0,"name":"a","owner_id":-1,"token":"t","last_contact":0,
         "platform":"","backend":"","capacity":0,"version":"","no_schedule":false},
        {"id":4294967296,"created":1700000000,"name":"b","org_id":-1,"custom_labels":null,"capacity":-1,"last_work":-62135596800},
        {"id":3,"created":1700000000,"name":"c","org_id":0,"custom_labels":{},"capacity":4,"last_contact":1700000001},
        {"id":4,"created":1700000000,"name":null,"org_id":9007199254740993,"custom_labels":{"n":1,"b":true,"e":null}}]"#;
    let all = agents(body).await.unwrap();
    let told: Vec<_> = all.iter().map(|agent| (agent.id.0, agent.organisation, agent.capacity)).collect();
    assert_eq!(
        told,
        [(i64::MAX, None, 0), (4_294_967_296, None, 0), (3, Some(0), 4), (4, Some(9_007_199_254_740_993), 0)]
    );
    // Before 3.0 the server does not tell an agent's labels: that is not the same as none.
    assert_eq!(all[0].custom_labels, None);
    assert_eq!(all[1].custom_labels, Some(Labels::default()));
    assert_eq!(all[3].custom_labels.as_ref().unwrap().to_string(), "b=true,e=,n=1");
    assert_eq!((all[1].last_work, all[2].last_contact), (None, Some(second(1_700_000_001))));
}

#[tokio::test]
async fn numbers_may_be_text_and_text_numbers() {
    let body = r#"{"pending":[{"id":146,"agent_id":"5","dependencies":[1,"2"],"created":"1790000000","concurrency_limit":2.0,
        "pipeline_id":"7","labels":null}],"paused":"true"}"#;
    let queue = queue(body).await.unwrap();
    let task = &queue.pending[0];
    assert!(queue.paused);
    assert_eq!((task.id.0.as_str(), task.agent, task.pipeline), ("146", Some(AgentId(5)), 7));
    assert_eq!(task.dependencies, [TaskId::from("1"), TaskId::from("2")]);
    assert_eq!((task.concurrency_limit, task.created), (Some(2), Some(second(1_790_000_000))));
}

#[tokio::test]
async fn a_negative_limit_is_none() {
    for limit in ["-1", "0", "null"] {
        let body: &'static str = format!(r#"{{"pending":[{{"id":"1","concurrency_limit":{limit}}}]}}"#).leak();
        assert_eq!(queue(body).await.unwrap().pending[0].concurrency_limit, None, "{limit}");
    }
}

#[tokio::test]
async fn what_is_no_queue_is_an_error_that_says_what_came() {
    for (body, what) in [
        ("{}", "an object that is no queue"),
        (r#"{"error":"x","paused":true}"#, "an object that is no queue"),
        ("", "an empty body"),
        (" \n", "an empty body"),
        ("null", "JSON of another shape (expected struct Queue"),
        ("[]", "an object that is no queue"),
        ("5", "JSON of another shape (expected struct Queue"),
        ("\"eyJhbGci\"", "JSON of another shape (expected struct Queue"),
        ("ok", "2 bytes that are not JSON (line 1"),
        ("<html>", "an HTML page"),
        ("\u{feff}<html>", "bytes that are not JSON"),
        (r#"{"pending":["#, "JSON that breaks off after 12 bytes"),
        (r#"{"pending":{}}"#, "JSON of another shape (expected a sequence"),
        (r#"{"pending":[null]}"#, "JSON of another shape (expected struct Task"),
        (r#"{"pending":[{"name":"a"}]}"#, "JSON of another shape (missing field `id`"),
        (r#"{"pending":[{"id":""}]}"#, "(expected an id, text or a whole number"),
        (r#"{"pending":[{"id":null}]}"#, "(expected an id, text or a whole number"),
        (r#"{"pending":[{"id":"1"},{"id":{}}]}"#, "(expected an id, text or a whole number"),
        (r#"{"pending":[{"id":"1","labels":"eyJhbGci, expected eyJhbGci"}]}"#, "(expected labels, an object of texts"),
        (r#"{"pending":[{"id":"1","labels":{"a":[1]}}]}"#, "(expected text"),
        (r#"{"pending":[{"id":"1","agent_id":"eyJhbGci"}]}"#, "(expected a whole number"),
        (r#"{"pending":[{"id":"1","agent_id":18446744073709551615}]}"#, "(expected a whole number"),
        (r#"{"pending":[{"id":"1","created":1790000000000000}]}"#, "(expected seconds since 1970"),
        (r#"{"pending":[{"id":"1","dependencies":[null]}]}"#, "(expected an id, text or a whole number"),
        (r#"{"pending":[],"paused":"eyJhbGci"}"#, "(expected true or false"),
        (r#"{"pending":[]}{"pending":[]}"#, "bytes that are not JSON"),
    ] {
        let error = failed(queue(body).await);
        assert!(error.to_string().contains(what), "{body}: {error}");
        assert!(error.to_string().contains("/api/queue/info: 200 OK with "), "{body}: {error}");
        assert_eq!(error.kind(), "unavailable", "{body}");
    }
}

#[tokio::test]
async fn one_record_that_cannot_be_read_fails_the_list() {
    for body in [
        r#"[{"id":1,"name":"a"},{"name":"b"}]"#,
        r#"[{"id":1},null]"#,
        r#"[{"id":1},{"id":null}]"#,
        r#"[{"id":"REDACTED77777777777777777777777777777777777777777777===="}]"#,
        r#"[{"id":1,"custom_labels":["a=b"]}]"#,
        r#"{"id":1}"#,
        r#"{"agents":[]}"#,
        "",
        "0",
    ] {
        assert_eq!(failed(agents(body).await).kind(), "unavailable", "{body}");
    }
}

#[tokio::test]
async fn a_record_without_id_or_token_is_not_registered() {
    for body in
        ["{}", "null", "", r#"{"id":0,"token":"x"}"#, r#"{"id":1,"token":""}"#, r#"{"id":1}"#, r#"{"id":1,"token":5}"#]
    {
        let (client, log) = serve(move |_| json(body)).await;
        assert_eq!(failed(client.register("a").await).kind(), "unavailable", "{body}");
        assert_eq!(lines(&log), ["POST /api/agents"], "a write is not repeated");
    }
}

#[tokio::test]
async fn the_record_of_another_agent_is_no_answer() {
    let (client, _) = serve(|_| json(fixture!("agent-cordoned.json"))).await;
    assert_eq!(failed(client.agent(AgentId(2)).await).kind(), "unavailable");
    assert_eq!(failed(client.set_no_schedule(AgentId(2), "x", true).await).kind(), "unavailable");
}

#[tokio::test]
async fn small_answers_that_are_none() {
    let (client, _) = serve(|_| json("{}")).await;
    assert!(failed(client.version().await).to_string().ends_with("/version: 200 OK with no version in it"));
    assert!(failed(client.user().await).to_string().ends_with("/api/user: 200 OK with no login name in it"));
    assert_eq!(failed(client.agent_tasks(AgentId(1)).await).kind(), "unavailable");
    let (client, _) = serve(|_| json(r#"{"login":"a"}"#)).await;
    assert!(!client.user().await.unwrap().admin);
}

#[tokio::test]
async fn a_path_in_the_address_is_kept() {
    let (url, log) = super::server::start(|_| json(fixture!("version.json"))).await;
    for path in ["", "/", "/ci", "/ci/"] {
        super::server::client(&format!("{url}{path}"), super::server::timeouts()).version().await.unwrap();
    }
    assert_eq!(lines(&log), ["GET /version", "GET /version", "GET /ci/version", "GET /ci/version"]);
}
