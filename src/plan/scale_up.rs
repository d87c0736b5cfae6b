//! Drains to undo and launches, for the tasks that no slot takes and for the minimum.
//!
//! A task that several pools could take is counted once: for the first, in the order of the settings, that has room
//! and can be served.

use std::collections::{BTreeMap, BTreeSet};

use super::count;
use super::demand::Demand;
use super::fleet::{Fleet, Machine, agent_labels};
use crate::model::action::{Action, Hold, MachineState, Reason, Step, TaskDecision};
use crate::model::ids::{AgentId, LaunchName};
use crate::model::labels::{Labels, fit};
use crate::model::memory::Memory;
use crate::model::pool::{Market, Pool};
use crate::model::snapshot::{Listing, Snapshot};

/// What scaling up decided.
#[derive(Debug)]
pub(super) struct ScaleUp {
    pub steps: Vec<Step>,
    /// Agents whose drain is undone.
    pub uncordoned: BTreeSet<AgentId>,
    /// By pool: tasks that no slot took before this.
    pub uncovered: Vec<u32>,
    pub names_used: u64,
}

pub(super) fn scale_up(
    snapshot: &Snapshot,
    memory: &Memory,
    fleet: &Fleet<'_>,
    demand: &Demand<'_>,
    decisions: &mut [TaskDecision],
) -> ScaleUp {
    let mut names = Names::new(snapshot, memory, fleet);
    let mut pools: Vec<PoolUp<'_>> =
        (0..snapshot.pools.len()).map(|index| PoolUp::new(snapshot, memory, fleet, index)).collect();

    for (waiting, decision) in demand.tasks.iter().zip(decisions) {
        let TaskDecision::Held { why } = decision else { continue };
        let kind = &demand.kinds[waiting.kind];
        if let Some(&first) = kind.pools.first() {
            pools[first].uncovered += 1;
        }
        let uncordoned = kind.pools.iter().find_map(|&index| {
            let by = pools[index].uncordon(kind.labels)?;
            Some(TaskDecision::Uncordoned { by, pool: snapshot.pools[index].name.clone() })
        });
        if let Some(uncordoned) = uncordoned {
            *decision = uncordoned;
            continue;
        }
        let mut holds = Vec::new();
        let mut launched = None;
        for &index in &kind.pools {
            let pool = &snapshot.pools[index].name;
            match pools[index].launch_for_task(&mut names) {
                Ok(by) => {
                    launched = Some(TaskDecision::Booting { by, pool: pool.clone() });
                    break;
                }
                Err(hold) => holds.push((pool.clone(), hold)),
            }
        }
        match launched {
            Some(launched) => *decision = launched,
            None => *why = holds,
        }
    }
    for (index, pool) in pools.iter_mut().enumerate() {
        pool.reach_minimum(usable(snapshot, fleet, index), &mut names);
    }

    let uncovered = pools.iter().map(|pool| pool.uncovered).collect();
    let uncordoned = pools.iter().flat_map(PoolUp::uncordoned_agents).collect();
    let steps = pools.into_iter().flat_map(PoolUp::into_steps).collect();
    ScaleUp { steps, uncordoned, uncovered, names_used: names.used }
}

/// Machines of a pool that count for its minimum: those that can take work of its scope, now or once booted.
pub(super) fn usable(snapshot: &Snapshot, fleet: &Fleet<'_>, pool: usize) -> u32 {
    let wanted = snapshot.pools[pool].effective_labels();
    let takes_our_work = |machine: &Machine<'_>| match (machine.agent, &wanted) {
        (Some(agent), Some(wanted)) if agent.last_contact.is_some() => {
            agent_labels(agent, Some(&snapshot.pools[pool])) == *wanted
        }
        (Some(_) | None, Some(_) | None) => true,
    };
    let counts = |machine: &&Machine<'_>| {
        machine.pool == pool
            && !machine.in_flight
            && match machine.state {
                MachineState::Booting => true,
                MachineState::Busy | MachineState::Idle => machine.connected(snapshot.now) && takes_our_work(machine),
                MachineState::Cordoned
                | MachineState::Lost
                | MachineState::Failed
                | MachineState::Orphan
                | MachineState::Deleting => false,
            }
    };
    count(fleet.machines.iter().filter(counts).count())
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
struct PoolUp<'a> {
    pool: &'a Pool,
    /// Our own drains that could be undone, those with the most free slots first.
    drains: Vec<Drain<'a>>,
    /// What can be ordered, or why nothing can.
    launchable: Result<&'a crate::model::pool::Offer, Hold>,
    /// How many more launches.
    room: u32,
    /// What is said once there is no room.
    no_room: Hold,
    launches: Vec<Launching>,
    uncovered: u32,
}

/// A drain of ours.
struct Drain<'a> {
    agent: AgentId,
    name: &'a str,
    labels: Labels,
    free: u32,
    tasks: u32,
}

/// A launch decided in this plan.
struct Launching {
    name: LaunchName,
    tasks: u32,
}

impl<'a> PoolUp<'a> {
    fn new(snapshot: &'a Snapshot, memory: &Memory, fleet: &Fleet<'a>, index: usize) -> Self {
        let pool = &snapshot.pools[index];
        let existing = fleet.existing(index);
        let mut room = pool.max.saturating_sub(existing);
        let mut no_room = Hold::AtMaximum { max: pool.max };
        if let Some(trouble) = memory.troubles.get(&pool.name) {
            // After failures one instance at a time shows whether the cause is gone.
            let boots = fleet.machines.iter().any(|m| m.pool == index && m.state == MachineState::Booting);
            if room > 0 {
                room = u32::from(!boots);
                no_room = Hold::Trouble { failures: trouble.failures, why: trouble.why.clone(), until: trouble.until };
            }
        }
        let launchable = launchable(snapshot, memory, pool);
        Self {
            pool,
            drains: drains(snapshot, memory, fleet, index),
            launchable,
            room,
            no_room,
            launches: Vec::new(),
            uncovered: 0,
        }
    }

    /// Lays one task on a drain that is undone; undoes one more if it must. The name of its agent.
    fn uncordon(&mut self, task: &Labels) -> Option<String> {
        let takes = |drain: &&mut Drain<'_>| drain.tasks < drain.free && fit(&drain.labels, task).is_ok();
        let undone = self.drains.iter_mut().filter(|drain| drain.tasks > 0).find(takes);
        let drain = match undone {
            Some(drain) => drain,
            None => self.drains.iter_mut().filter(|drain| drain.tasks == 0).find(takes)?,
        };
        drain.tasks += 1;
        Some(drain.name.to_owned())
    }

    /// Lays one task on a launch of this plan; decides one more if it must. The name of its instance.
    fn launch_for_task(&mut self, names: &mut Names<'_>) -> Result<String, Hold> {
        if let Some(launching) = self.launches.last_mut()
            && launching.tasks < self.pool.slots
        {
            launching.tasks += 1;
            return Ok(launching.name.to_string());
        }
        self.launch(1, names)
    }

    fn launch(&mut self, tasks: u32, names: &mut Names<'_>) -> Result<String, Hold> {
        if let Err(hold) = &self.launchable {
            return Err(hold.clone());
        }
        if self.room == 0 {
            return Err(self.no_room.clone());
        }
        self.room -= 1;
        let name = names.next(self.pool);
        let text = name.to_string();
        self.launches.push(Launching { name, tasks });
        Ok(text)
    }

    fn reach_minimum(&mut self, usable: u32, names: &mut Names<'_>) {
        let undone = self.drains.iter().filter(|drain| drain.tasks > 0).count();
        let mut have = usable.saturating_add(count(undone)).saturating_add(count(self.launches.len()));
        while have < self.pool.min && self.launch(0, names).is_ok() {
            have += 1;
        }
    }

    fn uncordoned_agents(&self) -> impl Iterator<Item = AgentId> {
        self.drains.iter().filter(|drain| drain.tasks > 0).map(|drain| drain.agent)
    }

    fn into_steps(self) -> Vec<Step> {
        let pool = self.pool;
        let step = |action, reason| Step { pool: pool.name.clone(), action, reason };
        let mut steps: Vec<Step> = self
            .drains
            .iter()
            .filter(|drain| drain.tasks > 0)
            .map(|drain| {
                let action = Action::Uncordon { agent: drain.agent, name: drain.name.to_owned() };
                step(action, Reason::TasksWait { tasks: drain.tasks })
            })
            .collect();
        if let Ok(offer) = self.launchable {
            steps.extend(self.launches.into_iter().map(|launching| {
                let reason = match launching.tasks {
                    0 => Reason::BelowMinimum { min: pool.min },
                    tasks => Reason::TasksWait { tasks },
                };
                step(Action::Launch { name: launching.name, offer: offer.key.clone() }, reason)
            }));
        }
        steps
    }
}

/// The offer that a pool orders next, or why it orders nothing.
fn launchable<'a>(snapshot: &Snapshot, memory: &Memory, pool: &'a Pool) -> Result<&'a crate::model::pool::Offer, Hold> {
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
            Some(until) => first_again = Some(first_again.map_or(*until, |first: jiff::Timestamp| first.min(*until))),
        }
    }
    match first_again {
        Some(until) => Err(Hold::SoldOut { until }),
        None => Err(Hold::NotReady { why: "nothing can be ordered".to_owned() }),
    }
}

/// Drains that this process began, of agents that are alive and have room.
fn drains<'a>(snapshot: &'a Snapshot, memory: &Memory, fleet: &Fleet<'a>, index: usize) -> Vec<Drain<'a>> {
    let ours: BTreeMap<AgentId, bool> = memory.cordons.iter().map(|(agent, cordon)| (*agent, cordon.ours)).collect();
    let mut drains: Vec<Drain<'a>> = fleet
        .machines
        .iter()
        .filter(|machine| machine.pool == index && machine.state == MachineState::Cordoned && !machine.in_flight)
        .filter(|machine| machine.connected(snapshot.now) && machine.instance.is_some())
        .filter_map(|machine| {
            let agent = machine.agent?;
            let undoable = ours.get(&agent.id).copied().unwrap_or(false) && machine.free() > 0;
            undoable.then(|| Drain {
                agent: agent.id,
                name: &agent.name,
                labels: agent_labels(agent, Some(&snapshot.pools[index])),
                free: machine.free(),
                tasks: 0,
            })
        })
        .collect();
    drains.sort_by(|a, b| (std::cmp::Reverse(a.free), a.name).cmp(&(std::cmp::Reverse(b.free), b.name)));
    drains
}
