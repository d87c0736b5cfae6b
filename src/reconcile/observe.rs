//! Reads both sides into a snapshot. Unknown is not absent: what could not be read whole is said to be unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Reconciler, State};
use crate::model::agent::Agent;
use crate::model::ids::{AgentId, InstanceId, ServerMark};
use crate::model::instance::Instance;
use crate::model::pool::{AccountId, Billing, Pool};
use crate::model::snapshot::{InFlight, Launching, Listing, Queue, Snapshot};
use crate::model::{age, later};
use crate::plan::LISTING_LAG;
use crate::settings::PoolSettings;
use crate::woodpecker::Agents;

/// A listing serves so long while nothing is to be created or removed: 60 calls an hour of Hetzner's 3,600.
pub(super) const LISTING_KEPT: Duration = Duration::from_mins(1);
/// A pass waits so long for a listing; one that comes later serves the next pass.
const LISTING_WAIT: Duration = Duration::from_secs(5);
/// What is said of a listing that is still awaited then.
const SLOW: &str = "the provider takes long to answer";
/// A deletion that the provider refused, or that it may not show yet, is not tried again before this: there may be many,
/// and the rate limit is for the whole project.
pub(super) const DELETION_PAUSE: Duration = Duration::from_secs(30);
/// Clocks that differ by more than this are corrected for: agents' times are the server's.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// What Woodpecker said.
pub(super) struct Woodpecker {
    queue: Queue,
    agents: Vec<Agent>,
}

/// The listings of the accounts, as they were last read.
#[derive(Default)]
pub(super) struct Listings(BTreeMap<AccountId, Read>);

#[derive(Default)]
struct Read {
    /// The last whole answer, and when it was asked for.
    known: Option<(Timestamp, Vec<Instance>)>,
    /// Why there is none newer.
    failed: Option<String>,
    /// An answer is awaited.
    asking: bool,
    /// Instances were there in the answer before this one, and none are now: it has to be seen again.
    suspicious: bool,
}

/// The agents as they were last read, and what was made and deleted since: to doubt an empty list.
#[derive(Default)]
pub(super) struct AgentsSeen {
    there: BTreeSet<AgentId>,
    doubted: bool,
    /// How far the server's clock is ahead of ours; nothing within the tolerance.
    ahead: SignedDuration,
}

impl Listings {
    /// The next pass asks again, whatever is known now: something was created or removed.
    pub(super) fn expire(&mut self, account: AccountId) {
        if let Some(read) = self.0.get_mut(&account)
            && let Some((listed, _)) = &mut read.known
        {
            *listed = Timestamp::MIN;
        }
    }

    /// An instance was deleted: its absence is no surprise.
    pub(super) fn deleted(&mut self, account: AccountId, instance: &InstanceId) {
        if let Some(read) = self.0.get_mut(&account)
            && let Some((_, instances)) = &mut read.known
        {
            instances.retain(|known| known.id != *instance);
        }
    }
}

impl Reconciler {
    /// The queue and every agent.
    pub(super) async fn read_woodpecker(&self) -> Result<Woodpecker, String> {
        let (queue, agents) = tokio::join!(self.0.woodpecker.queue(), self.0.woodpecker.agents());
        let queue = queue.map_err(|error| error.to_string())?;
        let Agents { agents, server_time } = agents.map_err(|error| error.to_string())?;
        let mut state = self.state();
        state.agents.doubt(&queue, &agents)?;
        state.agents.ahead = ahead(server_time, self.0.clock.now());
        Ok(Woodpecker { queue, agents: on_our_clock(agents, state.agents.ahead) })
    }

    /// Lists these accounts at the same time, unless what is known is younger than `kept`.
    pub(super) async fn list(&self, accounts: &[AccountId], kept: Duration) {
        let mut asked = Vec::new();
        for &account in accounts {
            let now = self.0.clock.now();
            let mut state = self.state();
            let read = state.listings.0.entry(account).or_default();
            let young = read.known.as_ref().is_some_and(|(listed, _)| age(now, *listed) < kept);
            if read.asking || (young && read.failed.is_none() && !read.suspicious) {
                continue;
            }
            read.asking = true;
            drop(state);
            let reconciler = self.clone();
            asked.push(tokio::spawn(async move { reconciler.list_one(account, now).await }));
        }
        // The tasks go on if the wait ends first; their answers serve the next pass.
        if tokio::time::timeout(LISTING_WAIT, futures_util::future::join_all(asked)).await.is_err() {
            for account in accounts {
                if let Some(read) = self.state().listings.0.get_mut(account)
                    && read.asking
                {
                    read.failed = Some(SLOW.to_owned());
                }
            }
        }
    }

    async fn list_one(&self, account: AccountId, asked: Timestamp) {
        let Some(provider) = self.0.providers.get(account.0).map(|account| account.provider.clone()) else { return };
        let mut answer = provider.list(&self.0.settings.installation).await;
        let is_first = self.state().listings.0.get(&account).is_none_or(|read| read.known.is_none());
        if is_first && answer.as_ref().is_ok_and(Vec::is_empty) {
            // A fresh start has nothing to doubt an empty list by, and would order what is there already: it looks twice.
            answer = provider.list(&self.0.settings.installation).await;
        }
        let mut state = self.state();
        let read = state.listings.0.entry(account).or_default();
        read.asking = false;
        let late = read.failed.as_deref() == Some(SLOW);
        match answer {
            Ok(instances) => {
                let had_some = read.known.as_ref().is_some_and(|(_, before)| !before.is_empty());
                if instances.is_empty() && had_some && !read.suspicious {
                    read.suspicious = true;
                    read.failed = Some("it lists no instances, though there were some a moment ago".to_owned());
                } else {
                    *read = Read { known: Some((asked, instances)), ..Read::default() };
                }
            }
            Err(error) => {
                read.failed = Some(error.to_string());
                return;
            }
        }
        if late {
            // Used while it is fresh: a provider that is always so slow would never be acted on else.
            self.wake();
        }
    }

    /// Puts together what is known now.
    pub(super) fn snapshot(&self, woodpecker: &Woodpecker, state: &mut State) -> Snapshot {
        let now = self.0.clock.now();
        let instances = self.accounts().into_iter().map(|account| (account, state.listings.get(account))).collect();
        state.forget_listed_launches(&instances, now, &self.0.settings.pools);
        Snapshot {
            now,
            installation: self.0.settings.installation.clone(),
            server: ServerMark::of(&self.0.settings.woodpecker.server),
            poll_interval: self.0.settings.poll_interval,
            pools: self.0.settings.pools.iter().map(|pool| state.pool(pool)).collect(),
            queue: woodpecker.queue.clone(),
            agents: woodpecker.agents.clone(),
            instances,
            in_flight: state.in_flight(now),
        }
    }
}

impl Listings {
    fn get(&self, account: AccountId) -> Listing {
        let unknown = |why: &str| Listing::Unknown { why: why.to_owned() };
        match self.0.get(&account) {
            None => unknown("not asked yet"),
            Some(Read { failed: Some(why), .. }) => unknown(why),
            Some(Read { known: Some((listed, instances)), .. }) => {
                Listing::Known { listed: *listed, instances: instances.clone() }
            }
            Some(Read { known: None, .. }) => unknown("the provider has not answered yet"),
        }
    }
}

impl AgentsSeen {
    /// An empty list is believed when it is seen a second time, if there were agents before or some are at work.
    fn doubt(&mut self, queue: &Queue, agents: &[Agent]) -> Result<(), String> {
        let impossible = agents.is_empty() && queue.running.iter().any(|task| task.agent.is_some());
        let surprising = agents.is_empty() && !self.there.is_empty();
        if (impossible || surprising) && !self.doubted {
            self.doubted = true;
            return Err("the server lists no agents, though there were some a moment ago: looking again".to_owned());
        }
        self.doubted = false;
        self.there = agents.iter().map(|agent| agent.id).collect();
        Ok(())
    }

    /// A record was made: its absence would be a surprise.
    pub(super) fn made(&mut self, agent: AgentId) {
        self.there.insert(agent);
    }

    /// A record was deleted: its absence is no surprise.
    pub(super) fn deleted(&mut self, agent: AgentId) {
        self.there.remove(&agent);
    }

    /// A time of the server's by our clock.
    pub(super) fn by_our_clock(&self, time: Timestamp) -> Timestamp {
        time.checked_sub(self.ahead).unwrap_or(time)
    }
}

impl State {
    /// What runs beside the loop, and what is not to be tried again yet.
    fn in_flight(&mut self, now: Timestamp) -> InFlight {
        self.resting.retain(|_, until| now < *until);
        let mut in_flight = self.in_flight.clone();
        in_flight.instances.extend(self.resting.keys().cloned());
        in_flight
    }

    /// A launch counts until a listing that is younger than it shows its instance, or cannot be expected to any more.
    fn forget_listed_launches(
        &mut self,
        listings: &BTreeMap<AccountId, Listing>,
        now: Timestamp,
        pools: &[PoolSettings],
    ) {
        let Self { in_flight, memory, operating, .. } = self;
        in_flight.launches.retain(|launch: &Launching| {
            if operating.contains(&launch.name) {
                return true;
            }
            let account = pools.iter().find(|pool| pool.name == launch.pool).map(|pool| pool.account);
            let Some(Listing::Known { listed: asked, instances }) = account.and_then(|account| listings.get(&account))
            else {
                return true;
            };
            let listed = instances.iter().any(|instance| instance.name == launch.name);
            let given_up = *asked >= later(launch.since, LISTING_LAG.saturating_mul(2));
            if given_up && !listed {
                let why = format!("{} was ordered, and the provider never listed it", launch.name);
                memory.launch_failed(&launch.pool, &launch.name, why, now);
            }
            !listed && !given_up
        });
    }

    fn pool(&self, settings: &PoolSettings) -> Pool {
        let PoolSettings { name, account, min, max, idle_timeout, billing, boot_timeout, agent, launch } = settings;
        let billing: Billing = *billing;
        Pool {
            name: name.clone(),
            account: *account,
            filter_labels: agent.labels.clone(),
            backend: agent.backend.clone(),
            market: self.market.of(name),
            slots: agent.slots,
            min: *min,
            max: *max,
            idle_timeout: *idle_timeout,
            billing,
            boot_timeout: *boot_timeout,
            shared_secret: agent.shared_secret.is_some(),
            fixed: launch.fixed().to_vec(),
            retire: launch.retire(),
            launch_settings: launch.mark(),
        }
    }
}

/// How far the server's clock is ahead of ours, if that is more than the answer's way takes.
fn ahead(server_time: Option<Timestamp>, now: Timestamp) -> SignedDuration {
    let ahead = server_time.map_or(SignedDuration::ZERO, |server_time| server_time.duration_since(now));
    if ahead.abs() <= CLOCK_TOLERANCE { SignedDuration::ZERO } else { ahead }
}

/// Agents' times are by the server's clock; what is compared with ours must be by ours.
fn on_our_clock(mut agents: Vec<Agent>, ahead: SignedDuration) -> Vec<Agent> {
    let shift = |time: Timestamp| time.checked_sub(ahead).unwrap_or(time);
    for agent in &mut agents {
        agent.created = shift(agent.created);
        agent.last_contact = agent.last_contact.map(shift);
        agent.last_work = agent.last_work.map(shift);
    }
    agents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{InstallationId, LaunchName, PoolName};
    use crate::model::instance::OfferKey;
    use crate::provider::{PrepareError, Prepared, Provider, ProviderError};

    #[test]
    fn a_server_whose_clock_is_ten_minutes_behind_has_agents_that_were_seen_just_now() {
        let now: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let theirs: Timestamp = "2026-12-01T11:50:00Z".parse().unwrap();
        let agent = Agent {
            id: AgentId(1),
            name: "a".to_owned(),
            created: theirs,
            last_contact: Some(theirs),
            last_work: None,
            platform: String::new(),
            backend: String::new(),
            capacity: 1,
            no_schedule: false,
            custom_labels: None,
            organisation: None,
        };
        let agents = on_our_clock(vec![agent], ahead(Some(theirs), now));
        assert_eq!(agents[0].last_contact, Some(now));
    }

    #[test]
    fn an_empty_list_of_agents_is_believed_when_it_is_seen_again() {
        let mut seen = AgentsSeen { there: [AgentId(1)].into(), ..AgentsSeen::default() };
        assert!(seen.doubt(&Queue::default(), &[]).is_err());
        assert!(seen.doubt(&Queue::default(), &[]).is_ok());
        assert!(seen.doubt(&Queue::default(), &[]).is_ok());
    }

    #[test]
    fn a_list_that_is_empty_because_the_last_record_was_deleted_is_believed_at_once() {
        let mut seen = AgentsSeen { there: [AgentId(1)].into(), ..AgentsSeen::default() };
        seen.deleted(AgentId(1));
        assert!(seen.doubt(&Queue::default(), &[]).is_ok());
    }

    fn launched(since: Timestamp) -> State {
        let pool = PoolName::from("default");
        let name = LaunchName::new(&InstallationId::from("picus"), &pool, 1);
        let offer = OfferKey { server_type: "cx23".to_owned(), location: "nbg1".to_owned() };
        let mut state = State::default();
        state.in_flight.launches.push(Launching { pool, name, offer, since, agent: None });
        state
    }

    #[test]
    fn a_launch_is_given_up_only_on_the_strength_of_a_listing() {
        let since: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let now = later(since, Duration::from_hours(1));
        let settings = crate::settings::Settings::from_vars(variables()).unwrap();
        let known = |listed| Listing::Known { listed, instances: Vec::new() };
        let unknown = Listing::Unknown { why: "503".to_owned() };
        for (listing, stays) in [(unknown, true), (known(since), true), (known(now), false)] {
            let mut state = launched(since);
            state.forget_listed_launches(&[(AccountId(0), listing)].into(), now, &settings.pools);
            assert_eq!((state.in_flight.launches.len() == 1, state.memory.troubles.is_empty()), (stays, stays));
        }
    }

    fn variables() -> Vec<(String, String)> {
        [
            ("PICUS_WOODPECKER_SERVER", "http://127.0.0.1:9"),
            ("PICUS_WOODPECKER_TOKEN", "token"),
            ("PICUS_PROVIDER_TYPE", "hcloud"),
            ("PICUS_HCLOUD_TOKEN", "token"),
            ("PICUS_AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// Lists nothing.
    struct Empty;

    #[async_trait::async_trait]
    impl Provider for Empty {
        async fn prepare(&self, _: &PoolSettings) -> Result<Prepared, PrepareError> {
            Err(PrepareError::Settings(Vec::new()))
        }

        async fn list(&self, _: &InstallationId) -> Result<Vec<Instance>, ProviderError> {
            Ok(Vec::new())
        }

        async fn launch(&self, _: &crate::provider::Launch<'_>) -> Result<Instance, ProviderError> {
            Err(ProviderError::Unavailable("no".to_owned()))
        }

        async fn delete(&self, _: &InstanceId) -> Result<(), ProviderError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_listing_that_comes_after_its_pass_is_looked_at_while_it_is_fresh() {
        for slow in [false, true] {
            let settings = crate::settings::Settings::from_vars(variables()).unwrap();
            let woodpecker = crate::woodpecker::Client::new(&settings.woodpecker).unwrap();
            let clock = crate::clock::Clock::manual("2026-12-01T12:00:00Z".parse().unwrap());
            let board = crate::status::Board::new(&settings, clock.clone(), crate::metrics::Metrics::default());
            let reconciler =
                Reconciler::new(settings, woodpecker, vec![std::sync::Arc::new(Empty)], board, clock.clone(), 1);
            if slow {
                reconciler.state().listings.0.entry(AccountId(0)).or_default().failed = Some(SLOW.to_owned());
            }
            reconciler.list_one(AccountId(0), clock.now()).await;
            let woken = tokio::time::timeout(Duration::ZERO, reconciler.0.wake.notified()).await;
            assert_eq!(woken.is_ok(), slow);
        }
    }
}
