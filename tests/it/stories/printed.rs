//! What the program itself prints at the most talkative level, libraries' lines included: no secret.

use std::io::{Read, Seek};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use picus::clock::Clock;
use picus::world::{AnswerFault, Endpoint, Fault, Side, World, WorldOptions, task};

/// A world whose time is real and whose instances are quick.
async fn world() -> World {
    let options = WorldOptions { boot_time: Duration::from_millis(300), ..WorldOptions::default() };
    World::start(Clock::System, options).await.expect("a free port")
}

/// `picus` with these arguments, and everything that it would ever log.
fn picus(world: &World, arguments: &[&str], more: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_picus"));
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs([
        ("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str()),
        ("PICUS_WOODPECKER_TOKEN", world.admin_token()),
        ("PICUS_PROVIDER_TYPE", "hcloud"),
        ("PICUS_HCLOUD_TOKEN", world.hetzner_token()),
        ("PICUS_HCLOUD_ENDPOINT", world.hetzner_url().as_str()),
        ("PICUS_POLL_INTERVAL", "1s"),
        ("PICUS_AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000"),
        ("PICUS_LOG", "trace"),
    ]);
    command.envs(more.iter().copied());
    command
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(tokio::time::Instant::now() < patience, "not within 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs it to its end, beside the world.
async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it ends")
}

/// SIGTERM, as a container's end begins.
async fn terminate(child: Child) -> Output {
    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill is there");
    assert!(told.success());
    let end = tokio::task::spawn_blocking(move || child.wait_with_output());
    tokio::time::timeout(Duration::from_secs(10), end).await.expect("in time").expect("no panic").expect("its output")
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn run_plan_and_check_print_no_secret_even_at_trace_while_things_fail() {
    let world = world().await;
    // A file: a pipe that nobody reads would hold it up.
    let mut log = tempfile::tempfile().expect("a file");
    let mut run = picus(&world, &["run"], &[("PICUS_LOG_FORMAT", "json")]);
    let run = run.stderr(log.try_clone().expect("a file")).spawn().expect("it starts");
    world.push(task("build").takes(Duration::from_mins(5)));
    wait_until("its agent works", || world.agents().iter().any(|agent| !agent.running.is_empty())).await;
    let mut outputs = Vec::new();
    for arguments in [["plan"].as_slice(), &["plan", "--output", "json"], &["check"]] {
        outputs.push((arguments, output(picus(&world, arguments, &[])).await));
    }
    assert!(outputs.iter().all(|(_, output)| output.status.success()), "{outputs:?}");
    let tokens = super::secrecy::agent_tokens(&world).await;
    for fault in [AnswerFault::Status(500), AnswerFault::Unauthorised, AnswerFault::CutBody, AnswerFault::WrongJson] {
        let on = [Side::Woodpecker, Side::Hetzner].map(|side| world.fault(Fault::side(side, fault.clone())));
        let calls = world.calls(Endpoint::Queue);
        wait_until("a pass fails", || world.calls(Endpoint::Queue) > calls).await;
        outputs.push((&["check"], output(picus(&world, &["check"], &[])).await));
        outputs.push((&["plan"], output(picus(&world, &["plan"], &[])).await));
        for fault in on {
            world.mend(fault);
        }
    }
    let mut ended = terminate(run).await;
    log.rewind().expect("a file");
    log.read_to_end(&mut ended.stderr).expect("what it logged");
    assert_eq!(ended.status.code(), Some(0), "{}", printed(&ended));
    assert!(printed(&ended).contains("\"level\":\"TRACE\""), "everything is logged");
    outputs.push((&["run"], ended));
    assert_eq!((world.servers().len(), world.killed_jobs().len()), (1, 0), "instances stay");

    let secrets = [world.admin_token(), world.hetzner_token(), "#cloud-config", "write_files"];
    assert!(!tokens.is_empty());
    for (arguments, output) in &outputs {
        let text = printed(output);
        assert!(!text.is_empty(), "{arguments:?}");
        for secret in secrets.into_iter().chain(tokens.iter().map(String::as_str)) {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{arguments:?} prints a secret");
        }
    }
}
