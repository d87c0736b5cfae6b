//! Which slots take which tasks, the way the server would give them out.
//!
//! Slots are grouped by the labels of their agents, tasks by kind, so that both are matched once a group. A connected
//! slot is taken before one that still boots; among those the best score wins, as at the server; among equals the
//! group that fits the fewest kinds, so that a slot which only fits one kind of task is not spent on another.

use std::collections::{BTreeMap, BTreeSet};

use super::STUCK_AFTER;
use super::demand::Demand;
use super::fleet::{Fleet, agent_labels, seen_lately};
use crate::model::action::{MachineState, TaskDecision, Wait};
use crate::model::age;
use crate::model::ids::PoolName;
use crate::model::labels::{Labels, fit};
use crate::model::memory::Memory;
use crate::model::snapshot::Snapshot;

/// When a slot can take a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    /// Once the task that runs there has ended.
    Later,
    /// Now.
    Now,
    /// Once its instance has booted.
    Booted,
}

/// Free slots of one agent.
#[derive(Debug)]
struct Holder<'a> {
    name: &'a str,
    /// Index of its pool, if it is ours.
    pool: Option<usize>,
    left: u32,
}

/// Slots that matching can't tell apart.
#[derive(Debug)]
struct Group<'a> {
    when: When,
    labels: Labels,
    holders: Vec<Holder<'a>>,
    /// The first holder that may have something left.
    next: usize,
}

impl Group<'_> {
    /// The holder that the next task goes to.
    fn next_holder(&mut self) -> Option<usize> {
        while self.holders.get(self.next).is_some_and(|holder| holder.left == 0) {
            self.next += 1;
        }
        (self.next < self.holders.len()).then_some(self.next)
    }
}

/// All slots, and for each kind of task the groups that fit it, best first.
#[derive(Debug)]
pub(super) struct Slots<'a> {
    groups: Vec<Group<'a>>,
    /// By kind: groups that can take a task now or once booted.
    startable: Vec<Vec<usize>>,
    /// By kind: the same, behind those that will be free again.
    waiting: Vec<Vec<usize>>,
    pools: Vec<PoolName>,
    /// Names of our machines that a task of this snapshot is laid on.
    needed: BTreeSet<&'a str>,
}

impl<'a> Slots<'a> {
    pub fn new(snapshot: &'a Snapshot, fleet: &Fleet<'a>, demand: &Demand<'_>) -> Self {
        let mut groups: BTreeMap<(When, Labels), Vec<Holder<'a>>> = BTreeMap::new();
        let mut add = |when: When, labels: &Labels, holder: Holder<'a>| {
            if holder.left > 0 {
                groups.entry((when, labels.clone())).or_default().push(holder);
            }
        };
        for agent in snapshot.agents.iter().filter(|agent| !fleet.ours.contains(&agent.id)) {
            if !agent.no_schedule && seen_lately(agent, snapshot.now) {
                let running = fleet.running.get(&agent.id).copied().unwrap_or(0);
                let labels = agent_labels(agent, None);
                let name = agent.name.as_str();
                add(When::Later, &labels, Holder { name, pool: None, left: running });
                add(When::Now, &labels, Holder { name, pool: None, left: agent.capacity.saturating_sub(running) });
            }
        }
        for machine in fleet.machines.iter().filter(|machine| !machine.in_flight) {
            let pool = &snapshot.pools[machine.pool];
            let holder = |left| Holder { name: machine.name, pool: Some(machine.pool), left };
            match (machine.state, machine.agent) {
                (MachineState::Busy | MachineState::Idle, Some(agent)) if seen_lately(agent, snapshot.now) => {
                    let labels = agent_labels(agent, Some(pool));
                    add(When::Later, &labels, holder(machine.running));
                    add(When::Now, &labels, holder(machine.free()));
                }
                (MachineState::Booting, _) => {
                    if let Some(labels) = pool.effective_labels() {
                        add(When::Booted, &labels, holder(pool.slots));
                    }
                }
                (
                    MachineState::Busy
                    | MachineState::Idle
                    | MachineState::Cordoned
                    | MachineState::Lost
                    | MachineState::Failed
                    | MachineState::Orphan
                    | MachineState::Deleting,
                    _,
                ) => {}
            }
        }
        let groups: Vec<Group<'a>> = groups
            .into_iter()
            .map(|((when, labels), mut holders)| {
                holders.sort_by(|a, b| a.name.cmp(b.name));
                Group { when, labels, holders, next: 0 }
            })
            .collect();
        let (startable, waiting) = rank(&groups, demand);
        let pools = snapshot.pools.iter().map(|pool| pool.name.clone()).collect();
        Self { groups, startable, waiting, pools, needed: BTreeSet::new() }
    }

    /// Whether a task of this snapshot is laid on the machine of ours with this name.
    pub fn needs(&self, name: &str) -> bool {
        self.needed.contains(name)
    }

    /// The best group for a kind that has a slot left, and its holder.
    fn best(&mut self, kind: usize, waiting: bool) -> Option<(usize, usize)> {
        let ranking = if waiting { &mut self.waiting[kind] } else { &mut self.startable[kind] };
        // Rankings are worst first, so that groups which are used up fall off the end.
        while let Some(&group) = ranking.last() {
            if let Some(holder) = self.groups[group].next_holder() {
                return Some((group, holder));
            }
            ranking.pop();
        }
        None
    }

    fn take(&mut self, group: usize, holder: usize) {
        let holder = &mut self.groups[group].holders[holder];
        holder.left -= 1;
        if holder.pool.is_some() {
            self.needed.insert(holder.name);
        }
    }
}

/// For each kind the groups that fit, worst first: for tasks that could start, and for those that wait for others.
fn rank(groups: &[Group<'_>], demand: &Demand<'_>) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let mut fits: Vec<Vec<(usize, u32)>> = Vec::with_capacity(demand.kinds.len());
    let mut kinds_of_group = vec![0_usize; groups.len()];
    for kind in &demand.kinds {
        let mut fitting = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            if let Ok(score) = fit(&group.labels, kind.labels) {
                fitting.push((index, score.0));
                kinds_of_group[index] += 1;
            }
        }
        fits.push(fitting);
    }
    let mut startable = Vec::with_capacity(fits.len());
    let mut waiting = Vec::with_capacity(fits.len());
    for mut fitting in fits {
        fitting.sort_by_key(|&(index, score)| {
            (
                std::cmp::Reverse(groups[index].when),
                score,
                std::cmp::Reverse(kinds_of_group[index]),
                std::cmp::Reverse(index),
            )
        });
        let all: Vec<usize> = fitting.into_iter().map(|(index, _)| index).collect();
        startable.push(all.iter().copied().filter(|&index| groups[index].when != When::Later).collect());
        waiting.push(all);
    }
    (startable, waiting)
}

/// Lays every task that could start on a slot. What no slot takes is left as [`TaskDecision::Held`] without a reason,
/// or as not ours.
pub(super) fn lay_startable(
    snapshot: &Snapshot,
    memory: &Memory,
    demand: &Demand<'_>,
    slots: &mut Slots<'_>,
) -> Vec<TaskDecision> {
    let mut decisions = Vec::with_capacity(demand.tasks.len());
    for waiting in &demand.tasks {
        let kind = &demand.kinds[waiting.kind];
        decisions.push(if let Some(why) = &waiting.wait {
            TaskDecision::NotReady { why: why.clone() }
        } else if let Some((group, holder)) = slots.best(waiting.kind, false) {
            let connected = slots.groups[group].when != When::Booted;
            let by = slots.groups[group].holders[holder].name.to_owned();
            let pool = slots.groups[group].holders[holder].pool;
            let stuck =
                memory.passed_over.get(&waiting.task.id).filter(|since| age(snapshot.now, **since) >= STUCK_AFTER);
            match (connected, stuck, pool) {
                (true, Some(since), _) => TaskDecision::Stuck { since: *since, agent: by },
                (false, _, Some(pool)) => {
                    slots.take(group, holder);
                    TaskDecision::Booting { by, pool: slots.pools[pool].clone() }
                }
                (true, None, _) | (false, _, None) => {
                    slots.take(group, holder);
                    TaskDecision::Covered { by }
                }
            }
        } else if kind.pools.is_empty() {
            TaskDecision::NotOurs { why: kind.mismatches.clone() }
        } else {
            TaskDecision::Held { why: Vec::new() }
        });
    }
    decisions
}

/// Lays those tasks that wait for others: the slots they will need soon are not to be retired. A slot that is busy
/// now is taken first: it will be free by the time that what runs there has ended.
pub(super) fn lay_waiting(demand: &Demand<'_>, slots: &mut Slots<'_>) {
    for waiting in &demand.tasks {
        if let Some(Wait::Dependencies { .. }) = waiting.wait
            && let Some((group, holder)) = slots.best(waiting.kind, true)
        {
            slots.take(group, holder);
        }
    }
}
