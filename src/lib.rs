//! Picus: an autoscaler for Woodpecker CI agents that respects their labels.
//!
//! Modules in reading order; each may use only those below it in this list:
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | the command line: run, plan, check, demo |
//! | [`app`] | wires settings, clients and loop; owns shutdown |
//! | [`world`] | a modelled Woodpecker and Hetzner Cloud behind loopback HTTP, for the demo and the tests |
//! | [`reconcile`] | observe, execute, the loop |
//! | [`plan`] | pure decisions |
//! | [`bootstrap`] | what a fresh instance runs |
//! | [`provider`] | the clouds behind one trait |
//! | [`woodpecker`] | the server's API |
//! | [`settings`] | the environment, read once |
//! | [`model`] | plain data |

pub mod app;
pub mod bootstrap;
pub mod cli;
pub mod clock;
pub mod model;
pub mod plan;
pub mod provider;
pub mod reconcile;
pub mod settings;
pub mod telemetry;
pub mod woodpecker;
pub mod world;
