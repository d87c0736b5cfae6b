//! What an outage, a restart of the server, a rename or a lock must not lead to: a killed job, a machine too many, a
//! flood of calls.

#![expect(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use jiff::Timestamp;
use picus::app::App;
use picus::clock::Clock;
use picus::model::ids::{AgentId, InstallationId};
use picus::settings::Settings;
use picus::world::{AnswerFault, Endpoint, Fault, MachineFault, Side, TaskState, World, WorldOptions, task};
use tokio_util::sync::CancellationToken;

/// A world, and Picus beside it; a pass every ten seconds.
struct Story {
    world: World,
    app: App,
    clock: Clock,
    start: Timestamp,
}

impl Story {
    async fn begin(options: WorldOptions, more: &[(&str, &str)]) -> Self {
        let start: Timestamp = "2026-12-01T08:00:00Z".parse().expect("a time");
        let clock = Clock::manual(start);
        let world = World::start(clock.clone(), options).await.expect("free ports");
        let base = [
            ("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str()),
            ("PICUS_WOODPECKER_TOKEN", world.admin_token()),
            ("PICUS_PROVIDER_TYPE", "hcloud"),
            ("PICUS_HCLOUD_TOKEN", world.hetzner_token()),
            ("PICUS_HCLOUD_ENDPOINT", world.hetzner_url().as_str()),
            ("PICUS_AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000"),
        ];
        let variables = base.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = Settings::from_vars(variables).expect("good settings");
        let app = App::new(settings, clock.clone(), 1).expect("an app");
        assert!(app.ready(&CancellationToken::new()).await.expect("a good start"));
        Self { world, app, clock, start }
    }

    async fn pass(&self) {
        self.app.reconciler.pass().await;
        self.app.reconciler.settled().await;
    }

    /// Passes until so long after the beginning.
    async fn until(&self, minutes: u64) {
        while self.clock.now() < self.start + Duration::from_mins(minutes) {
            self.world.advance(Duration::from_secs(10));
            self.pass().await;
        }
    }

    fn only_agent(&self) -> AgentId {
        self.world.agents().first().expect("an agent").id
    }

    fn nothing_is_left(&self) {
        let left = self.world.left_behind(&InstallationId::from("picus"));
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.world.killed_jobs(), []);
    }
}

const BY_SECOND: [(&str, &str); 2] = [("PICUS_BILLING_PERIOD", "0s"), ("PICUS_MAX_IDLE_TIME", "2m")];

#[tokio::test]
async fn a_job_that_the_restarted_server_forgot_is_not_killed() {
    let story = Story::begin(WorldOptions::default(), &[]).await;
    let job = story.world.push(task("long").takes(Duration::from_mins(100)));
    story.until(50).await;
    assert!(story.world.task(&job).expect("the job").is_running());
    story.world.restart_server();
    story.until(105).await;
    assert_eq!(story.world.killed_jobs(), []);
    assert!(story.world.task(&job).expect("the job").is_done());
    story.until(121).await;
    story.nothing_is_left();
    assert_eq!(story.world.bill().servers, 1);
}

#[tokio::test]
async fn no_task_waits_behind_a_run_that_the_restarted_server_forgot() {
    let story = Story::begin(WorldOptions::default(), &[("PICUS_MAX_AGENTS", "2")]).await;
    story.world.push(task("long").takes(Duration::from_mins(100)));
    story.until(10).await;
    story.world.restart_server();
    story.until(12).await;
    let next = story.world.push(task("next"));
    story.until(16).await;
    assert!(story.world.task(&next).expect("the task").is_done());
    assert_eq!((story.world.bill().servers, story.world.killed_jobs()), (2, Vec::new()));
}

#[tokio::test]
async fn a_machine_that_boots_during_an_outage_is_not_replaced_at_its_end() {
    let story = Story::begin(WorldOptions::default(), &BY_SECOND).await;
    story.world.fault(Fault::machine(MachineFault::BootsSlowly(Duration::from_mins(14))).times(1));
    let job = story.world.push(task("build"));
    story.until(1).await;
    story.world.fault(Fault::side(Side::Woodpecker, AnswerFault::Status(502)).lasting(Duration::from_mins(13)));
    story.until(17).await;
    assert!(matches!(story.world.task(&job), Some(TaskState::Done { .. })), "{:?}", story.world.task(&job));
    story.until(25).await;
    story.nothing_is_left();
    assert_eq!(story.world.bill().servers, 1);
}

#[tokio::test]
async fn a_server_that_stays_locked_is_not_deleted_at_every_pass() {
    let story = Story::begin(WorldOptions::default(), &BY_SECOND).await;
    story.world.push(task("build"));
    story.until(2).await;
    for server in story.world.servers() {
        assert!(story.world.lock_server(&server.id, Duration::from_mins(30)));
    }
    story.until(30).await;
    let tries = story.world.calls(Endpoint::DeleteServer);
    assert!((10..=60).contains(&tries), "{tries} tries in some 25 minutes");
    story.until(35).await;
    story.nothing_is_left();
}

#[tokio::test]
async fn a_cordon_that_comes_right_after_a_drain_was_undone_is_somebody_elses() {
    let story = Story::begin(WorldOptions::default(), &BY_SECOND).await;
    story.world.push(task("first"));
    story.until(2).await;
    let agent = story.only_agent();
    let cordoned = || story.world.agent(agent).expect("the agent").no_schedule;
    while !cordoned() {
        story.world.advance(Duration::from_secs(10));
        story.pass().await;
    }
    let second = story.world.push(task("second"));
    story.pass().await;
    assert!(!cordoned());
    // By hand, or by a heartbeat that had read the record before: the two look the same, so it costs an instance at most.
    assert!(story.world.cordon(agent));
    story.pass().await;
    assert!(cordoned());
    story.until(20).await;
    assert!(story.world.task(&second).expect("the task").is_done());
    assert!(story.world.bill().servers <= 2);
}

#[tokio::test]
async fn a_renamed_agent_stays_with_its_machine_with_the_shared_secret_too() {
    let options = WorldOptions { shared_secret: Some("the-shared-secret".to_owned()), ..WorldOptions::default() };
    let [billing, idle] = BY_SECOND;
    let secret = ("PICUS_AGENT_WOODPECKER_AGENT_SECRET", "the-shared-secret");
    let story = Story::begin(options, &[billing, idle, secret]).await;
    let job = story.world.push(task("long").takes(Duration::from_mins(30)));
    story.until(3).await;
    assert!(story.world.rename(story.only_agent(), "build7"));
    story.until(32).await;
    assert_eq!(story.world.killed_jobs(), []);
    assert!(story.world.task(&job).expect("the job").is_done());
    story.until(40).await;
    story.nothing_is_left();
    assert_eq!(story.world.agents(), []);
    assert_eq!(story.world.bill().servers, 1);
}
