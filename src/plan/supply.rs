//! Which slots there are, and which task is laid on which, the way the server would give them out.
//!
//! Slots are grouped by the labels of their agents, tasks by kind, so that both are matched once a group. A connected
//! slot is taken before one that still boots; among those the best score wins, as at the server; among equals the
//! group that fits the fewest kinds, so that a slot which only fits one kind of task is not spent on another.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::demand::Demand;
use super::fleet::{AgentKind, Fleet, Machine, seen_lately, worked_lately};
use super::matching::{Class, Closed, Group, Matching};
use super::{PASSED_OVER, STUCK_AFTER};
use crate::model::age;
use crate::model::agent::Agent;
use crate::model::decision::{Shared, TaskDecision, Wait};
use crate::model::ids::{AgentId, PoolName, TaskId};
use crate::model::labels::{Labels, fit};
use crate::model::machine::MachineState;
use crate::model::memory::Memory;
use crate::model::pool::Pool;
use crate::model::snapshot::Snapshot;

/// Where slots come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// They are there, or boot.
    Standing,
    /// A drain that this plan undoes.
    Undone,
    /// A stopped instance that this plan starts, or that is started once it has stopped.
    Started,
}

/// Free slots of one agent.
#[derive(Debug, Clone)]
struct Holder<'a> {
    name: &'a str,
    /// Index of its pool, if it is ours.
    pool: Option<usize>,
    from: From,
    /// It is ours and nothing runs there: tasks are laid on others first, so that it can go.
    spare: bool,
    slots: u32,
    /// Tasks laid here, those that wait for others included.
    laid: u32,
    /// Those of them that could start.
    startable: u32,
}

impl<'a> Holder<'a> {
    fn new(name: &'a str, pool: Option<usize>, slots: u32) -> Self {
        Self { name, pool, from: From::Standing, spare: false, slots, laid: 0, startable: 0 }
    }
}

/// Every slot that is free, or will be soon.
#[derive(Debug, Clone)]
pub(super) struct Supply<'a> {
    groups: BTreeMap<(Class, Labels), Vec<Holder<'a>>>,
    /// Slots with a running task that others wait for: free by the time that those can start.
    later: BTreeMap<Labels, u32>,
}

impl<'a> Supply<'a> {
    pub fn new(snapshot: &'a Snapshot, memory: &Memory, fleet: &Fleet<'a>) -> Self {
        let mut supply = Self { groups: BTreeMap::new(), later: BTreeMap::new() };
        // Many agents, few kinds of them: their labels are put together once a kind.
        let mut kinds: HashMap<AgentKind<'a>, (Vec<Holder<'a>>, u32)> = HashMap::new();
        let awaited = awaited(snapshot);
        let doubt = Doubt::new(snapshot, memory);
        let mut connected = |agent: &'a Agent, name: &'a str, pool: Option<usize>| {
            let running = fleet.running.get(&agent.id).copied().unwrap_or(0);
            let kind = AgentKind::new(agent, pool.map(|pool| &snapshot.pools[pool]));
            let (holders, later) = kinds.entry(kind).or_default();
            *later += awaited.get(&agent.id).copied().unwrap_or(0);
            let slots = agent.capacity.saturating_sub(running);
            if slots > 0 && !doubt.about(agent) {
                let spare = pool.is_some() && running == 0;
                holders.push(Holder { spare, ..Holder::new(name, pool, slots) });
            }
        };
        for agent in snapshot.agents.iter().filter(|agent| !fleet.ours.contains(&agent.id)) {
            if !agent.no_schedule && seen_lately(agent, snapshot.now) {
                connected(agent, &agent.name, None);
            }
        }
        let ready = |state| matches!(state, MachineState::Busy | MachineState::Idle);
        let ours = || {
            fleet.machines.iter().filter(|machine| (!machine.in_flight || machine.undone(snapshot)) && !machine.twin)
        };
        let ready = |machine: &&Machine<'_>| ready(machine.state) || machine.undone(snapshot);
        for machine in ours().filter(ready).filter(|machine| machine.connected(snapshot.now)) {
            if let Some(agent) = machine.agent {
                connected(agent, machine.name, Some(machine.pool));
            }
        }
        for (kind, (holders, later)) in kinds {
            let labels = kind.labels();
            if later > 0 {
                *supply.later.entry(labels.clone()).or_default() += later;
            }
            if !holders.is_empty() {
                supply.groups.entry((Class::Now, labels)).or_default().extend(holders);
            }
        }
        for (index, pool) in snapshot.pools.iter().enumerate() {
            let booting = |machine: &&Machine<'a>| machine.pool == index && machine.state == MachineState::Booting;
            if pool.keeps_stopped() {
                for machine in ours().filter(booting) {
                    if let Some(begun) = Begun::new(machine, pool) {
                        supply.add_begun(machine.name, index, From::Standing, &begun);
                    }
                }
            } else if let Some(labels) = pool.effective_labels() {
                supply.add_launches(&labels, ours().filter(booting).map(|machine| machine.name), index, pool.slots);
            }
        }
        supply
    }

    /// Adds the slots of a drain that is undone.
    pub fn add_undone(&mut self, labels: Labels, name: &'a str, pool: usize, idle: bool, slots: u32) {
        if slots > 0 {
            let holder = Holder { from: From::Undone, spare: idle, ..Holder::new(name, Some(pool), slots) };
            self.groups.entry((Class::Now, labels)).or_default().push(holder);
        }
    }

    /// Adds the slots of a stopped instance that is started.
    pub fn add_started(&mut self, name: &'a str, pool: usize, begun: &Begun) {
        self.add_begun(name, pool, From::Started, begun);
    }

    /// Adds what an instance that boots will have.
    fn add_begun(&mut self, name: &'a str, pool: usize, from: From, begun: &Begun) {
        if begun.slots > 0 {
            let holder = Holder { from, ..Holder::new(name, Some(pool), begun.slots) };
            self.groups.entry((Class::Booted, begun.labels.clone())).or_default().push(holder);
        }
    }

    /// Adds the slots of launches.
    pub fn add_launches(&mut self, labels: &Labels, names: impl Iterator<Item = &'a str>, pool: usize, slots: u32) {
        let mut names = names.peekable();
        if slots > 0 && names.peek().is_some() {
            let holder = |name| Holder::new(name, Some(pool), slots);
            self.groups.entry((Class::Booted, labels.clone())).or_default().extend(names.map(holder));
        }
    }

    /// What tasks can be laid on: these slots, and `more` that can be had by a step (group, labels, and
    /// the pool whose tasks may have it).
    pub fn matching(&self, demand: &Demand<'_>, more: Vec<(Group, &Labels, usize)>) -> Matching {
        let mut groups = Vec::with_capacity(self.groups.len() + more.len());
        let mut seen: Vec<(&Labels, Option<usize>)> = Vec::with_capacity(groups.capacity());
        for ((class, labels), holders) in &self.groups {
            let slots = holders.iter().map(|holder| u64::from(holder.slots)).sum();
            groups.push(Group::new(*class, slots, Closed::Nothing));
            seen.push((labels, None));
        }
        for (group, labels, pool) in more {
            groups.push(group);
            seen.push((labels, Some(pool)));
        }
        let fits = rank(&groups, &seen, demand);
        Matching::new(groups, fits)
    }

    /// Lays every task on these slots, in their order. What no slot takes is [`TaskDecision::Held`] without a reason,
    /// or not ours.
    pub fn lay(self, snapshot: &Snapshot, memory: &Memory, demand: &Demand<'_>) -> Laid<'a> {
        let mut matching = self.matching(demand, Vec::new());
        let mut groups: Vec<Holders<'a>> = self.groups.into_values().map(Holders::new).collect();
        let outcomes: Vec<Outcome> = demand
            .tasks
            .iter()
            .map(|waiting| {
                if waiting.wait.is_some() {
                    return Outcome::Waits;
                }
                if let Some(since) = stuck_since(snapshot, memory, &waiting.task.id)
                    && let Some(group) = matching.best(waiting.kind)
                    && matching.groups[group].class == Class::Now
                {
                    return Outcome::Stuck { since, group };
                }
                matching.place(waiting.kind).map_or(Outcome::None, |_| Outcome::Laid)
            })
            .collect();
        let mut hand_out = matching.hand_out();
        let none = Shared::from_iter([]);
        let mut decisions = Vec::with_capacity(demand.tasks.len());
        for (waiting, outcome) in demand.tasks.iter().zip(outcomes) {
            let kind = &demand.kinds[waiting.kind];
            decisions.push(match (outcome, &waiting.wait) {
                (Outcome::Waits, Some(why)) => TaskDecision::NotReady { why: why.clone() },
                (Outcome::Stuck { since, group }, _) => {
                    TaskDecision::Stuck { since, agent: groups[group].last_name().to_owned() }
                }
                (Outcome::Laid, _) => {
                    let group = hand_out.next(waiting.kind);
                    let taken = group.and_then(|group| groups[group].take(matching.groups[group].class, snapshot));
                    // It was laid on a group, so there is one.
                    taken.unwrap_or_else(|| TaskDecision::Held { why: none.clone() })
                }
                (Outcome::None | Outcome::Waits, _) if kind.pools.is_empty() => {
                    TaskDecision::NotOurs { why: kind.mismatches.clone() }
                }
                (Outcome::None | Outcome::Waits, _) => TaskDecision::Held { why: none.clone() },
            });
        }
        Laid { decisions, matching, groups, later: self.later }
    }
}

/// What a stopped instance will have once it is up: as its record says, if it was ever registered, else as its pool says.
#[derive(Debug)]
pub(super) struct Begun {
    pub labels: Labels,
    pub slots: u32,
}

impl Begun {
    /// `None`: neither tells the platform.
    pub fn new(machine: &Machine<'_>, pool: &Pool) -> Option<Self> {
        match machine.agent.filter(|agent| !agent.platform.is_empty() && agent.capacity > 0) {
            Some(agent) => Some(Self { labels: AgentKind::new(agent, Some(pool)).labels(), slots: agent.capacity }),
            None => Some(Self { labels: pool.effective_labels()?, slots: pool.slots }),
        }
    }
}

/// Whether slots that look free may be taken by runs that a restarted server forgot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    now: jiff::Timestamp,
    passed_over: bool,
}

impl Doubt {
    pub fn new(snapshot: &Snapshot, memory: &Memory) -> Self {
        let mut passed_over = memory.passed_over.values().map(|since| age(snapshot.now, *since));
        let passed_over = passed_over.any(|time| (PASSED_OVER..STUCK_AFTER).contains(&time));
        Self { now: snapshot.now, passed_over }
    }

    /// A task is passed over, and this agent worked a moment ago.
    pub fn about(self, agent: &Agent) -> bool {
        self.passed_over && worked_lately(agent, self.now)
    }
}

/// Since when a task has been stuck.
pub(super) fn stuck_since(snapshot: &Snapshot, memory: &Memory, task: &TaskId) -> Option<jiff::Timestamp> {
    memory.passed_over.get(task).copied().filter(|since| age(snapshot.now, *since) >= STUCK_AFTER)
}

/// By agent: running tasks that others wait for.
fn awaited(snapshot: &Snapshot) -> HashMap<AgentId, u32> {
    let queue = &snapshot.queue;
    let awaited: HashSet<&TaskId> =
        queue.pending.iter().chain(&queue.waiting).flat_map(|task| &task.dependencies).collect();
    let mut by_agent = HashMap::new();
    if !awaited.is_empty() {
        for task in queue.running.iter().filter(|task| awaited.contains(&task.id)) {
            if let Some(agent) = task.agent {
                *by_agent.entry(agent).or_default() += 1;
            }
        }
    }
    by_agent
}

/// For each kind the groups that fit, best first.
fn rank(groups: &[Group], seen: &[(&Labels, Option<usize>)], demand: &Demand<'_>) -> Vec<Vec<usize>> {
    let mut fits: Vec<Vec<(usize, u32)>> = Vec::with_capacity(demand.kinds.len());
    let mut kinds_of_group = vec![0_usize; groups.len()];
    for kind in &demand.kinds {
        let mut fitting = Vec::new();
        for (index, (labels, pool)) in seen.iter().enumerate() {
            if pool.is_none_or(|pool| kind.pools.contains(&pool))
                && let Ok(score) = fit(labels, kind.labels)
            {
                fitting.push((index, score.0));
                kinds_of_group[index] += 1;
            }
        }
        fits.push(fitting);
    }
    let best_first = |mut fitting: Vec<(usize, u32)>| {
        // Drains and launches: in the order of the pools.
        fitting.sort_by_key(|&(index, score)| {
            (groups[index].class, seen[index].1, Reverse(score), kinds_of_group[index], index)
        });
        fitting.into_iter().map(|(index, _)| index).collect()
    };
    fits.into_iter().map(best_first).collect()
}

/// What becomes of one task.
enum Outcome {
    Waits,
    Laid,
    Stuck { since: jiff::Timestamp, group: usize },
    None,
}

/// The agents of a group; tasks are laid on them one after the other.
#[derive(Debug)]
struct Holders<'a> {
    holders: Vec<Holder<'a>>,
    /// The first that may have something left.
    next: usize,
}

impl<'a> Holders<'a> {
    fn new(mut holders: Vec<Holder<'a>>) -> Self {
        holders.sort_by(|a, b| (a.spare, a.name).cmp(&(b.spare, b.name)));
        Self { holders, next: 0 }
    }

    fn last_name(&self) -> &'a str {
        self.holders.last().map_or("", |holder| holder.name)
    }

    fn next_holder(&mut self) -> Option<&mut Holder<'a>> {
        while self.holders.get(self.next).is_some_and(|holder| holder.laid >= holder.slots) {
            self.next += 1;
        }
        self.holders.get_mut(self.next)
    }

    fn take(&mut self, class: Class, snapshot: &Snapshot) -> Option<TaskDecision> {
        let holder = self.next_holder()?;
        holder.laid += 1;
        holder.startable += 1;
        let by = holder.name.to_owned();
        let name_of = |pool: usize| -> PoolName { snapshot.pools[pool].name.clone() };
        Some(match (class, holder.from, holder.pool) {
            (_, From::Started, Some(pool)) => TaskDecision::Starting { by, pool: name_of(pool) },
            (Class::Booted, _, Some(pool)) => TaskDecision::Booting { by, pool: name_of(pool) },
            (_, From::Undone, Some(pool)) => TaskDecision::Uncordoned { by, pool: name_of(pool) },
            (Class::Now | Class::Booted | Class::Drains | Class::Starts | Class::Launches, _, _) => {
                TaskDecision::Covered { by }
            }
        })
    }
}

/// What was laid where.
#[derive(Debug)]
pub(super) struct Laid<'a> {
    pub decisions: Vec<TaskDecision>,
    matching: Matching,
    groups: Vec<Holders<'a>>,
    later: BTreeMap<Labels, u32>,
}

impl<'a> Laid<'a> {
    /// By name of the agents of ours: how many tasks that could start are laid on each.
    pub fn loads(&self) -> HashMap<&'a str, u32> {
        let holders = self.groups.iter().flat_map(|group| &group.holders);
        holders
            .filter(|holder| holder.pool.is_some() && holder.startable > 0)
            .map(|holder| (holder.name, holder.startable))
            .collect()
    }

    /// Takes back the slots of drains and launches that turned out not to be needed.
    pub fn close(&mut self, names: &BTreeSet<&str>) {
        for (index, group) in self.groups.iter_mut().enumerate() {
            for holder in group.holders.iter_mut().filter(|holder| names.contains(holder.name)) {
                let unused = holder.slots - holder.laid;
                let free = &mut self.matching.groups[index].free;
                *free = free.saturating_sub(u64::from(unused));
                holder.slots = holder.laid;
            }
        }
    }

    /// Lays those tasks that are about to start, because all that they wait for runs: the slots that they will need
    /// are not to be retired. A slot that is about to be free is taken first. Then the names of the agents of ours
    /// that any task is laid on.
    pub fn lay_waiting(mut self, snapshot: &Snapshot, demand: &Demand<'_>) -> (Vec<TaskDecision>, BTreeSet<&'a str>) {
        let running: HashSet<&TaskId> = snapshot.queue.running.iter().map(|task| &task.id).collect();
        for waiting in demand.tasks.iter().filter(|_| !snapshot.queue.paused) {
            let Some(Wait::Dependencies { on }) = &waiting.wait else { continue };
            if !on.iter().all(|task| running.contains(task)) {
                continue;
            }
            let labels = demand.kinds[waiting.kind].labels;
            let soon = self.later.iter_mut().find(|(agent, slots)| **slots > 0 && fit(agent, labels).is_ok());
            if let Some((_, slots)) = soon {
                *slots -= 1;
            } else if let Some(group) = self.matching.best(waiting.kind)
                && let Some(holder) = self.groups[group].next_holder()
            {
                holder.laid += 1;
                self.matching.reserve(group);
            }
        }
        let holders = self.groups.iter().flat_map(|group| &group.holders);
        let needed = holders.filter(|holder| holder.pool.is_some() && holder.laid > 0).map(|holder| holder.name);
        (self.decisions, needed.collect())
    }
}
