//! Learns from what was observed and decided. Plain data in, plain data out.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::action::{Fate, Plan, Reason, TaskDecision};
use crate::model::agent::Agent;
use crate::model::ids::{AgentId, InstanceId, LaunchName, PoolName};
use crate::model::instance::Instance;
use crate::model::later;
use crate::model::memory::{Cordon, LONGEST_PAUSE, Memory};
use crate::model::pool::Pool;
use crate::model::snapshot::{Listing, Snapshot};

impl Memory {
    /// Learns from a snapshot, before a plan is made of it.
    pub(super) fn observed(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now;
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
        // A record that is missing from a list may be there all the same, and its instance is spared for a while.
        let spared = snapshot.pools.iter().map(|pool| pool.boot_timeout).max().unwrap_or_default();
        self.seen_busy.retain(|agent, seen| there.contains(agent) || now < later(*seen, spared));
        self.seen_busy.extend(busy.map(|agent| (agent, now)));
        self.first_contact.retain(|agent, _| there.contains(agent));
        self.unconnected.retain(|agent| there.contains(agent));
        let mut connected: Vec<PoolName> = Vec::new();
        for agent in &snapshot.agents {
            if agent.last_contact.is_none() {
                self.unconnected.insert(agent.id);
            } else if self.unconnected.remove(&agent.id) | self.awaited.remove(&agent.name) {
                self.first_contact.insert(agent.id, now);
                connected.extend(LaunchName::pool_of(&agent.name, &snapshot.installation));
            }
        }
        for pool in connected {
            self.launch_succeeded(&pool);
        }
    }

    /// Absence counts from when it was first seen; an account whose listing is unknown says nothing of its own.
    fn see_absences(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now;
        let records: BTreeSet<AgentId> = snapshot.agents.iter().map(|agent| agent.id).collect();
        let names: BTreeSet<&str> = snapshot.agents.iter().map(|agent| agent.name.as_str()).collect();
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
            let has_record = match instance.agent {
                Some(agent) => records.contains(&agent),
                None => names.contains(instance.name.as_str()),
            };
            if has_record {
                self.without_record.remove(*id);
            } else {
                self.without_record.entry((*id).clone()).or_insert(now);
                if instance.agent.is_none() {
                    self.awaited.insert(instance.name.to_string());
                }
            }
        }
        if all_known {
            self.without_record.retain(|id, _| listed.contains_key(id));
            self.record_deleted.retain(|id| listed.contains_key(id));
            let launching = snapshot.in_flight.launches.iter().map(|launch| launch.name.as_str());
            let there: BTreeSet<&str> =
                listed.values().map(|instance| instance.name.as_str()).chain(launching).collect();
            self.awaited.retain(|name| there.contains(name.as_str()));
        }
        self.see_records_without_instance(snapshot, &listed);
    }

    fn see_records_without_instance(&mut self, snapshot: &Snapshot, listed: &BTreeMap<&InstanceId, &Instance>) {
        let launching = snapshot.in_flight.launches.iter().map(|launch| launch.name.as_str());
        let named: BTreeSet<&str> = listed.values().map(|instance| instance.name.as_str()).chain(launching).collect();
        let linked: BTreeSet<AgentId> = listed.values().filter_map(|instance| instance.agent).collect();
        // Of several records with one name (the shared secret and a new disk) only the one last heard of has the instance.
        let mut newest: BTreeMap<&str, &Agent> = BTreeMap::new();
        for agent in &snapshot.agents {
            let best = newest.entry(agent.name.as_str()).or_insert(agent);
            if (agent.last_contact, agent.id) > (best.last_contact, best.id) {
                *best = agent;
            }
        }
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
