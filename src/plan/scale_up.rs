//! Drains to undo and launches, for the tasks that no slot takes and for the minimum.
//!
//! A task that several pools could take is counted once: for the first, in the order of the settings, that has room
//! and can be served.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

use super::count;
use super::demand::Demand;
use super::fleet::{Fleet, Machine, agent_labels};
use super::matching::{Class, Closed, Group, Placed};
use super::scale_down::closing_window;
use super::supply::{Doubt, Supply, stuck_since};
use crate::model::action::{Action, Hold, MachineState, Reason, Step, TaskDecision};
use crate::model::ids::{AgentId, LaunchName};
use crate::model::labels::Labels;
use crate::model::later;
use crate::model::memory::{Memory, pause_after};
use crate::model::pool::{Billing, Market, Offer, Pool};
use crate::model::snapshot::{Listing, Snapshot};

/// What scaling up decided.
#[derive(Debug)]
pub(super) struct ScaleUp<'a> {
    pools: Vec<PoolUp<'a>>,
    pub names_used: u64,
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
            more.push((Group::new(Class::Drains, 0, Closed::Drains(slots)), labels, index));
            owners.push((index, drains));
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
    for ((index, drains), group) in owners.into_iter().zip(&matching.groups[standing..]) {
        match group.class {
            Class::Drains => {
                for drain in drains.into_iter().take(group.opened as usize) {
                    pools[index].drains[drain].undo = Some(Undo::ForTasks);
                }
            }
            Class::Launches => (0..group.opened).for_each(|_| pools[index].launch(&mut names)),
            Class::Now | Class::Booted => {}
        }
    }
    for ((index, pool), uncovered) in pools.iter_mut().enumerate().zip(uncovered) {
        pool.uncovered = uncovered;
        pool.reach_minimum(usable(snapshot, fleet, index), &mut names);
        pool.undo_paid(snapshot);
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
            if let Some(labels) = &pool.labels {
                for name in &pool.launches {
                    supply.add_launch(labels.clone(), name.as_str(), index, pool.pool.slots);
                }
            }
        }
        supply
    }

    /// Names of drains and launches that no task is laid on and that the minimum does not ask for either.
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
            for drain in &pool.drains {
                match drain.undo {
                    Some(Undo::ForTasks | Undo::ForMinimum) => drop(drain.name, drain.usable),
                    Some(Undo::PaidAgain { .. }) | None => {}
                }
            }
        }
        unneeded
    }

    /// The steps but for those, and for each agent whose drain is undone the reason.
    pub fn steps(
        &self,
        loads: &HashMap<&str, u32>,
        unneeded: &BTreeSet<&str>,
    ) -> (Vec<Step>, BTreeMap<AgentId, Reason>) {
        let mut steps = Vec::new();
        let mut undone = BTreeMap::new();
        for PoolUp { pool, drains, launches, offer, .. } in &self.pools {
            let below_minimum = Reason::BelowMinimum { min: pool.min };
            for drain in drains.iter().filter(|drain| !unneeded.contains(drain.name)) {
                let reason = match (drain.undo, loads.get(drain.name)) {
                    (None, _) => continue,
                    (Some(_), Some(&tasks)) => Reason::TasksWait { tasks },
                    (Some(Undo::PaidAgain { until }), None) => Reason::PaidAgain { until },
                    (Some(Undo::ForTasks | Undo::ForMinimum), None) => below_minimum.clone(),
                };
                undone.insert(drain.agent, reason.clone());
                let action = Action::Uncordon { agent: drain.agent, name: drain.record.to_owned() };
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
        (steps, undone)
    }

    /// Says for tasks of ours that nothing could be had for what each pool waits for.
    pub fn explain(&self, demand: &Demand<'_>, decisions: &mut [TaskDecision]) {
        for (waiting, decision) in demand.tasks.iter().zip(decisions) {
            if let TaskDecision::Held { why } = decision {
                let pools = demand.kinds[waiting.kind].pools.iter().map(|&index| &self.pools[index]);
                *why = pools.map(|pool| (pool.pool.name.clone(), pool.hold().clone())).collect();
            }
        }
    }

    /// Tasks of a pool that could start and that no slot covered before this.
    pub fn uncovered(&self, pool: usize) -> u32 {
        self.pools[pool].uncovered
    }
}

/// Whether a machine counts for its pool's minimum: it can take work of its scope, now or once booted.
pub(super) fn is_usable(snapshot: &Snapshot, machine: &Machine<'_>) -> bool {
    let works = || machine.connected(snapshot.now) && takes_our_work(&snapshot.pools[machine.pool], machine);
    (!machine.in_flight || machine.undone(snapshot))
        && match machine.state {
            MachineState::Booting => true,
            MachineState::Busy | MachineState::Idle => works(),
            MachineState::Cordoned if machine.undone(snapshot) => works(),
            MachineState::Cordoned
            | MachineState::Lost
            | MachineState::Failed
            | MachineState::Orphan
            | MachineState::Deleting => false,
        }
}

/// Machines of a pool that count for its minimum.
pub(super) fn usable(snapshot: &Snapshot, fleet: &Fleet<'_>, pool: usize) -> u32 {
    let counts = |machine: &&Machine<'_>| machine.pool == pool && is_usable(snapshot, machine);
    count(fleet.machines.iter().filter(counts).count())
}

/// Its agent has the labels that the pool's agents have today.
fn takes_our_work(pool: &Pool, machine: &Machine<'_>) -> bool {
    match (machine.agent, pool.effective_labels()) {
        (Some(agent), Some(wanted)) if agent.last_contact.is_some() => agent_labels(agent, Some(pool)) == wanted,
        (Some(_) | None, Some(_) | None) => true,
    }
}

/// Gives out launch names that nothing has yet.
struct Names<'a> {
    snapshot: &'a Snapshot,
    first: u64,
    used: u64,
    taken: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn new(snapshot: &'a Snapshot, memory: &Memory, fleet: &Fleet<'a>) -> Self {
        let machines = fleet.machines.iter().map(|machine| machine.name);
        let taken = machines.chain(snapshot.agents.iter().map(|agent| agent.name.as_str())).collect();
        Self { snapshot, first: memory.next_launch, used: 0, taken }
    }

    fn next(&mut self, pool: &Pool) -> LaunchName {
        loop {
            let name = LaunchName::new(&self.snapshot.installation, &pool.name, self.first.wrapping_add(self.used));
            self.used += 1;
            if !self.taken.contains(name.as_str()) {
                return name;
            }
        }
    }
}

/// One pool while tasks are laid on it.
#[derive(Debug)]
struct PoolUp<'a> {
    pool: &'a Pool,
    /// What its agents will have. `None` until the provider told the platform.
    labels: Option<Labels>,
    /// Our own drains that could be undone, those with the most free slots first.
    drains: Vec<Drain<'a>>,
    /// What can be ordered, or why nothing can.
    offer: Result<&'a Offer, Hold>,
    /// How many more launches.
    room: u32,
    /// What is said once there is no room.
    no_room: Hold,
    launches: Vec<LaunchName>,
    /// Machines that count for the minimum, these steps included.
    have: u32,
    uncovered: u32,
}

/// A drain of ours.
#[derive(Debug)]
struct Drain<'a> {
    agent: AgentId,
    /// Name of the machine.
    name: &'a str,
    /// Name of the record, which every PATCH must carry.
    record: &'a str,
    labels: Labels,
    free: u32,
    idle: bool,
    /// It would count for the minimum.
    usable: bool,
    launched: Timestamp,
    /// Why it is undone, if it is.
    undo: Option<Undo>,
}

/// What a drain is undone for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Undo {
    ForTasks,
    ForMinimum,
    PaidAgain { until: Timestamp },
}

impl<'a> PoolUp<'a> {
    fn new(snapshot: &'a Snapshot, memory: &'a Memory, fleet: &Fleet<'a>, index: usize) -> Self {
        let pool = &snapshot.pools[index];
        let offer = offer(snapshot, memory, pool);
        let mut room = pool.max.saturating_sub(fleet.existing(index));
        let mut no_room = Hold::AtMaximum { max: pool.max };
        let trouble = memory.troubles.get(&pool.name);
        let of_pool = || fleet.machines.iter().filter(|machine| machine.pool == index);
        let mut failed_now = of_pool().filter(|machine| machine.state == MachineState::Failed && !machine.in_flight);
        let counted = |name: &str| trouble.is_some_and(|t| t.counted.iter().any(|counted| counted.as_str() == name));
        if room > 0 && failed_now.any(|machine| !counted(machine.name)) {
            // The failure is noted after this pass; what takes its place waits for the pause.
            let failures = trouble.map_or(0, |trouble| trouble.failures);
            let (why, until) = ("an instance never connected".to_owned(), later(snapshot.now, pause_after(failures)));
            no_room = Hold::Trouble { failures: failures.saturating_add(1), why, until };
            room = 0;
        } else if let Some(trouble) = trouble
            && room > 0
        {
            // After failures one instance at a time shows whether the cause is gone.
            let boots = of_pool().any(|machine| machine.state == MachineState::Booting);
            room = u32::from(!boots);
            no_room = Hold::Trouble { failures: trouble.failures, why: trouble.why.clone(), until: trouble.until };
        }
        if offer.is_err() {
            room = 0;
        }
        Self {
            pool,
            labels: pool.effective_labels(),
            drains: drains(snapshot, memory, fleet, index),
            offer,
            room,
            no_room,
            launches: Vec::new(),
            have: 0,
            uncovered: 0,
        }
    }

    /// Why nothing more is launched.
    fn hold(&self) -> &Hold {
        self.offer.as_ref().err().unwrap_or(&self.no_room)
    }

    /// Indices of the drains that have a slot, by what their agents take.
    fn drains_by_labels(&self) -> BTreeMap<&Labels, Vec<usize>> {
        let mut by_labels: BTreeMap<&Labels, Vec<usize>> = BTreeMap::new();
        for (index, drain) in self.drains.iter().enumerate().filter(|(_, drain)| drain.free > 0) {
            by_labels.entry(&drain.labels).or_default().push(index);
        }
        by_labels
    }

    fn launch(&mut self, names: &mut Names<'_>) {
        self.room = self.room.saturating_sub(1);
        self.launches.push(names.next(self.pool));
    }

    fn reach_minimum(&mut self, usable: u32, names: &mut Names<'_>) {
        let undone = self.drains.iter().filter(|drain| drain.undo.is_some() && drain.usable).count();
        self.have = usable.saturating_add(count(undone)).saturating_add(count(self.launches.len()));
        for drain in self.drains.iter_mut().filter(|drain| drain.undo.is_none() && drain.usable) {
            if self.have >= self.pool.min {
                return;
            }
            drain.undo = Some(Undo::ForMinimum);
            self.have += 1;
        }
        while self.have < self.pool.min && self.room > 0 {
            self.launch(names);
            self.have += 1;
        }
    }

    /// A drain that did not end within the paid period: the next one has begun and is paid for, so it is of use.
    fn undo_paid(&mut self, snapshot: &Snapshot) {
        let Billing::ByPeriod(period) = self.pool.billing else { return };
        if !matches!(snapshot.instances.get(&self.pool.account), Some(Listing::Known { .. })) {
            return;
        }
        for drain in self.drains.iter_mut().filter(|drain| drain.undo.is_none()) {
            let (until, _) = closing_window(snapshot, drain.launched, period);
            if snapshot.now < until {
                drain.undo = Some(Undo::PaidAgain { until });
            }
        }
    }
}

/// The offer that a pool orders next, or why it orders nothing.
fn offer<'a>(snapshot: &Snapshot, memory: &Memory, pool: &'a Pool) -> Result<&'a Offer, Hold> {
    let offers = match &pool.market {
        Market::Open { offers, .. } => offers,
        Market::NotReady { why } => return Err(Hold::NotReady { why: why.clone() }),
    };
    match snapshot.instances.get(&pool.account) {
        Some(Listing::Known { .. }) => {}
        Some(Listing::Unknown { why }) => return Err(Hold::ListingUnknown { why: why.clone() }),
        None => return Err(Hold::ListingUnknown { why: "not asked yet".to_owned() }),
    }
    if let Some(refusal) = memory.refusals.get(&pool.account).filter(|refusal| snapshot.now < refusal.until) {
        return Err(Hold::Refused { why: refusal.why.clone(), until: refusal.until });
    }
    if let Some(trouble) = memory.troubles.get(&pool.name).filter(|trouble| snapshot.now < trouble.until) {
        return Err(Hold::Trouble { failures: trouble.failures, why: trouble.why.clone(), until: trouble.until });
    }
    let mut first_again = None;
    for offer in offers {
        let key = (pool.account, offer.key.clone());
        match memory.sold_out.get(&key).filter(|until| snapshot.now < **until) {
            None => return Ok(offer),
            Some(until) => first_again = Some(first_again.map_or(*until, |first: Timestamp| first.min(*until))),
        }
    }
    match first_again {
        Some(until) => Err(Hold::SoldOut { until }),
        None => Err(Hold::NotReady { why: "nothing can be ordered".to_owned() }),
    }
}

/// Drains that this process began, of agents that are alive; those with the most free slots first.
fn drains<'a>(snapshot: &'a Snapshot, memory: &Memory, fleet: &Fleet<'a>, index: usize) -> Vec<Drain<'a>> {
    let pool = &snapshot.pools[index];
    let ours = |agent: AgentId| memory.cordons.get(&agent).is_some_and(|cordon| cordon.ours);
    let listed = matches!(snapshot.instances.get(&pool.account), Some(Listing::Known { .. }));
    let doubt = Doubt::new(snapshot, memory);
    let mut drains: Vec<Drain<'a>> = fleet
        .machines
        .iter()
        .filter(|machine| machine.pool == index && machine.state == MachineState::Cordoned && !machine.in_flight)
        .filter(|machine| machine.connected(snapshot.now) && (machine.instance.is_some() || !listed))
        .filter_map(|machine| {
            let agent = machine.agent.filter(|agent| ours(agent.id))?;
            Some(Drain {
                agent: agent.id,
                name: machine.name,
                record: &agent.name,
                labels: agent_labels(agent, Some(pool)),
                free: if doubt.about(agent) { 0 } else { machine.free() },
                idle: machine.running == 0,
                usable: takes_our_work(pool, machine),
                launched: machine.launched,
                undo: None,
            })
        })
        .collect();
    drains.sort_by(|a, b| (std::cmp::Reverse(a.free), a.name).cmp(&(std::cmp::Reverse(b.free), b.name)));
    drains
}
