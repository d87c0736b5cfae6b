use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use proptest::prelude::*;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tempfile::TempDir;

use super::*;
use crate::model::labels::Labels;
use crate::model::pool::{AccountId, Billing};
use crate::settings::{HetznerSettings, LaunchSettings};

/// Values that break a boot where they are pasted instead of serialised.
const VALUES: [&str; 28] = [
    "a: b",
    "x #y",
    "#x",
    "k=v==",
    "\"quoted\"",
    "'quoted'",
    "it's",
    "$HOME",
    "${HOME:-x}",
    "`id`",
    "$(id)",
    "🦀 é ß 漢",
    "back\\slash\\n",
    "  before",
    "after  ",
    "\tbefore and after\t",
    "|",
    ">-",
    "100%",
    "{{ ds.meta_data }}",
    "{% if x %}",
    "- a",
    "&a *a !a",
    "yes",
    "0123",
    "next\u{85}line",
    "line\u{2028}separator\u{feff}",
    "bell\u{7} return\r",
];

fn agent(environment: &[(&str, &str)]) -> AgentSettings {
    AgentSettings {
        image: None,
        server: "ci.example:9000".to_owned(),
        labels: Labels::default(),
        slots: 2,
        backend: "docker".to_owned(),
        shared_secret: None,
        environment: environment.iter().map(|(key, value)| ((*key).to_owned(), SecretString::from(*value))).collect(),
    }
}

fn pool(agent: AgentSettings) -> PoolSettings {
    PoolSettings {
        name: "default".into(),
        account: AccountId(0),
        min: 0,
        max: 1,
        idle_timeout: Duration::from_mins(30),
        billing: Billing::BySecond,
        boot_timeout: Duration::from_mins(10),
        agent,
        launch: LaunchSettings::Hetzner(HetznerSettings {
            prefix: "PICUS_HCLOUD_".to_owned(),
            server_types: Vec::new(),
            locations: Vec::new(),
            image: "docker-ce".to_owned(),
            ssh_keys: Vec::new(),
            networks: Vec::new(),
            firewalls: Vec::new(),
            placement_group: None,
            labels: Vec::new(),
            public_ipv4: true,
            public_ipv6: true,
        }),
    }
}

fn name() -> LaunchName {
    LaunchName::new(&"picus".into(), &"default".into(), 7)
}

fn made(agent: &AgentSettings, image: &str) -> String {
    user_data(agent, image, &name(), &SecretString::from("the-token")).expose_secret().to_owned()
}

fn numbered(values: &[&str]) -> Vec<(String, String)> {
    values.iter().enumerate().map(|(index, value)| (format!("WOODPECKER_V{index}"), (*value).to_owned())).collect()
}

fn agent_with(values: &[(String, String)]) -> AgentSettings {
    agent(&values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>())
}

#[derive(Deserialize)]
struct ReadBack {
    write_files: Vec<FileReadBack>,
    runcmd: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct FileReadBack {
    path: String,
    owner: String,
    permissions: String,
    content: String,
}

/// The files by path, as a reader of YAML 1.2 sees them.
fn files(user_data: &str) -> BTreeMap<String, String> {
    let read: ReadBack = serde_saphyr::from_str(user_data).unwrap();
    assert_eq!(read.runcmd, [["/bin/sh", SCRIPT_PATH]]);
    read.write_files
        .into_iter()
        .map(|file| {
            assert_eq!(file.owner, "root:root");
            (file.path, file.content)
        })
        .collect()
}

/// The lines of the agent's environment.
fn environment_of(user_data: &str) -> Vec<String> {
    files(user_data)[ENVIRONMENT_PATH].split_terminator('\n').map(str::to_owned).collect()
}

/// Whether `program` can be run here. On CI it has to be.
fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{program} is not installed");
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn every_value_arrives_unchanged() {
    for value in VALUES {
        let made = made(&agent(&[("WOODPECKER_V", value)]), "image");
        assert!(environment_of(&made).contains(&format!("WOODPECKER_V={value}")), "{value:?}:\n{made}");
    }
}

proptest! {
    #[test]
    fn any_value_without_a_line_break_arrives_unchanged(values in proptest::collection::vec("[^\n\0]{0,60}", 1..6)) {
        let values = numbered(&values.iter().map(String::as_str).collect::<Vec<_>>());
        let environment = environment_of(&made(&agent_with(&values), "image"));
        for (key, value) in values {
            prop_assert!(environment.contains(&format!("{key}={value}")), "{value:?}");
        }
    }
}

#[test]
fn the_agent_is_given_what_picus_relies_on_whatever_the_raw_variables_say() {
    let mut agent = agent(&[("WOODPECKER_SERVER", "https://ci.example"), ("WOODPECKER_LOG_LEVEL", "debug")]);
    agent.labels = Labels::parse_list("type=picus,zone=*").unwrap();
    assert_eq!(
        environment_of(&made(&agent, "image")),
        [
            "WOODPECKER_AGENT_LABELS=type=picus,zone=*".to_owned(),
            "WOODPECKER_AGENT_SECRET=the-token".to_owned(),
            "WOODPECKER_BACKEND=docker".to_owned(),
            format!("WOODPECKER_HOSTNAME={}", name()),
            "WOODPECKER_LOG_LEVEL=debug".to_owned(),
            "WOODPECKER_MAX_WORKFLOWS=2".to_owned(),
            "WOODPECKER_SERVER=ci.example:9000".to_owned(),
        ]
    );
}

#[test]
fn labels_are_set_once_under_the_name_that_was_used() {
    let mut agent = agent(&[("WOODPECKER_FILTER_LABELS", "type=picus")]);
    agent.labels = Labels::parse_list("type=picus").unwrap();
    let environment = environment_of(&made(&agent, "image"));
    assert_eq!(environment.iter().filter(|line| line.contains("LABELS")).count(), 1, "{environment:?}");
}

#[test]
fn only_root_can_read_the_secret() {
    let read: ReadBack = serde_saphyr::from_str(&made(&agent(&[]), "image")).unwrap();
    for file in read.write_files {
        if file.content.contains("the-token") {
            assert_eq!((file.path.as_str(), file.permissions.as_str()), (ENVIRONMENT_PATH, "0600"));
        }
    }
    assert!(!SCRIPT.contains("set -x"));
}

#[test]
fn the_largest_user_data_that_the_provider_takes_is_accepted_and_a_byte_more_is_not() {
    let installation = InstallationId::from("picus");
    let with_value = |length: usize| {
        let mut agent = agent(&[("WOODPECKER_BIG", &"x".repeat(length))]);
        agent.image = Some("image".to_owned());
        agent.shared_secret = Some(SecretString::from("the-token"));
        agent
    };
    let rest = made(&with_value(1), "image").len() - 1;
    let fits = with_value(32_768 - rest);
    assert_eq!(made(&fits, "image").len(), 32_768);
    assert_eq!(check_size(&pool(fits), &installation, 32_768, str::len), Ok(()));

    let problem = check_size(&pool(with_value(32_769 - rest)), &installation, 32_768, str::len).unwrap_err();
    let text = problem.to_string();
    for part in ["32769", "32768", "PICUS_AGENT_WOODPECKER_BIG"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("xxx") && !text.contains("the-token"), "{text}");
}

#[test]
fn a_token_and_an_image_that_are_not_known_yet_are_counted() {
    let pool = pool(agent(&[]));
    let real = made(&pool.agent, &format!("woodpeckerci/woodpecker-agent:v{}", "3".repeat(30))).len();
    assert!(check_size(&pool, &"picus".into(), real, str::len).is_err());
    assert_eq!(check_size(&pool, &"picus".into(), 32_768, str::len), Ok(()));
}

#[test]
fn what_no_shell_can_hand_on_is_a_problem_without_the_value() {
    for (key, value) in [("WOODPECKER_A-B", "hidden"), ("WOODPECKER_A B", "hidden"), ("WOODPECKER_A", "hid\nden")] {
        let problem = check_size(&pool(agent(&[(key, value)])), &"picus".into(), 32_768, str::len).unwrap_err();
        assert_eq!(problem.variable, format!("PICUS_AGENT_{key}"));
        assert!(!problem.to_string().contains("hid"), "{problem}");
    }
}

#[test]
fn cloud_init_accepts_it_and_reads_the_same_values() {
    const READ: &str = "
import json, sys
from cloudinit import util
def files(path):
    return {file['path']: file['content'] for file in util.load_yaml(open(path, 'rb').read())['write_files']}
print(json.dumps([files(path) for path in sys.argv[1:]]))
";
    if !installed("cloud-init") {
        return;
    }
    let directory = TempDir::new().unwrap();
    // Each value alone, and each letter that some reader of YAML treats in its own way, so that none hides behind
    // another's quotes; then all together.
    let odd =
        ('\u{1}'..='\u{a0}').chain("\u{ad}\u{2028}\u{2029}\u{200e}\u{e000}\u{feff}\u{fffd}\u{fffe}\u{10ffff}".chars());
    let odd: Vec<String> = odd.filter(|letter| *letter != '\n').map(|letter| format!("a{letter}b{letter}")).collect();
    let alone = VALUES.into_iter().chain(odd.iter().map(String::as_str));
    let mut sets: Vec<Vec<(String, String)>> = alone.map(|value| numbered(&[value])).collect();
    let readable = numbered(&VALUES[..VALUES.len() - 3]);
    sets.extend([readable.clone(), numbered(&VALUES)]);
    let mut paths = Vec::new();
    for (index, values) in sets.iter().enumerate() {
        paths.push(directory.path().join(index.to_string()));
        std::fs::write(&paths[index], made(&agent_with(values), "woodpeckerci/woodpecker-agent:v3.17.0")).unwrap();
    }
    for path in &paths[sets.len() - 2..] {
        let schema = Command::new("cloud-init").args(["schema", "--config-file"]).arg(path).output().unwrap();
        assert!(schema.status.success(), "{}", text(&schema));
    }
    // Debian's own Python is the one that has cloud-init's modules.
    let read = Command::new("/usr/bin/python3").args(["-c", READ]).args(&paths).output().unwrap();
    assert!(read.status.success(), "{}", text(&read));
    let theirs: Vec<BTreeMap<String, String>> = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(theirs.len(), sets.len());
    for (theirs, values) in theirs.iter().zip(sets) {
        for (key, value) in values {
            assert!(theirs[ENVIRONMENT_PATH].contains(&format!("{key}={value}\n")), "{value:?}");
        }
        assert_eq!((theirs[SCRIPT_PATH].as_str(), theirs[UNIT_PATH].as_str()), (SCRIPT, UNIT));
    }
    assert!(made(&agent_with(&readable), "image").contains("WOODPECKER_V0=a: b\n"), "what can be readable is");
}

#[test]
fn the_script_has_no_findings() {
    if !installed("shellcheck") {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bootstrap/start-agent.sh");
    let output = Command::new("shellcheck")
        .args(["--shell", "sh", "--enable", "all", "--severity", "warning"])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// A machine to run the script on: stand-ins for what it calls, which write down each call and keep a little state.
struct Machine(TempDir);

/// Knows the rules it was given: `-C` fails for one that is not there.
const IPTABLES: &str = r#"
rule=$(echo "$*" | sed 's/-[CI] //')
case "$*" in
*" -C "*) grep -qxF -e "$0 $rule" "$STATE/rules" 2>/dev/null ;;
*) echo "$0 $rule" >>"$STATE/rules" ;;
esac
"#;
/// Has no container at first, can't pull as often as `$STATE/pulls-that-fail` has lines, and writes down what the
/// container is given.
const DOCKER: &str = r#"
case "$1" in
container) test -e "$STATE/container" ;;
pull)
    if [ -s "$STATE/pulls-that-fail" ]; then
        sed -i 1d "$STATE/pulls-that-fail"
        exit 1
    fi ;;
image) exit 1 ;;
run)
    touch "$STATE/container"
    while [ $# -gt 0 ]; do
        if [ "$1" = --env ]; then
            shift
            printf '%s=' "$1" >>"$STATE/environment"
            printenv "$1" >>"$STATE/environment"
        fi
        shift
    done ;;
esac
"#;

impl Machine {
    fn new(environment: &[(String, String)]) -> Self {
        let machine = Self(TempDir::new().unwrap());
        std::fs::create_dir(machine.0.path().join("bin")).unwrap();
        machine.write("calls", "");
        for (program, body) in
            [("iptables", IPTABLES), ("ip6tables", IPTABLES), ("docker", DOCKER), ("systemctl", ""), ("sleep", "")]
        {
            machine.program(program, body);
        }
        // What the script and the stand-ins use of the real machine: nothing else of it is on their PATH.
        for tool in ["grep", "printenv", "sed", "touch"] {
            let real =
                ["/usr/bin", "/bin"].map(|place| Path::new(place).join(tool)).into_iter().find(|path| path.exists());
            std::os::unix::fs::symlink(real.unwrap(), machine.0.path().join("bin").join(tool)).unwrap();
        }
        let files = files(&made(&agent_with(environment), "registry.example/agent:v1"));
        machine.write("agent.env", &files[ENVIRONMENT_PATH]);
        machine.write("image", &files[IMAGE_PATH]);
        machine.write("start-agent.sh", &files[SCRIPT_PATH]);
        machine
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.0.path().join(name), content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    fn program(&self, name: &str, body: &str) {
        let path = self.0.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\necho \"{name} $*\" >>\"$STATE/calls\"\n{body}")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new("/bin/sh")
            .arg(self.0.path().join("start-agent.sh"))
            .args(arguments)
            .env_clear()
            .env("PATH", self.0.path().join("bin"))
            .env("STATE", self.0.path())
            .env("PICUS_ETC", self.0.path())
            .output()
            .unwrap()
    }

    fn calls(&self) -> Vec<String> {
        self.read("calls").lines().map(str::to_owned).collect()
    }
}

fn position(calls: &[String], what: &str) -> usize {
    calls.iter().position(|call| call.contains(what)).unwrap_or_else(|| panic!("no {what} in {calls:#?}"))
}

#[test]
fn the_metadata_address_is_closed_before_docker_and_the_agent_start() {
    let machine = Machine::new(&[]);
    let output = machine.run(&[]);
    assert!(output.status.success(), "{}", text(&output));
    let calls = machine.calls();
    let forwarded = position(&calls, "iptables -w 10 -t raw -I PREROUTING -d 169.254.169.254 -j DROP");
    let local = position(&calls, "-t filter -I OUTPUT -d 169.254.169.254 -m owner ! --uid-owner 0 -j REJECT");
    let kept = position(&calls, "systemctl enable picus-metadata.service");
    let docker = position(&calls, "systemctl enable --now docker");
    let agent = position(&calls, "docker run");
    assert!(forwarded < docker && local < docker && kept < docker && docker < agent, "{calls:#?}");
    for part in ["--restart always", "--volume /var/run/docker.sock:/var/run/docker.sock", "registry.example/agent:v1"]
    {
        assert!(calls[agent].contains(part), "{}", calls[agent]);
    }
}

#[test]
fn the_container_is_given_every_value_unchanged_and_none_stands_in_a_command() {
    let values = numbered(&VALUES);
    let machine = Machine::new(&values);
    let output = machine.run(&[]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(machine.read("environment"), machine.read("agent.env"));
    assert!(machine.read("environment").contains("WOODPECKER_AGENT_SECRET=the-token\n"));
    for text in [machine.read("calls"), text(&output)] {
        assert!(!text.contains("the-token") && !text.contains("$HOME"), "{text}");
    }
}

#[test]
fn a_registry_that_fails_for_a_while_is_asked_again() {
    let machine = Machine::new(&[]);
    machine.write("pulls-that-fail", "one\ntwo\n");
    assert!(machine.run(&[]).status.success());
    let calls = machine.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("docker pull")).count(), 3, "{calls:#?}");
    assert_eq!(calls.iter().filter(|call| call.starts_with("docker run")).count(), 1);
}

#[test]
fn a_registry_that_never_answers_ends_it_with_an_error() {
    let machine = Machine::new(&[]);
    machine.write("pulls-that-fail", &"again\n".repeat(100));
    assert!(!machine.run(&[]).status.success());
    assert!(!machine.calls().iter().any(|call| call.starts_with("docker run")));
}

#[test]
fn a_second_run_starts_no_second_agent_and_adds_no_second_rule() {
    let machine = Machine::new(&[]);
    assert!(machine.run(&[]).status.success());
    let rules = machine.read("rules");
    assert!(machine.run(&[]).status.success());
    assert_eq!(machine.read("rules"), rules);
    let calls = machine.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("docker run")).count(), 1, "{calls:#?}");
    assert!(calls.last().unwrap().starts_with("docker start woodpecker-agent"), "{calls:#?}");
}

#[test]
fn without_its_rules_no_agent_is_started() {
    let machine = Machine::new(&[]);
    machine.program("iptables", "exit 3");
    assert!(!machine.run(&[]).status.success());
    assert!(!machine.calls().iter().any(|call| call.starts_with("docker") || call.starts_with("systemctl")));
}

#[test]
fn a_machine_without_ipv6_rules_starts_all_the_same() {
    let machine = Machine::new(&[]);
    machine.program("ip6tables", "exit 3");
    assert!(machine.run(&[]).status.success());
    position(&machine.calls(), "docker run");
}

#[test]
fn a_machine_without_docker_is_given_the_distributions() {
    let machine = Machine::new(&[]);
    let bin = machine.0.path().join("bin");
    std::fs::rename(bin.join("docker"), bin.join("docker.io")).unwrap();
    std::os::unix::fs::symlink("/bin/mv", bin.join("mv")).unwrap();
    machine.program("apt-get", r#"case "$*" in *" install "*) mv "$STATE/bin/docker.io" "$STATE/bin/docker" ;; esac"#);
    let output = machine.run(&[]);
    assert!(output.status.success(), "{}", text(&output));
    let calls = machine.calls();
    let installed = position(&calls, "install -y docker.io");
    assert!(position(&calls, " update") < installed && installed < position(&calls, "docker run"), "{calls:#?}");
}

#[test]
fn on_amazon_linux_docker_comes_from_dnf() {
    let machine = Machine::new(&[]);
    let bin = machine.0.path().join("bin");
    std::fs::rename(bin.join("docker"), bin.join("docker.none")).unwrap();
    std::os::unix::fs::symlink("/bin/mv", bin.join("mv")).unwrap();
    machine.program("dnf", r#"mv "$STATE/bin/docker.none" "$STATE/bin/docker""#);
    let output = machine.run(&[]);
    assert!(output.status.success(), "{}", text(&output));
    let calls = machine.calls();
    assert!(position(&calls, "dnf install -y docker") < position(&calls, "docker run"), "{calls:#?}");
    assert!(!calls.iter().any(|call| call.starts_with("apt-get")), "{calls:#?}");
}

#[test]
fn at_a_boot_only_the_rules_are_made() {
    let machine = Machine::new(&[]);
    assert!(machine.run(&["metadata"]).status.success());
    position(&machine.calls(), "-I PREROUTING -d 169.254.169.254");
    assert!(machine.calls().iter().all(|call| call.contains("tables")), "{:#?}", machine.calls());
    assert!(UNIT.contains("Before=docker.service") && UNIT.contains("RequiredBy=docker.service"));
    assert!(UNIT.contains(&format!("{SCRIPT_PATH} metadata")));
}
