//! The Woodpecker server's HTTP API: queue, agents, event stream.
//!
//! Reads leniently (versions 2.8 to 3.17), writes strictly. Nothing outside knows a wire type, and no agent's token leaves
//! this module except that of [`Client::register`]. What is asked and why is in [`client`]; how a call is made and what an
//! answer counts as, in `http`; the shape of the answers, in `wire`.
//!
//! Guarantees: every call ends in bounded time and memory; an answer that can't be read whole is an [`Error`], never a
//! shorter list; no error and no `Debug` output holds a token.

pub mod client;
pub mod error;
pub mod events;
mod http;
mod listing;
mod wire;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use secrecy::SecretString;

pub use client::Client;
pub use error::Error;
pub use events::Events;
pub use http::Timeouts;

use crate::model::agent::Agent;
use crate::model::ids::AgentId;

/// Whose token it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Login name at the server.
    pub login: String,
    /// May do what Picus does.
    pub admin: bool,
}

/// Every agent record of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    /// All pages, in order of their ids, each record once. An empty list is an answer too; whether it can be true is
    /// for the caller to judge.
    pub agents: Vec<Agent>,
    /// The server's clock at the last answer, to the second. `None`: it did not tell.
    pub server_time: Option<Timestamp>,
}

/// A fresh agent record.
#[derive(Debug, Clone)]
pub struct Registered {
    /// The record.
    pub id: AgentId,
    /// What its process shows the server. Can't be read again without every other agent's.
    pub token: SecretString,
}
