//! What is retired, what is an orphan, what is left alone, and why.
//!
//! Nothing busy, foreign or unknown is touched. Absence is evidence only once it has lasted, and the executor asks once
//! more before it deletes.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::fleet::{Fleet, Machine, seen_lately};
use super::period::closing_window;
use super::scale_up::Begins;
use super::stopped::{noted_on, past_its_time};
use super::{
    AGENTS_RETURN, ALL_RECORDS_ABSENCE, CORDON_SETTLES, DRAIN_TAKES, LISTING_LAG, RECORD_ABSENCE, RUNS_SHOW, WORK_SHOWS,
};
use crate::model::action::{Action, Proof, Step};
use crate::model::agent::Agent;
use crate::model::ids::LaunchName;
use crate::model::instance::Instance;
use crate::model::later;
use crate::model::machine::{Fate, Keep, MachineDecision, MachineState};
use crate::model::memory::Memory;
use crate::model::pool::{Billing, Pool};
use crate::model::reason::Reason;
use crate::model::snapshot::{Listing, Snapshot};
use crate::model::task::Task;

/// What scaling down decided.
#[derive(Debug)]
pub(super) struct ScaleDown {
    pub steps: Vec<Step>,
    pub machines: Vec<MachineDecision>,
}

/// What the rest of the plan says of the machines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside<'a> {
    /// Names of machines of ours that tasks are laid on.
    pub needed: &'a BTreeSet<&'a str>,
    /// What scaling up does to machines that exist.
    pub begins: &'a Begins,
    /// How many more instances each pool would launch if it were not at its maximum.
    pub short: &'a [u32],
}

pub(super) fn scale_down(snapshot: &Snapshot, memory: &Memory, fleet: &Fleet<'_>, beside: &Beside<'_>) -> ScaleDown {
    let Beside { needed, begins, short: _ } = *beside;
    let in_the_way = room::in_the_way(snapshot, memory, fleet, beside);
    let all_records_vanished = all_records_vanished(snapshot, memory);
    let judge = Judge { snapshot, memory, needed, begins, in_the_way: &in_the_way, all_records_vanished };
    let mut verdicts: Vec<Verdict> = fleet.machines.iter().map(|machine| judge.verdict(machine)).collect();
    for pool in 0..snapshot.pools.len() {
        keep_minimum(snapshot, fleet, pool, &mut verdicts);
    }
    let mut down = ScaleDown { steps: Vec::new(), machines: Vec::new() };
    for (machine, verdict) in fleet.machines.iter().zip(verdicts) {
        let pool = snapshot.pools[machine.pool].name.clone();
        let fate = match verdict {
            Verdict::Keep(why) => Fate::Kept { why },
            Verdict::Begins(action, reason) => Fate::Step { action, reason },
            Verdict::Do(action, reason) => {
                let kind = action.kind();
                down.steps.push(Step { pool: pool.clone(), action, reason: reason.clone() });
                Fate::Step { action: kind, reason }
            }
        };
        down.machines.push(MachineDecision {
            pool,
            name: machine.name.to_owned(),
            agent: machine.agent.map(|agent| agent.id),
            instance: machine.instance.map(|instance| instance.id.clone()),
            running: machine.agent.map(|_| machine.running),
            state: machine.state,
            fate,
        });
    }
    down
}

/// What is to happen to one machine.
enum Verdict {
    Keep(Keep),
    /// Scaling up has a step for it.
    Begins(&'static str, Reason),
    Do(Action, Reason),
}

/// Idle machines are due longest idle first, and no more of them than the minimum allows.
fn keep_minimum(snapshot: &Snapshot, fleet: &Fleet<'_>, pool: usize, verdicts: &mut [Verdict]) {
    let mut spare = fleet.usable(snapshot, pool).saturating_sub(snapshot.pools[pool].min);
    let mut due: BTreeMap<(Timestamp, &str), usize> = BTreeMap::new();
    for (index, machine) in fleet.machines.iter().enumerate() {
        let counts_for_minimum = machine.pool == pool && machine.is_usable(snapshot);
        if let (true, Verdict::Do(Action::Cordon { .. }, reason)) = (counts_for_minimum, &verdicts[index]) {
            let Some(since) = reason.came_due() else { continue };
            due.insert((since, machine.name), index);
        }
    }
    for index in due.into_values() {
        if spare == 0 {
            verdicts[index] = Verdict::Keep(Keep::Minimum);
        } else {
            spare -= 1;
        }
    }
}

/// Judges one machine at a time.
struct Judge<'a> {
    snapshot: &'a Snapshot,
    memory: &'a Memory,
    /// Names of machines of ours that tasks are laid on.
    needed: &'a BTreeSet<&'a str>,
    /// What scaling up does to machines that exist.
    begins: &'a Begins,
    /// Names of machines that make room for waiting tasks.
    in_the_way: &'a BTreeSet<&'a str>,
    /// The server lists no agent, though there were records.
    all_records_vanished: bool,
}

/// Whether the server lists no agent at all, and some instance of ours has or had a record.
fn all_records_vanished(snapshot: &Snapshot, memory: &Memory) -> bool {
    let had_one = |instance: &Instance| instance.agent.is_some() || memory.records.contains_key(&instance.id);
    snapshot.agents.is_empty() && snapshot.listed().any(had_one)
}

impl Judge<'_> {
    fn now(&self) -> Timestamp {
        self.snapshot.now
    }

    fn verdict(&self, machine: &Machine<'_>) -> Verdict {
        let pool = &self.snapshot.pools[machine.pool];
        if machine.in_flight {
            return Verdict::Keep(Keep::InFlight);
        }
        if let Some(agent) = machine.agent
            && let Some(reason) = self.begins.undone.get(&agent.id)
        {
            return Verdict::Begins("uncordon", reason.clone());
        }
        if let Some(instance) = machine.instance
            && let Some(reason) = self.begins.started.get(&instance.id)
        {
            return Verdict::Begins("start", reason.clone());
        }
        if !matches!(self.snapshot.instances.get(&pool.account), Some(Listing::Known { .. })) {
            return Verdict::Keep(if machine.running > 0 { Keep::Busy } else { Keep::ListingUnknown });
        }
        match (machine.state, machine.agent) {
            (MachineState::Deleting, _) => Verdict::Keep(Keep::Deleting),
            (MachineState::Booting, _) => Verdict::Keep(Keep::Boots { until: machine.boots_until }),
            (MachineState::Busy, _) => Verdict::Keep(Keep::Busy),
            (MachineState::Failed, agent) => match self.record_missing_lately(machine) {
                Some(until) => Verdict::Keep(Keep::MissingLately { until }),
                None => self.never_connected(machine, pool, agent),
            },
            (MachineState::Stopping, _) => Verdict::Keep(Keep::Stopping),
            (MachineState::Stopped, agent) => self.stopped(machine, pool, agent),
            (MachineState::Lost, Some(agent)) => self.lost(machine, pool, agent),
            (MachineState::Idle, Some(agent)) => self.idle(machine, pool, agent),
            (MachineState::Cordoned, Some(agent)) => self.cordoned(machine, pool, agent),
            (MachineState::Orphan, Some(agent)) => self.record_without_instance(agent),
            (MachineState::Orphan, None) => match machine.instance {
                Some(instance) => self.instance_without_record(machine, pool, instance),
                None => Verdict::Keep(Keep::InFlight),
            },
            // These states are only given to machines with a record.
            (MachineState::Lost | MachineState::Idle | MachineState::Cordoned, None) => Verdict::Keep(Keep::InFlight),
        }
    }

    fn idle(&self, machine: &Machine<'_>, pool: &Pool, agent: &Agent) -> Verdict {
        if self.needed.contains(machine.name) {
            return Verdict::Keep(Keep::Needed);
        }
        if machine.instance.is_none() {
            return Verdict::Keep(Keep::InstanceNotListed);
        }
        match self.due(machine, pool, agent).and_then(|reason| self.in_time(machine, pool, reason)) {
            Ok(reason) => Verdict::Do(cordon(machine, pool, agent), reason),
            Err(_) if self.in_the_way.contains(machine.name) => {
                Verdict::Do(cordon(machine, pool, agent), Reason::MakesRoom)
            }
            Err(keep) => Verdict::Keep(keep),
        }
    }

    /// Whether an idle agent's time is over.
    fn due(&self, machine: &Machine<'_>, pool: &Pool, agent: &Agent) -> Result<Reason, Keep> {
        let since = self.idle_since(machine, agent);
        match pool.billing {
            Billing::BySecond => {
                let until = later(since, pool.idle_timeout);
                if self.now() < until { Err(Keep::IdleUntil { until }) } else { Ok(Reason::Idle { since }) }
            }
            Billing::ByPeriod(period) => {
                let (opens, ends) = closing_window(self.now(), self.snapshot.poll_interval, machine.launched, period);
                if self.now() < opens { Err(Keep::PaidUntil { until: opens }) } else { Ok(Reason::PeriodEnds { ends }) }
            }
        }
    }

    /// A drain that would outlast the paid period is not begun: the next period is as good as paid for.
    fn in_time(&self, machine: &Machine<'_>, pool: &Pool, reason: Reason) -> Result<Reason, Keep> {
        match (&reason, pool.billing) {
            (Reason::PeriodEnds { ends }, Billing::ByPeriod(period))
                if later(self.now(), DRAIN_TAKES.min(period / 4)) > *ends =>
            {
                let (until, _) = closing_window(*ends, self.snapshot.poll_interval, machine.launched, period);
                Err(Keep::PaidUntil { until })
            }
            (_, Billing::ByPeriod(_) | Billing::BySecond) => Ok(reason),
        }
    }

    /// The last time it worked, by its record or as the loop saw it; else its first contact, else its launch or, where
    /// that is later, the beginning of its record: with a shared secret it is made at the first contact.
    fn idle_since(&self, machine: &Machine<'_>, agent: &Agent) -> Timestamp {
        if self.memory.unconnected.contains_key(&agent.id) {
            return self.now();
        }
        let first_contact = self.memory.first_contact.get(&agent.id).copied();
        let first_contact = first_contact.unwrap_or(machine.launched.max(agent.created));
        let worked = agent.last_work.unwrap_or(Timestamp::MIN);
        let seen_busy = self.memory.seen_busy.get(&agent.id).copied().unwrap_or(Timestamp::MIN);
        first_contact.max(worked).max(seen_busy).min(self.now())
    }

    fn cordoned(&self, machine: &Machine<'_>, pool: &Pool, agent: &Agent) -> Verdict {
        if machine.running > 0 {
            return Verdict::Keep(Keep::Busy);
        }
        if machine.instance.is_none() {
            return Verdict::Keep(Keep::InstanceNotListed);
        }
        let Some(cordon) = self.memory.cordons.get(&agent.id) else {
            return Verdict::Keep(Keep::Settling { until: later(self.now(), CORDON_SETTLES) });
        };
        let settled = later(cordon.since, CORDON_SETTLES);
        if self.now() < settled {
            return Verdict::Keep(Keep::Settling { until: settled });
        }
        if agent.last_contact.is_none() {
            let until = machine.boots_until;
            return if self.now() < until {
                Verdict::Keep(Keep::Boots { until })
            } else {
                self.never_connected(machine, pool, Some(agent))
            };
        }
        let reason = match self.due(machine, pool, agent) {
            Ok(reason) => reason,
            Err(_) if cordon.ours && !machine.connected(self.now()) => {
                Reason::ContactLost { last_contact: agent.last_contact.unwrap_or(machine.launched) }
            }
            Err(_) if cordon.ours => Reason::Idle { since: self.idle_since(machine, agent) },
            Err(_) if self.in_the_way.contains(machine.name) => Reason::MakesRoom,
            Err(_) => return Verdict::Keep(Keep::CordonedByOthers),
        };
        let until = self.shows_its_runs(machine, agent);
        if self.now() < until {
            return Verdict::Keep(Keep::MayWork { until });
        }
        if let Some(instance) = machine.instance
            && !machine.connected(self.now())
            && !pool.is_fixed()
            && self.is_named(agent)
            && LaunchName::parse(&agent.name, &self.snapshot.installation, &pool.name).is_some()
        {
            // The dead machine makes room; its record goes once the task runs elsewhere. One that was renamed would not be
            // known as ours any more.
            let Instance { id, name, .. } = instance;
            let action = Action::DeleteInstance { instance: id.clone(), name: name.clone(), agent: Some(agent.id) };
            return Verdict::Do(action, reason);
        }
        Verdict::Do(end(machine, pool, agent, &reason), reason)
    }

    fn stopped(&self, machine: &Machine<'_>, pool: &Pool, agent: Option<&Agent>) -> Verdict {
        if let Some(reason) = past_its_time(machine, pool, self.now()) {
            return match (agent, machine.instance) {
                (Some(agent), _) => Verdict::Do(retire(machine, agent, Proof::Silent), reason),
                (None, Some(instance)) => Verdict::Do(delete(instance), reason),
                (None, None) => Verdict::Keep(Keep::Stopped),
            };
        }
        match agent {
            Some(agent) if agent.no_schedule => {
                if self.memory.cordons.get(&agent.id).is_some_and(|cordon| cordon.ours) {
                    let (name, noted_on) = (agent.name.clone(), noted_on(machine, pool).cloned());
                    Verdict::Do(Action::Uncordon { agent: agent.id, name, noted_on }, Reason::Stopped)
                } else {
                    Verdict::Keep(Keep::CordonedByOthers)
                }
            }
            Some(_) | None => Verdict::Keep(Keep::Stopped),
        }
    }

    /// The boot timeout has passed. Its record, if there is one, says that it was never there, or not since it was started.
    fn never_connected(&self, machine: &Machine<'_>, pool: &Pool, agent: Option<&Agent>) -> Verdict {
        let reason = Reason::NeverConnected { launched: machine.launched };
        let proof = match agent {
            Some(Agent { last_contact: Some(_), .. }) => Proof::Silent,
            Some(Agent { last_contact: None, .. }) | None => Proof::NeverHeardOf,
        };
        match (agent, machine.instance) {
            (None, Some(instance)) if pool.is_fixed() && !self.memory.started.contains_key(&instance.id) => {
                Verdict::Keep(Keep::NoRecord)
            }
            (agent, Some(instance)) if pool.is_fixed() => Verdict::Do(stop(machine, instance, agent, proof), reason),
            (Some(agent), _) => Verdict::Do(retire(machine, agent, proof), reason),
            (None, Some(instance)) => Verdict::Do(delete(instance), reason),
            // A launch that no listing has shown within the boot timeout; the loop forgets it.
            (None, None) => Verdict::Keep(Keep::InFlight),
        }
    }

    /// From when on an agent without running tasks works on nothing: a server that was away may have forgotten its runs,
    /// which go on all the same.
    fn shows_its_runs(&self, machine: &Machine<'_>, agent: &Agent) -> Timestamp {
        let watch = &self.memory.watch;
        let after = |at: Option<Timestamp>, wait| at.map_or(Timestamp::MIN, |at| later(at.min(self.now()), wait));
        let back = if machine.connected(self.now()) {
            after(watch.returned, RUNS_SHOW)
        } else {
            after(watch.since, AGENTS_RETURN)
        };
        after(agent.last_work, WORK_SHOWS).max(back)
    }

    fn lost(&self, machine: &Machine<'_>, pool: &Pool, agent: &Agent) -> Verdict {
        if machine.instance.is_none() {
            return Verdict::Keep(Keep::MissingLately { until: later(agent.created, LISTING_LAG) });
        }
        let last_contact = agent.last_contact.unwrap_or(machine.launched);
        let watched = self.memory.watch.since.map_or(Timestamp::MIN, |since| later(since, AGENTS_RETURN));
        let until = later(last_contact, pool.boot_timeout).max(watched);
        if self.now() < until {
            return Verdict::Keep(Keep::LostLately { until });
        }
        Verdict::Do(cordon(machine, pool, agent), Reason::ContactLost { last_contact })
    }

    fn record_without_instance(&self, agent: &Agent) -> Verdict {
        if seen_lately(agent, self.now()) {
            return Verdict::Keep(Keep::InstanceNotListed);
        }
        let missing = self.memory.without_instance.get(&agent.id).copied().unwrap_or(self.now());
        let until = later(missing, LISTING_LAG);
        if self.now() < until {
            return Verdict::Keep(Keep::MissingLately { until });
        }
        if self.is_named(agent) {
            return Verdict::Keep(Keep::Named);
        }
        let action = Action::Retire { agent: agent.id, name: agent.name.clone(), instance: None, proof: Proof::Silent };
        Verdict::Do(action, Reason::InstanceGone)
    }

    /// Until when an instance that registers itself is spared, because it may have had the record that is missing.
    fn record_missing_lately(&self, machine: &Machine<'_>) -> Option<Timestamp> {
        let instance = machine.instance.filter(|_| machine.agent.is_none())?;
        let until = later(*self.memory.without_record.get(&instance.id)?, self.record_absence());
        (self.now() < until).then_some(until)
    }

    /// How long a record must be missing before its instance is taken for an orphan.
    fn record_absence(&self) -> Duration {
        if self.all_records_vanished { ALL_RECORDS_ABSENCE } else { RECORD_ABSENCE }
    }

    /// A task that came back to the queue names the record on which it ran, and the server is one that would answer
    /// nothing about the queue without that record: before 3.16, when tasks got their time of creation.
    fn is_named(&self, agent: &Agent) -> bool {
        let queue = &self.snapshot.queue;
        let names = |task: &Task| task.agent == Some(agent.id) && task.created.is_none();
        queue.pending.iter().chain(&queue.waiting).any(names)
    }

    fn instance_without_record(&self, machine: &Machine<'_>, pool: &Pool, instance: &Instance) -> Verdict {
        let delete = Verdict::Do(delete(instance), Reason::RecordGone);
        if self.memory.record_deleted.contains(&instance.id) {
            return delete;
        }
        let missing = self.memory.without_record.get(&instance.id).copied().unwrap_or(self.now());
        let busy = instance.agent.and_then(|agent| self.memory.seen_busy.get(&agent)).copied();
        let spared = later(missing, self.record_absence())
            .max(later(machine.launched, pool.boot_timeout))
            .max(busy.map_or(Timestamp::MIN, |busy| later(busy, pool.boot_timeout)));
        if self.now() < spared { Verdict::Keep(Keep::MissingLately { until: spared }) } else { delete }
    }
}

/// A drained machine ends: it is stopped where that keeps it for later, else deleted with its record. What was lost or
/// is in the way is not worth keeping, except where somebody else made it.
fn end(machine: &Machine<'_>, pool: &Pool, agent: &Agent, reason: &Reason) -> Action {
    match machine.instance {
        Some(instance)
            if pool.is_fixed() || (pool.keeps_stopped() && reason.came_due().is_some() && machine.fits_pool) =>
        {
            stop(machine, instance, Some(agent), Proof::Cordoned)
        }
        Some(_) | None => retire(machine, agent, Proof::Cordoned),
    }
}

fn cordon(machine: &Machine<'_>, pool: &Pool, agent: &Agent) -> Action {
    Action::Cordon { agent: agent.id, name: agent.name.clone(), noted_on: noted_on(machine, pool).cloned() }
}

fn stop(machine: &Machine<'_>, instance: &Instance, agent: Option<&Agent>, proof: Proof) -> Action {
    let agent = agent.map(|agent| agent.id);
    Action::Stop { agent, name: machine.name.to_owned(), instance: instance.id.clone(), proof }
}

fn delete(instance: &Instance) -> Action {
    Action::DeleteInstance { instance: instance.id.clone(), name: instance.name.clone(), agent: instance.agent }
}

fn retire(machine: &Machine<'_>, agent: &Agent, proof: Proof) -> Action {
    Action::Retire {
        agent: agent.id,
        name: agent.name.clone(),
        instance: machine.instance.map(|instance| instance.id.clone()),
        proof,
    }
}
