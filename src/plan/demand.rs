//! Which tasks could start now, and which pools could take them.
//!
//! Tasks are grouped into kinds: those that no agent or pool can tell apart. A queue has many tasks and few kinds, so
//! matching is done once a kind and the rest is linear in the number of tasks.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;

use crate::model::decision::{Shared, TaskDecision, Wait};
use crate::model::ids::{PoolName, TaskId};
use crate::model::labels::{Labels, Mismatch, effective, fit};
use crate::model::pool::{Market, Pool};
use crate::model::snapshot::Snapshot;
use crate::model::task::Task;
use crate::plan::fleet::Fleet;
use crate::plan::supply::Begun;

/// A task that waits, in canonical order.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    pub task: &'a Task,
    /// Index of its kind.
    pub kind: usize,
    /// Why it could not start now. `None`: it could.
    pub wait: Option<Wait>,
}

/// Tasks that nothing here can tell apart.
#[derive(Debug)]
pub(super) struct Kind<'a> {
    /// Labels of one of them.
    pub labels: &'a Labels,
    /// Indices of the pools that could take them, in the order of the settings.
    pub pools: Vec<usize>,
    /// Why the other pools could not.
    pub mismatches: Shared<(PoolName, Mismatch)>,
}

/// Every task of the queue that waits.
#[derive(Debug)]
pub(super) struct Demand<'a> {
    pub tasks: Vec<Waiting<'a>>,
    pub kinds: Vec<Kind<'a>>,
}

impl<'a> Demand<'a> {
    pub fn new(snapshot: &'a Snapshot, fleet: &Fleet<'a>) -> Self {
        let queue = &snapshot.queue;
        let mut order: Vec<&Task> = queue.pending.iter().chain(&queue.waiting).collect();
        order.sort_by_cached_key(|task| (task.created, task.id.0.parse::<u64>().unwrap_or(u64::MAX), &task.id));

        let waits = waits(snapshot, &order);
        let mut kinds = Kinds::new(snapshot, fleet);
        let tasks =
            order.into_iter().zip(waits).map(|(task, wait)| Waiting { task, kind: kinds.of(task), wait }).collect();
        Self { tasks, kinds: kinds.found }
    }

    /// Joins the decisions (by index) with the tasks' ids.
    pub fn into_decisions(self, decisions: Vec<TaskDecision>) -> Vec<(TaskId, TaskDecision)> {
        self.tasks.iter().map(|waiting| waiting.task.id.clone()).zip(decisions).collect()
    }
}

/// Why each task could not start now, in the order given.
fn waits(snapshot: &Snapshot, order: &[&Task]) -> Vec<Option<Wait>> {
    let queue = &snapshot.queue;
    let awaited: HashSet<&TaskId> = order.iter().flat_map(|task| &task.dependencies).collect();
    let everything = || order.iter().copied().chain(&queue.running).map(|task| &task.id);
    let in_queue: HashSet<&TaskId> =
        if awaited.is_empty() { HashSet::new() } else { everything().filter(|id| awaited.contains(id)).collect() };
    let mut waits: Vec<Option<Wait>> = order
        .iter()
        .map(|task| {
            let on: Vec<TaskId> = task.dependencies.iter().filter(|id| in_queue.contains(id)).cloned().collect();
            match (on.is_empty(), queue.paused) {
                (false, _) => Some(Wait::Dependencies { on }),
                (true, true) => Some(Wait::Paused),
                (true, false) => None,
            }
        })
        .collect();
    hold_back_groups(&queue.running, order, &mut waits);
    waits
}

/// Holds back what exceeds its group's limit: running members and members of earlier pipelines that wait go first
/// (`canRunConcurrent` in Woodpecker's `server/queue/fifo.go`). A member that is let through counts as running for
/// those behind it, so that a group never asks for more slots than it can use.
fn hold_back_groups(running: &[Task], order: &[&Task], waits: &mut [Option<Wait>]) {
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, task) in order.iter().enumerate() {
        if !task.concurrency_group.is_empty() {
            groups.entry(&task.concurrency_group).or_default().push(index);
        }
    }
    if groups.is_empty() {
        return;
    }
    let mut running_members: HashMap<&str, u32> = HashMap::new();
    for task in running.iter().filter(|task| !task.concurrency_group.is_empty()) {
        *running_members.entry(&task.concurrency_group).or_default() += 1;
    }
    for (group, mut members) in groups {
        let rank = |index: usize| -> (Option<Timestamp>, &str) { (order[index].created, &order[index].name) };
        members.sort_by_key(|&index| rank(index));
        let mut group_state = Group { taken: running_members.get(group).copied().unwrap_or(0), ..Group::default() };
        let mut rest = members.as_slice();
        while let Some(&first) = rest.first() {
            let same_rank = rest.iter().take_while(|&&index| rank(index) == rank(first)).count();
            let (batch, behind) = rest.split_at(same_rank);
            group_state.pass(batch, order, waits);
            rest = behind;
        }
    }
}

/// One concurrency group while its members are looked at, earliest first.
#[derive(Default)]
struct Group {
    /// Running members and members let through.
    taken: u32,
    /// Members that ranked before and were not let through, in all and by pipeline.
    ahead: u32,
    ahead_of_pipeline: HashMap<i64, u32>,
}

impl Group {
    /// Looks at members of equal rank: none of them is ahead of another.
    fn pass(&mut self, batch: &[usize], order: &[&Task], waits: &mut [Option<Wait>]) {
        let mut held = Vec::new();
        for &index in batch {
            let task = order[index];
            if waits[index].is_none()
                && let Some(limit) = task.concurrency_limit
            {
                let own = self.ahead_of_pipeline.get(&task.pipeline).copied().unwrap_or(0);
                if self.taken.saturating_add(self.ahead.saturating_sub(own)) >= limit {
                    waits[index] = Some(Wait::Concurrency { group: task.concurrency_group.clone(), limit });
                }
            }
            if waits[index].is_none() {
                self.taken += 1;
            } else {
                held.push(task.pipeline);
            }
        }
        for pipeline in held {
            self.ahead += 1;
            *self.ahead_of_pipeline.entry(pipeline).or_default() += 1;
        }
    }
}

/// Groups tasks by what matching can see of them.
struct Kinds<'a> {
    pools: &'a [Pool],
    /// What agents of each pool have or would have.
    pool_labels: Vec<BTreeSet<Labels>>,
    /// Keys that some agent or pool requires (`!key`): they are compared before anything is ignored.
    required: BTreeSet<String>,
    /// By what [`spell`] makes of a task's labels.
    index: HashMap<Vec<u8>, usize>,
    scratch: Vec<u8>,
    found: Vec<Kind<'a>>,
}

impl<'a> Kinds<'a> {
    fn new(snapshot: &'a Snapshot, fleet: &Fleet<'a>) -> Self {
        let of_pool = |(index, pool)| scope(fleet, index, pool);
        let pool_labels: Vec<BTreeSet<Labels>> = snapshot.pools.iter().enumerate().map(of_pool).collect();
        let mut required: BTreeSet<String> = BTreeSet::new();
        let require = |required: &mut BTreeSet<String>, labels: &Labels| {
            required.extend(labels.iter().filter_map(|(key, _)| key.strip_prefix('!')).map(str::to_owned));
        };
        for labels in pool_labels.iter().flatten() {
            require(&mut required, labels);
        }
        for custom in snapshot.agents.iter().filter_map(|agent| agent.custom_labels.as_ref()) {
            require(&mut required, custom);
        }
        Self {
            pools: &snapshot.pools,
            pool_labels,
            required,
            index: HashMap::new(),
            scratch: Vec::new(),
            found: Vec::new(),
        }
    }

    fn of(&mut self, task: &'a Task) -> usize {
        self.scratch.clear();
        for pair in task.labels.relevant() {
            spell(pair, &mut self.scratch);
        }
        for pair in self.required.iter().filter_map(|key| task.labels.pair(key)) {
            spell(pair, &mut self.scratch);
        }
        if let Some(&kind) = self.index.get(self.scratch.as_slice()) {
            return kind;
        }
        let mut pools = Vec::new();
        let mut mismatches = Vec::new();
        for (index, of_pool) in self.pool_labels.iter().enumerate() {
            let mut misfits = of_pool.iter().map_while(|labels| fit(labels, &task.labels).err());
            match (misfits.next(), misfits.count() + 1 >= of_pool.len()) {
                (Some(mismatch), true) => mismatches.push((self.pools[index].name.clone(), mismatch)),
                (Some(_), false) | (None, _) => pools.push(index),
            }
        }
        let kind = self.found.len();
        self.index.insert(self.scratch.clone(), kind);
        self.found.push(Kind { labels: &task.labels, pools, mismatches: mismatches.into_iter().collect() });
        kind
    }
}

/// Appends a label; 0xff, which no text has, ends each part. One piece is hashed and compared faster than many.
fn spell((key, value): (&str, &str), into: &mut Vec<u8>) {
    for part in [key, value] {
        into.extend_from_slice(part.as_bytes());
        into.push(0xff);
    }
}

/// The labels by which a pool's scope is judged: those that its launches would have, or, of machines that somebody else
/// made, those that they have. Where the provider has not told the platform yet, any.
fn scope(fleet: &Fleet<'_>, index: usize, pool: &Pool) -> BTreeSet<Labels> {
    if pool.is_fixed() {
        let machines = fleet.machines.iter().filter(|machine| machine.pool == index);
        let labels: BTreeSet<Labels> = machines.filter_map(|machine| Some(Begun::new(machine, pool)?.labels)).collect();
        if !labels.is_empty() {
            return labels;
        }
    }
    let platform = match &pool.market {
        Market::Open { platform, .. } => platform,
        Market::NotReady { .. } => "*",
    };
    [effective(platform, &pool.backend, &pool.filter_labels, None)].into()
}
