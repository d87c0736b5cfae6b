//! Learns from what was observed and decided. Plain data in, plain data out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::model::action::Plan;
use crate::model::agent::Agent;
use crate::model::decision::TaskDecision;
use crate::model::ids::{AgentId, InstanceId, LaunchName, PoolName};
use crate::model::instance::Instance;
use crate::model::machine::{Fate, MachineState};
use crate::model::memory::{Cordon, LONGEST_PAUSE, Memory, Trouble};
use crate::model::pool::Pool;
use crate::model::reason::Reason;
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
        let noted = noted_drains(snapshot);
        for agent in cordoned {
            self.cordons.entry(agent).or_insert_with(|| Cordon { since: now, ours: noted.contains(&agent) });
        }
        // Also of agents that are not listed: an instance whose record seems gone is spared if it worked lately.
        self.seen_busy.retain(|agent, at| there.contains(agent) || age(now, *at) < LONGEST_PAUSE);
        self.seen_busy.extend(busy.map(|agent| (agent, now)));
        self.first_contact.retain(|agent, _| there.contains(agent));
        self.unconnected.retain(|agent, _| there.contains(agent));
        let mut connected: Vec<PoolName> = Vec::new();
        for agent in &snapshot.agents {
            if agent.last_contact.is_none() {
                self.unconnected.insert(agent.id, None);
            } else if self.unconnected.get(&agent.id).is_some_and(|before| agent.last_contact > *before) {
                self.unconnected.remove(&agent.id);
                self.first_contact.insert(agent.id, now);
                connected.extend(LaunchName::pool_of(&agent.name, &snapshot.installation));
            } else if let Some(pool) = LaunchName::pool_of(&agent.name, &snapshot.installation)
                // With a shared secret a record begins with the first contact, so it is never seen without one.
                && self.troubles.get(&pool).is_some_and(|trouble| agent.created > trouble.failed_at())
            {
                connected.push(pool);
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
            }
        }
        self.see_names(snapshot, &listed);
        if all_known {
            self.records.retain(|id, _| listed.contains_key(id));
            self.without_record.retain(|id, _| listed.contains_key(id));
            self.record_deleted.retain(|id| listed.contains_key(id));
            self.started.retain(|id, _| listed.contains_key(id));
        }
        self.see_records_without_instance(snapshot, &listed);
    }

    /// Machines that are started again begin anew: what was heard of their agents before does not count.
    fn see_starts(&mut self, snapshot: &Snapshot, plan: &Plan) {
        let contacts: BTreeMap<AgentId, Option<Timestamp>> =
            snapshot.agents.iter().map(|agent| (agent.id, agent.last_contact)).collect();
        let keeps: BTreeSet<&PoolName> =
            snapshot.pools.iter().filter(|pool| pool.keeps_stopped()).map(|pool| &pool.name).collect();
        for machine in plan.machines.iter().filter(|machine| keeps.contains(&machine.pool)) {
            let Some((agent, contact)) = machine.agent.and_then(|id| Some((id, *contacts.get(&id)?))) else { continue };
            match machine.state {
                MachineState::Stopped | MachineState::Stopping => {
                    self.unconnected.insert(agent, contact);
                }
                MachineState::Booting => {
                    self.unconnected.entry(agent).or_insert(contact);
                }
                MachineState::Busy | MachineState::Idle => {
                    let failed = self.troubles.get(&machine.pool).map(Trouble::failed_at);
                    if failed.is_some_and(|failed| self.first_contact.get(&agent).is_some_and(|first| *first > failed))
                    {
                        self.launch_succeeded(&machine.pool);
                    }
                }
                MachineState::Cordoned
                | MachineState::Lost
                | MachineState::Failed
                | MachineState::Orphan
                | MachineState::Deleting => {}
            }
        }
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
                | TaskDecision::Starting { .. }
                | TaskDecision::Uncordoned { .. }
                | TaskDecision::Held { .. }
                | TaskDecision::NotReady { .. }
                | TaskDecision::NotOurs { .. } => {}
            }
        }
        self.passed_over = passed_over;
        self.see_starts(snapshot, plan);
        for machine in &plan.machines {
            if let Fate::Step { reason: Reason::NeverConnected { launched }, .. } = &machine.fate {
                let name = LaunchName::renamed(&machine.name);
                let why = format!(
                    "{name} was launched at {launched:.0} and never connected: look whether instances reach \
                     PICUS_AGENT_WOODPECKER_SERVER, whether the agent's image can be pulled, and at the instance's console"
                );
                self.launch_failed(&machine.pool, &name, why, now);
            }
        }
    }
}

/// Agents whose drain is noted on their instance.
fn noted_drains(snapshot: &Snapshot) -> BTreeSet<AgentId> {
    snapshot.listed().filter_map(|instance| instance.draining).collect()
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
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::model::ids::{InstallationId, ServerMark};
    use crate::model::snapshot::{InFlight, Queue};

    fn at(time: &str) -> Timestamp {
        format!("2026-12-01T{time}Z").parse().unwrap()
    }

    fn snapshot(now: &str, agents: Vec<Agent>) -> Snapshot {
        Snapshot {
            now: at(now),
            installation: InstallationId::from("picus"),
            server: ServerMark::from("thisone"),
            poll_interval: Duration::from_secs(10),
            pools: Vec::new(),
            queue: Queue::default(),
            agents,
            instances: BTreeMap::new(),
            in_flight: InFlight::default(),
        }
    }

    fn ours(number: u64, created: &str, last_contact: Option<&str>) -> Agent {
        let name = LaunchName::new(&InstallationId::from("picus"), &PoolName::from("default"), number);
        Agent {
            id: AgentId(i64::try_from(number).unwrap()),
            name: name.to_string(),
            created: at(created),
            last_contact: last_contact.map(at),
            last_work: None,
            platform: "linux/amd64".to_owned(),
            backend: "docker".to_owned(),
            capacity: 1,
            no_schedule: false,
            custom_labels: None,
            organisation: None,
        }
    }

    fn fails(memory: &mut Memory, number: u64, time: &str) {
        let pool = PoolName::from("default");
        let name = LaunchName::new(&InstallationId::from("picus"), &pool, number);
        memory.launch_failed(&pool, &name, "it never connected".to_owned(), at(time));
    }

    #[test]
    fn one_agent_that_connects_ends_the_row_of_failures_also_where_its_record_begins_with_the_contact() {
        let mut memory = Memory::default();
        fails(&mut memory, 1, "12:00:00");
        fails(&mut memory, 2, "12:05:00");
        assert_eq!(memory.troubles[&PoolName::from("default")].failed_at(), at("12:05:00"));

        // One that was there before proves nothing, however lately it was heard of.
        memory.observed(&snapshot("12:10:00", vec![ours(3, "11:00:00", Some("12:09:55"))]));
        assert!(!memory.troubles.is_empty());
        memory.observed(&snapshot("12:10:00", vec![ours(4, "12:09:50", Some("12:09:55"))]));
        assert!(memory.troubles.is_empty());
    }

    #[test]
    fn an_agent_that_was_registered_and_has_not_connected_does_not_end_the_row_of_failures() {
        let mut memory = Memory::default();
        fails(&mut memory, 1, "12:00:00");
        memory.observed(&snapshot("12:10:00", vec![ours(2, "12:08:00", None)]));
        assert!(!memory.troubles.is_empty());
        memory.observed(&snapshot("12:11:00", vec![ours(2, "12:08:00", Some("12:10:55"))]));
        assert!(memory.troubles.is_empty());
    }

    #[test]
    fn it_is_remembered_that_an_agent_worked_lately_when_its_record_seems_gone() {
        let mut memory = Memory::default();
        memory.seen_busy.insert(AgentId(7), at("12:00:00"));
        memory.observed(&snapshot("12:01:00", Vec::new()));
        assert_eq!(memory.seen_busy.get(&AgentId(7)), Some(&at("12:00:00")));
        memory.observed(&snapshot("13:00:00", Vec::new()));
        assert!(memory.seen_busy.is_empty());
    }
}
