//! Whether a start is one, and what a server or token that fails later means.

use picus::app::StartError;
use picus::world::{AnswerFault, Endpoint, Fault, Side, task};
use tracing::level_filters::LevelFilter;

use crate::harness::log::collect;
use crate::harness::{MORNING, Picus, minutes, picus, seconds};

async fn not_started() -> Picus {
    picus().build(picus::clock::Clock::manual(MORNING.parse().expect("a time"))).await
}

#[tokio::test]
async fn a_token_that_is_not_accepted_or_a_login_page_ends_the_start_with_url_status_and_variable() {
    let cases = [
        (AnswerFault::Unauthorised, "401", "PICUS_WOODPECKER_TOKEN"),
        (AnswerFault::Forbidden, "403", "PICUS_WOODPECKER_TOKEN"),
        (AnswerFault::Html, "200", "PICUS_WOODPECKER_SERVER"),
    ];
    for (fault, status, variable) in cases {
        let p = not_started().await;
        p.world.fault(Fault::side(Side::Woodpecker, fault.clone()));
        let error = p.try_ready().await.expect_err("it can't begin");
        assert!(matches!(error, StartError::Refused(_)), "{fault:?}: {error:?}");
        let text = format!("{error} {error:?}");
        let url = p.world.woodpecker_url().as_str();
        for part in [status, variable, url] {
            assert!(text.contains(part), "{fault:?}: {part} is not in {text}");
        }
        assert!(!text.contains(p.world.admin_token()), "{text}");
    }
}

#[tokio::test]
async fn the_token_of_somebody_who_is_no_admin_ends_the_start() {
    let p = picus().start().await;
    let token = p.world.user_token().to_owned();
    let mut settings = p.settings.clone();
    settings.woodpecker.token = token.into();
    let app = picus::app::App::new(settings, p.clock.clone(), 5).expect("good settings");
    let error = app.ready(&tokio_util::sync::CancellationToken::new()).await.expect_err("no admin");
    assert!(matches!(&error, StartError::Refused(why) if why.contains("admin")), "{error}");
    assert!(!error.to_string().contains(p.world.user_token()));
}

#[tokio::test]
async fn a_server_that_is_down_at_the_start_is_waited_for() {
    for fault in [AnswerFault::Status(503), AnswerFault::Cut, AnswerFault::Empty] {
        let p = not_started().await;
        let down = p.world.fault(Fault::side(Side::Woodpecker, fault.clone()));
        let wait = async {
            while p.world.calls(Endpoint::User) < 5 {
                p.world.advance(seconds(10));
                tokio::task::yield_now().await;
            }
            p.world.mend(down);
            loop {
                p.world.advance(seconds(10));
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ready = p.try_ready() => assert!(ready.expect("a good start"), "{fault:?}"),
            () = wait => {}
        }
        p.world.push(task("build"));
        p.ends_clean().await;
    }
}

#[tokio::test]
async fn a_provider_that_is_down_at_the_start_is_not_waited_for() {
    let p = not_started().await;
    let down = p.world.fault(Fault::side(Side::Hetzner, AnswerFault::Status(503)));
    p.ready().await;
    p.world.push(task("build"));
    p.live(minutes(3)).await;
    assert_eq!(p.world.agents(), []);
    p.world.mend(down);
    p.ends_clean().await;
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn a_token_that_is_revoked_while_it_runs_is_told_once_and_taken_again_when_it_is_back() {
    let (log, _guard) = collect(LevelFilter::INFO);
    let p = picus().start().await;
    let first = p.world.push(task("first").takes(minutes(3)));
    p.until_run(&[&first]).await;
    let token = p.world.admin_token().to_owned();
    p.world.set_admin_token("another");
    p.world.push(task("second").takes(minutes(3)));
    p.world.push(task("third").takes(minutes(3)));
    p.live(minutes(20)).await;
    assert_eq!(p.servers(), 1, "nothing is launched or retired");
    let told = log.lines_with(&["WARN", "401"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("PICUS_WOODPECKER_TOKEN"), "{told:?}");
    p.world.set_admin_token(token);
    p.ends_clean().await;
}

#[tokio::test]
async fn a_providers_token_that_is_revoked_while_it_runs_is_told_once_and_no_instance_is_touched() {
    let (log, _guard) = collect(LevelFilter::INFO);
    let p = picus().slots(1).start().await;
    let first = p.world.push(task("first").takes(minutes(3)));
    p.until_run(&[&first]).await;
    let token = p.world.hetzner_token().to_owned();
    p.world.set_hetzner_token("another");
    p.world.push(task("second").takes(minutes(30)));
    p.live(minutes(20)).await;
    assert_eq!((p.servers(), p.world.agents().len()), (1, 1));
    let told = log.lines_with(&["WARN", "PICUS_HCLOUD_TOKEN"]);
    assert!(told.len() <= 2, "at most once for the listing and once for the tasks: {told:?}");
    assert!(!told.is_empty());
    p.world.set_hetzner_token(token);
    p.ends_clean().await;
}
