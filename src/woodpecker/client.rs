//! The calls that Picus makes, one method each, with what each route's answers mean.
//!
//! Facts about the routes: `server/api/agent.go`, `queue.go` of Woodpecker 3.17
//! (<https://github.com/woodpecker-ci/woodpecker/tree/v3.17.0/server/api>).

use std::fmt;
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde::Serialize;

use super::error::Error;
use super::events::Events;
use super::http::{Answer, Http, Timeouts};
use super::{Agents, Registered, User, listing, wire};
use crate::metrics::Calls;
use crate::model::agent::Agent;
use crate::model::ids::{AgentId, TaskId};
use crate::model::snapshot::Queue;
use crate::settings::{Problem, WoodpeckerSettings};

/// A task takes some 1.5 KB on the wire, so this is a queue of 40,000; the bound is against an answer without end.
const QUEUE_LIMIT: usize = 64 * 1024 * 1024;
/// One record, one user.
const RECORD_LIMIT: usize = 1024 * 1024;

/// A Woodpecker server and a token for it. Cheap to clone; calls may run at the same time.
#[derive(Clone)]
pub struct Client {
    http: Arc<Http>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.http.fmt(f)
    }
}

/// What the routes for agents read; both always, because PATCH sets both.
#[derive(Serialize)]
struct AgentBody<'a> {
    name: &'a str,
    no_schedule: bool,
}

impl Client {
    /// A client with the usual timeouts. Reads the CA file, connects to nothing.
    ///
    /// # Errors
    ///
    /// A CA file that can't be read or holds no certificate, a token that can't be sent.
    pub fn new(settings: &WoodpeckerSettings) -> Result<Self, Problem> {
        Self::with_timeouts(settings, Timeouts::default())
    }

    /// The same with other timeouts.
    pub fn with_timeouts(settings: &WoodpeckerSettings, timeouts: Timeouts) -> Result<Self, Problem> {
        Ok(Self { http: Arc::new(Http::new(settings, timeouts)?) })
    }

    /// The same with its calls counted; to be called before it is cloned.
    #[must_use]
    pub fn counted(mut self, calls: Calls) -> Self {
        if let Some(http) = Arc::get_mut(&mut self.http) {
            http.calls = calls;
        }
        self
    }

    /// The server's version: `3.17.0`, `next-0123456789`, `dev`.
    pub async fn version(&self) -> Result<String, Error> {
        let answer = self.get("/version", RECORD_LIMIT).await?;
        let version: wire::Version = answer.json(&self.http)?;
        version.into_version().ok_or_else(|| answer.unusable("no version in it", false))
    }

    /// Whose token it is.
    pub async fn user(&self) -> Result<User, Error> {
        let answer = self.get("/api/user", RECORD_LIMIT).await?;
        let user: wire::User = answer.json(&self.http)?;
        user.into_user().ok_or_else(|| answer.unusable("no login name in it", false))
    }

    /// The queue at this instant.
    pub async fn queue(&self) -> Result<Queue, Error> {
        let answer = self.get("/api/queue/info", QUEUE_LIMIT).await?;
        let queue: wire::Queue = answer.json(&self.http)?;
        queue.into_queue().ok_or_else(|| answer.unusable("an object that is no queue", false))
    }

    /// Every agent record of the server, all pages. A list that moved while it was read is read again, and is an error
    /// if it never stands still.
    pub async fn agents(&self) -> Result<Agents, Error> {
        listing::agents(&self.http).await
    }

    /// One agent record.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] only if Woodpecker itself says so, not a proxy in front of a server that is away.
    pub async fn agent(&self, id: AgentId) -> Result<Agent, Error> {
        let path = format!("/api/agents/{id}");
        let answer = self.get(&path, RECORD_LIMIT).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Err(self.missing(&answer, id).await);
        }
        self.record(&answer, id)
    }

    /// Ids of the tasks that an agent runs.
    ///
    /// # Errors
    ///
    /// Each means that it is unknown whether the agent is busy.
    pub async fn agent_tasks(&self, id: AgentId) -> Result<Vec<TaskId>, Error> {
        let answer = self.get(&format!("/api/agents/{id}/tasks"), QUEUE_LIMIT).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Err(self.missing(&answer, id).await);
        }
        let tasks: Option<Vec<wire::TaskReference>> = answer.json(&self.http)?;
        Ok(tasks.unwrap_or_default().into_iter().map(Into::into).collect())
    }

    /// Makes an agent record named `name` with a token of its own. Names need not be unique.
    ///
    /// # Errors
    ///
    /// After any of them the record may exist all the same, without anybody knowing its token.
    pub async fn register(&self, name: &str) -> Result<Registered, Error> {
        let body = AgentBody { name, no_schedule: false };
        let answer = self.write(Method::POST, "/api/agents", Some(&body)).await?;
        let registered: wire::Registered = answer.json(&self.http)?;
        registered.into_registered().ok_or_else(|| answer.unusable("a record without id or token", false))
    }

    /// Cordons an agent, or lets it take tasks again. `name` is stored too: it must be the record's own.
    ///
    /// The server may still hand out one task, and a heartbeat under way may write the flag back: read it back.
    pub async fn set_no_schedule(&self, id: AgentId, name: &str, no_schedule: bool) -> Result<(), Error> {
        let body = AgentBody { name, no_schedule };
        let answer = self.write(Method::PATCH, &format!("/api/agents/{id}"), Some(&body)).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Err(self.missing(&answer, id).await);
        }
        self.record(&answer, id).map(drop)
    }

    /// Deletes an agent record; one that does not exist is deleted.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while it runs a task.
    pub async fn delete_agent(&self, id: AgentId) -> Result<(), Error> {
        let answer = self.write(Method::DELETE, &format!("/api/agents/{id}"), None).await?;
        match answer.status() {
            StatusCode::NO_CONTENT => Ok(()),
            StatusCode::CONFLICT => Err(answer.busy(&self.http)),
            // A machine is deleted on the strength of this: some proxies answer so for a server that is away. So look.
            StatusCode::OK | StatusCode::NOT_FOUND if answer.is_empty() => match self.agent(id).await {
                Err(Error::NotFound { .. }) => Ok(()),
                Err(other) => Err(other),
                Ok(_) => Err(answer.unusable("an empty body, but the record is there", false)),
            },
            status if status.is_success() => Err(answer.unusable("something else than an empty body", true)),
            _ => Err(answer.failure(&self.http)),
        }
    }

    /// Opens the event stream.
    pub async fn events(&self) -> Result<Events, Error> {
        let call = self.http.call(Method::GET, "/api/stream/events", 0);
        let response = self.http.open(&call).await?;
        Events::new(call, response, self.http.timeouts.silence)
    }

    async fn get(&self, path: &str, limit: usize) -> Result<Answer, Error> {
        self.http.ask(&self.http.call(Method::GET, path, limit)).await
    }

    async fn write(&self, method: Method, path: &str, body: Option<&AgentBody<'_>>) -> Result<Answer, Error> {
        let call = match body.map(serde_json::to_vec).transpose() {
            Ok(Some(body)) => self.http.call_with(method, path, body, RECORD_LIMIT),
            Ok(None) => self.http.call(method, path, RECORD_LIMIT),
            Err(error) => {
                let call = self.http.call(method, path, RECORD_LIMIT);
                return Err(call.unavailable(None, format!("the call could not be written: {error}")));
            }
        };
        self.http.write(&call).await
    }

    /// The record that was asked for, not another.
    fn record(&self, answer: &Answer, id: AgentId) -> Result<Agent, Error> {
        let agent: wire::Agent = answer.json(&self.http)?;
        if agent.id() == id.0 { Ok(agent.into()) } else { Err(answer.unusable("the record of another agent", false)) }
    }

    /// What a 404 on a route for one agent means.
    ///
    /// Woodpecker's has no body, and its version in a header. Without that header (a proxy may remove it, and a proxy may
    /// be the one who answers) it counts only if the server answers for itself and then says it again.
    async fn missing(&self, answer: &Answer, id: AgentId) -> Error {
        if !answer.is_empty() {
            return answer.failure(&self.http);
        }
        if answer.is_signed() {
            return answer.not_found();
        }
        if let Err(error) = self.version().await {
            return error;
        }
        match self.get(&format!("/api/agents/{id}"), RECORD_LIMIT).await {
            Ok(again) if again.status() == StatusCode::NOT_FOUND && again.is_empty() => again.not_found(),
            Ok(_) => answer.failure(&self.http),
            Err(error) => error,
        }
    }
}
