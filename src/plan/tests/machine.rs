//! Machines of ours and agents of others, with verbs.

use jiff::Timestamp;

use super::task::task;
use super::world::{Part, World, ago, installation, labels, now, offer, span};
use crate::model::agent::Agent;
use crate::model::ids::{AgentId, InstanceId, LaunchName, PoolName, ServerMark};
use crate::model::instance::{Instance, InstanceState};
use crate::model::labels::Labels;
use crate::model::memory::Cordon;
use crate::model::pool::{AccountId, FixedInstance, Pool};
use crate::model::snapshot::Listing;

/// A machine of ours with its record: connected, idle since a minute ago, launched an hour ago.
pub fn agent(short: &str) -> MachineBuilder {
    MachineBuilder {
        short: short.to_owned(),
        pool: "p1".to_owned(),
        record: true,
        instance: true,
        ours: true,
        id: None,
        renamed: None,
        launched: ago("1h"),
        registered: None,
        last_contact: Some(ago("5s")),
        last_work: Some(ago("1m")),
        seen_busy: None,
        first_contact: None,
        capacity: 2,
        running: 0,
        custom: None,
        platform: None,
        organisation: None,
        cordon: None,
        no_schedule: false,
        state: InstanceState::Running,
        shared_secret: false,
        in_flight: false,
        missing_for: None,
        record_deleted: false,
        fixed: false,
        stopped_since: None,
        launch_settings: None,
        started: None,
        server: super::world::server(),
    }
}

/// An agent of somebody else, connected and idle.
pub fn static_agent(name: &str) -> MachineBuilder {
    MachineBuilder { ours: false, instance: false, custom: Some(Labels::default()), ..agent(name) }
}

/// An instance of ours whose record is not there.
pub fn instance(short: &str) -> MachineBuilder {
    MachineBuilder { record: false, ..agent(short) }
}

/// A record of ours whose instance is not there; last heard of an hour ago.
pub fn record(short: &str) -> MachineBuilder {
    MachineBuilder { instance: false, last_contact: Some(ago("1h")), launched: ago("2h"), ..agent(short) }
}

/// A machine that somebody else made, with an agent that is called as it is; connected and idle.
pub fn fixed(short: &str) -> MachineBuilder {
    MachineBuilder { fixed: true, ..agent(short) }
}

#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a verb of its own")]
pub struct MachineBuilder {
    short: String,
    pool: String,
    record: bool,
    instance: bool,
    ours: bool,
    id: Option<i64>,
    renamed: Option<String>,
    launched: Timestamp,
    registered: Option<Timestamp>,
    last_contact: Option<Timestamp>,
    last_work: Option<Timestamp>,
    seen_busy: Option<Timestamp>,
    first_contact: Option<Timestamp>,
    capacity: u32,
    running: u32,
    custom: Option<Labels>,
    platform: Option<String>,
    organisation: Option<i64>,
    cordon: Option<Cordon>,
    no_schedule: bool,
    state: InstanceState,
    shared_secret: bool,
    fixed: bool,
    stopped_since: Option<Timestamp>,
    launch_settings: Option<String>,
    started: Option<Timestamp>,
    server: ServerMark,
    in_flight: bool,
    missing_for: Option<Timestamp>,
    record_deleted: bool,
}

impl MachineBuilder {
    pub fn pool(mut self, pool: &str) -> Self {
        pool.clone_into(&mut self.pool);
        self
    }

    pub fn id(mut self, id: i64) -> Self {
        self.id = Some(id);
        self
    }

    /// An administrator gave its record another name.
    pub fn renamed(mut self, name: &str) -> Self {
        self.renamed = Some(name.to_owned());
        self
    }

    pub fn launched(mut self, words: &str) -> Self {
        self.launched = ago(words);
        self
    }

    /// Its record is younger than its instance: with a shared secret it is made at the first contact.
    pub fn registered(mut self, words: &str) -> Self {
        self.registered = Some(ago(words));
        self
    }

    pub fn launched_at(mut self, at: Timestamp) -> Self {
        self.launched = at;
        self
    }

    /// It has not connected yet.
    pub fn booting(mut self) -> Self {
        (self.last_contact, self.last_work, self.capacity) = (None, None, 0);
        self
    }

    pub fn idle_for(mut self, words: &str) -> Self {
        self.last_work = Some(ago(words));
        self
    }

    pub fn last_work(mut self, at: Option<Timestamp>) -> Self {
        self.last_work = at;
        self
    }

    /// The loop saw it busy so long ago.
    pub fn seen_busy(mut self, words: &str) -> Self {
        self.seen_busy = Some(ago(words));
        self
    }

    /// The loop saw it connect so long ago.
    pub fn connected(mut self, words: &str) -> Self {
        self.first_contact = Some(ago(words));
        self
    }

    /// Not heard of for so long.
    pub fn unseen_for(mut self, words: &str) -> Self {
        self.last_contact = Some(ago(words));
        self
    }

    pub fn slots(mut self, slots: u32) -> Self {
        self.capacity = slots;
        self
    }

    pub fn running(mut self, tasks: u32) -> Self {
        self.running = tasks;
        self
    }

    pub fn labels(mut self, list: &str) -> Self {
        self.custom = Some(labels(list));
        self
    }

    pub fn platform(mut self, platform: &str) -> Self {
        self.platform = Some(platform.to_owned());
        self
    }

    pub fn organisation(mut self, id: i64) -> Self {
        self.organisation = Some(id);
        self
    }

    /// Cordoned by this process, so long ago.
    pub fn draining(mut self, words: &str) -> Self {
        self.cordon = Some(Cordon { since: ago(words), ours: true });
        self.no_schedule = true;
        self
    }

    /// Cordoned by an administrator; seen so for so long.
    pub fn cordoned(mut self, words: &str) -> Self {
        self.cordon = Some(Cordon { since: ago(words), ours: false });
        self.no_schedule = true;
        self
    }

    /// Cordoned by whomever, and this process sees it for the first time.
    pub fn cordoned_unknown(mut self) -> Self {
        self.no_schedule = true;
        self
    }

    pub fn state(mut self, state: InstanceState) -> Self {
        self.state = state;
        self
    }

    /// The instance does not name its record.
    pub fn shared_secret(mut self) -> Self {
        self.shared_secret = true;
        self
    }

    /// Stopped for so long; its agent was last heard of then.
    pub fn stopped(mut self, words: &str) -> Self {
        self.state = InstanceState::Stopped;
        self.stopped_since = Some(ago(words));
        self.last_contact = self.last_contact.map(|_| ago(words));
        self.last_work = self.last_work.map(|at| at.min(ago(words)));
        self.launched = self.launched.min(ago(words) - span("1h"));
        self
    }

    /// Being stopped.
    pub fn stopping(mut self) -> Self {
        self.state = InstanceState::Stopping;
        self
    }

    /// Started so long ago by this process; not heard of since.
    pub fn started(mut self, words: &str) -> Self {
        self.started = Some(ago(words));
        self.launched = ago(words);
        self.last_contact = self.last_contact.map(|_| ago(words) - span("1h"));
        self
    }

    /// Launched with other settings than the pool's.
    pub fn other_settings(mut self) -> Self {
        self.launch_settings = Some("others".to_owned());
        self
    }

    /// Launched for another Woodpecker server.
    pub fn of_another_server(mut self) -> Self {
        self.server = ServerMark::from("another");
        self
    }

    pub fn in_flight(mut self) -> Self {
        self.in_flight = true;
        self
    }

    /// Its other half has been seen missing for so long.
    pub fn missing_for(mut self, words: &str) -> Self {
        self.missing_for = Some(ago(words));
        self
    }

    /// This process deleted its record.
    pub fn record_deleted(mut self) -> Self {
        self.record_deleted = true;
        self
    }
}

impl Part for MachineBuilder {
    fn add(self, world: &mut World) {
        let number = world.next_id();
        let id = AgentId(self.id.unwrap_or(number));
        let instance_id = InstanceId(if self.fixed { format!("i-{}", self.short) } else { format!("i{number}") });
        if self.fixed
            && let Some(pool) = world.snapshot.pools.iter_mut().find(|pool| pool.name.0 == self.pool)
        {
            pool.fixed.retain(|fixed| fixed.id.0 != "i-none");
            pool.fixed.push(FixedInstance { id: instance_id.clone(), agent: None });
        }
        let pool = world.snapshot.pools.iter().find(|pool| pool.name.0 == self.pool).cloned();
        let long = if self.fixed {
            Some(LaunchName::renamed(&self.short))
        } else {
            self.ours.then(|| world.name(&self.pool, &self.short))
        };
        let name = long.as_ref().map_or(self.short.clone(), ToString::to_string);
        let connected = self.last_contact.is_some();
        if self.record {
            let custom = pool.as_ref().map(|pool| pool.filter_labels.clone()).unwrap_or_default();
            let engine = |text: &str| if connected { text.to_owned() } else { String::new() };
            let platform = pool.as_ref().and_then(Pool::effective_labels);
            let platform = platform.as_ref().and_then(|labels| labels.get("platform")).unwrap_or("linux/amd64");
            world.snapshot.agents.push(Agent {
                id,
                name: self.renamed.unwrap_or(name),
                created: self.registered.unwrap_or(self.launched),
                last_contact: self.last_contact,
                last_work: self.last_work,
                platform: self.platform.unwrap_or_else(|| engine(platform)),
                backend: engine("docker"),
                capacity: self.capacity,
                no_schedule: self.no_schedule,
                custom_labels: Some(self.custom.unwrap_or(custom)),
                organisation: self.organisation,
            });
        }
        for running in 0..self.running {
            world.snapshot.queue.running.push(running_task(&format!("{}-{running}", self.short), id));
        }
        world.memory.cordons.extend(self.cordon.map(|cordon| (id, cordon)));
        world.memory.seen_busy.extend(self.seen_busy.map(|at| (id, at)));
        world.memory.first_contact.extend(self.first_contact.map(|at| (id, at)));
        if self.in_flight {
            world.snapshot.in_flight.agents.insert(id);
        }
        world.memory.started.extend(self.started.map(|at| (instance_id.clone(), at)));
        if self.record_deleted {
            world.memory.record_deleted.insert(instance_id.clone());
        }
        match (self.missing_for, self.record) {
            (Some(since), true) => drop(world.memory.without_instance.insert(id, since)),
            (Some(since), false) => drop(world.memory.without_record.insert(instance_id.clone(), since)),
            (None, _) => {}
        }
        let account = pool.map_or(AccountId(0), |pool| pool.account);
        if let (true, Some(name), Some(Listing::Known { instances, .. })) =
            (self.instance, long, world.snapshot.instances.get_mut(&account))
        {
            instances.push(Instance {
                id: instance_id,
                name,
                pool: PoolName(self.pool),
                server: Some(self.server),
                agent: (!self.shared_secret && !self.fixed).then_some(id),
                known_as: if self.fixed { vec![self.short.clone()] } else { Vec::new() },
                draining: None,
                launch_settings: self.launch_settings.or(Some("these".to_owned())),
                stopped_since: self.stopped_since,
                state: self.state,
                created: self.launched,
                offer: offer("cx23").key,
            });
        }
    }
}

fn running_task(id: &str, agent: AgentId) -> crate::model::task::Task {
    let mut world = super::world::world().with(task(id).running_on(agent.0));
    world.snapshot.queue.running.remove(0)
}

/// A record of ours as another installation would name it.
pub fn foreign_record(installation: &str) -> MachineBuilder {
    let name = crate::model::ids::LaunchName::new(
        &crate::model::ids::InstallationId::from(installation),
        &PoolName::from("p1"),
        7,
    );
    assert_ne!(installation, self::installation().0);
    MachineBuilder { last_contact: Some(now() - super::world::span("1h")), ..static_agent(name.as_str()) }
}
