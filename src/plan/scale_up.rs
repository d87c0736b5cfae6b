//! Drains to undo, instances to start and launches, for the tasks that no slot takes and for the minimum.
//!
//! A task that several pools could take is counted once: for the first, in the order of the settings, that has room
//! and can be served.

mod pool;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use self::pool::{Names, PoolUp, Readiness, Undo};
use super::demand::Demand;
use super::fleet::Fleet;
use super::matching::{Class, Closed, Group, Placed};
use super::supply::{Supply, stuck_since};
use crate::model::action::{Action, Step};
use crate::model::decision::{Hold, Shared, TaskDecision};
use crate::model::ids::{AgentId, InstanceId, LaunchName, PoolName};
use crate::model::instance::Instance;
use crate::model::memory::Memory;
use crate::model::reason::Reason;
use crate::model::snapshot::Snapshot;

/// What scaling up decided.
#[derive(Debug)]
pub(super) struct ScaleUp<'a> {
    pools: Vec<PoolUp<'a>>,
    pub names_used: u64,
}

/// What the steps do to machines that exist, and why.
#[derive(Debug, Default)]
pub(super) struct Begins {
    /// Agents whose drain is undone.
    pub undone: BTreeMap<AgentId, Reason>,
    /// Instances that are started.
    pub started: BTreeMap<InstanceId, Reason>,
}

/// Decides which drains are undone and what is launched. Some of it may turn out not to be needed once all tasks are
/// laid on it: see [`ScaleUp::unneeded`].
pub(super) fn scale_up<'a>(
    snapshot: &'a Snapshot,
    memory: &'a Memory,
    fleet: &Fleet<'a>,
    demand: &Demand<'_>,
    supply: &Supply<'_>,
) -> ScaleUp<'a> {
    let mut names = Names::new(snapshot, memory, fleet);
    let mut pools: Vec<PoolUp<'a>> =
        (0..snapshot.pools.len()).map(|index| PoolUp::new(snapshot, memory, fleet, index)).collect();

    // What steps could add to the supply; afterwards, how much of it the tasks need.
    let mut more = Vec::new();
    let mut owners = Vec::new();
    for (index, pool) in pools.iter().enumerate() {
        for (labels, drains) in pool.drains_by_labels() {
            let slots = drains.iter().rev().map(|&drain| pool.drains[drain].free).collect();
            more.push((Group::new(Class::Drains, 0, Closed::Each(slots)), labels, index));
            owners.push((index, drains));
        }
        for (labels, starts) in pool.starts_by_labels() {
            let slots = starts.iter().rev().map(|&start| pool.starts[start].begun.slots).collect();
            more.push((Group::new(Class::Starts, 0, Closed::Each(slots)), labels, index));
            owners.push((index, starts));
        }
        if let Some(labels) = &pool.labels {
            let launches = Closed::Launches { room: pool.room, slots: pool.pool.slots };
            more.push((Group::new(Class::Launches, 0, launches), labels, index));
            owners.push((index, Vec::new()));
        }
    }
    let mut matching = supply.matching(demand, more);
    let standing = matching.groups.len() - owners.len();
    let mut uncovered = vec![0_u32; pools.len()];
    for waiting in demand.tasks.iter().filter(|waiting| waiting.wait.is_none()) {
        if stuck_since(snapshot, memory, &waiting.task.id).is_some()
            && matching.best(waiting.kind).is_some_and(|group| matching.groups[group].class == Class::Now)
        {
            continue;
        }
        let placed = matching.place(waiting.kind);
        if placed != Some(Placed::Standing)
            && let Some(&first) = demand.kinds[waiting.kind].pools.first()
        {
            uncovered[first] += 1;
        }
    }
    for ((index, machines), group) in owners.into_iter().zip(&matching.groups[standing..]) {
        match group.class {
            Class::Drains => {
                for drain in machines.into_iter().take(group.opened as usize) {
                    pools[index].drains[drain].undo = Some(Undo::ForTasks);
                }
            }
            Class::Starts => {
                for start in machines.into_iter().take(group.opened as usize) {
                    pools[index].start(start);
                }
            }
            Class::Launches => (0..group.opened).for_each(|_| pools[index].launch(&mut names)),
            Class::Now | Class::Booted => {}
        }
    }
    for ((index, pool), uncovered) in pools.iter_mut().enumerate().zip(uncovered) {
        pool.uncovered = uncovered;
        pool.undo_paid(snapshot);
        pool.reach_minimum(fleet.usable(snapshot, index), &mut names);
        // In the order in which tasks are laid on them.
        pool.launches.sort();
    }
    ScaleUp { pools, names_used: names.used }
}

impl ScaleUp<'_> {
    /// The supply as it will be once the steps are carried out.
    pub fn add_to<'s>(&'s self, supply: &Supply<'s>) -> Supply<'s> {
        let mut supply = supply.clone();
        for (index, pool) in self.pools.iter().enumerate() {
            for drain in pool.drains.iter().filter(|drain| drain.undo.is_some()) {
                supply.add_undone(drain.labels.clone(), drain.name, index, drain.idle, drain.free);
            }
            for start in pool.starts.iter().filter(|start| start.chosen) {
                supply.add_started(start.name, index, &start.begun);
            }
            if let Some(labels) = &pool.labels {
                let names = pool.launches.iter().map(LaunchName::as_str);
                supply.add_launches(labels, names, index, pool.pool.slots);
            }
        }
        supply
    }

    /// Names of drains, stopped instances and launches that no task is laid on and that the minimum does not ask for either.
    pub fn unneeded<'s>(&'s self, loads: &HashMap<&str, u32>) -> BTreeSet<&'s str> {
        let mut unneeded = BTreeSet::new();
        for pool in &self.pools {
            let mut surplus = pool.have.saturating_sub(pool.pool.min);
            let mut drop = |name: &'s str, counts: bool| {
                let unused = !loads.contains_key(name);
                if unused && (!counts || surplus > 0) {
                    surplus -= u32::from(counts);
                    unneeded.insert(name);
                }
            };
            for name in pool.launches.iter().rev() {
                drop(name.as_str(), true);
            }
            for start in pool.starts.iter().rev().filter(|start| start.chosen) {
                drop(start.name, start.usable);
            }
            for drain in &pool.drains {
                match drain.undo {
                    Some(Undo::ForTasks | Undo::ForMinimum) => drop(drain.name, drain.usable),
                    Some(Undo::PaidAgain { .. }) | None => {}
                }
            }
        }
        unneeded
    }

    /// The steps but for those, and what they do to machines that exist.
    pub fn steps(&self, loads: &HashMap<&str, u32>, unneeded: &BTreeSet<&str>) -> (Vec<Step>, Begins) {
        let mut steps = Vec::new();
        let Begins { mut undone, mut started } = Begins::default();
        for PoolUp { pool, drains, starts, launches, offer, .. } in &self.pools {
            let below_minimum = Reason::BelowMinimum { min: pool.min };
            for drain in drains.iter().filter(|drain| !unneeded.contains(drain.name)) {
                let reason = match (drain.undo, loads.get(drain.name)) {
                    (None, _) => continue,
                    (Some(_), Some(&tasks)) => Reason::TasksWait { tasks },
                    (Some(Undo::PaidAgain { until }), None) => Reason::PaidAgain { until },
                    (Some(Undo::ForTasks | Undo::ForMinimum), None) => below_minimum.clone(),
                };
                undone.insert(drain.agent, reason.clone());
                let (name, noted_on) = (drain.record.to_owned(), drain.noted_on.cloned());
                let action = Action::Uncordon { agent: drain.agent, name, noted_on };
                steps.push(Step { pool: pool.name.clone(), action, reason });
            }
            for start in starts
                .iter()
                .filter(|start| start.chosen && start.readiness == Readiness::Ready && !unneeded.contains(start.name))
            {
                let reason = match loads.get(start.name) {
                    Some(&tasks) => Reason::TasksWait { tasks },
                    None => below_minimum.clone(),
                };
                let Instance { id, offer, .. } = start.instance;
                started.insert(id.clone(), reason.clone());
                let action = Action::Start { instance: id.clone(), name: start.name.to_owned(), offer: offer.clone() };
                steps.push(Step { pool: pool.name.clone(), action, reason });
            }
            let Ok(offer) = offer else { continue };
            for name in launches.iter().filter(|name| !unneeded.contains(name.as_str())) {
                let reason = match loads.get(name.as_str()) {
                    Some(&tasks) => Reason::TasksWait { tasks },
                    None => below_minimum.clone(),
                };
                let action = Action::Launch { name: name.clone(), offer: offer.key.clone() };
                steps.push(Step { pool: pool.name.clone(), action, reason });
            }
        }
        (steps, Begins { undone, started })
    }

    /// Says for tasks of ours that nothing could be had for what each pool waits for.
    pub fn explain(&self, demand: &Demand<'_>, decisions: &mut [TaskDecision]) {
        let mut of_kind: Vec<Option<Shared<(PoolName, Hold)>>> = vec![None; demand.kinds.len()];
        for (waiting, decision) in demand.tasks.iter().zip(decisions) {
            if let TaskDecision::Held { why } = decision {
                let explanation = of_kind[waiting.kind].get_or_insert_with(|| {
                    let pools = demand.kinds[waiting.kind].pools.iter().map(|&index| &self.pools[index]);
                    pools.map(|pool| (pool.pool.name.clone(), pool.hold().clone())).collect()
                });
                why.clone_from(explanation);
            }
        }
    }

    /// How many more instances each pool would launch, for tasks or its minimum, if it were not at its maximum.
    pub fn short(&self, decisions: &[TaskDecision]) -> Vec<u32> {
        let index: HashMap<&PoolName, usize> =
            self.pools.iter().enumerate().map(|(index, pool)| (&pool.pool.name, index)).collect();
        let mut held = vec![0_u32; self.pools.len()];
        for decision in decisions {
            if let TaskDecision::Held { why } = decision
                && let Some((pool, _)) = why.iter().find(|(_, hold)| matches!(hold, Hold::AtMaximum { .. }))
            {
                held[index[pool]] += 1;
            }
        }
        let short = |(pool, held): (&PoolUp<'_>, u32)| match pool.hold() {
            Hold::AtMaximum { .. } if pool.room == 0 && !pool.in_trouble && !pool.pool.is_fixed() => {
                held.div_ceil(pool.pool.slots.max(1)).max(pool.pool.min.saturating_sub(pool.have))
            }
            Hold::AtMaximum { .. }
            | Hold::NothingToStart { .. }
            | Hold::SoldOut { .. }
            | Hold::Refused { .. }
            | Hold::Trouble { .. }
            | Hold::ListingUnknown { .. }
            | Hold::NotReady { .. } => 0,
        };
        self.pools.iter().zip(held).map(short).collect()
    }

    /// Tasks of a pool that could start and that no slot covered before this.
    pub fn uncovered(&self, pool: usize) -> u32 {
        self.pools[pool].uncovered
    }
}
