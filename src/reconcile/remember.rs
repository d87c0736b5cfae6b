//! Learns from what was observed and decided. Plain data in, plain data out.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::action::{Fate, Plan, Reason, TaskDecision};
use crate::model::agent::Agent;
use crate::model::ids::{AgentId, InstanceId, LaunchName, PoolName};
use crate::model::instance::Instance;
use crate::model::memory::{Cordon, LONGEST_PAUSE, Memory, pause_after};
use crate::model::pool::Pool;
use crate::model::snapshot::{Listing, Snapshot};
use crate::model::{age, later};

impl Memory {
    /// Learns from a snapshot, before a plan is made of it.
    pub(super) fn observed(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now;
        self.watch.succeeded(now);
        self.see_agents(snapshot);
        self.see_absences(snapshot);
        self.sold_out.retain(|_, until| now < *until);
        self.refusals.retain(|_, refusal| now < refusal.until);
        self.troubles.retain(|_, trouble| now < later(trouble.until, LONGEST_PAUSE));
    }

    fn see_agents(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now;
        let there: BTreeSet<AgentId> = snapshot.agents.iter().map(|agent| agent.id).collect();
        let cordoned: BTreeSet<AgentId> =
            snapshot.agents.iter().filter(|agent| agent.no_schedule).map(|agent| agent.id).collect();
        let busy = snapshot.queue.running.iter().filter_map(|task| task.agent);
        self.cordons.retain(|agent, _| cordoned.contains(agent) || snapshot.in_flight.agents.contains(agent));
        for agent in cordoned {
            self.cordons.entry(agent).or_insert(Cordon { since: now, ours: false });
        }
        // Also of agents that are not listed: an instance whose record seems gone is spared if it worked lately.
        self.seen_busy.retain(|agent, at| there.contains(agent) || age(now, *at) < LONGEST_PAUSE);
        self.seen_busy.extend(busy.map(|agent| (agent, now)));
        self.first_contact.retain(|agent, _| there.contains(agent));
        self.unconnected.retain(|agent| there.contains(agent));
        let mut connected: Vec<PoolName> = Vec::new();
        for agent in &snapshot.agents {
            if agent.last_contact.is_none() {
                self.unconnected.insert(agent.id);
            } else {
                let before = self.unconnected.remove(&agent.id);
                if before {
                    self.first_contact.insert(agent.id, now);
                }
                let pool = LaunchName::pool_of(&agent.name, &snapshot.installation);
                // With the shared secret a record is made at the first contact, so it is never seen unconnected.
                connected.extend(pool.filter(|pool| before || self.came_after_trouble(pool, agent)));
            }
        }
        for pool in connected {
            self.launch_succeeded(&pool);
        }
    }

    /// This agent was made after the last failure of its pool, and connected.
    fn came_after_trouble(&self, pool: &PoolName, agent: &Agent) -> bool {
        self.troubles.get(pool).is_some_and(|trouble| {
            later(agent.created, pause_after(trouble.failures.saturating_sub(1))) > trouble.until
        })
    }

    /// Absence counts from when it was first seen; an account whose listing is unknown says nothing of its own.
    fn see_absences(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now;
        let records: BTreeSet<AgentId> = snapshot.agents.iter().map(|agent| agent.id).collect();
        let mut all_known = true;
        let mut listed: BTreeMap<&InstanceId, &Instance> = BTreeMap::new();
        for listing in snapshot.instances.values() {
            match listing {
                Listing::Known { instances, .. } => {
                    listed.extend(instances.iter().map(|instance| (&instance.id, instance)));
                }
                Listing::Unknown { .. } => all_known = false,
            }
        }
        for (id, instance) in &listed {
            if instance.agent.is_some_and(|agent| !records.contains(&agent)) {
                self.without_record.entry((*id).clone()).or_insert(now);
            } else {
                self.without_record.remove(*id);
            }
        }
        self.see_names(snapshot, &listed);
        if all_known {
            self.records.retain(|id, _| listed.contains_key(id));
            self.without_record.retain(|id, _| listed.contains_key(id));
            self.record_deleted.retain(|id| listed.contains_key(id));
        }
        self.see_records_without_instance(snapshot, &listed);
    }

    /// Which record has the name of an instance that names none.
    fn see_names(&mut self, snapshot: &Snapshot, listed: &BTreeMap<&InstanceId, &Instance>) {
        let newest = newest_by_name(snapshot);
        for (id, instance) in listed.iter().filter(|(_, instance)| instance.agent.is_none()) {
            if let Some(agent) = newest.get(instance.name.as_str()) {
                self.records.insert((*id).clone(), agent.id);
            }
        }
    }

    fn see_records_without_instance(&mut self, snapshot: &Snapshot, listed: &BTreeMap<&InstanceId, &Instance>) {
        let launching = snapshot.in_flight.launches.iter().map(|launch| launch.name.as_str());
        let named: BTreeSet<&str> = listed.values().map(|instance| instance.name.as_str()).chain(launching).collect();
        let linked = listed.iter().filter_map(|(id, instance)| instance.agent.or(self.records.get(*id).copied()));
        let linked: BTreeSet<AgentId> = linked.collect();
        // Of several records with one name (the shared secret and a new disk) only the one last heard of has the instance.
        let newest = newest_by_name(snapshot);
        let known = |pool: &Pool| matches!(snapshot.instances.get(&pool.account), Some(Listing::Known { .. }));
        let known_pools: BTreeSet<&PoolName> =
            snapshot.pools.iter().filter(|pool| known(pool)).map(|pool| &pool.name).collect();
        let mut there = BTreeSet::new();
        for agent in &snapshot.agents {
            there.insert(agent.id);
            let Some(pool) = LaunchName::pool_of(&agent.name, &snapshot.installation) else { continue };
            if !known_pools.contains(&pool) {
                continue;
            }
            let is_newest = newest.get(agent.name.as_str()).is_some_and(|newest| newest.id == agent.id);
            let has_instance = linked.contains(&agent.id) || (named.contains(agent.name.as_str()) && is_newest);
            if has_instance {
                self.without_instance.remove(&agent.id);
            } else {
                self.without_instance.entry(agent.id).or_insert(snapshot.now);
            }
        }
        self.without_instance.retain(|agent, _| there.contains(agent));
    }

    /// Learns from what was decided, before it is carried out.
    pub(super) fn decided(&mut self, snapshot: &Snapshot, plan: &Plan) {
        let now = snapshot.now;
        self.next_launch = self.next_launch.wrapping_add(plan.names_used);
        let mut passed_over = BTreeMap::new();
        for (task, decision) in &plan.tasks {
            match decision {
                TaskDecision::Covered { .. } | TaskDecision::Stuck { .. } => {
                    passed_over.insert(task.clone(), self.passed_over.get(task).copied().unwrap_or(now));
                }
                TaskDecision::Booting { .. }
                | TaskDecision::Uncordoned { .. }
                | TaskDecision::Held { .. }
                | TaskDecision::NotReady { .. }
                | TaskDecision::NotOurs { .. } => {}
            }
        }
        self.passed_over = passed_over;
        for machine in &plan.machines {
            if let Fate::Step { reason: Reason::NeverConnected { launched }, .. } = &machine.fate
                && let Some(name) = LaunchName::parse(&machine.name, &snapshot.installation, &machine.pool)
            {
                let why = format!(
                    "{name} was launched at {launched:.0} and never connected: look whether instances reach \
                     PICUS_AGENT_WOODPECKER_SERVER, whether the agent's image can be pulled, and at the instance's console"
                );
                self.launch_failed(&machine.pool, &name, why, now);
            }
        }
    }
}

/// Of several records with one name the one last heard of.
fn newest_by_name(snapshot: &Snapshot) -> BTreeMap<&str, &Agent> {
    let mut newest: BTreeMap<&str, &Agent> = BTreeMap::new();
    for agent in &snapshot.agents {
        let best = newest.entry(agent.name.as_str()).or_insert(agent);
        if (agent.last_contact, agent.id) > (best.last_contact, best.id) {
            *best = agent;
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::ids::InstallationId;
    use crate::model::snapshot::{InFlight, Queue};

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + 60 * minute).unwrap()
    }

    fn snapshot(minute: i64, agents: Vec<Agent>) -> Snapshot {
        Snapshot {
            now: at(minute),
            installation: InstallationId::from("picus"),
            poll_interval: std::time::Duration::from_secs(10),
            pools: Vec::new(),
            queue: Queue::default(),
            agents,
            instances: BTreeMap::new(),
            in_flight: InFlight::default(),
        }
    }

    fn connected(name: &LaunchName, created: i64) -> Agent {
        Agent {
            id: AgentId(7),
            name: name.to_string(),
            created: at(created),
            last_contact: Some(at(created)),
            last_work: None,
            platform: String::new(),
            backend: String::new(),
            capacity: 1,
            no_schedule: false,
            custom_labels: None,
            organisation: None,
        }
    }

    #[test]
    fn an_agent_that_registers_itself_at_its_first_contact_ends_its_pools_trouble() {
        let pool = PoolName::from("p1");
        let name = |number| LaunchName::new(&InstallationId::from("picus"), &pool, number);
        for (created, over) in [(-1, false), (1, true)] {
            let mut memory = Memory::default();
            for minute in [-5_i64, 0] {
                memory.launch_failed(&pool, &name(minute.unsigned_abs()), "no".to_owned(), at(minute));
            }
            memory.observed(&snapshot(3, vec![connected(&name(9), created)]));
            assert_eq!(memory.troubles.is_empty(), over, "made in minute {created}");
        }
    }

    #[test]
    fn it_is_remembered_that_an_agent_worked_lately_when_its_record_seems_gone() {
        let mut memory = Memory::default();
        memory.seen_busy.insert(AgentId(7), at(0));
        memory.observed(&snapshot(1, Vec::new()));
        assert_eq!(memory.seen_busy.get(&AgentId(7)), Some(&at(0)));
        memory.observed(&snapshot(60, Vec::new()));
        assert!(memory.seen_busy.is_empty());
    }
}
