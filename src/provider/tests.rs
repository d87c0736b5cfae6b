//! What the loop may rely on, whichever provider it talks to: one suite, run against each.
//!
//! Hetzner is the modelled one of `picus::world`; EC2 is moto, with a gate before it for what moto does not know.

#![expect(clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod ec2;
mod hetzner;
mod suite;

use std::time::Duration;

use async_trait::async_trait;

use super::Provider;
use crate::settings::PoolSettings;

/// What goes wrong with the next calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// The first offer can't be had.
    SoldOut,
    /// The account may launch no more.
    Quota,
    /// The credentials lack the right to launch.
    Unauthorised,
    /// Too many calls, whichever.
    Throttled,
    /// A launch is carried out, and its answer is lost.
    LostAnswer,
    /// Every call ends in an error of the provider's own, and is not carried out.
    Broken,
}

/// A provider with the cloud behind it.
#[async_trait]
trait Peer: Send + Sync {
    fn provider(&self) -> &dyn Provider;
    /// A pool that launches, with two offers.
    fn pool(&self) -> &PoolSettings;
    /// The same with launch settings that name what does not exist, and the variables that do so.
    fn wrong_pool(&self) -> (PoolSettings, Vec<&'static str>);
    /// What no text may show.
    fn secret(&self) -> &str;
    /// Switches trouble on; `None`: off.
    fn trouble(&self, trouble: Option<Trouble>);
    /// Calls that arrived.
    fn calls(&self) -> usize;
    /// Time passes.
    fn pass(&self, time: Duration);
    /// An instance in the same account that is nobody's concern.
    async fn strangers_instance(&self);
}
