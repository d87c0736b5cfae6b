//! One pool while scaling up: what it can order, how much, and which of its drains can be undone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::model::decision::Hold;
use crate::model::ids::{AgentId, InstanceId, LaunchName};
use crate::model::instance::Instance;
use crate::model::labels::Labels;
use crate::model::later;
use crate::model::machine::MachineState;
use crate::model::memory::{Memory, pause_after};
use crate::model::pool::{Billing, Market, Offer, Pool};
use crate::model::snapshot::{Listing, Snapshot};
use crate::plan::count;
use crate::plan::fleet::{AgentKind, Fleet};
use crate::plan::period::closing_window;
use crate::plan::stopped::{noted_on, past_its_time};
use crate::plan::supply::{Begun, Doubt};

/// Gives out launch names that nothing has yet.
pub(super) struct Names<'a> {
    snapshot: &'a Snapshot,
    first: u64,
    pub used: u64,
    taken: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    pub fn new(snapshot: &'a Snapshot, memory: &Memory, fleet: &Fleet<'a>) -> Self {
        let machines = fleet.machines.iter().map(|machine| machine.name);
        let taken = machines.chain(snapshot.agents.iter().map(|agent| agent.name.as_str())).collect();
        Self { snapshot, first: memory.next_launch, used: 0, taken }
    }

    pub fn next(&mut self, pool: &Pool) -> LaunchName {
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
pub(super) struct PoolUp<'a> {
    pub pool: &'a Pool,
    /// What its agents will have. `None` until the provider told the platform.
    pub labels: Option<Labels>,
    /// Our own drains that could be undone, those with the most free slots first.
    pub drains: Vec<Drain<'a>>,
    /// Stopped instances that could be started, those that can be started at once first.
    pub starts: Vec<Start<'a>>,
    /// How many of them may be started.
    start_room: u32,
    /// What can be ordered, or why nothing can.
    pub offer: Result<&'a Offer, Hold>,
    /// How many more launches.
    pub room: u32,
    /// What is said once there is no room.
    pub no_room: Hold,
    /// Launches or boots failed lately: nothing goes to make room for one.
    pub in_trouble: bool,
    pub launches: Vec<LaunchName>,
    /// Machines that count for the minimum, these steps included.
    pub have: u32,
    pub uncovered: u32,
}

/// A drain of ours.
#[derive(Debug)]
pub(super) struct Drain<'a> {
    pub agent: AgentId,
    /// Name of the machine.
    pub name: &'a str,
    /// Name of the record, which every PATCH must carry.
    pub record: &'a str,
    /// The instance on which it is noted, where drains are.
    pub noted_on: Option<&'a InstanceId>,
    pub labels: Labels,
    pub free: u32,
    pub idle: bool,
    /// It would count for the minimum.
    pub usable: bool,
    pub launched: Timestamp,
    /// Why it is undone, if it is.
    pub undo: Option<Undo>,
}

/// A stopped instance, or one that is being stopped.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub instance: &'a Instance,
    /// Name of the machine.
    pub name: &'a str,
    /// What it will have.
    pub begun: Begun,
    pub readiness: Readiness,
    /// It failed to come up the last time.
    failed: bool,
    /// It would count for the minimum.
    pub usable: bool,
    /// Whether it is started.
    pub chosen: bool,
}

/// How soon it can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Readiness {
    /// At once.
    Ready,
    /// Once its record is schedulable again, or an operation on it has ended.
    Soon,
    /// Once it is stopped.
    Stops,
}

/// What a drain is undone for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undo {
    ForTasks,
    ForMinimum,
    PaidAgain { until: Timestamp },
}

impl<'a> PoolUp<'a> {
    pub fn new(snapshot: &'a Snapshot, memory: &'a Memory, fleet: &Fleet<'a>, index: usize) -> Self {
        let pool = &snapshot.pools[index];
        let open = may_begin(snapshot, memory, pool);
        let (starts, sold_out) = match open {
            Ok(()) => starts(snapshot, memory, fleet, index),
            Err(_) => (Vec::new(), None),
        };
        let mut start_room = pool.max.saturating_sub(fleet.up(index)).min(count(starts.len()));
        let offer = open.and_then(|()| match (pool.is_fixed(), sold_out) {
            (false, _) => offer(snapshot, memory, pool),
            (true, Some(until)) if pool.max > fleet.up(index) => Err(Hold::SoldOut { until }),
            (true, _) if pool.max <= fleet.up(index) => Err(Hold::AtMaximum { max: pool.max }),
            (true, _) => Err(Hold::NothingToStart { machines: count(pool.fixed.len()) }),
        });
        let mut room = pool.max.saturating_sub(fleet.existing(index));
        let mut no_room = Hold::AtMaximum { max: pool.max };
        let trouble = memory.troubles.get(&pool.name);
        let of_pool = || fleet.machines.iter().filter(|machine| machine.pool == index);
        let mut failed_now = of_pool().filter(|machine| machine.state == MachineState::Failed && !machine.in_flight);
        let counted = |name: &str| trouble.is_some_and(|t| t.counted.iter().any(|counted| counted.as_str() == name));
        if (room > 0 || start_room > 0) && failed_now.any(|machine| !counted(machine.name)) {
            // The failure is noted after this pass; what takes its place waits for the pause.
            let failures = trouble.map_or(0, |trouble| trouble.failures);
            let (why, until) = ("an instance never connected".to_owned(), later(snapshot.now, pause_after(failures)));
            no_room = Hold::Trouble { failures: failures.saturating_add(1), why, until };
            room = 0;
            start_room = 0;
        } else if let Some(trouble) = trouble
            && (room > 0 || start_room > 0)
        {
            // After failures one instance at a time shows whether the cause is gone.
            let boots = of_pool().any(|machine| machine.state == MachineState::Booting);
            start_room = start_room.min(u32::from(!boots));
            room = if starts.is_empty() { room.min(u32::from(!boots)) } else { 0 };
            no_room = Hold::Trouble { failures: trouble.failures, why: trouble.why.clone(), until: trouble.until };
        }
        let offer =
            if pool.is_fixed() && matches!(no_room, Hold::Trouble { .. }) { Err(no_room.clone()) } else { offer };
        if offer.is_err() {
            room = 0;
        }
        Self {
            pool,
            labels: pool.effective_labels(),
            drains: drains(snapshot, memory, fleet, index),
            starts,
            start_room,
            offer,
            room,
            no_room,
            in_trouble: trouble.is_some(),
            launches: Vec::new(),
            have: 0,
            uncovered: 0,
        }
    }

    /// Why nothing more is launched.
    pub fn hold(&self) -> &Hold {
        match &self.offer {
            Err(Hold::NothingToStart { .. }) if self.starts.iter().any(|start| !start.chosen) => &self.no_room,
            Err(hold) => hold,
            Ok(_) => &self.no_room,
        }
    }

    /// Indices of the drains that have a slot, by what their agents take.
    pub fn drains_by_labels(&self) -> BTreeMap<&Labels, Vec<usize>> {
        let mut by_labels: BTreeMap<&Labels, Vec<usize>> = BTreeMap::new();
        for (index, drain) in self.drains.iter().enumerate().filter(|(_, drain)| drain.free > 0) {
            by_labels.entry(&drain.labels).or_default().push(index);
        }
        by_labels
    }

    /// Indices of the stopped instances, by what their agents will take.
    pub fn starts_by_labels(&self) -> BTreeMap<&Labels, Vec<usize>> {
        let mut by_labels: BTreeMap<&Labels, Vec<usize>> = BTreeMap::new();
        if self.start_room > 0 {
            for (index, start) in self.starts.iter().enumerate().filter(|(_, start)| start.begun.slots > 0) {
                by_labels.entry(&start.begun.labels).or_default().push(index);
            }
        }
        by_labels
    }

    /// Starts this one, if there is room.
    pub fn start(&mut self, index: usize) {
        if self.start_room > 0 {
            self.start_room -= 1;
            self.starts[index].chosen = true;
        }
    }

    pub fn launch(&mut self, names: &mut Names<'_>) {
        self.room = self.room.saturating_sub(1);
        self.launches.push(names.next(self.pool));
    }

    pub fn reach_minimum(&mut self, usable: u32, names: &mut Names<'_>) {
        let undone = self.drains.iter().filter(|drain| drain.undo.is_some() && drain.usable).count();
        let started = self.starts.iter().filter(|start| start.chosen && start.usable).count();
        self.have = usable.saturating_add(count(undone)).saturating_add(count(started + self.launches.len()));
        for drain in self.drains.iter_mut().filter(|drain| drain.undo.is_none() && drain.usable) {
            if self.have >= self.pool.min {
                return;
            }
            drain.undo = Some(Undo::ForMinimum);
            self.have += 1;
        }
        for index in 0..self.starts.len() {
            if self.have >= self.pool.min || self.start_room == 0 {
                break;
            }
            if self.starts[index].usable && !self.starts[index].chosen {
                self.start(index);
                self.have += 1;
            }
        }
        while self.have < self.pool.min && self.room > 0 {
            self.launch(names);
            self.have += 1;
        }
    }

    /// A drain that did not end within the paid period: the next one has begun and is paid for, so it is of use.
    pub fn undo_paid(&mut self, snapshot: &Snapshot) {
        let Billing::ByPeriod(period) = self.pool.billing else { return };
        if !matches!(snapshot.instances.get(&self.pool.account), Some(Listing::Known { .. })) {
            return;
        }
        for drain in self.drains.iter_mut().filter(|drain| drain.undo.is_none() && drain.usable) {
            let (until, _) = closing_window(snapshot.now, snapshot.poll_interval, drain.launched, period);
            if snapshot.now < until {
                drain.undo = Some(Undo::PaidAgain { until });
            }
        }
    }
}

/// Why a pool begins no instance at all now, if it does not.
fn may_begin(snapshot: &Snapshot, memory: &Memory, pool: &Pool) -> Result<(), Hold> {
    if let Market::NotReady { why } = &pool.market {
        return Err(Hold::NotReady { why: why.clone() });
    }
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
    Ok(())
}

/// The offer that a pool orders next, or why it orders nothing.
fn offer<'a>(snapshot: &Snapshot, memory: &Memory, pool: &'a Pool) -> Result<&'a Offer, Hold> {
    let offers = match &pool.market {
        Market::Open { offers, .. } => offers,
        Market::NotReady { why } => return Err(Hold::NotReady { why: why.clone() }),
    };
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
                noted_on: noted_on(machine, pool),
                labels: AgentKind::new(agent, Some(pool)).labels(),
                free: if doubt.about(agent) { 0 } else { machine.free() },
                idle: machine.running == 0,
                usable: machine.fits_pool,
                launched: machine.launched,
                undo: None,
            })
        })
        .collect();
    drains.sort_by(|a, b| (Reverse(a.free), a.name).cmp(&(Reverse(b.free), b.name)));
    drains
}

/// Instances that could be started, and when the first is tried again of those that the provider has no room for.
fn starts<'a>(
    snapshot: &'a Snapshot,
    memory: &Memory,
    fleet: &Fleet<'a>,
    index: usize,
) -> (Vec<Start<'a>>, Option<Timestamp>) {
    let pool = &snapshot.pools[index];
    let ours = |agent: AgentId| memory.cordons.get(&agent).is_some_and(|cordon| cordon.ours);
    let (mut starts, mut first_again) = (Vec::new(), None);
    for machine in fleet.machines.iter().filter(|machine| machine.pool == index) {
        let schedulable = machine.agent.is_none_or(|agent| !agent.no_schedule);
        let readiness = match machine.state {
            MachineState::Stopped if schedulable && !machine.in_flight => Readiness::Ready,
            MachineState::Stopped => Readiness::Soon,
            MachineState::Stopping => Readiness::Stops,
            MachineState::Booting
            | MachineState::Busy
            | MachineState::Idle
            | MachineState::Cordoned
            | MachineState::Lost
            | MachineState::Failed
            | MachineState::Orphan
            | MachineState::Deleting => continue,
        };
        let left_alone = machine.agent.is_some_and(|agent| agent.no_schedule && !ours(agent.id));
        if left_alone || past_its_time(machine, pool, snapshot.now).is_some() {
            continue;
        }
        let (Some(instance), Some(begun)) = (machine.instance, Begun::new(machine, pool)) else { continue };
        let sold_out = memory.sold_out.get(&(pool.account, instance.offer.clone()));
        if let Some(until) = sold_out.filter(|until| snapshot.now < **until) {
            first_again = Some(first_again.map_or(*until, |first: Timestamp| first.min(*until)));
            continue;
        }
        let trouble = memory.troubles.get(&pool.name);
        let failed = trouble.is_some_and(|trouble| trouble.counted.iter().any(|name| name.as_str() == machine.name));
        let usable = machine.fits_pool;
        starts.push(Start { instance, name: machine.name, begun, readiness, failed, usable, chosen: false });
    }
    starts.sort_by(|a, b| (a.readiness, a.failed, a.name).cmp(&(b.readiness, b.failed, b.name)));
    (starts, first_again)
}
