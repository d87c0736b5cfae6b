//! What is said about settings that are wrong.

use insta::assert_snapshot;

use super::{LEAST, each, each_value, problems, settings};
use crate::settings::Settings;

fn without(missing: &[&str], more: &[(&str, &str)]) -> String {
    let vars = LEAST.iter().filter(|(name, _)| !missing.contains(name)).chain(more);
    let found = Settings::from_vars(vars.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let found = found.expect_err("something is missing");
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_must_be_set_is_listed_at_once_with_what_it_is() {
    let all: Vec<&str> = LEAST.iter().map(|(name, _)| *name).collect();
    assert_snapshot!(without(&all, &[]), @r"
PICUS_AGENT_WOODPECKER_SERVER: must be set: the Woodpecker server's gRPC address that instances reach, such as `ci.example.org:9000`
PICUS_HCLOUD_TOKEN: must be set (or `PICUS_HCLOUD_TOKEN_FILE`, a file that holds it): API token of the Hetzner Cloud project, with read and write access
PICUS_PROVIDER_TYPE: must be set: the cloud: `hcloud` or `aws`
PICUS_WOODPECKER_SERVER: must be set: base URL of the Woodpecker server, such as `https://ci.example.org`
PICUS_WOODPECKER_TOKEN: must be set (or `PICUS_WOODPECKER_TOKEN_FILE`, a file that holds it): personal token of an admin of the Woodpecker server
");
}

#[test]
fn an_empty_variable_is_not_set() {
    assert_snapshot!(problems(&[("PICUS_WOODPECKER_TOKEN", ""), ("PICUS_TYPING_ERROR", "")]), @r"PICUS_WOODPECKER_TOKEN: must be set (or `PICUS_WOODPECKER_TOKEN_FILE`, a file that holds it): personal token of an admin of the Woodpecker server");
}

#[test]
fn what_only_one_pool_lacks_is_said_of_that_pool() {
    let more = [("PICUS_POOLS", "amd64,arm64"), ("PICUS_POOL_AMD64_HCLOUD_TOKEN", "x")];
    assert_snapshot!(without(&["PICUS_HCLOUD_TOKEN"], &more), @r"PICUS_HCLOUD_TOKEN: must be set (or `PICUS_HCLOUD_TOKEN_FILE`, a file that holds it), or `PICUS_POOL_ARM64_HCLOUD_TOKEN` for the pool that lacks it: API token of the Hetzner Cloud project, with read and write access");
    assert_snapshot!(without(&["PICUS_HCLOUD_TOKEN"], &[("PICUS_POOLS", "amd64,arm64")]), @r"PICUS_HCLOUD_TOKEN: must be set (or `PICUS_HCLOUD_TOKEN_FILE`, a file that holds it): API token of the Hetzner Cloud project, with read and write access");
}

#[test]
fn many_problems_are_reported_together() {
    assert_snapshot!(problems(&[
        ("PICUS_WOODPECKER_SERVER", "ci.example.org"),
        ("PICUS_PROVIDER_TYPE", ""),
        ("PICUS_POLL_INTERVAL", "10"),
        ("PICUS_MAX_AGENTS", "many"),
        ("PICUS_MAX_AGENT", "3"),
        ("PICUS_NOTIFY_URL", "https://ntfy.example.org"),
        ("PICUS_POOLS", "amd64,arm64"),
        ("PICUS_POOL_ARM64_MIN_AGENTS", "-1"),
        ("PICUS_POOL_ARM64_HCLOUD_LABELS", "picus=mine"),
        ("PICUS_POOL_RISCV_MAX_AGENTS", "1"),
        ("PICUS_AGENT_WOODPECKER_FILTER_LABELS", "type"),
        ("PICUS_AGENT_WOODPECKER_HOSTNAME", "builder"),
        ("PICUS_DRY_RUN", "maybe"),
    ]), @r#"
PICUS_PROVIDER_TYPE: must be set: the cloud: `hcloud` or `aws`
PICUS_MAX_AGENT: is not a setting; the nearest that exists is `PICUS_MAX_AGENTS`
PICUS_NOTIFY_URL: this release sends no notifications yet: remove it
PICUS_POOL_RISCV_MAX_AGENTS: there is no pool `riscv`: `PICUS_POOLS` has `amd64,arm64`
PICUS_WOODPECKER_SERVER="ci.example.org": must be a URL that begins with `https://` or `http://`, such as `https://ci.example.org`
PICUS_POLL_INTERVAL="10": must be a duration from `1s` to `1h`, in hours, minutes and seconds such as `1h30m` or `90s`; `10` has no unit
PICUS_DRY_RUN="maybe": must be `true` or `false` (or `1`, `0`, `yes`, `no`, `on`, `off`)
PICUS_MAX_AGENTS="many": must be a whole number from 1 to 10000
PICUS_AGENT_WOODPECKER_FILTER_LABELS="type": must be a list such as `type=picus,zone=*,!gpu=true`; `type` has no value: the agent stops on it
PICUS_AGENT_WOODPECKER_HOSTNAME="builder": can't be set: every agent is named like its instance, or they could not be told apart; remove it
PICUS_POOL_ARM64_HCLOUD_LABELS="picus=mine": must be labels such as `team=ci,stage=`; `picus` is a label by which Picus knows its own instances: choose another key
PICUS_POOL_ARM64_MIN_AGENTS="-1": must be a whole number from 0 to 10000
"#);
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest() {
    assert_snapshot!(each(&[
        &[("PICUS_MAX_AGENT", "3")],
        &[("PICUS_HCLOUD_TOKN", "secret")],
        &[("PICUS_HCLOUD_TOKEN_FIL", "/run/secrets/x")],
        &[("PICUS_AGENT_WODPECKER_SERVER", "x")],
        &[("PICUS_max_agents", "3")],
        &[("PICUS_", "3")],
        &[("PICUS_HCLOUD_IMAGE_FILE", "/x")],
        &[("PICUS_METRICS_SERVICE_HOST", "10.0.0.7")],
    ]), @r"
PICUS_MAX_AGENT: is not a setting; the nearest that exists is `PICUS_MAX_AGENTS`
PICUS_HCLOUD_TOKN: is not a setting; the nearest that exists is `PICUS_HCLOUD_TOKEN`
PICUS_HCLOUD_TOKEN_FIL: is not a setting; the nearest that exists is `PICUS_HCLOUD_TOKEN_FILE`
PICUS_AGENT_WODPECKER_SERVER: is not a setting; the nearest that exists is `PICUS_AGENT_WOODPECKER_SERVER`
PICUS_max_agents: is not a setting; the nearest that exists is `PICUS_MAX_AGENTS`
PICUS_: is not a setting; the nearest that exists is `PICUS_ID`
PICUS_HCLOUD_IMAGE_FILE: only a secret can come from a file: set `PICUS_HCLOUD_IMAGE`
PICUS_METRICS_SERVICE_HOST: is not a setting; Kubernetes sets it for a Service named `picus-metrics`: rename the Service, or set `enableServiceLinks: false` in the pod's specification
");
}

#[test]
fn a_name_for_a_pool_must_name_a_pool_and_something_that_a_pool_has() {
    let pools = ("PICUS_POOLS", "amd64,arm64");
    assert_snapshot!(each(&[
        &[pools, ("PICUS_POOL_ARM64_MAX_AGENT", "3")],
        &[pools, ("PICUS_POOL_RISCV_MAX_AGENTS", "3")],
        &[pools, ("PICUS_POOL_arm64_MAX_AGENTS", "3")],
        &[pools, ("PICUS_POOL_MAX_AGENTS", "3")],
        &[pools, ("PICUS_POOL_ARM64_ID", "3")],
        &[pools, ("PICUS_POOL_ARM64_WOODPECKER_TOKEN", "x")],
        &[pools, ("PICUS_POOL_ARM64", "x")],
        &[pools, ("PICUS_POOL_ARM64_NOTIFY_URL", "x")],
        &[("PICUS_POOL_ARM64_MAX_AGENTS", "3")],
    ]), @r"
PICUS_POOL_ARM64_MAX_AGENT: is not a setting; the nearest that exists is `PICUS_POOL_ARM64_MAX_AGENTS`
PICUS_POOL_RISCV_MAX_AGENTS: there is no pool `riscv`: `PICUS_POOLS` has `amd64,arm64`
PICUS_POOL_arm64_MAX_AGENTS: must be written in capitals: `PICUS_POOL_ARM64_MAX_AGENTS`
PICUS_POOL_MAX_AGENTS: names no pool: `PICUS_MAX_AGENTS` holds for all pools, `PICUS_POOL_AMD64_MAX_AGENTS` for one named in `PICUS_POOLS`
PICUS_POOL_ARM64_ID: can't be set for one pool, because it holds for the whole installation: set `PICUS_ID`
PICUS_POOL_ARM64_WOODPECKER_TOKEN: can't be set for one pool, because it holds for the whole installation: set `PICUS_WOODPECKER_TOKEN`
PICUS_POOL_ARM64: is not a setting; `PICUS_POOL_ARM64_MAX_AGENTS` and the like are, for pool `arm64`
PICUS_POOL_ARM64_NOTIFY_URL: this release sends no notifications yet: remove it
PICUS_POOL_ARM64_MAX_AGENTS: there is no pool `arm64`, because `PICUS_POOLS` is not set
");
}

#[test]
fn what_this_release_does_not_have_is_never_ignored() {
    assert_snapshot!(each(&[
        &[("PICUS_PROVIDER_TYPE", "gcp")],
        &[("PICUS_PUBLIC_URL", "x")],
        &[("PICUS_INSTALL_STEPS", "x")],
        &[("PICUS_USER_DATA_TEMPLATE_FILE", "/x")],
        &[("PICUS_NOTIFY_URL", "https://x")],
    ]), @r#"
PICUS_PROVIDER_TYPE="gcp": must be `hcloud` (Hetzner Cloud) or `aws` (AWS EC2)
PICUS_PUBLIC_URL: this release takes no reports of instances yet: remove it
PICUS_INSTALL_STEPS: this release has no installer with steps yet: remove it
PICUS_USER_DATA_TEMPLATE_FILE: this release has no user data templates yet: remove it
PICUS_NOTIFY_URL: this release sends no notifications yet: remove it
"#);
}

#[test]
fn the_installation_is_a_label_that_fits_into_names() {
    let (long, longer) = ("a".repeat(47), "a".repeat(70));
    assert_snapshot!(each_value("PICUS_ID", &["a.b", "(", "My Pool", "-a", "a-", "ä", " ", &long, &longer]), @r#"
PICUS_ID="a.b": must be lower-case letters, digits and `-`, with a letter or digit at both ends, such as `picus` or `ci-2`
PICUS_ID="(": must be lower-case letters, digits and `-`, with a letter or digit at both ends, such as `picus` or `ci-2`
PICUS_ID="My Pool": must be lower-case letters, digits and `-`, with a letter or digit at both ends, such as `picus` or `ci-2`
PICUS_ID="-a": must be lower-case letters, digits and `-`, with a letter or digit at both ends, such as `picus` or `ci-2`
PICUS_ID="a-": must be lower-case letters, digits and `-`, with a letter or digit at both ends, such as `picus` or `ci-2`
PICUS_ID="ä": must be lower-case letters, digits and `-`, with a letter or digit at both ends, such as `picus` or `ci-2`
PICUS_ID=" ": has nothing but spaces: set a value, or leave it empty
PICUS_ID="aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": is too long: instances are named `<id>-<pool>-<8 letters>`, with `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa` and `default` that is 47 + 1 + 7 + 1 + 8 = 64 letters, and at most 63 are possible: use at most 46 letters
PICUS_ID="aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": is too long: instances are named `<id>-<pool>-<8 letters>`, with `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa` and `default` that is 70 + 1 + 7 + 1 + 8 = 87 letters, and at most 63 are possible: use at most 46 letters
"#);
    let pool = "x".repeat(60);
    assert_snapshot!(each(&[
        &[("PICUS_ID", "a"), ("PICUS_HCLOUD_ID", "b")],
        &[("PICUS_HCLOUD_ID", "A")],
        &[("PICUS_POOLS", &pool)],
        &[("PICUS_POOLS", &pool[..50])],
    ]), @r#"
PICUS_HCLOUD_ID="b": means the same as `PICUS_ID`, which has another value: remove one of the two
PICUS_HCLOUD_ID="A": must be lower-case letters, digits and `-`, with a letter or digit at both ends, such as `picus` or `ci-2`
PICUS_POOLS: the pool's name is too long: instances are named `<id>-<pool>-<8 letters>`, with `picus` and `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` that is 5 + 1 + 60 + 1 + 8 = 75 letters, and at most 63 are possible: use at most 48 letters
PICUS_POOLS: the pool's name is too long: instances are named `<id>-<pool>-<8 letters>`, with `picus` and `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` that is 5 + 1 + 50 + 1 + 8 = 65 letters, and at most 63 are possible: use at most 48 letters
"#);
}

#[test]
fn pools_have_names_of_letters_and_digits() {
    assert_snapshot!(each_value("PICUS_POOLS", &["ARM64", "arm-64", "a,,b", ",", "a,b,a", "Ä", "\"a\""]), @r#"
PICUS_POOLS="ARM64": must be names of lower-case letters and digits, separated by commas; write `arm64` instead of `ARM64`
PICUS_POOLS="arm-64": must be names of lower-case letters and digits, separated by commas; `arm-64` has something else in it
PICUS_POOLS="a,,b": must be names of lower-case letters and digits, separated by commas; there is an empty entry
PICUS_POOLS=",": must be names of lower-case letters and digits, separated by commas; there is an empty entry
PICUS_POOLS="a,b,a": must be names of lower-case letters and digits, separated by commas; `a` is there twice
PICUS_POOLS="Ä": must be names of lower-case letters and digits, separated by commas; `Ä` has something else in it
PICUS_POOLS="\"a\"": must be names of lower-case letters and digits, separated by commas; `"a"` has something else in it (the quotes are part of the value: remove them)
"#);
    // What follows from a wrong name is not reported on top.
    let more = [("PICUS_POOLS", "ARM64,x-y"), ("PICUS_POOL_ARM64_MAX_AGENTS", "2"), ("PICUS_POOL_X_Y_MAX_AGENTS", "2")];
    assert_snapshot!(problems(&more), @r#"
PICUS_POOLS="ARM64,x-y": must be names of lower-case letters and digits, separated by commas; write `arm64` instead of `ARM64`
PICUS_POOLS="ARM64,x-y": must be names of lower-case letters and digits, separated by commas; `x-y` has something else in it
"#);
    // What is set for all pools is checked all the same.
    assert_snapshot!(problems(&[("PICUS_POOLS", "x-y"), ("PICUS_MAX_AGENTS", "many")]), @r#"
PICUS_POOLS="x-y": must be names of lower-case letters and digits, separated by commas; `x-y` has something else in it
PICUS_MAX_AGENTS="many": must be a whole number from 1 to 10000
"#);
}

#[test]
fn numbers_have_bounds_and_the_minimum_is_not_above_the_maximum() {
    assert_snapshot!(each(&[
        &[("PICUS_MAX_AGENTS", "0")],
        &[("PICUS_MAX_AGENTS", "10001")],
        &[("PICUS_MAX_AGENTS", "99999999999999999999")],
        &[("PICUS_MAX_AGENTS", "1.5")],
        &[("PICUS_MAX_AGENTS", "'5'")],
        &[("PICUS_MIN_AGENTS", "-1")],
        &[("PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS", "0")],
        &[("PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS", "1001")],
        &[("PICUS_MIN_AGENTS", "2")],
        &[("PICUS_MIN_AGENTS", "5"), ("PICUS_MAX_AGENTS", "4")],
        &[("PICUS_MIN_AGENTS", "5"), ("PICUS_MAX_AGENTS", "6"), ("PICUS_POOLS", "a,b"), ("PICUS_POOL_A_MAX_AGENTS", "4")],
        &[("PICUS_MAX_AGENTS", "6"), ("PICUS_POOLS", "a,b"), ("PICUS_POOL_A_MIN_AGENTS", "7")],
    ]), @r#"
PICUS_MAX_AGENTS="0": must be a whole number from 1 to 10000
PICUS_MAX_AGENTS="10001": must be a whole number from 1 to 10000
PICUS_MAX_AGENTS="99999999999999999999": must be a whole number from 1 to 10000
PICUS_MAX_AGENTS="1.5": must be a whole number from 1 to 10000
PICUS_MAX_AGENTS="'5'": must be a whole number from 1 to 10000 (the quotes are part of the value: remove them)
PICUS_MIN_AGENTS="-1": must be a whole number from 0 to 10000
PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS="0": must be a whole number from 1 to 1000
PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS="1001": must be a whole number from 1 to 1000
PICUS_MIN_AGENTS="2": must be at most 1, which is `PICUS_MAX_AGENTS`, or raise that
PICUS_MIN_AGENTS="5": must be at most 4, which is `PICUS_MAX_AGENTS`, or raise that
PICUS_POOL_A_MAX_AGENTS="4": must be at least 5, which is `PICUS_MIN_AGENTS`, or lower that for this pool
PICUS_POOL_A_MIN_AGENTS="7": must be at most 6, which is `PICUS_MAX_AGENTS`, or raise that
"#);
}

#[test]
fn a_value_for_all_pools_is_refused_once_and_a_pools_own_by_its_name() {
    assert_snapshot!(problems(&[
        ("PICUS_POOLS", "a,b,c"),
        ("PICUS_BOOT_TIMEOUT", "never"),
        ("PICUS_POOL_B_BOOT_TIMEOUT", "1d"),
    ]), @r#"
PICUS_BOOT_TIMEOUT="never": must be a duration from `1m` to `2h`, in hours, minutes and seconds such as `1h30m` or `90s`; a number and a unit are needed
PICUS_POOL_B_BOOT_TIMEOUT="1d": must be a duration from `1m` to `2h`, in hours, minutes and seconds such as `1h30m` or `90s`; `d` is not a unit
"#);
}

#[test]
fn durations_are_gos_and_have_bounds() {
    assert_snapshot!(each(&[
        &[("PICUS_POLL_INTERVAL", "10")],
        &[("PICUS_POLL_INTERVAL", "500ms")],
        &[("PICUS_POLL_INTERVAL", "1d")],
        &[("PICUS_MAX_IDLE_TIME", "59s")],
        &[("PICUS_MAX_IDLE_TIME", "-5m")],
        &[("PICUS_BILLING_PERIOD", "5m")],
        &[("PICUS_BILLING_PERIOD", "soon")],
        &[("PICUS_BOOT_TIMEOUT", "300000000h")],
    ]), @r#"
PICUS_POLL_INTERVAL="10": must be a duration from `1s` to `1h`, in hours, minutes and seconds such as `1h30m` or `90s`; `10` has no unit
PICUS_POLL_INTERVAL="500ms": must be a duration from `1s` to `1h`, in hours, minutes and seconds such as `1h30m` or `90s`; more often the server would do little else, more rarely no task would be served in time
PICUS_POLL_INTERVAL="1d": must be a duration from `1s` to `1h`, in hours, minutes and seconds such as `1h30m` or `90s`; `d` is not a unit
PICUS_MAX_IDLE_TIME="59s": must be a duration from `1m` to `672h`, in hours, minutes and seconds such as `1h30m` or `90s`; the server notes an agent's last work only by the minute, and four weeks are as good as for ever
PICUS_MAX_IDLE_TIME="-5m": must be a duration from `1m` to `672h`, in hours, minutes and seconds such as `1h30m` or `90s`; it can't be negative
PICUS_BILLING_PERIOD="5m": must be `0s` (billed by the second) or a duration from `10m` to `24h`, in hours, minutes and seconds such as `1h30m` or `90s`; an idle agent is retired in the last minutes of a period
PICUS_BILLING_PERIOD="soon": must be `0s` (billed by the second) or a duration from `10m` to `24h`, in hours, minutes and seconds such as `1h30m` or `90s`; a number and a unit are needed
PICUS_BOOT_TIMEOUT="300000000h": must be a duration from `1m` to `2h`, in hours, minutes and seconds such as `1h30m` or `90s`; it is too long
"#);
}

#[test]
fn addresses_are_refused_with_the_right_form() {
    assert_snapshot!(each_value("PICUS_WOODPECKER_SERVER", &[
        "ci.example.org",
        "ci.example.org:8000",
        "ftp://ci.example.org",
        "https://",
        "https://ci.example.org:99999",
        "https://admin:hunter2@ci.example.org",
        "https://ci.example.org/?access_token=hunter2",
        "https://ci.\nexample.org",
    ]), @r#"
PICUS_WOODPECKER_SERVER="ci.example.org": must be a URL that begins with `https://` or `http://`, such as `https://ci.example.org`
PICUS_WOODPECKER_SERVER="ci.example.org:8000": must be a URL that begins with `https://` or `http://`, such as `https://ci.example.org`
PICUS_WOODPECKER_SERVER="ftp://ci.example.org": must be a URL that begins with `https://` or `http://`, such as `https://ci.example.org`
PICUS_WOODPECKER_SERVER="https://": must be a URL that begins with `https://` or `http://`, such as `https://ci.example.org`; empty host
PICUS_WOODPECKER_SERVER="https://ci.example.org:99999": must be a URL that begins with `https://` or `http://`, such as `https://ci.example.org`; invalid port number
PICUS_WOODPECKER_SERVER="https://…@ci.example.org": must be a URL without user name and password: the token is a setting of its own
PICUS_WOODPECKER_SERVER="https://ci.example.org/?…": must be a URL without `?` and `#`
PICUS_WOODPECKER_SERVER="https://ci.\nexample.org": has a line break as its character 12: it must be one line of text
"#);
    assert_snapshot!(problems(&[("PICUS_HCLOUD_ENDPOINT", "api.hetzner.cloud")]), @r#"PICUS_HCLOUD_ENDPOINT="api.hetzner.cloud": must be a URL that begins with `https://` or `http://`, such as `https://api.hetzner.cloud/v1`"#);
    assert_snapshot!(each_value("PICUS_AGENT_WOODPECKER_SERVER", &["https://ci.example.org", "ci.example.org"]), @r#"
PICUS_AGENT_WOODPECKER_SERVER="https://ci.example.org": must be the gRPC address as `host:port`, without a scheme or path, such as `ci.example.org:443` (and `PICUS_AGENT_WOODPECKER_GRPC_SECURE=true` for TLS)
PICUS_AGENT_WOODPECKER_SERVER="ci.example.org": must be the gRPC address as `host:port`, without a scheme or path, such as `ci.example.org:9000`
"#);
}

#[test]
fn agents_get_only_what_an_agent_can_read() {
    assert_snapshot!(each(&[
        &[("PICUS_AGENT_WOODPECKER_HOSTNAME", "builder")],
        &[("PICUS_AGENT_WOODPECKER_MAX_PROCS", "2")],
        &[("PICUS_AGENT_WOODPECKER_log_level", "debug")],
        &[("PICUS_AGENT_WOODPECKER_LOG_LEVEL", "de\nbug")],
        &[("PICUS_AGENT_WOODPECKER_REGISTRY_PASSWORD", "hunter2\n")],
        &[("PICUS_AGENT_WOODPECKER_PROXY", "http://me:hunter2@proxy\u{7}")],
        &[("PICUS_AGENT_WOODPECKER_AGENT_SINGLE_WORKFLOW", "perhaps")],
        &[("PICUS_AGENT_IMAGE", "my agent")],
        &[("PICUS_POOLS", "a"), ("PICUS_POOL_A_AGENT_WOODPECKER_HOSTNAME", "builder")],
    ]), @r#"
PICUS_AGENT_WOODPECKER_HOSTNAME="builder": can't be set: every agent is named like its instance, or they could not be told apart; remove it
PICUS_AGENT_WOODPECKER_MAX_PROCS="2": is an old name: set `PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS`
PICUS_AGENT_WOODPECKER_log_level: what is passed to the agent has a name of capitals, digits and `_`; is `PICUS_AGENT_WOODPECKER_LOG_LEVEL` meant?
PICUS_AGENT_WOODPECKER_LOG_LEVEL="de\nbug": has a line break as its character 3: it must be one line of text
PICUS_AGENT_WOODPECKER_REGISTRY_PASSWORD: has a line break as its character 8: it must be one line of text
PICUS_AGENT_WOODPECKER_PROXY="http://…@proxy\u{7}": has a control character as its character 24: it must be one line of text
PICUS_AGENT_WOODPECKER_AGENT_SINGLE_WORKFLOW="perhaps": must be `true` or `false` (or `1`, `0`, `yes`, `no`, `on`, `off`)
PICUS_AGENT_IMAGE="my agent": must be the name of an image, such as `woodpeckerci/woodpecker-agent:v3.17.0`
PICUS_POOL_A_AGENT_WOODPECKER_HOSTNAME="builder": can't be set: every agent is named like its instance, or they could not be told apart; remove it
"#);
}

#[test]
fn labels_that_would_stop_the_agent_are_named() {
    assert_snapshot!(each_value("PICUS_AGENT_WOODPECKER_FILTER_LABELS", &["a", "x=y,a=", "=b", "!", "!=x", "a=b\nc=d"]), @r#"
PICUS_AGENT_WOODPECKER_FILTER_LABELS="a": must be a list such as `type=picus,zone=*,!gpu=true`; `a` has no value: the agent stops on it
PICUS_AGENT_WOODPECKER_FILTER_LABELS="x=y,a=": must be a list such as `type=picus,zone=*,!gpu=true`; `a=` has no value: the agent stops on it
PICUS_AGENT_WOODPECKER_FILTER_LABELS="=b": must be a list such as `type=picus,zone=*,!gpu=true`; `=b` has no key: the agent stops on it
PICUS_AGENT_WOODPECKER_FILTER_LABELS="!": must be a list such as `type=picus,zone=*,!gpu=true`; `!` has no value: the agent stops on it
PICUS_AGENT_WOODPECKER_FILTER_LABELS="!=x": must be a list such as `type=picus,zone=*,!gpu=true`; `!=x` asks for a label without a name: an agent with it is never given a task
PICUS_AGENT_WOODPECKER_FILTER_LABELS="a=b\nc=d": has a line break as its character 4: it must be one line of text
"#);
    assert_snapshot!(problems(&[("PICUS_AGENT_WOODPECKER_AGENT_LABELS", "a")]), @r#"PICUS_AGENT_WOODPECKER_AGENT_LABELS="a": must be a list such as `type=picus,zone=*,!gpu=true`; `a` has no value: the agent stops on it"#);
}

#[test]
fn launch_settings_are_checked_as_far_as_they_can_be_without_asking() {
    assert_snapshot!(each(&[
        &[("PICUS_HCLOUD_SERVER_TYPE", "cx23,cpx32@fsn1")],
        &[("PICUS_HCLOUD_SERVER_TYPE", "cx23:")],
        &[("PICUS_HCLOUD_SERVER_TYPE", ",")],
        &[("PICUS_HCLOUD_LOCATION", "nbg1;fsn1")],
        &[("PICUS_HCLOUD_LABELS", "team")],
        &[("PICUS_HCLOUD_LABELS", "a=b,a=c")],
        &[("PICUS_HCLOUD_LABELS", "-a=b")],
        &[("PICUS_HCLOUD_LABELS", "a=linux/amd64")],
        &[("PICUS_HCLOUD_LABELS", "a b/c=d")],
        &[("PICUS_HCLOUD_LABELS", "a=b,picus-pool=x")],
        &[("PICUS_HCLOUD_PUBLIC_IPV4", "none")],
        &[("PICUS_HCLOUD_PUBLIC_IPV4", "off"), ("PICUS_HCLOUD_PUBLIC_IPV6", "no")],
        &[("PICUS_HCLOUD_IMAGE", "a\tb\rc")],
    ]), @r#"
PICUS_HCLOUD_SERVER_TYPE="cx23,cpx32@fsn1": must be server types separated by commas, each alone or with its location, such as `cx23,cpx32:fsn1`; `cpx32@fsn1` is neither
PICUS_HCLOUD_SERVER_TYPE="cx23:": must be server types separated by commas, each alone or with its location, such as `cx23,cpx32:fsn1`; `cx23:` is neither
PICUS_HCLOUD_SERVER_TYPE=",": has no entry: it must be a list separated by commas
PICUS_HCLOUD_LOCATION="nbg1;fsn1": must be locations separated by commas, such as `nbg1,fsn1`; `nbg1;fsn1` is none
PICUS_HCLOUD_LABELS="team": must be labels such as `team=ci,stage=`; `team` has no `=`
PICUS_HCLOUD_LABELS="a=b,a=c": must be labels such as `team=ci,stage=`; `a` is there twice
PICUS_HCLOUD_LABELS="-a=b": must be labels such as `team=ci,stage=`; the key `-a` must have at most 63 letters, digits, `.`, `_` and `-`, with a letter or digit at both ends
PICUS_HCLOUD_LABELS="a=linux/amd64": must be labels such as `team=ci,stage=`; the value `linux/amd64` must have at most 63 letters, digits, `.`, `_` and `-`, with a letter or digit at both ends, or be empty
PICUS_HCLOUD_LABELS="a b/c=d": must be labels such as `team=ci,stage=`; `a b` before the slash is no domain name
PICUS_HCLOUD_LABELS="a=b,picus-pool=x": must be labels such as `team=ci,stage=`; `picus-pool` is a label by which Picus knows its own instances: choose another key
PICUS_HCLOUD_PUBLIC_IPV4="none": must be `true` or `false` (or `1`, `0`, `yes`, `no`, `on`, `off`)
PICUS_HCLOUD_PUBLIC_IPV6="no": leaves instances without any network, because PICUS_HCLOUD_PUBLIC_IPV4 is off too: switch one of them on, or set `PICUS_HCLOUD_NETWORKS`
PICUS_HCLOUD_IMAGE="a\tb\rc": has a line break as its character 4: it must be one line of text
"#);
}

#[test]
fn log_settings_are_checked() {
    assert_snapshot!(each(&[
        &[("PICUS_LOG", "picus=loud")],
        &[("PICUS_LOG_FORMAT", "xml")],
        &[("PICUS_DRY_RUN", "maybe")],
    ]), @r#"
PICUS_LOG="picus=loud": must be a level (`error`, `warn`, `info`, `debug`, `trace`), or levels by module such as `warn,picus=debug`; error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5
PICUS_LOG_FORMAT="xml": must be `text` or `json`
PICUS_DRY_RUN="maybe": must be `true` or `false` (or `1`, `0`, `yes`, `no`, `on`, `off`)
"#);
}

#[test]
fn launch_settings_for_ec2_are_checked_as_far_as_they_can_be_without_asking() {
    let aws = ("PICUS_PROVIDER_TYPE", "aws");
    let types = ("PICUS_AWS_INSTANCE_TYPE", "c7a.large");
    let image = ("PICUS_AWS_AMI", "ami-1");
    let fixed = ("PICUS_AWS_INSTANCE_ID", "i-01,i-02");
    assert_snapshot!(each(&[
        &[aws],
        &[aws, fixed, types],
        &[aws, fixed, ("PICUS_WOODPECKER_AGENT_ID", "5")],
        &[aws, fixed, ("PICUS_WOODPECKER_AGENT_ID", "5,x")],
        &[aws, ("PICUS_AWS_INSTANCE_ID", "build7")],
        &[aws, types, ("PICUS_AWS_AMI", "ubuntu")],
        &[aws, image, ("PICUS_AWS_INSTANCE_TYPE", "large")],
        &[aws, types, image, ("PICUS_AWS_SUBNETS", "vpc-1")],
        &[aws, types, image, ("PICUS_AWS_SPOT", "maybe")],
        &[aws, types, image, ("PICUS_AWS_SPOT", "only"), ("PICUS_AWS_RETIRE", "stop")],
        &[aws, types, image, ("PICUS_AWS_STOPPED_MAX_AGE", "24h")],
        &[aws, types, image, ("PICUS_AWS_TAGS", "aws:x=1")],
        &[aws, types, image, ("PICUS_AWS_TAGS", "picus=1")],
        &[aws, types, image, ("PICUS_AWS_LAUNCH_TEMPLATE", "ci:newest")],
        &[aws, types, image, ("PICUS_AWS_HOURLY_PRICE", "cheap")],
        &[aws, types, image, ("PICUS_AWS_VOLUME_SIZE", "0")],
        &[aws, types, image, ("AWS_ACCESS_KEY_ID", "AKIA")],
        &[aws, types, image, ("AWS_SECRET_ACCESS_KEY", "not-shown")],
        &[aws, types, image, ("PICUS_AWS_AMY", "x")],
    ]), @r#"
    PICUS_AWS_AMI: must be set: image of the instances: an id, an alias (`resolve:ssm:/aws/service/…`), or the newest of an owner and a name (`self/ci-*`)
    PICUS_AWS_INSTANCE_TYPE: must be set: instance types in order of preference: `c7a.large,m7a.large`
    PICUS_AWS_INSTANCE_TYPE: has no effect with `PICUS_AWS_INSTANCE_ID`, whose machines are only started and stopped: remove one
    PICUS_WOODPECKER_AGENT_ID="5": must have one agent for each machine in `PICUS_AWS_INSTANCE_ID`, in the same order: 2 instead of 1
    PICUS_WOODPECKER_AGENT_ID="5,x": must be ids of agents, such as `5,7`
    PICUS_AWS_INSTANCE_ID="build7": must be ids such as `i-0123456789abcdef0`, separated by commas; `build7` is none
    PICUS_AWS_AMI="ubuntu": must be an id (`ami-0123456789abcdef0`), an alias (`resolve:ssm:/aws/service/…`), or an owner and a name (`self/ci-*`, `amazon/al2023-ami-2023*`; owner `self`, `amazon`, `aws-marketplace` or an account's number)
    PICUS_AWS_INSTANCE_TYPE="large": must be instance types such as `c7a.large,m7a.large`; `large` is none
    PICUS_AWS_SUBNETS="vpc-1": must be ids such as `subnet-0123456789abcdef0`, separated by commas; `vpc-1` is none
    PICUS_AWS_SPOT="maybe": must be `never`, `prefer` (on demand where there is no spot) or `only`
    PICUS_AWS_RETIRE="stop": spot instances can't be stopped: remove it, or `PICUS_AWS_SPOT`
    PICUS_AWS_STOPPED_MAX_AGE="24h": has no effect without `PICUS_AWS_RETIRE=stop`: remove it
    PICUS_AWS_TAGS="aws:x=1": must be tags such as `team=ci,cost-centre=42`; `aws:x` is one of AWS's own
    PICUS_AWS_TAGS="picus=1": must be tags such as `team=ci,cost-centre=42`; `picus` is one of Picus's own
    PICUS_AWS_LAUNCH_TEMPLATE="ci:newest": must be the id or name of a launch template, with a version if not the default one: `lt-0123:3`, `ci:$Latest`
    PICUS_AWS_HOURLY_PRICE="cheap": must be the price of an hour, such as `0.0416`
    PICUS_AWS_VOLUME_SIZE="0": must be a whole number from 1 to 16384
    AWS_SECRET_ACCESS_KEY: must be set, because `AWS_ACCESS_KEY_ID` is: a key has both parts, or neither
    AWS_ACCESS_KEY_ID: must be set, because `AWS_SECRET_ACCESS_KEY` is: a key has both parts, or neither
    PICUS_AWS_AMY: is not a setting; the nearest that exists is `PICUS_AWS_AMI`
    "#);
}

#[test]
fn an_address_and_a_token_of_the_status_page_that_can_not_be() {
    for good in ["off", "OFF", "0.0.0.0:8080", "[::]:8080", ":8080", "localhost:0"] {
        let http = settings(&[("PICUS_HTTP_ADDR", good)]).http;
        assert_eq!(http.address.is_none(), good.eq_ignore_ascii_case("off"), "{good}");
    }
    assert_eq!(settings(&[]).http.address.map(|address| address.to_string()).as_deref(), Some("127.0.0.1:8080"));
    for bad in ["8080", "localhost", "picus.example.org:8080", "0.0.0.0:99999", "http://0.0.0.0:8080"] {
        let told = problems(&[("PICUS_HTTP_ADDR", bad)]);
        assert!(told.starts_with(&format!("PICUS_HTTP_ADDR={bad:?}")) && told.contains("`0.0.0.0:8080`"), "{told}");
    }
    let told = problems(&[("PICUS_HTTP_TOKEN", "too-short")]);
    assert!(told.contains("16 letters") && !told.contains("too-short"), "{told}");
    assert!(settings(&[("PICUS_HTTP_TOKEN", "0123456789abcdef")]).http.token.is_some());
}
