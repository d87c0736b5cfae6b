//! The real loop against the modelled world, over real HTTP, on one clock that only the test moves.
//!
//! A pass is what the loop does between two looks: the clock is moved, the world lives on, one pass is run, and all that
//! it began comes to its end. After each pass the harness checks what must hold always: no job was killed, and no pool
//! has more instances than its maximum.

pub mod fixed;
pub mod log;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use picus::app::{App, StartError};
use picus::clock::Clock;
use picus::model::action::Plan;
use picus::model::decision::TaskDecision;
use picus::model::ids::{InstallationId, TaskId};
use picus::reconcile::Pass;
use picus::settings::Settings;
use picus::world::{AnswerFault, Endpoint, Event, Fault, LeftBehind, World, WorldOptions};
use tokio_util::sync::CancellationToken;

/// The installation of the stories.
pub const INSTALLATION: &str = "p1";
/// When every story begins.
pub const MORNING: &str = "2026-12-01T12:00:00Z";
/// No story needs longer to come to its end.
const LONGEST: Duration = Duration::from_hours(6);

pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub const fn minutes(count: u64) -> Duration {
    Duration::from_mins(count)
}

pub const fn hours(count: u64) -> Duration {
    Duration::from_hours(count)
}

/// What Picus is started with, and what the world is like.
#[derive(Clone)]
pub struct Setup {
    variables: BTreeMap<String, String>,
    options: WorldOptions,
}

/// Two slots an agent, none to four instances, retired after ten minutes, billed by the second, a look every 10 s.
pub fn picus() -> Setup {
    let variables = [
        ("ID", INSTALLATION),
        ("PROVIDER_TYPE", "hcloud"),
        ("POLL_INTERVAL", "10s"),
        ("MAX_IDLE_TIME", "10m"),
        ("BOOT_TIMEOUT", "10m"),
        ("BILLING_PERIOD", "0s"),
        ("MAX_AGENTS", "4"),
        ("AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000"),
        ("AGENT_WOODPECKER_MAX_WORKFLOWS", "2"),
        ("HCLOUD_SSH_KEYS", "admin"),
    ];
    let setup = Setup { variables: BTreeMap::new(), options: WorldOptions::default() };
    variables.into_iter().fold(setup, |setup, (name, value)| setup.set(name, value))
}

impl Setup {
    /// Sets `PICUS_<name>`.
    pub fn set(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.variables.insert(format!("PICUS_{name}"), value.to_string());
        self
    }

    pub fn max(self, instances: u32) -> Self {
        self.set("MAX_AGENTS", instances)
    }

    pub fn min(self, instances: u32) -> Self {
        self.set("MIN_AGENTS", instances)
    }

    pub fn slots(self, slots: u32) -> Self {
        self.set("AGENT_WOODPECKER_MAX_WORKFLOWS", slots)
    }

    /// The server's shared secret, told to Picus too.
    pub fn shared_secret(mut self, secret: &str) -> Self {
        self.options.shared_secret = Some(secret.to_owned());
        self.set("AGENT_WOODPECKER_AGENT_SECRET", secret)
    }

    pub fn world(mut self, change: impl FnOnce(&mut WorldOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// The world begins, and Picus is about to run; it knows what can be ordered.
    pub async fn start(self) -> Picus {
        let picus = self.build(Clock::manual(MORNING.parse().expect("a time"))).await;
        picus.ready().await;
        picus
    }

    /// The world begins, and Picus has asked nobody yet.
    pub async fn build(self, clock: Clock) -> Picus {
        let world = World::start(clock.clone(), self.options).await.expect("a free port");
        let settings = settings(&world, self.variables);
        let app = App::new(settings.clone(), clock.clone(), 1).expect("good settings");
        let first = Process { app: Some(app), number: 1 };
        let (watched, bounded) = (Arc::new(world), Cell::new(true));
        Picus { world: watched, clock, settings, process: first, bounded, seed: Cell::new(1) }
    }
}

/// Settings that name the world's two servers, unless `variables` name others; `{hetzner}` stands for its address.
fn settings(world: &World, variables: BTreeMap<String, String>) -> Settings {
    let mut all: BTreeMap<String, String> = [
        ("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str()),
        ("PICUS_WOODPECKER_TOKEN", world.admin_token()),
        ("PICUS_HCLOUD_TOKEN", world.hetzner_token()),
        ("PICUS_HCLOUD_ENDPOINT", world.hetzner_url().as_str()),
        ("PICUS_HTTP_ADDR", "off"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let port = world.hetzner_url().port().unwrap_or_default().to_string();
    all.extend(variables.into_iter().map(|(name, value)| (name, value.replace("{port}", &port))));
    Settings::from_vars(all).expect("good settings")
}

/// One process of Picus.
struct Process {
    /// Gone for a moment while a new one is started.
    app: Option<App>,
    number: u64,
}

/// Picus and its world.
pub struct Picus {
    pub world: Arc<World>,
    pub clock: Clock,
    pub settings: Settings,
    process: Process,
    /// Never more instances than the maximum; not while two processes run.
    bounded: Cell<bool>,
    seed: Cell<u64>,
}

/// Starting, stopping, dying.
impl Picus {
    pub fn app(&self) -> &App {
        self.process.app.as_ref().expect("it runs")
    }

    /// As `picus run` begins.
    pub async fn ready(&self) {
        assert!(self.app().ready(&CancellationToken::new()).await.expect("a good start"));
    }

    /// As `picus run` begins, told what comes of it.
    pub async fn try_ready(&self) -> Result<bool, StartError> {
        self.app().ready(&CancellationToken::new()).await
    }

    /// The process ends and a new one begins; nothing is remembered.
    pub async fn restart(&mut self) {
        self.process.app = None;
        let number = self.seed.get() + 1_000_003;
        self.seed.set(number);
        let app = App::new(self.settings.clone(), self.clock.clone(), number).expect("good settings");
        self.process = Process { app: Some(app), number };
        self.ready().await;
    }

    /// A second process for the same installation.
    pub async fn twin(&self) -> Picus {
        let number = self.process.number + 77;
        let app = App::new(self.settings.clone(), self.clock.clone(), number).expect("good settings");
        self.bounded.set(false);
        let twin = Picus {
            world: Arc::clone(&self.world),
            clock: self.clock.clone(),
            settings: self.settings.clone(),
            process: Process { app: Some(app), number },
            bounded: Cell::new(false),
            seed: Cell::new(number),
        };
        twin.ready().await;
        twin
    }

    /// From here on there is one process again, and so one maximum.
    pub fn is_alone(&self) {
        self.bounded.set(true);
    }

    /// `kill -9` while the answer to the next call of `endpoint` is on its way: the call is carried out, and nobody
    /// hears of it. `false`: no such call was made within `within`.
    pub async fn killed_during(&mut self, endpoint: Endpoint, within: Duration) -> bool {
        let held_back = self.world.fault(Fault::on(endpoint, AnswerFault::Stall(minutes(5))).times(1));
        let calls = self.world.calls(endpoint);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut passed = Duration::ZERO;
        let mut reached = false;
        while !reached && passed <= within {
            let reconciler = self.app().reconciler.clone();
            let mut pass = runtime.spawn(async move {
                reconciler.pass().await;
                reconciler.settled().await;
            });
            loop {
                tokio::select! {
                    _ = &mut pass => break,
                    // Often enough that nobody waits; what counts is that the answer is still held back.
                    () = tokio::time::sleep(Duration::from_millis(1)) => {}
                }
                if self.world.calls(endpoint) > calls {
                    reached = true;
                    break;
                }
            }
            if !reached {
                self.world.advance(self.settings.poll_interval);
                passed += self.settings.poll_interval;
            }
        }
        runtime.shutdown_background();
        self.world.mend(held_back);
        self.restart().await;
        reached
    }
}

/// Passes.
impl Picus {
    /// One pass now, to its end.
    pub async fn try_pass(&self) -> Pass {
        let pass = self.app().reconciler.pass().await;
        self.app().reconciler.settled().await;
        self.check();
        pass
    }

    /// One pass now that sees the server.
    pub async fn pass(&self) -> Plan {
        match self.try_pass().await {
            Pass::Done { plan, .. } => *plan,
            Pass::Skipped { why } => panic!("the pass was skipped: {why}"),
        }
    }

    /// A look without action.
    pub async fn look(&self) -> Plan {
        match self.app().reconciler.look().await {
            Pass::Done { plan, .. } => *plan,
            Pass::Skipped { why } => panic!("the look was skipped: {why}"),
        }
    }

    /// Time passes without Picus; then one pass.
    pub async fn pass_after(&self, time: Duration) -> Plan {
        self.world.advance(time);
        self.pass().await
    }

    /// The same; `None` if the pass did not see the server.
    pub async fn try_pass_plan(&self, time: Duration) -> Option<Plan> {
        self.world.advance(time);
        match self.try_pass().await {
            Pass::Done { plan, .. } => Some(*plan),
            Pass::Skipped { .. } => None,
        }
    }

    /// Passes at every poll interval, for so long.
    pub async fn live(&self, time: Duration) {
        let mut passed = Duration::ZERO;
        while passed < time {
            self.world.advance(self.settings.poll_interval);
            passed += self.settings.poll_interval;
            self.try_pass().await;
        }
    }

    /// Passes, a bit more rarely than the loop would, until something holds; fails if it does not within hours.
    pub async fn live_until(&self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let begun = self.clock.now();
        while !holds(&self.world) {
            let lived = picus::model::age(self.clock.now(), begun);
            assert!(lived < LONGEST, "not within {LONGEST:?}: {what}\n{}", self.situation());
            self.world.advance(self.settings.poll_interval.max(seconds(20)));
            self.try_pass().await;
        }
    }

    /// Lives until these tasks run.
    pub async fn until_run(&self, tasks: &[&TaskId]) {
        self.live_until("the tasks run", |_| tasks.iter().all(|task| self.is_running(task))).await;
    }

    /// Lives until these tasks are done.
    pub async fn until_done(&self, tasks: &[&TaskId]) {
        self.live_until("the tasks are done", |_| tasks.iter().all(|task| self.is_done(task))).await;
    }

    /// Lives until every task has run and all of ours is retired, then an hour more in which nothing happens.
    pub async fn ends_clean(&self) {
        self.ends_with(&[]).await;
    }

    /// The same, but for tasks that never can run.
    pub async fn ends_with(&self, open: &[&TaskId]) {
        let is_over = |world: &World| {
            world.open_tasks().iter().all(|task| open.contains(&task))
                && world.left_behind(&InstallationId::from(INSTALLATION)).is_empty()
        };
        self.live_until("the end", is_over).await;
        let _ = self.world.take_events();
        for _ in 0..6 {
            let plan = self.pass_after(minutes(1)).await;
            assert!(plan.steps.is_empty(), "still at work: {:?}", plan.steps);
        }
        let events: Vec<Event> = self.world.take_events().into_iter().map(|happened| happened.event).collect();
        assert_eq!(events, [], "something went on happening");
    }

    fn check(&self) {
        assert_eq!(self.world.killed_jobs(), [], "killed");
        if self.bounded.get() {
            for pool in &self.settings.pools {
                let servers = self.world.servers();
                let ours = servers.iter().filter(|server| server.labels.get("picus-pool") == Some(&pool.name.0));
                let count = u32::try_from(ours.count()).expect("few");
                assert!(count <= pool.max, "pool {} has {count} instances\n{}", pool.name, self.situation());
            }
        }
    }
}

/// What there is.
impl Picus {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Instances that ever were.
    pub fn launched(&self) -> usize {
        self.world.bill().servers
    }

    /// Servers that exist.
    pub fn servers(&self) -> usize {
        self.world.servers().len()
    }

    /// What the installation has.
    pub fn ours(&self) -> LeftBehind {
        self.world.left_behind(&InstallationId::from(INSTALLATION))
    }

    pub fn is_done(&self, task: &TaskId) -> bool {
        self.world.task(task).is_some_and(|task| task.is_done())
    }

    pub fn is_running(&self, task: &TaskId) -> bool {
        self.world.task(task).is_some_and(|task| task.is_running())
    }

    /// For a failing assertion.
    pub fn situation(&self) -> String {
        format!("at {}: tasks {:?}, {:#?}", self.now(), self.world.open_tasks(), self.ours())
    }
}

/// How many launches a plan has.
pub fn launches(plan: &Plan) -> u32 {
    plan.totals.values().map(|pool| pool.launches).sum()
}

/// The steps of a plan by their kind.
pub fn kinds(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|step| step.action.kind()).collect()
}

/// What was decided for a task.
pub fn decision<'a>(plan: &'a Plan, task: &TaskId) -> &'a TaskDecision {
    let found = plan.tasks.iter().find(|(id, _)| id == task);
    &found.unwrap_or_else(|| panic!("task {task} is not in the plan")).1
}
