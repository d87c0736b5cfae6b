//! What must hold at every moment of a life, whatever goes wrong; and the trace that a failure is told with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use picus::model::age;
use picus::model::ids::{AgentId, InstallationId, LaunchName, TaskId};
use picus::provider::label;
use picus::world::{AgentView, Event, Happened, ServerView, World};

use super::setup::{INSTALLATION, Setup};

/// `last_work` may lie a minute in the past, and a listing's times are whole seconds.
const WORK_SLACK: Duration = Duration::from_secs(70);

/// Between two passes, so also between a look and the end of its steps.
const LONGEST_GAP: Duration = Duration::from_mins(6);

/// Whose doing events are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The world's own, and Picus's.
    Itself,
    /// A verb's.
    Hand,
}

/// What was seen of one machine of ours, by the name of its launch.
#[derive(Debug)]
struct Machine {
    pool: String,
    created: Timestamp,
    connected: Option<Timestamp>,
    /// When it last had a task.
    worked: Option<Timestamp>,
    running: BTreeSet<TaskId>,
    /// How long it was idle before its last work began, and when that was.
    idled: Option<(Duration, Timestamp)>,
    /// How long it had been idle when Picus cordoned it.
    drained_after: Option<Duration>,
    /// Somebody did something to it by hand: it may end in any way.
    touched: bool,
}

impl Machine {
    /// How long it has had no task.
    fn idle(&self, now: Timestamp) -> Duration {
        let since = self.connected.max(self.worked);
        since.filter(|_| self.running.is_empty()).map_or(Duration::ZERO, |since| age(now, since))
    }

    /// The same as the look saw it that came to a step of now: a task may have slipped in since.
    fn idle_at_look(&self, now: Timestamp) -> Duration {
        let before = self.idled.filter(|(_, until)| age(now, *until) <= LONGEST_GAP).map(|(idle, _)| idle);
        self.idle(now).max(before.unwrap_or_default())
    }
}

/// Counts of a life.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub launched: usize,
    pub connected: usize,
    /// Tasks put back into the queue because their agent died.
    pub requeued: usize,
    /// Things done by hand that may cost a machine.
    pub by_hand: usize,
    /// When something of the queue last moved.
    pub moved: Option<Timestamp>,
}

pub struct Watch {
    setup: Setup,
    /// So many lines of the trace are told.
    told: usize,
    installation: InstallationId,
    trace: VecDeque<String>,
    machines: BTreeMap<String, Machine>,
    /// Names of records that were renamed, and the launch that they are of.
    renamed: BTreeMap<String, String>,
    /// Renamed records whose machine somebody deleted, or that never had one: nothing tells any more that they are ours.
    strays: BTreeSet<String>,
    /// Agents of others: how they were last cordoned by hand.
    pub foreign: BTreeMap<AgentId, bool>,
    /// Agents of ours that an administrator cordoned.
    pub admin_cordons: BTreeSet<AgentId>,
    /// How many instances a pool may have; more than its maximum after two processes acted at once.
    allowed: BTreeMap<&'static str, usize>,
    /// Processes that could have acted since the last check, those killed meanwhile included.
    pub acting: usize,
    pub tally: Tally,
}

impl Watch {
    pub fn new(setup: &Setup, told: usize) -> Self {
        let allowed = setup.pools.iter().map(|pool| (pool.name, pool.max as usize)).collect();
        Self {
            setup: setup.clone(),
            told,
            installation: InstallationId::from(INSTALLATION),
            trace: VecDeque::new(),
            machines: BTreeMap::new(),
            renamed: BTreeMap::new(),
            strays: BTreeSet::new(),
            foreign: BTreeMap::new(),
            admin_cordons: BTreeSet::new(),
            allowed,
            acting: 0,
            tally: Tally::default(),
        }
    }

    /// Notes something for the trace.
    pub fn note(&mut self, at: Timestamp, what: &str) {
        if self.trace.len() == self.told {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{}  {what}", at.strftime("%H:%M:%S")));
    }

    /// Ends the life with everything that is needed to live it again.
    pub fn fail(&self, what: &str) -> ! {
        let mut text = format!("seed {}: {what}\n{}\n", self.setup.seed, self.setup.describe());
        for line in &self.trace {
            let _ = writeln!(text, "  {line}");
        }
        let _ = write!(text, "again: SIMULATION_SEED={} cargo test --test it simulation", self.setup.seed);
        panic!("{text}");
    }

    pub fn demand(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(&what());
        }
    }

    /// Somebody did something to the machine of this record.
    pub fn touch(&mut self, name: &str) {
        self.tally.by_hand += 1;
        let name = self.renamed.get(name).map_or(name, String::as_str);
        if let Some(machine) = self.machines.get_mut(name) {
            machine.touched = true;
        }
    }

    pub fn rename(&mut self, old: &str, new: &str) {
        let launch = self.renamed.get(old).cloned().unwrap_or_else(|| old.to_owned());
        if !self.machines.contains_key(&launch) {
            self.strays.insert(new.to_owned());
        }
        self.renamed.insert(new.to_owned(), launch);
    }

    /// The record can be told to be ours.
    pub fn is_ours(&self, agent: &AgentView) -> bool {
        !self.foreign.contains_key(&agent.id) && !self.strays.contains(&agent.name)
    }

    /// Takes in what happened since the last time.
    pub fn absorb(&mut self, world: &World, by: By) {
        for Happened { at, event } in world.take_events() {
            self.note(at, &format!("{event}{}", if by == By::Hand { " (by hand)" } else { "" }));
            self.take(at, &event, by);
        }
    }

    fn machine(&mut self, agent: &str) -> Option<&mut Machine> {
        let name = self.renamed.get(agent).map_or(agent, String::as_str);
        self.machines.get_mut(name)
    }

    fn take(&mut self, at: Timestamp, event: &Event, by: By) {
        match event {
            Event::TaskStarted { task, agent, .. } => {
                self.tally.moved = Some(at);
                if let Some(machine) = self.machine(agent) {
                    if machine.running.is_empty() {
                        machine.idled = Some((machine.idle(at), at));
                    }
                    machine.running.insert(task.clone());
                    machine.worked = Some(at);
                }
            }
            Event::TaskDone { task, .. } => {
                self.tally.moved = Some(at);
                self.ended(task, at);
            }
            Event::JobKilled(job) => self.ended(&job.task, at),
            Event::TaskRequeued { task, .. } => {
                self.tally.requeued += 1;
                self.ended(task, at);
            }
            Event::TaskQueued { .. }
            | Event::RecordCreated { .. }
            | Event::AgentFailed { .. }
            | Event::ServerRunning { .. } => {}
            Event::Cordoned { agent, name, no_schedule } => {
                let foreign = self.foreign.contains_key(agent);
                self.demand(by == By::Hand || !foreign, || format!("{name} of others was cordoned or uncordoned"));
                let undone = by == By::Itself && !no_schedule && self.admin_cordons.contains(agent);
                self.demand(!undone, || format!("an administrator's cordon of {name} was undone"));
                if let Some(machine) = self.machine(name) {
                    machine.drained_after = no_schedule.then(|| machine.idle_at_look(at));
                }
            }
            Event::RecordDeleted { agent, name } => {
                let foreign = self.foreign.contains_key(agent);
                self.demand(by == By::Hand || !foreign, || format!("the record {name} of others was deleted"));
                self.admin_cordons.remove(agent);
            }
            Event::AgentConnected { name, .. } => {
                if let Some(machine) = self.machine(name) {
                    machine.connected = Some(at);
                    self.tally.connected += 1;
                }
            }
            Event::ServerCreated { name, .. } => {
                self.tally.launched += 1;
                let pool = LaunchName::pool_of(name, &self.installation).map(|pool| pool.0).unwrap_or_default();
                let machine = Machine {
                    pool,
                    created: at,
                    connected: None,
                    worked: None,
                    running: BTreeSet::new(),
                    idled: None,
                    drained_after: None,
                    touched: false,
                };
                let pool = machine.pool.clone();
                self.machines.insert(name.clone(), machine);
                let there = self.machines.values().filter(|machine| machine.pool == pool).count();
                self.demand_room(&pool, there);
            }
            Event::ServerDeleted { name, .. } => {
                if by == By::Hand {
                    self.touch(name);
                }
                // A deletion by hand may take a while, so its end is not the hand's doing.
                if self.machines.get(name).is_some_and(|machine| machine.touched) {
                    let of_it = |(record, launch): (&String, &String)| (launch == name).then(|| record.clone());
                    self.strays.extend(self.renamed.iter().filter_map(of_it));
                }
                self.judge_end(name, at);
            }
        }
    }

    fn ended(&mut self, task: &TaskId, at: Timestamp) {
        for machine in self.machines.values_mut() {
            if machine.running.remove(task) {
                machine.worked = Some(at);
            }
        }
    }

    /// A machine is gone: it had no task, its boot timeout or its idle time was over.
    fn judge_end(&mut self, name: &str, at: Timestamp) {
        let Some(machine) = self.machines.remove(name) else { return };
        let Some(pool) = self.setup.pools.iter().find(|pool| pool.name == machine.pool) else { return };
        if machine.touched {
            return;
        }
        if machine.connected.is_some() {
            self.demand(machine.running.is_empty(), || format!("{name} was deleted at work"));
            // A drain goes on after a task that slipped in.
            let idle = machine.drained_after.unwrap_or_default().max(machine.idle(at)) + WORK_SLACK;
            self.demand(pool.by_hour || idle >= pool.idle_timeout, || {
                format!("{name} was retired though it had been idle for less than {} s", idle.as_secs())
            });
        } else {
            self.demand(age(at, machine.created) >= pool.boot_timeout, || {
                format!("{name} was deleted while it booted, {} s old", age(at, machine.created).as_secs())
            });
        }
    }

    /// Servers of a pool, in whatever state.
    pub fn servers_of(world: &World, pool: &str) -> Vec<ServerView> {
        let ours = |server: &ServerView| {
            server.labels.get(label::INSTALLATION).map(String::as_str) == Some(INSTALLATION)
                && server.labels.get(label::POOL).map(String::as_str) == Some(pool)
        };
        world.servers().into_iter().filter(ours).collect()
    }

    /// Each of two processes may have seen room for all; what is too many then goes, and nothing comes on top of it.
    fn demand_room(&self, pool: &str, there: usize) {
        let Some(pool) = self.setup.pools.iter().find(|other| other.name == pool) else { return };
        let max = pool.max as usize;
        let allowed = if self.acting > 1 { max * self.acting } else { self.allowed[pool.name].max(max) };
        self.demand(there <= allowed, || {
            format!("pool {} has {there} instances, its maximum is {max} (allowed now: {allowed})", pool.name)
        });
    }

    /// What must hold now.
    pub fn check(&mut self, world: &World) {
        self.absorb(world, By::Itself);
        let killed = world.killed_jobs();
        self.demand(killed.is_empty(), || format!("jobs were killed: {killed:?}"));
        for pool in self.setup.pools.clone() {
            let there = Self::servers_of(world, pool.name).len();
            self.demand_room(pool.name, there);
            self.allowed.insert(pool.name, there.max(pool.max as usize));
        }
        for (id, cordoned) in &self.foreign {
            let seen = world.agent(*id);
            let unchanged = seen.as_ref().is_some_and(|agent| agent.no_schedule == *cordoned);
            self.demand(unchanged, || format!("agent {id} of others is not as it was: {seen:?}"));
        }
    }
}
