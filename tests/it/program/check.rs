//! `picus check`: each thing that a start needs, what fails with how to repair it, and the rest all the same.

use std::time::Duration;

use picus::world::{AnswerFault, Endpoint, Fault, Side, World, WorldOptions};

use super::{Ended, Program, picus, world, world_with};

/// The line of a check about something.
fn line<'a>(ended: &'a Ended, begin: &str, part: &str) -> Option<&'a str> {
    ended.out.lines().find(|line| line.starts_with(begin) && line.contains(part))
}

fn all(world: &World) -> Program {
    picus(world, &["check"])
        .set("PICUS_HCLOUD_NETWORKS", "ci")
        .set("PICUS_HCLOUD_FIREWALLS", "ci")
        .set("PICUS_HCLOUD_PLACEMENT_GROUP", "spread")
}

#[tokio::test(flavor = "multi_thread")]
async fn all_is_well() {
    let world = world().await;
    let ended = all(&world).output().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
    for (what, told) in [
        ("settings", "installation picus; pool default: 0 to 1 instances, 1 slot each"),
        ("server", "runs Woodpecker 3.17.0"),
        ("token", "who is an admin"),
        ("pool default", "woodpeckerci/woodpecker-agent:v3.17.0"),
        ("queue", "tasks that wait: 0"),
        ("agents", "records: 0"),
        ("events", "a new task is seen at once"),
        ("hetzner", "the token is accepted"),
        ("pool default", "server type cx23"),
        ("pool default", "image docker-ce"),
        ("pool default", "SSH key admin"),
        ("pool default", "network ci"),
        ("pool default", "firewall ci"),
        ("pool default", "placement group spread"),
        ("pool default", "linux/amd64"),
    ] {
        assert!(line(&ended, &format!("ok    {what}"), told).is_some(), "nothing of {told:?} in\n{}", ended.out);
    }
    assert!(ended.out.ends_with("\nAll is well.\n"), "{}", ended.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_is_said_with_how_to_repair_it_and_the_rest_is_checked() {
    let long = "x".repeat(40_000);
    let others = "X".repeat(64);
    // What is set, the failing line about it, and a line that says that something else was checked.
    let table: [(&str, &str, &[&str], &str); 11] = [
        (
            "PICUS_WOODPECKER_TOKEN",
            "somebody-elses",
            &["token", "PICUS_WOODPECKER_TOKEN is not valid", "CLI & API"],
            "ok    hetzner",
        ),
        ("PICUS_WOODPECKER_TOKEN", "USER", &["token", "is not an admin", "take an admin's"], "ok    hetzner"),
        (
            "PICUS_WOODPECKER_SERVER",
            "http://127.0.0.1:1",
            &["server", "no connection", "PICUS_WOODPECKER_SERVER"],
            "ok    hetzner",
        ),
        (
            "PICUS_HCLOUD_TOKEN",
            &others,
            &["hetzner", "PICUS_HCLOUD_TOKEN must be valid", "read and write"],
            "ok    events",
        ),
        ("PICUS_HCLOUD_ENDPOINT", "http://127.0.0.1:1", &["hetzner", "PICUS_HCLOUD_ENDPOINT"], "ok    events"),
        (
            "PICUS_HCLOUD_SERVER_TYPE",
            "cx22x",
            &["pool default", "PICUS_HCLOUD_SERVER_TYPE=\"cx22x\"", "there are", "cx23"],
            "ok    hetzner",
        ),
        (
            "PICUS_HCLOUD_LOCATION",
            "moon1",
            &["pool default", "PICUS_HCLOUD_LOCATION=\"moon1\"", "nbg1"],
            "ok    hetzner",
        ),
        (
            "PICUS_HCLOUD_SSH_KEYS",
            "mine",
            &["pool default", "PICUS_HCLOUD_SSH_KEYS=\"mine\"", "admin"],
            "ok    hetzner",
        ),
        (
            "PICUS_HCLOUD_NETWORKS",
            "lan",
            &["pool default", "PICUS_HCLOUD_NETWORKS=\"lan\"", "there are ci"],
            "ok    hetzner",
        ),
        (
            "PICUS_HCLOUD_IMAGE",
            "docker",
            &["pool default", "PICUS_HCLOUD_IMAGE=\"docker\"", "docker-ce"],
            "ok    hetzner",
        ),
        ("PICUS_AGENT_WOODPECKER_COMMENT", &long, &["settings", "32768"], "ok    hetzner"),
    ];
    let world = world().await;
    for (variable, value, told, rest) in table {
        let value = if value == "USER" { world.user_token() } else { value };
        let ended = all(&world).set(variable, value).output().await;
        assert_eq!((ended.code, ended.err.as_str()), (Some(1), ""), "{variable}: {}", ended.out);
        let failing = line(&ended, "FAIL", told[0]).unwrap_or_else(|| panic!("{variable}: {}", ended.out));
        assert!(told.iter().all(|part| failing.contains(part)), "{variable}: {failing}");
        assert!(line(&ended, rest, "").is_some(), "{variable}: no {rest:?} in\n{}", ended.out);
        assert!(ended.out.ends_with("\n1 thing has to be repaired.\n"), "{variable}: {}", ended.out);
        assert!(!ended.out.contains("somebody-elses") && !ended.out.contains(&others), "{}", ended.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_fails_is_said_in_one_run() {
    let world = world().await;
    let ended = all(&world)
        .set("PICUS_WOODPECKER_TOKEN", world.user_token())
        .set("PICUS_HCLOUD_SERVER_TYPE", "cx22x")
        .set("PICUS_HCLOUD_FIREWALLS", "wall")
        .output()
        .await;
    assert_eq!(ended.code, Some(1));
    for part in ["is not an admin", "cx22x", "wall"] {
        assert!(line(&ended, "FAIL", part).is_some(), "nothing of {part} in\n{}", ended.out);
    }
    assert!(ended.out.ends_with("\n3 things have to be repaired.\n"), "{}", ended.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_works_and_needs_attention_is_a_warning() {
    let world = world().await;
    world.deprecate("cx23", None, Duration::from_hours(24 * 30));
    world.fault(Fault::on(Endpoint::Events, AnswerFault::Status(404)));
    world.pause_queue();
    let ended = all(&world).set("PICUS_HCLOUD_SSH_KEYS", "").output().await;
    assert_eq!(ended.code, Some(0), "{}", ended.out);
    for part in ["cx23 is deprecated", "root password", "only polled", "paused"] {
        assert!(line(&ended, "warn", part).is_some(), "nothing of {part} in\n{}", ended.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_an_agent_image_and_answers_that_are_none_are_failures() {
    let world = world_with(WorldOptions { version: "dev".to_owned(), ..WorldOptions::default() }).await;
    world.fault(Fault::on(Endpoint::Queue, AnswerFault::Status(500)));
    world.fault(Fault::on(Endpoint::Agents, AnswerFault::WrongJson));
    let ended = all(&world).output().await;
    assert_eq!(ended.code, Some(1));
    for (what, part) in [("pool default", "PICUS_AGENT_IMAGE"), ("queue", "500"), ("agents", "")] {
        assert!(line(&ended, &format!("FAIL  {what}"), part).is_some(), "nothing of {what} in\n{}", ended.out);
    }
    world.mend_all();
    world.fault(Fault::side(Side::Woodpecker, AnswerFault::Html));
    let ended = all(&world).output().await;
    assert!(line(&ended, "FAIL  server", "not a login page").is_some(), "{}", ended.out);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(feature = "aws")]
async fn user_data_for_ec2_is_compressed_and_refused_with_both_numbers_if_it_is_too_long_even_so() {
    let at_ec2 = |comment: &str| {
        super::bare(&["check", "--offline"])
            .set("PICUS_WOODPECKER_SERVER", "https://ci.example.org")
            .set("PICUS_WOODPECKER_TOKEN", "token")
            .set("PICUS_PROVIDER_TYPE", "aws")
            .set("PICUS_AWS_INSTANCE_TYPE", "c7a.large")
            .set("PICUS_AWS_AMI", "ami-0123456789abcdef0")
            .set("PICUS_AGENT_WOODPECKER_SERVER", "ci.example.org:9000")
            .set("PICUS_AGENT_WOODPECKER_COMMENT", comment)
    };
    let ended = at_ec2(&"x".repeat(40_000)).output().await;
    assert_eq!(ended.code, Some(0), "what says little becomes short: {}", ended.out);
    // What a compressor can't shorten by half.
    let mut state = 1_u64;
    let noise: String = (0..40_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'0' + u8::try_from(state >> 58).expect("six bits"))
        })
        .collect();
    let ended = at_ec2(&noise).output().await;
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    let failing = line(&ended, "FAIL", "settings").expect("a failing line");
    assert!(failing.contains("16384") && failing.contains("PICUS_AGENT_WOODPECKER_"), "{failing}");
    let numbers = failing.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse::<usize>().ok());
    assert!(numbers.filter(|number| *number > 16_384).count() >= 1, "both numbers: {failing}");
}
