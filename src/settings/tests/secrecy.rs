//! Secrets: from variables and files, and never in what is shown.

use insta::assert_snapshot;
use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::{LEAST, problems, read, settings};
use crate::settings::registry::{ALL, Availability, Kind, Scope};
use crate::settings::{AccountSettings, Settings};

/// What every secret of these tests has in it.
const MARK: &str = "hunter2";

/// Writes a file and returns its path with the directory that must live as long.
fn file(content: &[u8]) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("secret");
    std::fs::write(&path, content).expect("a file");
    let path = path.to_str().expect("a path of text").to_owned();
    (directory, path)
}

fn cloud_token(settings: &Settings) -> String {
    match &settings.accounts[0] {
        AccountSettings::Hetzner { token, .. } => token.expose_secret().to_owned(),
        AccountSettings::Aws => panic!("it is at Hetzner"),
    }
}

#[test]
fn a_secret_comes_from_a_file_without_its_last_line_break() {
    for content in ["from-file", "from-file\n", "from-file\r\n", "from-file\n\n"] {
        let (_directory, path) = file(content.as_bytes());
        let read = settings(&[("PICUS_HCLOUD_TOKEN", ""), ("PICUS_HCLOUD_TOKEN_FILE", &path)]);
        assert_eq!(cloud_token(&read), "from-file", "{content:?}");
        let read = settings(&[("PICUS_AGENT_WOODPECKER_AGENT_SECRET_FILE", &path)]);
        let secret = read.pools[0].agent.shared_secret.as_ref().map(|secret| secret.expose_secret().to_owned());
        assert_eq!(secret.as_deref(), Some("from-file"));
        assert!(read.pools[0].agent.environment.iter().all(|(name, _)| !name.contains("SECRET")));
    }
}

#[test]
fn a_pools_own_secret_takes_the_place_of_the_one_for_all_in_either_form() {
    let (_directory, path) = file(b"from-file");
    for (more, token) in [
        ([("PICUS_POOL_A_HCLOUD_TOKEN_FILE", path.as_str()), ("PICUS_X", "")], "from-file"),
        ([("PICUS_POOL_A_HCLOUD_TOKEN", "own"), ("PICUS_X", "")], "own"),
        ([("PICUS_POOL_A_HCLOUD_TOKEN", ""), ("PICUS_X", "")], "cloud-token"),
    ] {
        let read = settings(&[&[("PICUS_POOLS", "a")], more.as_slice()].concat());
        assert_eq!(cloud_token(&read), token);
    }
}

#[test]
fn a_file_that_holds_no_secret_is_refused() {
    let unset = ("PICUS_HCLOUD_TOKEN", "");
    let of = |content: &[u8]| {
        let (_directory, path) = file(content);
        problems(&[unset, ("PICUS_HCLOUD_TOKEN_FILE", &path)]).replace(&path, "/secret")
    };
    assert_snapshot!([
        of(b""),
        of(b"\n"),
        of(b"\xff\xfe"),
        of(&b"x".repeat(64 * 1024 + 1)),
        of(b"two\nlines"),
        of(b" indented"),
        of(b"two words"),
        problems(&[unset, ("PICUS_HCLOUD_TOKEN_FILE", "/does/not/exist")]),
        problems(&[unset, ("PICUS_HCLOUD_TOKEN_FILE", "/")]),
        problems(&[unset, ("PICUS_HCLOUD_TOKEN_FILE", "the-token-itself")]),
        problems(&[("PICUS_HCLOUD_TOKEN_FILE", "/secret")]),
        problems(&[("PICUS_HCLOUD_TOKEN", "token\n")]),
        problems(&[("PICUS_HCLOUD_TOKEN", "tökén")]),
        problems(&[("PICUS_AGENT_WOODPECKER_AGENT_SECRET", "two\nlines")]),
        problems(&[
            ("PICUS_POOLS", "a"),
            ("PICUS_POOL_A_HCLOUD_TOKEN", "x"),
            ("PICUS_POOL_A_HCLOUD_TOKEN_FILE", "/secret"),
        ]),
    ].join("\n"), @r#"
PICUS_HCLOUD_TOKEN_FILE="/secret": must be the path of a file that holds the secret; this one is empty
PICUS_HCLOUD_TOKEN_FILE="/secret": must be the path of a file that holds the secret; this one is empty
PICUS_HCLOUD_TOKEN_FILE="/secret": must be the path of a file that holds the secret, as UTF-8 text; this one is something else
PICUS_HCLOUD_TOKEN_FILE="/secret": must be the path of a file that holds the secret, in at most 64 KiB; this one is longer
PICUS_HCLOUD_TOKEN_FILE: has a line break as its character 4: it must be one line of text
PICUS_HCLOUD_TOKEN_FILE: has spaces or line breaks at its beginning or end: remove them
PICUS_HCLOUD_TOKEN_FILE: must be letters, digits and signs in one word; a token has no spaces or accents
PICUS_HCLOUD_TOKEN_FILE="/does/not/exist": must be the path of a file that holds the secret; reading it says: No such file or directory (os error 2)
PICUS_HCLOUD_TOKEN_FILE="/": must be the path of a file that holds the secret; reading it says: Is a directory (os error 21)
PICUS_HCLOUD_TOKEN_FILE: must be the path of a file that holds the secret; reading it says: No such file or directory (os error 2)
PICUS_HCLOUD_TOKEN: is set, and so is `PICUS_HCLOUD_TOKEN_FILE`: set one of the two
PICUS_HCLOUD_TOKEN: has spaces or line breaks at its beginning or end: remove them
PICUS_HCLOUD_TOKEN: must be letters, digits and signs in one word; a token has no spaces or accents
PICUS_AGENT_WOODPECKER_AGENT_SECRET: has a line break as its character 4: it must be one line of text
PICUS_POOL_A_HCLOUD_TOKEN: is set, and so is `PICUS_POOL_A_HCLOUD_TOKEN_FILE`: set one of the two
"#);
}

#[test]
fn no_secret_is_in_the_debug_output() {
    let more = [
        ("PICUS_WOODPECKER_TOKEN", "hunter2-a"),
        ("PICUS_HCLOUD_TOKEN", "hunter2-b"),
        ("PICUS_AGENT_WOODPECKER_AGENT_SECRET", "hunter2-c"),
        ("PICUS_AGENT_WOODPECKER_REGISTRY_PASSWORD", "hunter2-d"),
        ("PICUS_AGENT_WOODPECKER_HARMLESS", "hunter2-e"),
        ("PICUS_POOLS", "a,b"),
        ("PICUS_POOL_B_HCLOUD_TOKEN", "hunter2-f"),
        ("PICUS_POOL_B_AGENT_WOODPECKER_AGENT_SECRET", "hunter2-g"),
    ];
    let read = settings(&more);
    assert_eq!(read.accounts.len(), 2);
    assert_eq!(cloud_token(&read), "hunter2-b");
    let shown = format!("{read:?} {read:#?}");
    assert!(!shown.contains(MARK), "{shown}");
}

#[test]
fn no_secret_is_in_a_problem_whatever_is_wrong_with_it() {
    // Each with something wrong, so that there is a message about each.
    for wrong in [" hunter2", "hunter2\n", "hun\nter2 hunter2", "hunter2\u{e9}\n", "\"hunter2\"\n"] {
        for pool in ["", "POOL_A_"] {
            for variable in ALL.iter().filter(|variable| variable.kind == Kind::Secret) {
                let name = variable.name.replacen("PICUS_", &format!("PICUS_{pool}"), 1);
                let file = format!("{name}_FILE");
                for more in [
                    vec![(name.as_str(), wrong)],
                    vec![(file.as_str(), wrong), (variable.name, "")],
                    vec![(name.as_str(), wrong), (file.as_str(), wrong)],
                ] {
                    let told = problems(&[&[("PICUS_POOLS", "a")], more.as_slice()].concat());
                    assert!(!told.contains(MARK), "{told}");
                }
            }
        }
    }
    for (name, value) in [
        ("PICUS_HCLOUD_TOKN", "hunter2"),
        ("PICUS_HTTP_TOKEN", "hunter2"),
        ("PICUS_NOTIFY_SECRET", "hunter2"),
        ("PICUS_POOL_B_HCLOUD_TOKEN", "hunter2"),
        ("PICUS_POOL_A_WOODPECKER_TOKEN", "hunter2"),
        ("PICUS_AGENT_WOODPECKER_DEPLOY_KEY", "hunter2\n"),
        ("PICUS_AGENT_WOODPECKER_db_password", "hunter2"),
        ("PICUS_AGENT_WOODPECKER_DSN", "postgres://me:hunter2@db/x\n"),
        ("PICUS_WOODPECKER_SERVER", "https://me:hunter2@ci.example.org"),
        ("PICUS_WOODPECKER_SERVER", "https://me:hunter2@"),
        ("PICUS_WOODPECKER_SERVER", "me:hunter2@ci.example.org"),
        ("PICUS_WOODPECKER_SERVER", "ci.example.org?token=hunter2"),
        ("PICUS_HCLOUD_ENDPOINT", "https://x/#hunter2"),
        ("PICUS_AGENT_WOODPECKER_SERVER", "grpc://me:hunter2@ci.example.org:9000"),
    ] {
        let told = problems(&[("PICUS_POOLS", "a"), (name, value)]);
        assert!(!told.contains(MARK), "{told}");
    }
}

#[test]
fn every_secret_that_a_pool_can_have_replaces_both_forms_of_the_one_for_all() {
    use crate::settings::environment::GROUPS;
    for variable in ALL.iter().filter(|variable| variable.kind == Kind::Secret && variable.scope == Scope::Pool) {
        let file = format!("{}_FILE", variable.name);
        assert!(GROUPS.iter().any(|group| group.contains(&variable.name) && group.contains(&file.as_str())), "{file}");
    }
}

/// Names as they are, nearly as they are, and as nobody would write them.
fn name() -> impl Strategy<Value = String> {
    let known: Vec<&str> = ALL.iter().map(|variable| variable.name).collect();
    prop_oneof![
        proptest::sample::select(known.clone()).prop_map(|name| name.replace('*', "X")),
        (proptest::sample::select(known), "(POOL_|POOL_A_|POOL_B2_)?", "(_FILE|[A-Z])?")
            .prop_map(|(name, pool, end)| format!("{}{end}", name.replacen("PICUS_", &format!("PICUS_{pool}"), 1))),
        "PICUS_(POOL_|SERVICE_|PORT_)?[A-Za-z0-9_]{0,20}",
        "(?s)(PICUS_)?.{0,20}",
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9]{1,4}(,[a-z0-9]{1,4}){0,3}",
        "[0-9.]{1,30}(h|m|s|ms)?",
        "(https?://)?[a-z0-9@:/?#\\[\\].]{0,20}",
        "(?s).{0,30}",
    ]
}

proptest! {
    #[test]
    fn no_environment_makes_it_panic_and_a_refusal_has_a_reason(
        least in any::<bool>(),
        vars in proptest::collection::vec((name(), value()), 0..12),
    ) {
        let base = LEAST.iter().filter(|_| least).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        if let Err(found) = Settings::from_vars(base.chain(vars)) {
            prop_assert!(!found.is_empty());
            for problem in found {
                prop_assert!(problem.variable.starts_with("PICUS_") && !problem.message.is_empty());
            }
        }
    }

    #[test]
    fn no_unknown_name_is_ignored(end in "[A-Z][A-Z_]{2,30}") {
        use crate::settings::registry::find;
        let name = format!("PICUS_{end}");
        prop_assume!(find(&name).is_none() && !crate::settings::kubernetes::sets(&name));
        let refused = read(&[(name.as_str(), "x")]);
        prop_assert!(refused.is_err_and(|found| found.iter().any(|problem| problem.variable == name)));
    }
}

#[test]
fn every_variable_is_read() {
    // A value that nothing accepts: what is not refused is not read.
    for variable in ALL.iter().filter(|variable| variable.availability == Availability::Here) {
        let name = variable.name.replace('*', "X");
        let mut vars = vec![(name.as_str(), "\u{1}")];
        if name.starts_with("PICUS_AWS_") {
            vars.splice(
                ..0,
                [("PICUS_PROVIDER_TYPE", "aws"), ("PICUS_AWS_INSTANCE_TYPE", "c7a.large"), ("PICUS_AWS_AMI", "ami-1")],
            );
        } else if name == "PICUS_WOODPECKER_AGENT_ID" {
            vars.splice(..0, [("PICUS_PROVIDER_TYPE", "aws"), ("PICUS_AWS_INSTANCE_ID", "i-1")]);
        }
        let told = problems(&vars);
        assert!(told.lines().any(|line| line.starts_with(&name)), "{name}: {told}");
    }
}
