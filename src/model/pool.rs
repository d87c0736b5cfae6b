//! A pool: instances of one scope. What was configured and, once the provider was asked, what can be ordered.

use std::time::Duration;

use super::ids::{AgentId, InstanceId, PoolName};
use super::instance::OfferKey;
use super::labels::Labels;

/// What the planner must know of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Its name; `default` where there is only one.
    pub name: PoolName,
    /// The provider account it launches at; pools of one account share one listing, one rate budget and its refusals.
    pub account: AccountId,
    /// The labels from the settings, before `platform` and the rest are added.
    pub filter_labels: Labels,
    /// The engine of its agents, `docker` unless set.
    pub backend: String,
    /// What can be ordered, in order of preference, and the platform that comes of it.
    pub market: Market,
    /// Slots of each agent.
    pub slots: u32,
    /// Instances kept.
    pub min: u32,
    /// Instances at most, in whatever state.
    pub max: u32,
    /// Idle time before an agent is retired, where billing is by the second.
    pub idle_timeout: Duration,
    /// How the provider bills.
    pub billing: Billing,
    /// From launch to first contact.
    pub boot_timeout: Duration,
    /// The agents register with the server's shared secret instead of a token each.
    pub shared_secret: bool,
    /// The machines it starts and stops, and nothing else. Empty: it launches instances.
    pub fixed: Vec<FixedInstance>,
    /// What becomes of a launched instance that is not needed.
    pub retire: RetireTo,
    /// Short mark of the launch settings; a stopped instance with another one is not started again. `None`: not compared.
    pub launch_settings: Option<String>,
}

/// A machine that somebody else made, with an agent on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedInstance {
    /// The provider's id.
    pub id: InstanceId,
    /// Its agent's record. `None`: its names tell.
    pub agent: Option<AgentId>,
}

/// What becomes of a launched instance that is not needed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetireTo {
    /// It is deleted.
    Delete,
    /// It is stopped, with its record and its disk, and started again before anything is launched.
    Stop {
        /// One that has been stopped for so long is deleted.
        max_age: Duration,
    },
}

impl Pool {
    /// Whether its instances are stopped and started: a stopped one is of use.
    #[must_use]
    pub fn keeps_stopped(&self) -> bool {
        !self.fixed.is_empty() || matches!(self.retire, RetireTo::Stop { .. })
    }

    /// Whether it starts and stops machines that somebody else made.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        !self.fixed.is_empty()
    }

    /// The labels its agents really have at the server. `None` until the provider told the platform.
    #[must_use]
    pub fn effective_labels(&self) -> Option<Labels> {
        match &self.market {
            Market::Open { platform, .. } => {
                Some(super::labels::effective(platform, &self.backend, &self.filter_labels, None))
            }
            Market::NotReady { .. } => None,
        }
    }
}

/// Number of a provider account in the order of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct AccountId(pub usize);

/// What a provider offers a pool.
#[derive(Debug, Clone, PartialEq)]
pub enum Market {
    /// The provider could not be asked yet; nothing is decided for the pool.
    NotReady {
        /// Why not, for people.
        why: String,
    },
    /// It was asked.
    Open {
        /// `linux/amd64`, from the server types' architecture.
        platform: String,
        /// Candidates in order.
        offers: Vec<Offer>,
    },
}

/// One candidate for a launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Server type and place.
    pub key: OfferKey,
    /// Price an hour in the account's currency, gross. `None`: not told.
    pub hourly_price: Option<f64>,
}

/// How a provider bills an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Billing {
    /// Retire as soon as the idle timeout has passed.
    BySecond,
    /// Every started period is paid for: retire in its last minutes.
    ByPeriod(Duration),
}
