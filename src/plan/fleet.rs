//! Our own machines: which record, instance and launch belong together, and what state that machine is in.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

use super::{AGENTS_RETURN, LISTING_LAG, SEEN_LATELY, START_SHOWS, WORK_SHOWS, count};
use crate::model::agent::Agent;
use crate::model::ids::{AgentId, LaunchName};
use crate::model::instance::{Instance, InstanceState};
use crate::model::labels::{Labels, effective};
use crate::model::machine::MachineState;
use crate::model::memory::Memory;
use crate::model::pool::Pool;
use crate::model::snapshot::{Launching, Listing, Snapshot};
use crate::model::{age, later};

/// A record, its instance, or both; or a launch under way.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that don't hang together; the state is an enum")]
pub(super) struct Machine<'a> {
    /// Index of its pool.
    pub pool: usize,
    /// Name of the instance, or of the record where only that is known.
    pub name: &'a str,
    pub instance: Option<&'a Instance>,
    pub agent: Option<&'a Agent>,
    /// Its launch was begun and no listing has shown it yet.
    pub launching: bool,
    /// Another operation on it is under way.
    pub in_flight: bool,
    /// Another record of the same name has the instance (a shared secret and a new disk): this one is a leftover.
    pub twin: bool,
    /// Its agent has the labels that the pool's agents have today, as far as is known.
    pub fits_pool: bool,
    /// When it was launched, as well as is known.
    pub launched: Timestamp,
    /// When its boot is given up.
    pub boots_until: Timestamp,
    /// What was heard of its agent before says nothing of the process that runs now.
    pub process_began: Timestamp,
    /// Running tasks.
    pub running: u32,
    pub state: MachineState,
}

impl Machine<'_> {
    /// It was heard of lately.
    pub fn connected(&self, now: Timestamp) -> bool {
        self.agent.is_some_and(|agent| seen_lately(agent, now) && agent.last_contact > Some(self.process_began))
    }

    /// The operation on it that is under way undoes its drain.
    pub fn undone(&self, snapshot: &Snapshot) -> bool {
        self.agent.is_some_and(|agent| snapshot.in_flight.undone.contains(&agent.id))
    }

    /// Whether it counts for its pool's minimum: it can take work of its scope, now or once booted.
    pub fn is_usable(&self, snapshot: &Snapshot) -> bool {
        (!self.in_flight || self.undone(snapshot))
            && match self.state {
                MachineState::Booting => true,
                MachineState::Busy | MachineState::Idle => self.connected(snapshot.now) && self.fits_pool,
                MachineState::Cordoned if self.undone(snapshot) => self.connected(snapshot.now) && self.fits_pool,
                MachineState::Cordoned
                | MachineState::Lost
                | MachineState::Failed
                | MachineState::Orphan
                | MachineState::Deleting
                | MachineState::Stopping
                | MachineState::Stopped => false,
            }
    }

    /// Slots that nothing runs on.
    pub fn free(&self) -> u32 {
        self.agent.map_or(0, |agent| agent.capacity.saturating_sub(self.running))
    }
}

/// Every machine of ours, and who is at work anywhere.
#[derive(Debug)]
pub(super) struct Fleet<'a> {
    pub machines: Vec<Machine<'a>>,
    /// Running tasks by agent, of all agents of the server.
    pub running: HashMap<AgentId, u32>,
    /// Records that belong to a machine of ours.
    pub ours: BTreeSet<AgentId>,
    /// Instances of configured pools that were launched for another Woodpecker server and have no record at this one.
    pub of_other_servers: Vec<&'a Instance>,
    /// A task runs on an agent whose record is not listed, so an instance without record may be that one.
    unlisted_work: bool,
}

impl<'a> Fleet<'a> {
    pub fn new(snapshot: &'a Snapshot, memory: &Memory) -> Self {
        let mut running: HashMap<AgentId, u32> = HashMap::new();
        for agent in snapshot.queue.running.iter().filter_map(|task| task.agent) {
            *running.entry(agent).or_default() += 1;
        }
        let records = Records::new(&snapshot.agents);
        let unlisted_work = running.keys().any(|agent| !records.by_id.contains_key(agent));
        let mut fleet =
            Self { machines: Vec::new(), running, ours: BTreeSet::new(), of_other_servers: Vec::new(), unlisted_work };
        for (index, pool) in snapshot.pools.iter().enumerate() {
            let listed = matches!(snapshot.instances.get(&pool.account), Some(Listing::Known { .. }));
            let of = OfPool { snapshot, memory, index, pool, listed, wanted: pool.effective_labels() };
            fleet.add_pool(&of, &records);
        }
        fleet.machines.sort_by_cached_key(|machine| {
            let instance = machine.instance.map(|instance| &instance.id);
            (machine.pool, machine.name, machine.agent.map(|agent| agent.id), instance)
        });
        fleet
    }

    /// Instances of a pool in whatever state, launches under way and records that may still get theirs included.
    pub fn existing(&self, pool: usize) -> u32 {
        let exists = |machine: &&Machine<'_>| {
            machine.pool == pool
                && (machine.instance.is_some()
                    || machine.launching
                    || (machine.state != MachineState::Orphan && !machine.twin))
        };
        count(self.machines.iter().filter(exists).count())
    }

    /// Instances of a pool that are not stopped and are not being stopped.
    pub fn up(&self, pool: usize) -> u32 {
        let stopped = |machine: &&Machine<'_>| {
            machine.pool == pool && matches!(machine.state, MachineState::Stopped | MachineState::Stopping)
        };
        self.existing(pool).saturating_sub(count(self.machines.iter().filter(stopped).count()))
    }

    /// Machines of a pool that count for its minimum.
    pub fn usable(&self, snapshot: &Snapshot, pool: usize) -> u32 {
        let counts = |machine: &&Machine<'_>| machine.pool == pool && machine.is_usable(snapshot);
        count(self.machines.iter().filter(counts).count())
    }

    fn add_pool(&mut self, of: &OfPool<'a, '_>, records: &Records<'a>) {
        let OfPool { snapshot, memory, pool, .. } = *of;
        let instances: &[Instance] = match snapshot.instances.get(&pool.account) {
            Some(Listing::Known { instances, .. }) => instances,
            Some(Listing::Unknown { .. }) | None => &[],
        };
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for instance in instances.iter().filter(|instance| instance.pool == pool.name) {
            let agent = if pool.is_fixed() {
                records.of_fixed(pool, instance, instances)
            } else {
                records.of(instance.agent, instance.name.as_str(), memory.records.get(&instance.id).copied())
            };
            if is_of_another_server(snapshot, instance)
                && agent.is_none_or(|agent| agent.name != instance.name.as_str())
            {
                self.of_other_servers.push(instance);
                continue;
            }
            names.insert(instance.name.as_str());
            self.push(of, Parts { instance: Some(instance), agent, launching: None, twin: false });
        }
        for launching in snapshot.in_flight.launches.iter().filter(|launch| launch.pool == pool.name) {
            if names.insert(launching.name.as_str()) {
                let agent = records.of(launching.agent, launching.name.as_str(), None);
                self.push(of, Parts { instance: None, agent, launching: Some(launching), twin: false });
            }
        }
        for agent in &snapshot.agents {
            let named_so = LaunchName::parse(&agent.name, &snapshot.installation, &pool.name).is_some();
            if named_so && !self.ours.contains(&agent.id) {
                let twin = names.contains(agent.name.as_str());
                self.push(of, Parts { instance: None, agent: Some(agent), launching: None, twin });
            }
        }
    }

    fn push(&mut self, of: &OfPool<'a, '_>, parts: Parts<'a>) {
        let OfPool { snapshot, memory, index, pool, wanted, .. } = of;
        let Parts { instance, agent, launching, twin } = parts;
        if let Some(agent) = agent {
            self.ours.insert(agent.id);
        }
        let name = match (instance, launching, agent) {
            (Some(instance), _, _) => instance.name.as_str(),
            (None, Some(launching), _) => launching.name.as_str(),
            (None, None, Some(agent)) => agent.name.as_str(),
            (None, None, None) => return,
        };
        let launched = instance
            .map(|instance| instance.created)
            .or(launching.map(|launching| launching.since))
            .or(agent.map(|agent| agent.created))
            .unwrap_or(snapshot.now);
        // Also where the record is missing: work says more than an absence.
        let record = agent
            .map(|agent| agent.id)
            .or(instance.and_then(|instance| instance.agent))
            .or(launching.and_then(|launching| launching.agent));
        let running = record.and_then(|record| self.running.get(&record)).copied().unwrap_or(0);
        let starting = instance.is_some_and(|instance| snapshot.in_flight.started.contains(&instance.id));
        let in_flight = !starting
            && (agent.is_some_and(|agent| snapshot.in_flight.agents.contains(&agent.id))
                || instance.is_some_and(|instance| snapshot.in_flight.instances.contains(&instance.id)));
        // A listing may show a start late.
        let started = instance.and_then(|instance| memory.started.get(&instance.id)).copied();
        let launched = if starting { snapshot.now } else { started.map_or(launched, |started| launched.max(started)) };
        let process_began = if pool.keeps_stopped() && instance.is_some() { launched } else { Timestamp::MIN };
        let boots_until = boots_until(pool, memory, launched);
        let mut state = state(of, &parts, process_began, boots_until, running);
        if state == MachineState::Failed
            && agent.is_none()
            && !pool.is_fixed()
            && let Some(instance) = instance
            && (self.unlisted_work || may_be_renamed(of, &self.running, instance, boots_until))
        {
            state = MachineState::Busy;
        }
        let fits_pool = match (agent.filter(|agent| agent.last_contact.is_some()), wanted) {
            (Some(agent), Some(wanted)) => AgentKind::new(agent, Some(pool)).labels() == *wanted,
            (Some(_) | None, Some(_) | None) => true,
        };
        let launching = launching.is_some();
        self.machines.push(Machine {
            pool: *index,
            name,
            instance,
            agent,
            launching,
            in_flight,
            twin,
            fits_pool,
            launched,
            boots_until,
            process_began,
            running,
            state,
        });
    }
}

/// Whether an instance was launched for another server, or for this one under an earlier address. If its record is here it
/// is ours all the same.
fn is_of_another_server(snapshot: &Snapshot, instance: &Instance) -> bool {
    instance.server.as_ref().is_some_and(|server| *server != snapshot.server)
}

/// What the machines of one pool have in common.
struct OfPool<'a, 'm> {
    snapshot: &'a Snapshot,
    memory: &'m Memory,
    index: usize,
    pool: &'a Pool,
    /// The listing is known, so that a missing instance means something.
    listed: bool,
    /// The labels that its agents have today.
    wanted: Option<Labels>,
}

/// What is known of one machine before its state is.
#[derive(Clone, Copy)]
struct Parts<'a> {
    instance: Option<&'a Instance>,
    agent: Option<&'a Agent>,
    launching: Option<&'a Launching>,
    /// See [`Machine::twin`].
    twin: bool,
}

/// A machine that was launched before an outage of the server could not connect before its end.
fn boots_until(pool: &Pool, memory: &Memory, launched: Timestamp) -> Timestamp {
    let in_time = later(launched, pool.boot_timeout);
    match memory.watch.returned {
        Some(returned) if launched < returned => in_time.max(later(returned, AGENTS_RETURN)),
        Some(_) | None => in_time,
    }
}

/// `process_began`: see [`Machine::process_began`].
fn state(
    of: &OfPool<'_, '_>,
    parts: &Parts<'_>,
    process_began: Timestamp,
    boots_until: Timestamp,
    running: u32,
) -> MachineState {
    let now = of.snapshot.now;
    if parts.instance.is_some_and(|instance| instance.state == InstanceState::Deleting) {
        return MachineState::Deleting;
    }
    // What ran there when it was stopped comes back to the queue first.
    if let Some(state) = parts.instance.and_then(|instance| stopped(of, instance, parts.agent, process_began))
        && running == 0
    {
        return state;
    }
    let in_time = now < boots_until;
    let Some(agent) = parts.agent else {
        let record_expected = parts
            .instance
            .is_some_and(|instance| instance.agent.is_some() || of.memory.record_deleted.contains(&instance.id));
        return match (running > 0, record_expected, in_time) {
            (true, _, _) => MachineState::Busy,
            (false, true, _) => MachineState::Orphan,
            (false, false, true) => MachineState::Booting,
            (false, false, false) => MachineState::Failed,
        };
    };
    if parts.twin && running == 0 {
        return MachineState::Orphan;
    }
    let instance_missing = parts.instance.is_none() && parts.launching.is_none() && of.listed;
    if agent.no_schedule && !(instance_missing && running == 0 && !seen_lately(agent, now)) {
        return MachineState::Cordoned;
    }
    if running > 0 {
        return MachineState::Busy;
    }
    if instance_missing && !seen_lately(agent, now) && age(now, agent.created) >= LISTING_LAG {
        return MachineState::Orphan;
    }
    match agent.last_contact.filter(|last_contact| *last_contact > process_began) {
        None if in_time => MachineState::Booting,
        None => MachineState::Failed,
        Some(_) if seen_lately(agent, now) => MachineState::Idle,
        Some(_) => MachineState::Lost,
    }
}

/// The state of an instance that is stopped, or being stopped, where that is of use.
fn stopped(
    of: &OfPool<'_, '_>,
    instance: &Instance,
    agent: Option<&Agent>,
    launched: Timestamp,
) -> Option<MachineState> {
    let record_gone = agent.is_none() && (instance.agent.is_some() || of.memory.record_deleted.contains(&instance.id));
    if !of.pool.keeps_stopped() || record_gone {
        return None;
    }
    let begun_just_now = of.snapshot.in_flight.started.contains(&instance.id)
        || (launched > instance.created && age(of.snapshot.now, launched) < START_SHOWS);
    match instance.state {
        InstanceState::Stopped if begun_just_now => Some(MachineState::Booting),
        InstanceState::Stopped => Some(MachineState::Stopped),
        InstanceState::Stopping => Some(MachineState::Stopping),
        InstanceState::Starting | InstanceState::Running | InstanceState::Deleting | InstanceState::Unknown => None,
    }
}

/// Whether somebody may have renamed this instance or its record: with the shared secret only the name links the two.
/// An agent at work with the pool's labels that belongs to nothing and was made while this instance booted may be its. One
/// that is not at work is not waited for: it may be somebody else's, and the instance is billed.
fn may_be_renamed(
    of: &OfPool<'_, '_>,
    running: &HashMap<AgentId, u32>,
    instance: &Instance,
    boots_until: Timestamp,
) -> bool {
    let OfPool { snapshot, memory, pool, .. } = *of;
    let names_an_instance = |agent: &Agent| {
        snapshot.listed().any(|other| {
            other.agent == Some(agent.id)
                || other.name.as_str() == agent.name
                || memory.records.get(&other.id) == Some(&agent.id)
        }) || snapshot.in_flight.launches.iter().any(|launch| launch.name.as_str() == agent.name)
    };
    let booted_then = |agent: &Agent| {
        // Two clocks: the provider's and the server's.
        later(agent.created, SEEN_LATELY) >= instance.created && agent.created <= later(boots_until, SEEN_LATELY)
    };
    let at_work = |agent: &Agent| running.contains_key(&agent.id) || worked_lately(agent, snapshot.now);
    let labels = pool.effective_labels();
    instance.agent.is_none()
        && snapshot.agents.iter().any(|agent| {
            at_work(agent)
                && booted_then(agent)
                && labels.as_ref().is_none_or(|labels| AgentKind::new(agent, Some(pool)).labels() == *labels)
                && !names_an_instance(agent)
        })
}

/// Whether an agent worked so lately that it may still be at work.
pub(super) fn worked_lately(agent: &Agent, now: Timestamp) -> bool {
    agent.last_work.is_some_and(|last_work| age(now, last_work) < WORK_SHOWS)
}

/// Whether an agent was heard of lately.
pub(super) fn seen_lately(agent: &Agent, now: Timestamp) -> bool {
    agent.last_contact.is_some_and(|last_contact| age(now, last_contact) < SEEN_LATELY)
}

/// Everything that the labels come of under which the server keeps a connected agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct AgentKind<'a> {
    platform: &'a str,
    backend: &'a str,
    /// `None`: it counts as having none.
    custom: Option<&'a Labels>,
    organisation: Option<i64>,
}

impl<'a> AgentKind<'a> {
    /// Where the server does not tell an agent's custom labels (before 3.0), ours have those of their pool; others
    /// count as having none.
    pub fn new(agent: &'a Agent, pool: Option<&'a Pool>) -> Self {
        Self {
            platform: &agent.platform,
            backend: &agent.backend,
            custom: agent.custom_labels.as_ref().or(pool.map(|pool| &pool.filter_labels)),
            organisation: agent.organisation,
        }
    }

    /// The labels.
    pub fn labels(&self) -> Labels {
        let none = Labels::default();
        effective(self.platform, self.backend, self.custom.unwrap_or(&none), self.organisation)
    }
}

/// The server's records by id and by name.
struct Records<'a> {
    by_id: HashMap<AgentId, &'a Agent>,
    /// Of several with one name (a shared secret and a new disk) the one last heard of.
    by_name: BTreeMap<&'a str, &'a Agent>,
}

impl<'a> Records<'a> {
    fn new(agents: &'a [Agent]) -> Self {
        let mut by_name: BTreeMap<&str, &Agent> = BTreeMap::new();
        for agent in agents {
            let best = by_name.entry(agent.name.as_str()).or_insert(agent);
            if (agent.last_contact, agent.id) > (best.last_contact, best.id) {
                *best = agent;
            }
        }
        Self { by_id: agents.iter().map(|agent| (agent.id, agent)).collect(), by_name }
    }

    /// The record that an instance names, else the one that has its name, else the one that was seen to have it.
    fn of(&self, id: Option<AgentId>, name: &str, seen: Option<AgentId>) -> Option<&'a Agent> {
        match id {
            Some(id) => self.by_id.get(&id).copied(),
            None => self.by_name.get(name).or_else(|| self.by_id.get(&seen?)).copied(),
        }
    }

    /// The record of a machine that somebody else made: the configured one, else one that is called as the machine is. A
    /// name that several machines have tells nothing.
    fn of_fixed(&self, pool: &Pool, instance: &Instance, all: &[Instance]) -> Option<&'a Agent> {
        let configured = pool.fixed.iter().find(|fixed| fixed.id == instance.id).and_then(|fixed| fixed.agent);
        if let Some(id) = configured {
            return self.by_id.get(&id).copied();
        }
        let is_others =
            |name: &String| all.iter().any(|other| other.id != instance.id && other.known_as.contains(name));
        let mut own = instance.known_as.iter().filter(|name| !is_others(name));
        own.find_map(|name| self.by_name.get(name.as_str()).copied())
    }
}
