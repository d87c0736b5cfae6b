//! The provider against a small scripted API on loopback: real HTTP, real timeouts, answers as bad as they come.

mod fake;
mod launching;
mod listing;
mod preparing;
