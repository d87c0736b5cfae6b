//! What makes a start none, what it says then, and what it waits for.

use picus::world::{AnswerFault, Endpoint, Fault, Side, World, task};
use rustix::process::Signal;
use tokio::net::{TcpListener, TcpStream};

use super::{LONG, bare, eventually, picus, world};

#[tokio::test(flavor = "multi_thread")]
async fn wrong_settings_end_it_with_all_problems_in_one_message() {
    let ended = bare(&[])
        .set("PICUS_WOODPECKER_SERVER", "ci.example.org")
        .set("PICUS_PROVIDER_TYPE", "hetzner")
        .set("PICUS_HCLOUD_TOKEN", "short-but-secret")
        .set("PICUS_MAX_AGENT", "3")
        .set("PICUS_POLL_INTERVAL", "10")
        .output()
        .await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert_eq!(ended.err.matches("problems with the settings").count(), 1, "{}", ended.err);
    for part in [
        "PICUS_WOODPECKER_SERVER=\"ci.example.org\"",
        "PICUS_WOODPECKER_TOKEN",
        "PICUS_PROVIDER_TYPE=\"hetzner\"",
        "PICUS_MAX_AGENT",
        "PICUS_MAX_AGENTS",
        "PICUS_POLL_INTERVAL=\"10\"",
        "PICUS_AGENT_WOODPECKER_SERVER",
    ] {
        assert!(ended.err.contains(part), "nothing about {part} in\n{}", ended.err);
    }
    assert!(!ended.err.contains("short-but-secret"), "{}", ended.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_explains_itself() {
    for (arguments, code, told) in [
        (["--help"], 0, "demo"),
        (["--version"], 0, concat!("picus ", env!("CARGO_PKG_VERSION"))),
        (["plans"], 2, "similar subcommand exists: 'plan'"),
        (["--output=json"], 2, "unexpected argument"),
    ] {
        let ended = bare(&arguments).output().await;
        assert_eq!(ended.code, Some(code), "{arguments:?}");
        let text = if code == 0 { &ended.out } else { &ended.err };
        assert!(text.contains(told), "{arguments:?} says\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_accepted_ends_the_start_and_is_named() {
    let world = world().await;
    let run = || picus(&world, &[]);
    let strangers = "X".repeat(64);
    for (program, told) in [
        (
            run().set("PICUS_WOODPECKER_TOKEN", "somebody-elses"),
            "401 (User not authorized): the token in PICUS_WOODPECKER_TOKEN is not valid",
        ),
        (run().set("PICUS_WOODPECKER_TOKEN", world.user_token()), "PICUS_WOODPECKER_TOKEN is a token of "),
        (run().set("PICUS_HCLOUD_TOKEN", &strangers), "pool default: PICUS_HCLOUD_TOKEN must be valid"),
        (
            run()
                .set("PICUS_POOLS", "a,b,c")
                .set("PICUS_POOL_A_HCLOUD_TOKEN", world.hetzner_token())
                .set("PICUS_HCLOUD_TOKEN", &strangers),
            "pool b, c: PICUS_HCLOUD_TOKEN must be valid",
        ),
    ] {
        let ended = program.output().await;
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        assert!(ended.err.contains(told), "nothing of {told:?} in\n{}", ended.err);
        assert!(!ended.err.contains("somebody-elses") && !ended.err.contains(&strangers), "{}", ended.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_at_which_somebody_else_answers_ends_the_start() {
    for (fault, told) in [
        (AnswerFault::Forbidden, "403"),
        (AnswerFault::Html, "PICUS_WOODPECKER_SERVER must be the address at which Woodpecker itself answers"),
    ] {
        let world = world().await;
        world.fault(Fault::side(Side::Woodpecker, fault));
        let ended = picus(&world, &[]).output().await;
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        assert!(ended.err.contains(told), "nothing of {told:?} in\n{}", ended.err);
        assert!(ended.err.contains(world.woodpecker_url().as_str()), "no URL in\n{}", ended.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_settings_that_name_what_does_not_exist_end_the_start() {
    let world = world().await;
    let ended =
        picus(&world, &[]).set("PICUS_HCLOUD_SERVER_TYPE", "cx1").set("PICUS_HCLOUD_NETWORKS", "lan").output().await;
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    for part in
        ["2 problems with the settings", "PICUS_HCLOUD_SERVER_TYPE=\"cx1\"", "cx23", "PICUS_HCLOUD_NETWORKS=\"lan\""]
    {
        assert!(ended.err.contains(part), "nothing about {part} in\n{}", ended.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_is_waited_for() {
    let world = world().await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let job = world.push(task("build"));
    let running = picus(&world, &[]).set("PICUS_WOODPECKER_SERVER", &format!("http://{address}")).start();
    running.says("waiting for the Woodpecker server").await;
    // Behind a proxy it is there, and answers that it is not.
    let starting = world.fault(Fault::on(Endpoint::User, AnswerFault::Status(502)));
    let door = TcpListener::bind(address).await.unwrap();
    let behind = address_of(&world);
    let doorman = tokio::spawn(async move {
        while let Ok((mut from, _)) = door.accept().await {
            let behind = behind.clone();
            tokio::spawn(async move {
                let Ok(mut to) = TcpStream::connect(behind).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    running.says("502").await;
    world.mend(starting);
    eventually("the job runs", || world.task(&job).is_some_and(|task| task.is_running()), || running.text()).await;
    assert_eq!(running.ends_on(Signal::TERM, LONG).await.code, Some(0));
    doorman.abort();
}

fn address_of(world: &World) -> String {
    let url = world.woodpecker_url();
    url[url::Position::BeforeHost..url::Position::AfterPort].to_owned()
}
