//! A small fake of EC2's query protocol: each operation answers what the test says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// What an operation answers.
#[derive(Debug, Clone)]
pub(in crate::provider) enum Answer {
    /// This code, with the status that EC2 gives it.
    Refused(&'static str),
    /// This body.
    Body(String),
    /// No answer at all: the connection ends.
    Lost,
}

/// What the fake was asked: operation and parameters.
pub(in crate::provider) type Call = BTreeMap<String, String>;

/// The fake.
pub(in crate::provider) struct Fake {
    pub(in crate::provider) address: String,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    answers: BTreeMap<String, Vec<Answer>>,
    calls: Vec<Call>,
}

impl Fake {
    pub(in crate::provider) async fn start() -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, shared }
    }

    /// What an operation answers, call by call; the last answer stays.
    pub(in crate::provider) fn answers(&self, operation: &str, answers: impl IntoIterator<Item = Answer>) {
        self.shared.lock().expect("a lock").answers.insert(operation.to_owned(), answers.into_iter().collect());
    }

    /// The calls of an operation.
    pub(in crate::provider) fn calls(&self, operation: &str) -> Vec<Call> {
        let shared = self.shared.lock().expect("a lock");
        shared
            .calls
            .iter()
            .filter(|call| call.get("Action").is_some_and(|action| action == operation))
            .cloned()
            .collect()
    }

    /// The operations that were called.
    pub(in crate::provider) fn operations(&self) -> std::collections::BTreeSet<String> {
        self.shared.lock().expect("a lock").calls.iter().filter_map(|call| call.get("Action").cloned()).collect()
    }

    /// Every call.
    pub(in crate::provider) fn all_calls(&self) -> usize {
        self.shared.lock().expect("a lock").calls.len()
    }
}

async fn answer(State(shared): State<Arc<Mutex<Shared>>>, body: String) -> Response {
    let call: Call = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let answer = {
        let mut shared = shared.lock().expect("a lock");
        let operation = call.get("Action").cloned().unwrap_or_default();
        shared.calls.push(call);
        match shared.answers.get_mut(&operation) {
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers.first().cloned().unwrap_or(Answer::Refused("InternalError")),
            None => Answer::Refused("InvalidAction"),
        }
    };
    match answer {
        Answer::Body(body) => ([(header::CONTENT_TYPE, "text/xml")], body).into_response(),
        Answer::Lost => cut(),
        Answer::Refused(code) => refusal(code),
    }
}

/// EC2's no.
pub(in crate::provider) fn refusal(code: &str) -> Response {
    let status = match code {
        "InternalError" => StatusCode::INTERNAL_SERVER_ERROR,
        "RequestLimitExceeded" => StatusCode::SERVICE_UNAVAILABLE,
        "UnauthorizedOperation" => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    };
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>why \
                 not</Message></Error></Errors><RequestID>1</RequestID></Response>"
    );
    (status, [(header::CONTENT_TYPE, "text/xml")], body).into_response()
}

/// Begins an answer and cuts the connection.
pub(in crate::provider) fn cut() -> Response {
    let broken = futures_util::stream::once(async { Err::<String, _>(std::io::Error::other("cut")) });
    axum::body::Body::from_stream(broken).into_response()
}

/// An answer of `operation` with this inside.
pub(in crate::provider) fn xml(operation: &str, inside: &str) -> Answer {
    Answer::Body(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{operation}Response \
         xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>1</requestId>{inside}</{operation}Response>"
    ))
}

/// An instance as EC2 writes it.
pub(in crate::provider) fn instance(id: &str, state: &str, tags: &[(&str, &str)]) -> String {
    let tag = |(key, value): &(&str, &str)| format!("<item><key>{key}</key><value>{value}</value></item>");
    let tags = tags.iter().map(tag).collect::<Vec<_>>().concat();
    format!(
        "<item><instanceId>{id}</instanceId><instanceState><code>16</code><name>{state}</name></instanceState>\
         <instanceType>c7a.large</instanceType><launchTime>2026-12-01T12:00:00.000Z</launchTime>\
         <subnetId>subnet-1</subnetId><tagSet>{tags}</tagSet></item>"
    )
}

/// What `DescribeInstances` answers.
pub(in crate::provider) fn listed(instances: &[String]) -> Answer {
    let inside =
        format!("<reservationSet><item><instancesSet>{}</instancesSet></item></reservationSet>", instances.concat());
    xml("DescribeInstances", &inside)
}
