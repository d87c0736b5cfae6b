//! One pool while scaling up: what it can order, how much, and which of its drains can be undone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::model::decision::Hold;
use crate::model::ids::{AgentId, LaunchName};
use crate::model::labels::Labels;
use crate::model::later;
use crate::model::machine::MachineState;
use crate::model::memory::{Memory, pause_after};
use crate::model::pool::{Billing, Market, Offer, Pool};
use crate::model::snapshot::{Listing, Snapshot};
use crate::plan::count;
use crate::plan::fleet::{AgentKind, Fleet};
use crate::plan::period::closing_window;
use crate::plan::supply::Doubt;

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
    pub labels: Labels,
    pub free: u32,
    pub idle: bool,
    /// It would count for the minimum.
    pub usable: bool,
    pub launched: Timestamp,
    /// Why it is undone, if it is.
    pub undo: Option<Undo>,
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
            in_trouble: trouble.is_some(),
            launches: Vec::new(),
            have: 0,
            uncovered: 0,
        }
    }

    /// Why nothing more is launched.
    pub fn hold(&self) -> &Hold {
        self.offer.as_ref().err().unwrap_or(&self.no_room)
    }

    /// Indices of the drains that have a slot, by what their agents take.
    pub fn drains_by_labels(&self) -> BTreeMap<&Labels, Vec<usize>> {
        let mut by_labels: BTreeMap<&Labels, Vec<usize>> = BTreeMap::new();
        for (index, drain) in self.drains.iter().enumerate().filter(|(_, drain)| drain.free > 0) {
            by_labels.entry(&drain.labels).or_default().push(index);
        }
        by_labels
    }

    pub fn launch(&mut self, names: &mut Names<'_>) {
        self.room = self.room.saturating_sub(1);
        self.launches.push(names.next(self.pool));
    }

    pub fn reach_minimum(&mut self, usable: u32, names: &mut Names<'_>) {
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
