//! What Picus does and why, for people and programs that ask: kept up to date by the loop, read without waiting for it.
//!
//! | file | holds |
//! |---|---|
//! | [`view`] | the data that is shown |
//! | `build` | from what was observed and decided to that data |
//! | `gauges` | the same as metrics |
//! | `cost` | what instances have cost |
//! | [`history`] | the last hours, for the plot |
//! | `decisions` | the last actions and holds |
//!
//! The loop writes, in moments; readers take what the last pass left. Nothing here decides anything.

mod build;
mod cost;
mod decisions;
mod gauges;
pub mod history;
pub mod view;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use self::history::History;
use self::view::{DecisionEntry, PassStatus, QueueStatus, Sample, Status, StepStatus, VERSION};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::action::{Action, Plan, Step};
use crate::model::machine::{Fate, MachineState};
use crate::model::memory::Memory;
use crate::model::pool::AccountId;
use crate::model::reason::Reason;
use crate::model::snapshot::Snapshot;
use crate::model::{age, later};
use crate::settings::{AccountSettings, LaunchSettings, Settings};

/// So many steps are shown.
const STEPS_SHOWN: usize = 100;
/// A pass that is late by more than so many intervals does not come.
const LATE: u32 = 5;
/// No pass takes longer: each of its calls has a timeout, and the longest list gets a minute. Servers that don't answer are
/// no reason to restart.
const LONGEST_PASS: Duration = Duration::from_mins(2);

/// What the settings say that the loop's data does not.
#[derive(Debug)]
struct Facts {
    installation: String,
    server: String,
    dry_run: bool,
    poll_interval: Duration,
    /// In the order of the settings.
    accounts: Vec<AccountFacts>,
    /// In the order of the settings.
    pools: Vec<PoolFacts>,
}

#[derive(Debug, Clone, Copy)]
struct AccountFacts {
    provider: &'static str,
    bills_stopped: bool,
}

#[derive(Debug)]
struct PoolFacts {
    name: String,
    account: AccountFacts,
    /// What the settings say of an hour's price.
    hourly_price: Option<f64>,
}

impl Facts {
    fn of(settings: &Settings) -> Self {
        let account = |account: &AccountSettings| AccountFacts {
            provider: account.provider(),
            bills_stopped: account.bills_stopped(),
        };
        let accounts: Vec<AccountFacts> = settings.accounts.iter().map(account).collect();
        let pools = settings.pools.iter().filter_map(|pool| {
            let hourly_price = match &pool.launch {
                LaunchSettings::Hetzner(_) => None,
                LaunchSettings::Ec2(settings) => settings.hourly_price,
                LaunchSettings::Fixed(settings) => settings.hourly_price,
            };
            Some(PoolFacts { name: pool.name.to_string(), account: *accounts.get(pool.account.0)?, hourly_price })
        });
        Self {
            installation: settings.installation.to_string(),
            server: settings.woodpecker.server.to_string(),
            dry_run: settings.dry_run,
            poll_interval: settings.poll_interval,
            pools: pools.collect(),
            accounts,
        }
    }

    fn provider(&self, account: AccountId) -> &'static str {
        self.accounts.get(account.0).map_or("unknown", |account| account.provider)
    }
}

/// What the loop is doing.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Settings are read; the server and the providers are asked whether they accept us.
    Starting,
    /// A pass is under way.
    Passing { since: Timestamp },
    /// The next one begins then.
    Waiting { until: Timestamp },
}

/// The last pass and what led to it. Shared; the loop writes, everybody reads.
#[derive(Debug)]
pub struct Board {
    facts: Facts,
    clock: Clock,
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    started: Timestamp,
    phase: Phase,
    pass_began: Timestamp,
    passes: u64,
    last_done: Option<Timestamp>,
    latest: Option<Arc<Status>>,
    /// Newest last.
    steps: VecDeque<StepStatus>,
    next_step: u64,
    /// `latest` does not have the last change of a step.
    steps_changed: bool,
    decisions: decisions::Decisions,
    history: History,
    meter: cost::Meter,
    /// Launches and starts whose agent has not been seen connected, by name.
    awaited: BTreeMap<String, Timestamp>,
    /// Steps that a dry run decided in its last pass.
    only_decided: Vec<String>,
}

impl Board {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(settings: &Settings, clock: Clock, metrics: Metrics) -> Arc<Self> {
        let now = clock.now();
        let state = State {
            started: now,
            phase: Phase::Starting,
            pass_began: now,
            passes: 0,
            last_done: None,
            latest: None,
            steps: VecDeque::new(),
            next_step: 1,
            steps_changed: false,
            decisions: decisions::Decisions::default(),
            history: History::default(),
            meter: cost::Meter::default(),
            awaited: BTreeMap::new(),
            only_decided: Vec::new(),
        };
        metrics.last_good_pass.set(&[], 0.0);
        let facts = Facts::of(settings);
        Arc::new(Self { facts, clock, metrics, state: Mutex::new(state) })
    }

    /// The metrics that it keeps.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The time by the loop's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A pass begins.
    pub fn pass_began(&self) {
        let now = self.clock.now();
        let mut state = self.state();
        state.phase = Phase::Passing { since: now };
        state.pass_began = now;
    }

    /// A pass is over; the next begins at `next` at the latest.
    pub fn waits(&self, next: Timestamp) {
        let mut state = self.state();
        state.phase = Phase::Waiting { until: next };
        if let Some(latest) = &mut state.latest {
            Arc::make_mut(latest).pass.next = Some(next);
        }
    }

    /// Woodpecker could not be read.
    pub fn skipped(&self, why: &str) {
        let now = self.clock.now();
        let mut state = self.state();
        let pass = self.end_pass(&mut state, "skipped", now, Some(why.to_owned()));
        let mut status = state.latest.as_deref().cloned().unwrap_or_else(|| self.nothing(&state, now, pass.clone()));
        status.pass = pass;
        status.steps = state.steps.iter().rev().cloned().collect();
        state.latest = Some(Arc::new(status));
    }

    /// A pass decided.
    pub fn decided(&self, snapshot: &Snapshot, plan: &Plan, memory: &Memory) {
        let now = self.clock.now();
        let mut shown = build::shown(snapshot, plan, memory, &self.facts);
        let mut state = self.state();
        state.last_done = Some(now);
        let pass = self.end_pass(&mut state, "done", now, None);
        self.charge(&mut state, &mut shown, now);
        self.see_contacts(&mut state, plan, now);
        state.decisions.decided(now, plan, &shown.pools);
        if self.facts.dry_run {
            only_decided(&mut state, plan, now);
        }
        let samples = shown.pools.iter().map(|pool| {
            let slots = pool.slots.free + pool.slots.busy;
            let cost_per_hour = pool.cost_per_hour.unwrap_or(0.0);
            let sample = Sample { demand: pool.demand, slots, instances: pool.instances, cost_per_hour };
            (pool.name.clone(), sample)
        });
        state.history.note(now, samples.collect());
        gauges::set(&self.metrics, &self.facts, &shown, plan, memory, now);
        let build::Shown { queue, pools, tasks, machines, others, accounts, sold_out, notices, billed: _ } = shown;
        let base = self.nothing(&state, snapshot.now, pass);
        let steps = state.steps.iter().rev().cloned().collect();
        let status = Status { queue, pools, tasks, machines, others, accounts, sold_out, steps, notices, ..base };
        state.latest = Some(Arc::new(status));
        state.steps_changed = false;
    }

    /// A step begins; the answer names it for [`Board::ended`].
    pub fn began(&self, step: &Step) -> u64 {
        let now = self.clock.now();
        let mut state = self.state();
        if let Action::Launch { .. } | Action::Start { .. } = &step.action {
            state.awaited.insert(name_of(&step.action), now);
        }
        note_step(&mut state, step, now, "under way")
    }

    /// A step came to its end. `failed`: the fixed word of the failure, and its text.
    pub fn ended(&self, number: u64, step: &Step, failed: Option<(&'static str, &str)>) {
        let now = self.clock.now();
        let outcome = failed.map_or("ok", |(kind, _)| kind);
        let mut state = self.state();
        let mut took = Duration::ZERO;
        if let Some(noted) = state.steps.iter_mut().rev().find(|noted| noted.number == number) {
            took = age(now, noted.began);
            noted.took_seconds = Some(took.as_secs_f64());
            noted.outcome = String::from(if failed.is_some() { "failed" } else { "done" });
            noted.error = failed.map(|(_, why)| why.to_owned());
        }
        if failed.is_some() {
            state.awaited.remove(&name_of(&step.action));
        }
        state.steps_changed = true;
        drop(state);
        self.count(step, outcome, took);
    }

    fn count(&self, step: &Step, outcome: &str, took: Duration) {
        let pool = step.pool.0.as_str();
        let facts = self.facts.pools.iter().find(|facts| facts.name == pool);
        let provider = facts.map_or("unknown", |facts| facts.account.provider);
        self.metrics.steps.one(&[pool, step.action.kind(), outcome]);
        match &step.action {
            Action::Launch { name: _, offer } => {
                self.metrics.launches.one(&[pool, provider, &offer.server_type, &offer.location, outcome]);
                if outcome == "ok" {
                    self.metrics.create_duration.observe(&[pool], took);
                }
            }
            Action::Start { .. } => self.metrics.starts.one(&[pool, outcome]),
            Action::Retire { .. } | Action::Stop { .. } | Action::DeleteInstance { .. } => {
                if outcome == "ok" {
                    self.metrics.retirements.one(&[pool, step.reason.kind()]);
                }
            }
            Action::Cordon { .. } | Action::Uncordon { .. } => {}
        }
    }

    /// What the last pass left. `None`: there was none.
    #[must_use]
    pub fn latest(&self) -> Option<Arc<Status>> {
        let mut state = self.state();
        if state.steps_changed {
            let steps = state.steps.iter().rev().cloned().collect();
            if let Some(latest) = &mut state.latest {
                Arc::make_mut(latest).steps = steps;
            }
            state.steps_changed = false;
        }
        state.latest.clone()
    }

    /// The last actions and holds that changed, newest first.
    #[must_use]
    pub fn decisions(&self) -> Vec<DecisionEntry> {
        self.state().decisions.newest_first()
    }

    /// The last hours.
    #[must_use]
    pub fn history(&self) -> History {
        self.state().history.clone()
    }

    /// Whether passes complete. Others that do not answer are no reason why they should not.
    ///
    /// # Errors
    ///
    /// What does not come to its end, and since when.
    pub fn health(&self) -> Result<(), String> {
        let now = self.clock.now();
        let late = self.facts.poll_interval.saturating_mul(LATE);
        match self.state().phase {
            Phase::Passing { since } if age(now, since) > late.max(LONGEST_PASS) => {
                Err(format!("the pass that began at {since:.0} does not come to its end"))
            }
            Phase::Waiting { until } if now > later(until, late) => {
                Err(format!("the pass that was due at {until:.0} has not begun"))
            }
            Phase::Starting | Phase::Passing { .. } | Phase::Waiting { .. } => Ok(()),
        }
    }

    /// Whether there was a pass.
    ///
    /// # Errors
    ///
    /// What is still awaited.
    pub fn readiness(&self) -> Result<(), String> {
        let state = self.state();
        match (&state.last_done, &state.latest, state.phase) {
            (Some(_), _, _) => Ok(()),
            (None, Some(latest), _) => {
                Err(format!("no pass was done yet: {}", latest.pass.why.as_deref().unwrap_or("the first is under way")))
            }
            (None, None, Phase::Starting) => Err("the Woodpecker server and the providers are asked first".to_owned()),
            (None, None, _) => Err("the first pass is under way".to_owned()),
        }
    }

    fn end_pass(&self, state: &mut State, outcome: &str, now: Timestamp, why: Option<String>) -> PassStatus {
        state.passes += 1;
        // Until the loop says when it looks again, it is due.
        state.phase = Phase::Waiting { until: now };
        let took = age(now, state.pass_began);
        self.metrics.passes.one(&[outcome]);
        self.metrics.pass_duration.observe(&[], took);
        if let Some(done) = state.last_done {
            #[expect(clippy::cast_precision_loss, reason = "seconds since 1970")]
            self.metrics.last_good_pass.set(&[], done.as_second() as f64);
        }
        PassStatus {
            number: state.passes,
            outcome: outcome.to_owned(),
            why,
            ended: now,
            took_seconds: took.as_secs_f64(),
            last_done: state.last_done,
            next: None,
        }
    }

    fn charge(&self, state: &mut State, shown: &mut build::Shown, now: Timestamp) {
        for (id, pool, billed) in &shown.billed {
            let charge = state.meter.charge(id, *billed, now, state.started);
            let name = shown.pools[*pool].name.as_str();
            self.metrics.cost.add(&[name], charge.cost);
            self.metrics.idle_cost.add(&[name], charge.idle);
        }
        state.meter.keep_seen(now);
        for pool in &mut shown.pools {
            pool.cost = self.metrics.cost.get(&[&pool.name]);
            pool.idle_cost = self.metrics.idle_cost.get(&[&pool.name]);
        }
    }

    fn see_contacts(&self, state: &mut State, plan: &Plan, now: Timestamp) {
        for machine in &plan.machines {
            let pool = machine.pool.0.as_str();
            match machine.state {
                MachineState::Busy | MachineState::Idle | MachineState::Cordoned => {
                    if let Some(began) = state.awaited.remove(&machine.name) {
                        self.metrics.first_contact.observe(&[pool], age(now, began));
                    }
                }
                MachineState::Booting
                | MachineState::Lost
                | MachineState::Failed
                | MachineState::Orphan
                | MachineState::Deleting
                | MachineState::Stopping
                | MachineState::Stopped => {}
            }
            if let Fate::Step { reason: Reason::NeverConnected { .. }, .. } = &machine.fate
                && state.awaited.remove(&machine.name).is_some()
            {
                self.metrics.boot_failures.one(&[pool]);
            }
        }
    }

    /// What is shown where nothing was seen.
    fn nothing(&self, state: &State, now: Timestamp, pass: PassStatus) -> Status {
        Status {
            version: VERSION,
            picus: env!("CARGO_PKG_VERSION").to_owned(),
            installation: self.facts.installation.clone(),
            server: self.facts.server.clone(),
            dry_run: self.facts.dry_run,
            started: state.started,
            now,
            pass,
            queue: QueueStatus::default(),
            pools: Vec::new(),
            tasks: Vec::new(),
            machines: Vec::new(),
            others: Vec::new(),
            accounts: Vec::new(),
            sold_out: Vec::new(),
            steps: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// A panic while the lock was held leaves data that the next pass replaces.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In a dry run a step is shown when it is first decided, not each pass anew.
fn only_decided(state: &mut State, plan: &Plan, now: Timestamp) {
    let before = std::mem::take(&mut state.only_decided);
    for step in &plan.steps {
        let what = format!("{} {}", step.pool, step.action.kind());
        if !before.contains(&what) && !state.only_decided.contains(&what) {
            note_step(state, step, now, "only decided");
        }
        state.only_decided.push(what);
    }
}

fn note_step(state: &mut State, step: &Step, now: Timestamp, outcome: &str) -> u64 {
    let number = state.next_step;
    state.next_step += 1;
    state.steps.push_back(StepStatus {
        number,
        began: now,
        pool: step.pool.to_string(),
        action: step.action.kind().to_owned(),
        what: step.action.to_string(),
        why: step.reason.to_string(),
        outcome: outcome.to_owned(),
        error: None,
        took_seconds: None,
    });
    if state.steps.len() > STEPS_SHOWN {
        state.steps.pop_front();
    }
    state.steps_changed = true;
    number
}

/// The machine that a step is about.
fn name_of(action: &Action) -> String {
    match action {
        Action::Launch { name, .. } | Action::DeleteInstance { name, .. } => name.to_string(),
        Action::Start { name, .. }
        | Action::Uncordon { name, .. }
        | Action::Cordon { name, .. }
        | Action::Stop { name, .. }
        | Action::Retire { name, .. } => name.clone(),
    }
}
