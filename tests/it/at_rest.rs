//! At rest Picus is hardly there: how often it calls, how much memory and processor time it takes.

#![expect(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use jiff::Timestamp;
use picus::app::App;
use picus::clock::Clock;
use picus::model::later;
use picus::settings::Settings;
use picus::world::{AnswerFault, Endpoint, Fault, Side, World, WorldOptions, task};
use tokio_util::sync::CancellationToken;

/// An hour in six seconds.
const SPEED: u32 = 600;
const HOUR: Duration = Duration::from_hours(1);

/// A world and the loop in it, both in fast time.
struct Scene {
    world: World,
    clock: Clock,
    ended: CancellationToken,
    work: tokio::task::JoinHandle<()>,
}

impl Scene {
    async fn start(more: &[(&str, &str)]) -> Self {
        let begin: Timestamp = "2026-12-01T12:00:00Z".parse().expect("a time");
        let clock = Clock::fast(begin, SPEED);
        let world = World::start(clock.clone(), WorldOptions::default()).await.expect("free ports");
        let mut variables = vec![
            ("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str()),
            ("PICUS_WOODPECKER_TOKEN", world.admin_token()),
            ("PICUS_PROVIDER_TYPE", "hcloud"),
            ("PICUS_HCLOUD_TOKEN", world.hetzner_token()),
            ("PICUS_HCLOUD_ENDPOINT", world.hetzner_url().as_str()),
            ("PICUS_AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000"),
            ("PICUS_HTTP_ADDR", "off"),
        ];
        variables.extend(more);
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = Settings::from_vars(variables).expect("good settings");
        let app = App::new(settings, clock.clone(), 1).expect("a start");
        let ended = CancellationToken::new();
        let until = ended.clone();
        let work = tokio::spawn(async move { app.run(until).await.expect("a start") });
        Self { world, clock, ended, work }
    }

    async fn end(self) -> World {
        self.ended.cancel();
        self.work.await.expect("the loop does not panic");
        self.world
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_with_nothing_to_do_takes_under_a_hundred_calls_to_hetzner() {
    let scene = Scene::start(&[]).await;
    scene.clock.sleep(HOUR).await;
    let world = scene.end().await;
    let (calls, looks) = (world.calls_to(Side::Hetzner), world.calls(Endpoint::Queue));
    assert!(looks > 100, "only {looks} looks at the queue");
    assert!((30..100).contains(&calls), "{calls} calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_hour_takes_under_four_hundred_calls_to_hetzner() {
    let scene =
        Scene::start(&[("PICUS_MAX_AGENTS", "5"), ("PICUS_BILLING_PERIOD", "0s"), ("PICUS_MAX_IDLE_TIME", "2m")]).await;
    for push in 0..12 {
        for job in 0..=(push % 4) {
            scene.world.push(task(format!("job-{push}-{job}")).takes(Duration::from_mins(2 + job)));
        }
        scene.clock.sleep(HOUR / 12).await;
    }
    let world = scene.end().await;
    let (calls, launches) = (world.calls_to(Side::Hetzner), world.calls(Endpoint::CreateServer));
    assert!(launches >= 5, "only {launches} launches");
    assert!(calls < 400, "{calls} calls");
    assert_eq!(world.killed_jobs(), Vec::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_429_no_call_is_made_before_its_reset() {
    let limited = Duration::from_mins(20);
    let scene = Scene::start(&[]).await;
    scene.clock.sleep(Duration::from_mins(5)).await;
    scene.world.fault(Fault::on(Endpoint::Servers, AnswerFault::RateLimited(limited)).times(1));
    scene.world.push(task("job"));
    scene.clock.sleep(Duration::from_mins(40)).await;
    let world = scene.end().await;

    let calls: Vec<Timestamp> =
        world.call_log().iter().filter(|call| call.endpoint.side() == Side::Hetzner).map(|call| call.at).collect();
    let longest = calls.windows(2).max_by_key(|pair| pair[1].duration_since(pair[0])).expect("some calls");
    let pause = picus::model::age(longest[1], longest[0]);
    // The reset is told in whole seconds.
    assert!(pause >= limited.saturating_sub(Duration::from_secs(1)), "the longest pause is {pause:?}");
    assert!(longest[1] < later(longest[0], limited + Duration::from_mins(5)), "and then it goes on: {pause:?}");
    assert_eq!(world.calls(Endpoint::CreateServer), 1, "the job's server is launched after it");
}
