//! Whole worlds for the properties: several pools and accounts, agents of ours and of others, machines in all states,
//! orphans, launches under way, tasks with labels, dependencies and groups, and anything in the memory.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::world::{installation, labels, now, offer, server};
use crate::model::agent::Agent;
use crate::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, PoolName, ServerMark, TaskId};
use crate::model::instance::{Instance, InstanceState};
use crate::model::memory::{Cordon, Memory, Refusal, Trouble};
use crate::model::pool::{AccountId, Billing, FixedInstance, Market, Pool, RetireTo};
use crate::model::snapshot::{InFlight, Launching, Listing, Queue, Snapshot};
use crate::model::task::Task;

/// Any world at noon.
pub fn worlds() -> impl Strategy<Value = (Snapshot, Memory)> {
    choices().prop_map(|choices| Draw { choices, at: 0, extreme: false }.world())
}

/// Any world, with instants and lengths from the ends of their ranges among the others.
pub fn extreme_worlds() -> impl Strategy<Value = (Snapshot, Memory)> {
    choices().prop_map(|choices| Draw { choices, at: 0, extreme: true }.world())
}

fn choices() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), 0..700)
}

/// Builds a world from choices; when they run out, each is the first (and plainest) one.
struct Draw {
    choices: Vec<u16>,
    at: usize,
    extreme: bool,
}

const ANY_LABELS: [&str; 6] = ["", "type=a", "type=*", "!gpu=true", "zone=a,type=b", "zone=*"];
const STATES: [InstanceState; 6] = [
    InstanceState::Running,
    InstanceState::Starting,
    InstanceState::Stopping,
    InstanceState::Stopped,
    InstanceState::Deleting,
    InstanceState::Unknown,
];

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        let choice = self.choices.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(choice) % end
    }

    fn number(&mut self, end: u32) -> u32 {
        if self.extreme && self.below(6) == 5 {
            return u32::MAX;
        }
        u32::try_from(self.below(end as usize)).unwrap()
    }

    /// True once in `of`.
    fn rarely(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Now and then in the future.
    fn instant(&mut self) -> Timestamp {
        if self.extreme && self.below(4) == 3 {
            return self.pick(&[Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH]);
        }
        let spans = [0, 5, 9, 10, 30, 59, 60, 61, 90, 120, 300, 599, 600, 1200, 3400, 3480, 3590, 3600, 7100, -30];
        now() - jiff::SignedDuration::from_secs(self.pick(&spans))
    }

    fn maybe_instant(&mut self) -> Option<Timestamp> {
        (!self.rarely(3)).then(|| self.instant())
    }

    fn soon(&mut self) -> Timestamp {
        now() + Duration::from_secs(self.pick(&[0, 60, 3600]))
    }

    fn span(&mut self, from: &[u64]) -> Duration {
        if self.extreme && self.below(4) == 3 {
            return self.pick(&[Duration::ZERO, Duration::MAX, Duration::from_nanos(1)]);
        }
        Duration::from_secs(self.pick(from))
    }

    fn world(mut self) -> (Snapshot, Memory) {
        let pools: Vec<Pool> = (0..=self.below(3)).map(|index| self.pool(index)).collect();
        let mut instances: std::collections::BTreeMap<AccountId, Listing> = (0..2)
            .map(|account| {
                let listing = if self.rarely(6) {
                    Listing::Unknown { why: "503".to_owned() }
                } else {
                    Listing::Known { listed: self.instant(), instances: Vec::new() }
                };
                (AccountId(account), listing)
            })
            .collect();
        if self.rarely(9) {
            instances.remove(&AccountId(1));
        }
        let mut snapshot = Snapshot {
            now: if self.extreme { self.instant() } else { now() },
            installation: installation(),
            server: server(),
            poll_interval: self.span(&[10, 300, 7200]),
            pools,
            queue: Queue { paused: self.rarely(9), ..Queue::default() },
            agents: Vec::new(),
            instances,
            in_flight: InFlight::default(),
        };
        let mut memory = Memory { next_launch: u64::MAX - 1, ..Memory::default() };
        for number in 1..=self.below(12) {
            self.machine(&mut snapshot, &mut memory, number);
        }
        for number in 0..self.below(5) {
            self.static_agent(&mut snapshot, number);
        }
        for number in 0..self.below(4) {
            self.launch(&mut snapshot, number);
        }
        let tasks = self.below(16);
        for number in 0..tasks {
            self.task(&mut snapshot, &mut memory, number, tasks);
        }
        self.holds(&snapshot, &mut memory);
        (snapshot, memory)
    }

    fn pool(&mut self, index: usize) -> Pool {
        let platform = self.pick(&["linux/amd64", "linux/arm64"]).to_owned();
        let offers = ["cx23", "cx33"].into_iter().take(2 - self.below(3)).map(offer).collect();
        let open = Market::Open { platform, offers };
        let market = if self.rarely(9) { Market::NotReady { why: "no answer".to_owned() } } else { open };
        Pool {
            name: PoolName(format!("p{}", index + 1)),
            account: AccountId(self.below(2)),
            filter_labels: labels(self.pick(&ANY_LABELS)),
            backend: "docker".to_owned(),
            market,
            slots: self.number(3) + u32::from(!self.extreme),
            // As many as are asked for are launched, so these stay small.
            min: u32::try_from(self.below(3)).unwrap(),
            max: u32::try_from(self.below(7)).unwrap(), // also below the minimum
            idle_timeout: self.span(&[600, 60]),
            billing: if self.rarely(2) { Billing::ByPeriod(self.span(&[3600])) } else { Billing::BySecond },
            boot_timeout: self.span(&[600, 30]),
            shared_secret: false,
            fixed: if self.rarely(4) { vec![fixed("none")] } else { Vec::new() },
            retire: if self.rarely(3) { RetireTo::Stop { max_age: self.span(&[3600]) } } else { RetireTo::Delete },
            launch_settings: (!self.rarely(3)).then(|| "these".to_owned()),
        }
    }

    /// A record, an instance, or both. Of a configured pool, mostly.
    fn machine(&mut self, snapshot: &mut Snapshot, memory: &mut Memory, number: usize) {
        let index = self.below(snapshot.pools.len());
        let stray = self.rarely(12);
        let pool = if stray { PoolName::from("p9") } else { snapshot.pools[index].name.clone() };
        let id = AgentId(i64::try_from(number).unwrap());
        // Now and then a name that something else has already.
        let again = self.rarely(10);
        let named = if again { number / 2 } else { number };
        let installation = if self.rarely(15) { InstallationId::from("other") } else { installation() };
        let name = LaunchName::new(&installation, &pool, named as u64);
        let launched = self.instant();
        let (has_record, has_instance) = self.pick(&[(true, true), (true, true), (true, false), (false, true)]);
        // Names of instances are unique in an account.
        let has_instance = has_instance && !again;
        if has_record {
            let mut agent = self.agent(id, name.to_string(), launched);
            if !self.rarely(4) && !stray {
                agent.custom_labels = Some(snapshot.pools[index].filter_labels.clone());
                if let Market::Open { platform, .. } = &snapshot.pools[index].market {
                    agent.platform.clone_from(platform);
                }
            }
            if agent.no_schedule && !self.rarely(4) {
                memory.cordons.insert(id, Cordon { since: self.instant(), ours: !self.rarely(3) });
            }
            if self.rarely(15) {
                agent.name = "renamed".to_owned();
            }
            snapshot.agents.push(agent);
        }
        let instance_id = InstanceId(format!("i{number}"));
        let account = snapshot.pools[index].account;
        if let (true, true, Some(Listing::Known { instances, .. })) =
            (has_instance, installation == super::world::installation(), snapshot.instances.get_mut(&account))
        {
            let is_fixed = !stray && snapshot.pools[index].is_fixed();
            let agent = (!is_fixed && !self.rarely(4)).then_some(id);
            let known_as = if is_fixed { vec![name.to_string()] } else { Vec::new() };
            if is_fixed {
                snapshot.pools[index].fixed.push(fixed(&instance_id.0));
            }
            let state = self.pick(&STATES);
            let offer = offer("cx23").key;
            let server = (!self.rarely(9)).then(|| if self.rarely(9) { ServerMark::from("another") } else { server() });
            instances.push(Instance {
                id: instance_id.clone(),
                name,
                pool,
                server,
                agent,
                known_as,
                draining: self.rarely(6).then_some(id),
                launch_settings: (!self.rarely(3)).then(|| self.pick(&["these", "these", "others"]).to_owned()),
                state,
                stopped_since: self.maybe_instant(),
                created: launched,
                offer,
            });
        }
        self.remember(memory, id, &instance_id);
        if self.rarely(10) {
            snapshot.in_flight.agents.insert(id);
        }
        if self.rarely(10) {
            snapshot.in_flight.instances.insert(instance_id);
        }
    }

    fn remember(&mut self, memory: &mut Memory, id: AgentId, instance: &InstanceId) {
        if self.rarely(3) {
            memory.seen_busy.insert(id, self.instant());
        }
        if self.rarely(3) {
            memory.first_contact.insert(id, self.instant());
        }
        if self.rarely(3) {
            memory.without_instance.insert(id, self.instant());
        }
        if self.rarely(3) {
            memory.without_record.insert(instance.clone(), self.instant());
        }
        if self.rarely(8) {
            memory.started.insert(instance.clone(), self.instant());
        }
        if self.rarely(8) {
            memory.unconnected.insert(id, self.maybe_instant());
        }
        if self.rarely(8) {
            memory.record_deleted.insert(instance.clone());
        }
    }

    fn agent(&mut self, id: AgentId, name: String, created: Timestamp) -> Agent {
        let connected = self.pick(&[true, true, false]);
        let lately = now() - Duration::from_secs(5);
        // Not in the future: what is started now was not heard of after that.
        let contact = self.maybe_instant().map(|at| if self.extreme { at } else { at.min(now()) });
        let last_contact = if connected { Some(lately) } else { contact };
        Agent {
            id,
            name,
            created,
            last_contact,
            last_work: self.maybe_instant(),
            platform: self.pick(&["linux/amd64", "linux/arm64"]).to_owned(),
            backend: "docker".to_owned(),
            capacity: self.number(4),
            no_schedule: self.rarely(3),
            custom_labels: (!self.rarely(5)).then(|| labels(self.pick(&ANY_LABELS))),
            organisation: self.rarely(9).then_some(4),
        }
    }

    fn static_agent(&mut self, snapshot: &mut Snapshot, number: usize) {
        let id = AgentId(100 + i64::try_from(number).unwrap());
        let name = self.pick(&["build7", "build8", "", "picus-p1-builder1"]).to_owned();
        let created = self.instant();
        let agent = self.agent(id, name, created);
        snapshot.agents.push(agent);
    }

    fn launch(&mut self, snapshot: &mut Snapshot, number: usize) {
        let pool = snapshot.pools[self.below(snapshot.pools.len())].name.clone();
        // Some of them are listed, or registered, already.
        let known = self.rarely(3);
        let number = u64::try_from(if known { 1 + self.below(11) } else { 50 + number }).unwrap();
        let name = LaunchName::new(&installation(), &pool, number);
        if snapshot.in_flight.launches.iter().any(|launch| launch.name == name) {
            return;
        }
        let agent = snapshot.agents.iter().find(|agent| agent.name == name.as_str()).map(|agent| agent.id);
        let launching = Launching { pool, name, offer: offer("cx23").key, since: self.instant(), agent };
        snapshot.in_flight.launches.push(launching);
    }

    fn task(&mut self, snapshot: &mut Snapshot, memory: &mut Memory, number: usize, tasks: usize) {
        let id = TaskId(number.to_string());
        let mut task_labels = labels("repo=acme/app,org-id=3,woodpecker-ci.org/event=push");
        let more = ["", "platform=linux/amd64", "platform=linux/arm64", "type=a", "type=b", "zone=a", "gpu=true"];
        for (key, value) in labels(self.pick(&more)).iter().chain(labels(self.pick(&more)).iter()) {
            task_labels.set(key, value);
        }
        let needs: BTreeSet<usize> = (0..self.below(5).saturating_sub(2)).map(|_| self.below(tasks + 2)).collect();
        let group = self.pick(&["", "", "g", "h"]);
        let mut task = Task {
            id: id.clone(),
            name: self.pick(&["build", "test"]).to_owned(),
            labels: task_labels,
            dependencies: needs.into_iter().map(|id| TaskId(id.to_string())).collect(),
            agent: None,
            pipeline: i64::try_from(self.below(3)).unwrap(),
            pipeline_number: 1,
            concurrency_limit: (!group.is_empty()).then(|| self.number(3) + u32::from(!self.extreme)),
            concurrency_group: group.to_owned(),
            created: self.maybe_instant(),
        };
        if self.rarely(4) {
            memory.passed_over.insert(id, self.instant());
        }
        match self.below(5) {
            0..3 => snapshot.queue.pending.push(task),
            3 => snapshot.queue.waiting.push(task),
            _ => {
                let agents = snapshot.agents.len();
                let known = (agents > 0).then(|| self.below(agents)).and_then(|index| snapshot.agents.get(index));
                task.agent = known.map(|agent| agent.id).or(Some(AgentId(77)));
                snapshot.queue.running.push(task);
            }
        }
    }

    fn holds(&mut self, snapshot: &Snapshot, memory: &mut Memory) {
        if self.rarely(8) {
            let refusal = Refusal { why: "quota".to_owned(), until: self.soon() };
            memory.refusals.insert(AccountId(self.below(2)), refusal);
        }
        if self.rarely(4) {
            memory.sold_out.insert((AccountId(self.below(2)), offer("cx23").key), self.soon());
        }
        for pool in &snapshot.pools {
            if self.rarely(6) {
                let counted =
                    (1..=self.below(12)).map(|number| LaunchName::new(&installation(), &pool.name, number as u64));
                let trouble = Trouble {
                    failures: 1 + self.number(5).min(u32::MAX - 1),
                    why: "no".to_owned(),
                    counted: counted.collect(),
                    until: self.soon(),
                };
                memory.troubles.insert(pool.name.clone(), trouble);
            }
        }
    }
}

fn fixed(id: &str) -> FixedInstance {
    FixedInstance { id: InstanceId(id.to_owned()), agent: None }
}
