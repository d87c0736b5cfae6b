//! Picus: an autoscaler for Woodpecker CI agents that respects their labels.
//!
//! Modules in reading order; each may use only those below it in this list:
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | the command line: run, plan, check, demo |
//! | [`app`] | wires settings, clients and loop; owns shutdown |
//! | [`server`] | health, metrics, API and status page over HTTP |
//! | [`world`] | a modelled Woodpecker and Hetzner Cloud behind loopback HTTP, for the demo and the tests |
//! | [`reconcile`] | observe, execute, the loop |
//! | [`status`] | what is shown of it: the last pass, steps, decisions, cost |
//! | [`plan`] | pure decisions |
//! | [`bootstrap`] | what a fresh instance runs |
//! | [`provider`] | the clouds behind one trait |
//! | [`woodpecker`] | the server's API |
//! | [`settings`] | the environment, read once |
//! | [`metrics`] | counters and gauges; the one registry of their names |
//! | [`model`] | plain data |

pub mod app;
pub mod bootstrap;
pub mod cli;
pub mod clock;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod provider;
pub mod reconcile;
pub mod server;
pub mod settings;
pub mod status;
pub mod telemetry;
pub mod woodpecker;
pub mod world;
