//! A modelled world: a Woodpecker server and Hetzner Cloud as state machines behind real HTTP on loopback.
//!
//! `picus demo` and the tests run the real loop against it. This file starts and stops it; the concerns have a file
//! each:
//!
//! | file | models |
//! |---|---|
//! | `state.rs` | everything at one instant, and how it moves on in time |
//! | `http.rs` | the two listeners, and answers that get lost on their way |
//! | `endpoint.rs` | which call is which |
//! | `faults.rs` | what goes wrong, where, and for how long |
//! | `woodpecker.rs` | the server's records; `queue.rs`, `agents.rs` and `routes.rs` below it |
//! | `hetzner.rs` | the project at the cloud; `catalogue.rs`, `servers.rs`, `routes.rs` and `wire.rs` below it |
//! | `machine.rs` | a server's life, what it reads in its user data, and the agent process on it |
//! | `task.rs`, `agent.rs` | what a test puts into the world |
//! | `history.rs` | what happened, for the demo's live output |
//! | `verbs.rs` | what people do to the world, and what can be seen of it from outside its APIs |
//!
//! # Time
//!
//! Time comes from the [`Clock`] alone. Nothing runs by itself: before every request and every verb the state is moved
//! on to the clock's now, event by event, so that a long jump gives the same world as many small steps. With a clock
//! that runs, a small task moves the state on too, so that the event stream lives without anybody asking.

mod agent;
mod endpoint;
mod faults;
mod hetzner;
mod history;
mod http;
mod machine;
mod state;
mod task;
mod verbs;
mod woodpecker;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

pub use agent::{AgentSpec, AgentView, agent};
pub use endpoint::{Call, Endpoint, Side};
pub use faults::{AnswerFault, Fault, FaultId, MachineFault, Race};
pub use hetzner::{Bill, Resource, ServerView};
pub use history::{Cause, Event, Happened, KilledJob};
pub use task::{Outcome, TaskSpec, TaskState, task};
pub use verbs::LeftBehind;

use crate::clock::Clock;
use state::State;

/// How often the state is moved on by itself where the clock runs by itself: often enough for a live output.
const HEARTBEAT: Duration = Duration::from_millis(50);

/// What the world is like when it begins.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// Seed of everything that is drawn: ties between agents, faults by chance, spread of boot times, tokens.
    pub seed: u64,
    /// The Woodpecker server's version, as it and its agents tell it.
    pub version: String,
    /// The server's shared secret (`WOODPECKER_AGENT_SECRET`). `None`: agents need a token of their own.
    pub shared_secret: Option<String>,
    /// From the create call of a server to the first contact of its agent.
    pub boot_time: Duration,
    /// Up to so much more, drawn for each server.
    pub boot_spread: Duration,
    /// Servers that the project may have.
    pub server_limit: usize,
    /// Calls to Hetzner an hour; the budget refills evenly.
    pub calls_an_hour: u32,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            version: "3.17.0".to_owned(),
            shared_secret: None,
            boot_time: Duration::from_secs(45),
            boot_spread: Duration::ZERO,
            server_limit: 100,
            calls_an_hour: 3600,
        }
    }
}

/// A running world. Its servers stop when it is dropped.
pub struct World {
    shared: Arc<Shared>,
    woodpecker: Url,
    hetzner: Url,
    admin_token: String,
    user_token: String,
    hetzner_token: String,
    _closing: DropGuard,
}

/// What the listeners and the verbs share.
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    closing: CancellationToken,
}

impl Shared {
    /// The state, moved on to now. The lock is held shortly and never across an `await`.
    fn now(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance_to(self.clock.now());
        state
    }
}

impl World {
    /// Binds both servers to free ports of 127.0.0.1 and begins.
    ///
    /// # Errors
    ///
    /// No port could be bound.
    pub async fn start(clock: Clock, options: WorldOptions) -> std::io::Result<Self> {
        let state = State::new(clock.now(), options);
        let closing = CancellationToken::new();
        let (admin_token, user_token) = (state.woodpecker.admin_token.clone(), state.woodpecker.user_token.clone());
        let hetzner_token = state.hetzner.token.clone();
        let shared = Arc::new(Shared { clock: clock.clone(), state: Mutex::new(state), closing: closing.clone() });
        let woodpecker = http::listen(Side::Woodpecker, &shared, "").await?;
        let hetzner = http::listen(Side::Hetzner, &shared, "v1").await?;
        if !matches!(clock, Clock::Manual(_)) {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let beats = async {
                    loop {
                        tokio::time::sleep(HEARTBEAT).await;
                        drop(shared.now());
                    }
                };
                shared.closing.run_until_cancelled(beats).await;
            });
        }
        Ok(Self { shared, woodpecker, hetzner, admin_token, user_token, hetzner_token, _closing: closing.drop_guard() })
    }

    /// Base URL of the Woodpecker server.
    #[must_use]
    pub fn woodpecker_url(&self) -> &Url {
        &self.woodpecker
    }

    /// Base URL of Hetzner's API, `…/v1`.
    #[must_use]
    pub fn hetzner_url(&self) -> &Url {
        &self.hetzner
    }

    /// Personal token of an administrator of the Woodpecker server.
    #[must_use]
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Personal token of somebody who is not an administrator.
    #[must_use]
    pub fn user_token(&self) -> &str {
        &self.user_token
    }

    /// API token of the project at Hetzner.
    #[must_use]
    pub fn hetzner_token(&self) -> &str {
        &self.hetzner_token
    }

    /// Stops both servers: no more connections, and those that exist end with their next request.
    pub fn shutdown(&self) {
        self.shared.closing.cancel();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.now()
    }
}
