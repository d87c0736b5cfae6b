//! Builds a world with verbs: `world().pool(pool().max(3)).with(agent("a").idle_for("11m")).tasks(2)`.
//!
//! It is noon. Spans are words (`11m`, `1h30m`). The default pool is `p1`: two slots, at most four instances, idle
//! timeout and boot timeout of ten minutes, billed by the second, `linux/amd64`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::execute::execute;
use super::task::task;
use super::text;
use crate::model::action::{Action, Plan, Step};
use crate::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, PoolName, ServerMark};
use crate::model::instance::{Instance, InstanceState, OfferKey};
use crate::model::labels::Labels;
use crate::model::memory::{Memory, Refusal, Trouble};
use crate::model::pool::{AccountId, Billing, FixedInstance, Market, Offer, Pool, RetireTo};
use crate::model::reason::Reason;
use crate::model::snapshot::{InFlight, Listing, Queue, Snapshot};
use crate::plan::plan;

/// Noon.
pub fn now() -> Timestamp {
    "2026-12-01T12:00:00Z".parse().unwrap()
}

/// A span in words.
pub fn span(words: &str) -> Duration {
    Duration::try_from(words.parse::<SignedDuration>().unwrap()).unwrap()
}

/// So long before noon.
pub fn ago(words: &str) -> Timestamp {
    now() - span(words)
}

/// So long after noon.
pub fn ahead(words: &str) -> Timestamp {
    now() + span(words)
}

pub fn labels(list: &str) -> Labels {
    list.split(',').filter(|pair| !pair.is_empty()).filter_map(|pair| pair.split_once('=')).collect()
}

pub fn server() -> ServerMark {
    ServerMark::from("thisone")
}

pub fn installation() -> InstallationId {
    InstallationId::from("picus")
}

/// A snapshot and what is remembered.
#[derive(Debug, Clone)]
pub struct World {
    pub snapshot: Snapshot,
    pub memory: Memory,
    /// Short names for those of ours.
    pub short: BTreeMap<String, String>,
    next_id: i64,
}

/// Something that can be put into a world.
pub trait Part {
    fn add(self, world: &mut World);
}

/// An empty queue, the default pool, no machines.
pub fn world() -> World {
    let snapshot = Snapshot {
        now: now(),
        installation: installation(),
        server: server(),
        poll_interval: span("10s"),
        pools: vec![pool().0],
        queue: Queue::default(),
        agents: Vec::new(),
        instances: [(AccountId(0), Listing::Known { listed: now(), instances: Vec::new() })].into(),
        in_flight: InFlight::default(),
    };
    let memory = Memory { next_launch: 1_000_000, ..Memory::default() };
    World { snapshot, memory, short: BTreeMap::new(), next_id: 1 }
}

impl World {
    pub fn with(mut self, part: impl Part) -> Self {
        part.add(&mut self);
        self
    }

    /// In place of the default pool, or beside those set before.
    pub fn pool(mut self, pool: PoolBuilder) -> Self {
        if self.snapshot.pools == [self::pool().0] {
            self.snapshot.pools.clear();
        }
        let account = pool.0.account;
        let empty = Listing::Known { listed: now(), instances: Vec::new() };
        self.snapshot.instances.entry(account).or_insert(empty);
        self.snapshot.pools.push(pool.0);
        self
    }

    /// So many plain tasks, `1`, `2`, …
    pub fn tasks(mut self, count: usize) -> Self {
        for _ in 0..count {
            let number = self.snapshot.queue.pending.len() + 1;
            self = self.with(task(&number.to_string()));
        }
        self
    }

    pub fn paused(mut self) -> Self {
        self.snapshot.queue.paused = true;
        self
    }

    pub fn listing_unknown(mut self) -> Self {
        self.snapshot.instances.insert(AccountId(0), Listing::Unknown { why: "503".to_owned() });
        self
    }

    pub fn poll(mut self, every: &str) -> Self {
        self.snapshot.poll_interval = span(every);
        self
    }

    /// Whatever else is remembered.
    pub fn remember(mut self, learn: impl FnOnce(&mut Memory)) -> Self {
        learn(&mut self.memory);
        self
    }

    pub fn trouble(self, pool: &str, failures: u32, until: Timestamp) -> Self {
        let trouble =
            Trouble { failures, why: "it never connected".to_owned(), until, counted: std::iter::empty().collect() };
        self.remember(|memory| drop(memory.troubles.insert(PoolName::from(pool), trouble)))
    }

    pub fn refused(self, why: &str, until: Timestamp) -> Self {
        let refusal = Refusal { why: why.to_owned(), until };
        self.remember(|memory| drop(memory.refusals.insert(AccountId(0), refusal)))
    }

    pub fn sold_out(self, server_type: &str, until: Timestamp) -> Self {
        let key = (AccountId(0), offer(server_type).key);
        self.remember(|memory| memory.sold_out.extend([(key, until)]))
    }

    pub fn next_id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    /// The long name for a short one.
    pub fn name(&mut self, pool: &str, short: &str) -> LaunchName {
        let number = short.bytes().fold(0_u64, |number, byte| number.wrapping_mul(257) + u64::from(byte));
        let name = LaunchName::new(&installation(), &PoolName::from(pool), number);
        self.short.insert(name.to_string(), short.to_owned());
        name
    }

    /// Id of the first account's instance number `index`.
    pub fn machine_ids(&self, index: usize) -> crate::model::ids::InstanceId {
        let Some(Listing::Known { instances, .. }) = self.snapshot.instances.get(&AccountId(0)) else { panic!() };
        instances[index].id.clone()
    }

    pub fn decided(&self) -> Plan {
        plan(&self.snapshot, &self.memory)
    }

    /// The plan as text. Executes it and plans again, too: nothing may be left to do, but that a machine which went
    /// away or stopped makes room.
    pub fn plan(&self) -> String {
        let plan = self.decided();
        let (snapshot, memory) = execute(&plan, &self.snapshot, &self.memory);
        let again = crate::plan::plan(&snapshot, &memory);
        let makes_way = |step: &Step| match step.action {
            Action::Retire { .. } | Action::DeleteInstance { .. } | Action::Stop { .. } => true,
            Action::Uncordon { .. } => step.reason == Reason::Stopped,
            Action::Cordon { .. } | Action::Launch { .. } | Action::Start { .. } => false,
        };
        let removes = plan.steps.iter().any(makes_way);
        if !removes {
            assert_eq!(again.steps, [], "planning again after executing changes nothing");
        }
        text::plan(&plan, &self.short)
    }

    /// Moves time on, and with it the heartbeats of those that are connected.
    pub fn later(mut self, by: &str) -> Self {
        let before = self.snapshot.now;
        self.snapshot.now = before + span(by);
        for agent in &mut self.snapshot.agents {
            if agent.last_contact.is_some_and(|contact| crate::model::age(before, contact) < span("1m")) {
                agent.last_contact = Some(self.snapshot.now);
            }
        }
        for listing in self.snapshot.instances.values_mut() {
            if let Listing::Known { listed, .. } = listing {
                *listed = self.snapshot.now;
            }
        }
        self
    }

    /// The provider lists what was launched; nothing of it has connected.
    pub fn show_launches(&mut self) {
        for launch in std::mem::take(&mut self.snapshot.in_flight.launches) {
            let id = AgentId(self.next_id());
            let pool = self.snapshot.pools.iter().find(|pool| pool.name == launch.pool).unwrap();
            if let Some(Listing::Known { instances, .. }) = self.snapshot.instances.get_mut(&pool.account) {
                instances.push(Instance {
                    id: InstanceId(format!("i{id}")),
                    name: launch.name,
                    pool: launch.pool,
                    server: Some(server()),
                    agent: None,
                    known_as: Vec::new(),
                    draining: None,
                    launch_settings: None,
                    stopped_since: None,
                    state: InstanceState::Running,
                    created: launch.since,
                    offer: launch.offer,
                });
            }
        }
    }

    /// The world once the plan is carried out.
    pub fn executed(mut self) -> Self {
        let plan = self.decided();
        (self.snapshot, self.memory) = execute(&plan, &self.snapshot, &self.memory);
        self
    }
}

/// The default pool.
pub fn pool() -> PoolBuilder {
    PoolBuilder(Pool {
        name: PoolName::from("p1"),
        account: AccountId(0),
        filter_labels: Labels::default(),
        backend: "docker".to_owned(),
        market: Market::Open { platform: "linux/amd64".to_owned(), offers: vec![offer("cx23")] },
        slots: 2,
        min: 0,
        max: 4,
        idle_timeout: span("10m"),
        billing: Billing::BySecond,
        boot_timeout: span("10m"),
        shared_secret: false,
        fixed: Vec::new(),
        retire: RetireTo::Delete,
        launch_settings: None,
    })
}

pub fn offer(server_type: &str) -> Offer {
    let key = OfferKey { server_type: server_type.to_owned(), location: "nbg1".to_owned() };
    Offer { key, hourly_price: None }
}

pub struct PoolBuilder(pub Pool);

impl PoolBuilder {
    pub fn named(mut self, name: &str) -> Self {
        self.0.name = PoolName::from(name);
        self
    }

    pub fn account(mut self, account: usize) -> Self {
        self.0.account = AccountId(account);
        self
    }

    pub fn min(mut self, min: u32) -> Self {
        self.0.min = min;
        self
    }

    pub fn max(mut self, max: u32) -> Self {
        self.0.max = max;
        self
    }

    pub fn slots(mut self, slots: u32) -> Self {
        self.0.slots = slots;
        self
    }

    pub fn labels(mut self, list: &str) -> Self {
        self.0.filter_labels = labels(list);
        self
    }

    pub fn platform(mut self, platform: &str) -> Self {
        if let Market::Open { platform: own, .. } = &mut self.0.market {
            platform.clone_into(own);
        }
        self
    }

    pub fn offers(mut self, server_types: &[&str]) -> Self {
        if let Market::Open { offers, .. } = &mut self.0.market {
            *offers = server_types.iter().map(|server_type| offer(server_type)).collect();
        }
        self
    }

    pub fn not_ready(mut self) -> Self {
        self.0.market = Market::NotReady { why: "no answer".to_owned() };
        self
    }

    pub fn billed_by(mut self, period: &str) -> Self {
        self.0.billing = Billing::ByPeriod(span(period));
        self
    }

    pub fn boot_timeout(mut self, timeout: &str) -> Self {
        self.0.boot_timeout = span(timeout);
        self
    }

    /// It starts and stops machines that somebody else made; each one that is added with [`super::machine::fixed`].
    pub fn fixed(mut self) -> Self {
        self.0.fixed.push(FixedInstance { id: InstanceId("i-none".to_owned()), agent: None });
        self
    }

    /// Its retired instances are stopped, and kept for so long.
    pub fn stops(mut self, max_age: &str) -> Self {
        self.0.retire = RetireTo::Stop { max_age: span(max_age) };
        self.0.launch_settings = Some("these".to_owned());
        self
    }

    pub fn shared_secret(mut self) -> Self {
        self.0.shared_secret = true;
        self
    }
}
