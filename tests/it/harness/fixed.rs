//! Picus and machines that somebody else made: a cloud in memory that starts and stops them, and the modelled Woodpecker to
//! which their agents connect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use picus::clock::Clock;
use picus::metrics::Metrics;
use picus::model::action::Plan;
use picus::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, PoolName, TaskId};
use picus::model::instance::{Instance, InstanceState, OfferKey};
use picus::provider::{Launch, PrepareError, Prepared, Provider, ProviderError};
use picus::reconcile::{Pass, Reconciler};
use picus::settings::{PoolSettings, Settings};
use picus::status::Board;
use picus::world::{World, WorldOptions, agent};

/// From the call until a machine's agent connects, and until it is stopped.
const STARTS: Duration = Duration::from_secs(40);
const STOPS: Duration = Duration::from_secs(50);

struct Machine {
    record: AgentId,
    state: InstanceState,
    /// When that began.
    since: Timestamp,
    draining: Option<AgentId>,
    starts: u32,
}

/// The cloud.
pub struct Cloud {
    world: Arc<World>,
    machines: Mutex<BTreeMap<InstanceId, Machine>>,
    refusal: Mutex<Option<ProviderError>>,
    /// Started machines never connect.
    dead: Mutex<bool>,
}

impl Cloud {
    fn machine<T>(&self, id: &InstanceId, with: impl FnOnce(&mut Machine) -> T) -> Result<T, ProviderError> {
        let mut machines = self.machines.lock().expect("a lock");
        machines.get_mut(id).map(with).ok_or_else(|| ProviderError::Rejected(format!("there is no {id}")))
    }

    /// What was begun long enough ago comes to its end.
    fn tick(&self) {
        let (now, dead) = (self.world.now(), *self.dead.lock().expect("a lock"));
        for (id, machine) in self.machines.lock().expect("a lock").iter_mut() {
            let lasted = picus::model::age(now, machine.since);
            match machine.state {
                InstanceState::Starting if lasted >= STARTS => {
                    machine.state = InstanceState::Running;
                    if !dead {
                        self.world.connect(machine.record, agent(id.0.clone()));
                    }
                }
                InstanceState::Stopping if lasted >= STOPS => {
                    (machine.state, machine.since) = (InstanceState::Stopped, now);
                }
                InstanceState::Starting
                | InstanceState::Running
                | InstanceState::Stopping
                | InstanceState::Stopped
                | InstanceState::Deleting
                | InstanceState::Unknown => {}
            }
        }
    }
}

#[async_trait]
impl Provider for Cloud {
    async fn prepare(&self, _: &PoolSettings) -> Result<Prepared, PrepareError> {
        let platform = "linux/amd64".to_owned();
        Ok(Prepared { platform, offers: Vec::new(), warnings: Vec::new(), findings: Vec::new() })
    }

    async fn list(&self, _: &InstallationId) -> Result<Vec<Instance>, ProviderError> {
        let machines = self.machines.lock().expect("a lock");
        let instance = |(id, machine): (&InstanceId, &Machine)| Instance {
            id: id.clone(),
            name: LaunchName::renamed(&id.0),
            pool: PoolName::from("default"),
            server: None,
            agent: None,
            known_as: vec![id.0.clone()],
            draining: machine.draining,
            launch_settings: None,
            state: machine.state,
            stopped_since: (machine.state == InstanceState::Stopped).then_some(machine.since),
            created: machine.since,
            offer: OfferKey { server_type: "c7a.large".to_owned(), location: "subnet-1".to_owned() },
        };
        Ok(machines.iter().map(instance).collect())
    }

    async fn launch(&self, _: &Launch<'_>) -> Result<Instance, ProviderError> {
        panic!("nothing is launched")
    }

    async fn delete(&self, _: &InstanceId) -> Result<(), ProviderError> {
        panic!("nothing is deleted")
    }

    async fn start(&self, id: &InstanceId) -> Result<(), ProviderError> {
        if let Some(refusal) = self.refusal.lock().expect("a lock").clone() {
            return Err(refusal);
        }
        let now = self.world.now();
        self.machine(id, |machine| {
            assert_ne!(machine.state, InstanceState::Stopping, "a machine that is being stopped can't be started");
            if machine.state == InstanceState::Stopped {
                (machine.state, machine.since) = (InstanceState::Starting, now);
                machine.starts += 1;
            }
        })
    }

    async fn stop(&self, id: &InstanceId) -> Result<(), ProviderError> {
        let now = self.world.now();
        let record = self.machine(id, |machine| {
            (machine.state, machine.since) = (InstanceState::Stopping, now);
            machine.record
        })?;
        self.world.kill_agent(record);
        Ok(())
    }

    async fn note_drain(&self, id: &InstanceId, agent: Option<AgentId>) -> Result<(), ProviderError> {
        self.machine(id, |machine| machine.draining = agent)
    }

    async fn console(&self, _: &InstanceId) -> Result<Option<String>, ProviderError> {
        Ok(Some("starting\nno route to the server".to_owned()))
    }
}

/// Picus, its machines and their server.
pub struct Fixed {
    pub world: Arc<World>,
    pub cloud: Arc<Cloud>,
    clock: Clock,
    settings: Settings,
    reconciler: Reconciler,
}

impl Fixed {
    /// So many stopped machines with an agent's record each; retired after ten minutes, looked at every ten seconds.
    pub async fn begin(machines: usize) -> Self {
        let clock = Clock::manual("2026-12-01T08:00:00Z".parse().expect("a time"));
        let world = Arc::new(World::start(clock.clone(), WorldOptions::default()).await.expect("a free port"));
        let ids: Vec<InstanceId> = (1..=machines).map(|number| InstanceId(format!("i-{number}"))).collect();
        let machine = |id: &InstanceId| {
            let record = world.add_agent(agent(id.0.clone()));
            world.kill_agent(record);
            let since = clock.now();
            (id.clone(), Machine { record, state: InstanceState::Stopped, since, draining: None, starts: 0 })
        };
        let all = ids.iter().map(machine).collect();
        let cloud = Cloud {
            world: Arc::clone(&world),
            machines: Mutex::new(all),
            refusal: Mutex::new(None),
            dead: Mutex::new(false),
        };
        world.advance(Duration::from_mins(5));
        let list = ids.iter().map(|id| id.0.as_str()).collect::<Vec<_>>().join(",");
        let vars = [
            ("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str()),
            ("PICUS_WOODPECKER_TOKEN", world.admin_token()),
            ("PICUS_PROVIDER_TYPE", "aws"),
            ("PICUS_AWS_INSTANCE_ID", &list),
            ("PICUS_MAX_IDLE_TIME", "10m"),
        ];
        let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = Settings::from_vars(vars).expect("good settings");
        let cloud = Arc::new(cloud);
        let reconciler = reconciler(&settings, &cloud, &clock).await;
        Self { world, cloud, clock, settings, reconciler }
    }

    /// The process ends and a new one begins; nothing is remembered.
    pub async fn restart(&mut self) {
        self.reconciler = reconciler(&self.settings, &self.cloud, &self.clock).await;
    }

    /// One pass ten seconds later.
    pub async fn pass(&self) -> Plan {
        self.world.advance(Duration::from_secs(10));
        self.cloud.tick();
        let pass = self.reconciler.pass().await;
        self.reconciler.settled().await;
        assert_eq!(self.world.killed_jobs(), []);
        match pass {
            Pass::Done { plan, .. } => *plan,
            Pass::Skipped { why } => panic!("the pass was skipped: {why}"),
        }
    }

    /// Passes until something holds; fails if it does not within two hours.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..720 {
            if holds(self) {
                return;
            }
            self.pass().await;
        }
        panic!("not within two hours: {what}");
    }

    /// Passes for so many minutes.
    pub async fn minutes(&self, count: u32) {
        for _ in 0..count * 6 {
            self.pass().await;
        }
    }

    pub fn state(&self, number: usize) -> InstanceState {
        self.cloud.machine(&InstanceId(format!("i-{number}")), |machine| machine.state).expect("a machine")
    }

    pub fn starts(&self, number: usize) -> u32 {
        self.cloud.machine(&InstanceId(format!("i-{number}")), |machine| machine.starts).expect("a machine")
    }

    pub fn record(&self, number: usize) -> AgentId {
        self.cloud.machine(&InstanceId(format!("i-{number}")), |machine| machine.record).expect("a machine")
    }

    /// Whether the agent of a machine is cordoned.
    pub fn cordoned(&self, number: usize) -> bool {
        self.world.agent(self.record(number)).expect("a record").no_schedule
    }

    pub fn is_done(&self, task: &TaskId) -> bool {
        self.world.task(task).is_some_and(|task| task.is_done())
    }

    /// What every start is answered with from now on.
    pub fn refuse(&self, refusal: Option<ProviderError>) {
        *self.cloud.refusal.lock().expect("a lock") = refusal;
    }

    /// Machines that are started from now on never connect.
    pub fn break_agents(&self) {
        *self.cloud.dead.lock().expect("a lock") = true;
    }
}

async fn reconciler(settings: &Settings, cloud: &Arc<Cloud>, clock: &Clock) -> Reconciler {
    let woodpecker = picus::woodpecker::Client::new(&settings.woodpecker).expect("a client");
    let provider = Arc::clone(cloud) as Arc<dyn Provider>;
    let board = Board::new(settings, clock.clone(), Metrics::default());
    let reconciler = Reconciler::new(settings.clone(), woodpecker, vec![provider], board, clock.clone(), 1);
    reconciler.open_market().await.expect("a market");
    reconciler
}
