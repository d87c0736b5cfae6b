//! What settings become.

use std::time::Duration;

use insta::assert_debug_snapshot;
use secrecy::ExposeSecret as _;

use super::settings;
use crate::model::ids::AgentId;
use crate::model::labels::Labels;
use crate::model::pool::{AccountId, Billing, RetireTo};
use crate::settings::{
    AccountSettings, AmiChoice, HetznerSettings, LaunchSettings, LogFormat, PoolSettings, Settings, Spot,
};

fn launch(pool: &PoolSettings) -> &HetznerSettings {
    match &pool.launch {
        LaunchSettings::Hetzner(launch) => launch,
        LaunchSettings::Ec2(_) | LaunchSettings::Fixed(_) => panic!("it is at Hetzner"),
    }
}

fn environment(pool: &PoolSettings) -> Vec<String> {
    pool.agent.environment.iter().map(|(name, value)| format!("{name}={}", value.expose_secret())).collect()
}

fn endpoint(settings: &Settings) -> &str {
    match &settings.accounts[0] {
        AccountSettings::Hetzner { endpoint, .. } => endpoint.as_str(),
        AccountSettings::Aws => panic!("it is at Hetzner"),
    }
}

#[test]
fn the_least_that_works_has_the_defaults_of_the_table() {
    let read = settings(&[]);
    assert_eq!(read.installation.0, "picus");
    assert_eq!(read.woodpecker.server.as_str(), "https://ci.example.org/");
    assert_eq!((&read.woodpecker.ca_file, read.poll_interval), (&None, Duration::from_secs(10)));
    assert_eq!((read.log.filter.as_str(), read.log.format, read.dry_run), ("info", LogFormat::Text, false));
    assert_eq!(endpoint(&read), "https://api.hetzner.cloud/v1");
    assert!(read.warnings.is_empty());
    assert_debug_snapshot!(read.pools, @r#"
[
    PoolSettings {
        name: PoolName(
            "default",
        ),
        account: AccountId(
            0,
        ),
        min: 0,
        max: 1,
        idle_timeout: 1800s,
        billing: ByPeriod(
            3600s,
        ),
        boot_timeout: 600s,
        agent: AgentSettings {
            image: None,
            server: "ci.example.org:9000",
            labels: Labels(
                {},
            ),
            slots: 1,
            backend: "docker",
            shared_secret: None,
            environment: [
                (
                    "WOODPECKER_SERVER",
                    SecretBox<str>([REDACTED]),
                ),
            ],
        },
        launch: Hetzner(
            HetznerSettings {
                prefix: "PICUS_HCLOUD_",
                server_types: [
                    ServerTypeChoice {
                        name: "cx23",
                        location: None,
                    },
                ],
                locations: [
                    "nbg1",
                    "fsn1",
                    "hel1",
                ],
                image: "docker-ce",
                ssh_keys: [],
                networks: [],
                firewalls: [],
                placement_group: None,
                labels: [],
                public_ipv4: true,
                public_ipv6: true,
            },
        ),
    },
]
"#);
}

#[test]
fn the_servers_address_keeps_its_path() {
    for (server, joined) in [
        ("https://ci.example.org", "https://ci.example.org/api/agents"),
        ("https://ci.example.org/", "https://ci.example.org/api/agents"),
        ("http://example.org:8000/ci", "http://example.org:8000/ci/api/agents"),
        (" HTTPS://example.org/ci// ", "https://example.org/ci/api/agents"),
    ] {
        let read = settings(&[("PICUS_WOODPECKER_SERVER", server)]);
        assert_eq!(read.woodpecker.server.join("api/agents").expect("a URL").as_str(), joined);
        assert!(read.warnings.is_empty());
    }
    for (set, wanted) in
        [("http://localhost:1/v1/", "http://localhost:1/v1"), ("http://localhost:1", "http://localhost:1/")]
    {
        assert_eq!(endpoint(&settings(&[("PICUS_HCLOUD_ENDPOINT", set)])), wanted);
    }
}

#[test]
fn a_pools_own_value_goes_over_the_one_for_all() {
    let read = settings(&[
        ("PICUS_POOLS", "amd64, arm64"),
        ("PICUS_MAX_AGENTS", "4"),
        ("PICUS_POOL_ARM64_MAX_AGENTS", "2"),
        ("PICUS_BILLING_PERIOD", "0s"),
        ("PICUS_POOL_AMD64_BILLING_PERIOD", "1h"),
        ("PICUS_HCLOUD_SSH_KEYS", "me,you"),
        ("PICUS_POOL_ARM64_HCLOUD_SSH_KEYS", ""),
        ("PICUS_POOL_ARM64_HCLOUD_SERVER_TYPE", "CAX11,cax21:hel1,cax11"),
        ("PICUS_AGENT_WOODPECKER_AGENT_LABELS", "type=x"),
        ("PICUS_AGENT_WOODPECKER_LOG_LEVEL", "debug"),
        ("PICUS_POOL_ARM64_AGENT_WOODPECKER_FILTER_LABELS", "type=arm"),
        ("PICUS_POOL_ARM64_AGENT_WOODPECKER_LOG_LEVEL", "trace"),
    ]);
    let [amd64, arm64] = read.pools.as_slice() else { panic!("two pools") };
    assert_eq!((amd64.name.0.as_str(), arm64.name.0.as_str()), ("amd64", "arm64"));
    assert_eq!((amd64.max, arm64.max), (4, 2));
    assert_eq!((amd64.billing, arm64.billing), (Billing::ByPeriod(Duration::from_hours(1)), Billing::BySecond));
    assert_eq!(launch(arm64).ssh_keys, ["me", "you"]);
    assert_eq!(launch(amd64).prefix, "PICUS_HCLOUD_");
    assert_eq!(launch(arm64).prefix, "PICUS_POOL_ARM64_HCLOUD_");
    assert_debug_snapshot!(launch(arm64).server_types, @r#"
[
    ServerTypeChoice {
        name: "cax11",
        location: None,
    },
    ServerTypeChoice {
        name: "cax21",
        location: Some(
            "hel1",
        ),
    },
]
"#);
    let server = "WOODPECKER_SERVER=ci.example.org:9000";
    assert_eq!(environment(amd64), ["WOODPECKER_AGENT_LABELS=type=x", "WOODPECKER_LOG_LEVEL=debug", server]);
    assert_eq!(environment(arm64), ["WOODPECKER_FILTER_LABELS=type=arm", "WOODPECKER_LOG_LEVEL=trace", server]);
    assert_eq!(arm64.agent.labels, [("type", "arm")].into_iter().collect::<Labels>());
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
}

#[test]
fn pools_with_the_same_token_and_endpoint_share_an_account() {
    let read = settings(&[
        ("PICUS_POOLS", "a,b,c,d"),
        ("PICUS_POOL_B_HCLOUD_TOKEN", "other"),
        ("PICUS_POOL_C_HCLOUD_TOKEN", "cloud-token"),
        ("PICUS_POOL_C_HCLOUD_ENDPOINT", "https://api.hetzner.cloud/v1/"),
        ("PICUS_POOL_D_HCLOUD_ENDPOINT", "http://localhost:1"),
    ]);
    let accounts: Vec<AccountId> = read.pools.iter().map(|pool| pool.account).collect();
    assert_eq!(accounts, [AccountId(0), AccountId(1), AccountId(0), AccountId(2)]);
    assert_eq!(read.accounts.len(), 3);
}

#[test]
fn installations_that_can_name_a_host_are_accepted_under_either_name() {
    let longest = "a".repeat(46);
    for id in ["1", "10", "picus", "a-b", &longest] {
        assert_eq!(settings(&[("PICUS_ID", id)]).installation.0, id);
        assert_eq!(settings(&[("PICUS_HCLOUD_ID", id)]).installation.0, id);
        assert_eq!(settings(&[("PICUS_ID", id), ("PICUS_HCLOUD_ID", id)]).installation.0, id);
    }
    assert_eq!(settings(&[("PICUS_ID", "")]).installation.0, "picus");
}

#[test]
fn label_lists_are_read_as_the_agent_reads_them() {
    for (list, labels) in [
        ("a=b=c", vec![("a", "b=c")]),
        ("a=b, c=d", vec![("a", "b"), ("c", "d")]),
        ("a=b,", vec![("a", "b")]),
        ("a=b,a=c", vec![("a", "c")]),
        ("type=picus,zone=*,!gpu=true", vec![("type", "picus"), ("zone", "*"), ("!gpu", "true")]),
        ("hostname=x", vec![("hostname", "x")]),
        ("org-id=*", vec![("org-id", "*")]),
    ] {
        let read = settings(&[("PICUS_AGENT_WOODPECKER_FILTER_LABELS", list)]);
        assert_eq!(read.pools[0].agent.labels, labels.into_iter().collect::<Labels>(), "{list}");
        assert!(read.warnings.is_empty());
    }
}

#[test]
fn what_picus_reads_is_passed_to_the_agent_as_it_was_read() {
    let read = settings(&[
        ("PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS", "010"),
        ("PICUS_AGENT_WOODPECKER_AGENT_SINGLE_WORKFLOW", "no"),
        ("PICUS_AGENT_WOODPECKER_SERVER", " ci.example.org:9000 "),
        ("PICUS_AGENT_WOODPECKER_BACKEND", "auto-detect"),
        ("PICUS_AGENT_WOODPECKER_TEXT", " a: b #c \t$HOME 'q' k=v== 🐦 "),
        ("PICUS_AGENT_WOODPECKER_AGENT_SECRET", "grüße: x"),
    ]);
    let agent = &read.pools[0].agent;
    assert_eq!((agent.slots, agent.backend.as_str(), agent.server.as_str()), (10, "docker", "ci.example.org:9000"));
    assert_eq!(
        environment(&read.pools[0]),
        [
            "WOODPECKER_AGENT_SINGLE_WORKFLOW=false",
            "WOODPECKER_BACKEND=auto-detect",
            "WOODPECKER_MAX_WORKFLOWS=10",
            "WOODPECKER_SERVER=ci.example.org:9000",
            "WOODPECKER_TEXT= a: b #c \t$HOME 'q' k=v== 🐦 ",
        ]
    );
    assert!(agent.shared_secret.is_some());
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
}

#[test]
fn launch_settings_are_read() {
    assert_debug_snapshot!(launch(&settings(&[
        ("PICUS_HCLOUD_SERVER_TYPE", "cx23,cpx32:fsn1"),
        ("PICUS_HCLOUD_LOCATION", "HEL1, nbg1,"),
        ("PICUS_HCLOUD_IMAGE", "12345"),
        ("PICUS_HCLOUD_SSH_KEYS", "me@home, you"),
        ("PICUS_HCLOUD_NETWORKS", "ci"),
        ("PICUS_HCLOUD_FIREWALLS", "closed"),
        ("PICUS_HCLOUD_PLACEMENT_GROUP", "spread"),
        ("PICUS_HCLOUD_LABELS", "team=ci,stage="),
        ("PICUS_HCLOUD_PUBLIC_IPV4", "off"),
        ("PICUS_HCLOUD_PUBLIC_IPV6", "0"),
    ]).pools[0]), @r#"
HetznerSettings {
    prefix: "PICUS_HCLOUD_",
    server_types: [
        ServerTypeChoice {
            name: "cx23",
            location: None,
        },
        ServerTypeChoice {
            name: "cpx32",
            location: Some(
                "fsn1",
            ),
        },
    ],
    locations: [
        "hel1",
        "nbg1",
    ],
    image: "12345",
    ssh_keys: [
        "me@home",
        "you",
    ],
    networks: [
        "ci",
    ],
    firewalls: [
        "closed",
    ],
    placement_group: Some(
        "spread",
    ),
    labels: [
        (
            "team",
            "ci",
        ),
        (
            "stage",
            "",
        ),
    ],
    public_ipv4: false,
    public_ipv6: false,
}
"#);
}

#[test]
fn the_log_and_the_rest_are_read() {
    let read = settings(&[
        ("PICUS_LOG", "warn,picus=debug"),
        ("PICUS_LOG_FORMAT", "JSON"),
        ("PICUS_DRY_RUN", "yes"),
        ("PICUS_POLL_INTERVAL", "1m30s"),
        ("PICUS_WOODPECKER_CA_FILE", "/etc/ca.pem"),
        ("PICUS_AGENT_IMAGE", "registry.example.org:5000/agent@sha256:0123"),
    ]);
    assert_eq!((read.log.filter.as_str(), read.log.format, read.dry_run), ("warn,picus=debug", LogFormat::Json, true));
    assert_eq!(read.poll_interval, Duration::from_secs(90));
    assert_eq!(read.woodpecker.ca_file.as_deref(), Some(std::path::Path::new("/etc/ca.pem")));
    assert_eq!(read.pools[0].agent.image.as_deref(), Some("registry.example.org:5000/agent@sha256:0123"));
}

#[test]
fn what_kubernetes_and_others_set_is_no_concern_of_ours() {
    let read = settings(&[
        ("PICUS_SERVICE_HOST", "10.0.0.7"),
        ("PICUS_SERVICE_PORT_HTTP", "8080"),
        ("PICUS_PORT", "tcp://10.0.0.7:8080"),
        ("PICUS_PORT_8080_TCP_ADDR", "10.0.0.7"),
        ("PATH", "/bin"),
        ("picus_id", "x"),
    ]);
    assert!(read.warnings.is_empty());
}

#[test]
fn what_works_and_deserves_a_word_is_a_warning() {
    let more = [
        ("PICUS_POOLS", "a,b"),
        ("PICUS_WOODPECKER_AGENT_ID", "3"),
        ("PICUS_WOODPECKER_SERVER", "https://ci.example.org/api"),
        ("PICUS_AGENT_WOODPECKER_SERVER", "localhost:9000"),
        ("PICUS_AGENT_WOODPECKER_AGENT_LABELS", "org-id=3,type = x"),
        ("PICUS_AGENT_WOODPECKER_FILTER_LABELS", "type=other"),
        ("PICUS_AGENT_WOODPECKER_MAX_WORKFLOW", "4"),
        ("PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS", "4"),
        ("PICUS_AGENT_WOODPECKER_AGENT_SINGLE_WORKFLOW", "true"),
        ("PICUS_LOG", "debgu"),
    ];
    let read = settings(&more);
    assert_eq!(read.pools[0].agent.slots, 1);
    assert_eq!(read.pools[0].agent.labels.get("org-id"), Some("3"));
    assert!(environment(&read.pools[0]).iter().all(|pair| !pair.contains("FILTER_LABELS")));
    insta::assert_snapshot!(read.warnings.join("\n"), @r"
PICUS_WOODPECKER_SERVER ends in `/api`, which is added to it once more: is the URL without it meant?
PICUS_LOG: `debgu` is taken for a module; is `debug` meant?
PICUS_WOODPECKER_AGENT_ID is no longer needed: each agent that is launched gets a record and a token of its own
PICUS_AGENT_WOODPECKER_SERVER: `localhost:9000` is the agent's own machine; instances reach the server by another address
PICUS_AGENT_WOODPECKER_FILTER_LABELS has no effect: PICUS_AGENT_WOODPECKER_AGENT_LABELS is set too, and wins
PICUS_AGENT_WOODPECKER_AGENT_LABELS: the label `org-id` has no effect, because the server sets it itself
PICUS_AGENT_WOODPECKER_AGENT_LABELS: the spaces in `type = x` are part of the label
PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS=4 has no effect: with PICUS_AGENT_WOODPECKER_AGENT_SINGLE_WORKFLOW an agent has one slot
PICUS_AGENT_WOODPECKER_MAX_WORKFLOW is passed to the agent as WOODPECKER_MAX_WORKFLOW; is WOODPECKER_MAX_WORKFLOWS meant?
");
}

const FIXED: [(&str, &str); 2] = [("PICUS_PROVIDER_TYPE", "aws"), ("PICUS_AWS_INSTANCE_ID", "i-01, i-02")];
const LAUNCHED: [(&str, &str); 3] = [
    ("PICUS_PROVIDER_TYPE", "aws"),
    ("PICUS_AWS_INSTANCE_TYPE", "c7a.large,m7a.large"),
    ("PICUS_AWS_AMI", "self/ci-*"),
];

fn at_ec2(least: &[(&str, &str)], more: &[(&str, &str)]) -> Result<Settings, Vec<crate::settings::Problem>> {
    let all = [("PICUS_WOODPECKER_SERVER", "https://ci.example.org"), ("PICUS_WOODPECKER_TOKEN", "admin-token")];
    let vars = all.iter().chain(least).chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::from_vars(vars)
}

#[test]
fn machines_that_are_there_need_nothing_else() {
    let read = at_ec2(&FIXED, &[]).expect("it is enough");
    let pool = &read.pools[0];
    assert_eq!((pool.min, pool.max, pool.billing), (0, 2, Billing::BySecond));
    let ids: Vec<&str> = pool.launch.fixed().iter().map(|fixed| fixed.id.0.as_str()).collect();
    assert_eq!(ids, ["i-01", "i-02"]);
    assert_eq!(pool.launch.mark(), None);
    let with_agents =
        at_ec2(&FIXED, &[("PICUS_WOODPECKER_AGENT_ID", "5,7"), ("PICUS_MAX_AGENTS", "1")]).expect("it is good");
    let agents: Vec<_> = with_agents.pools[0].launch.fixed().iter().map(|fixed| fixed.agent).collect();
    assert_eq!((agents, with_agents.pools[0].max), (vec![Some(AgentId(5)), Some(AgentId(7))], 1));
}

#[test]
fn launch_settings_for_ec2_are_read_and_marked_by_what_they_change() {
    let server = ("PICUS_AGENT_WOODPECKER_SERVER", "ci.example.org:9000");
    let read = |more: &[(&str, &str)]| {
        let more: Vec<_> = more.iter().copied().chain([server]).collect();
        at_ec2(&LAUNCHED, &more).expect("good settings")
    };
    let all = read(&[
        ("PICUS_AWS_SUBNETS", "subnet-1,subnet-2"),
        ("PICUS_AWS_SECURITY_GROUPS", "sg-1"),
        ("PICUS_AWS_SPOT", "prefer"),
        ("PICUS_AWS_VOLUME_SIZE", "40"),
        ("PICUS_AWS_TAGS", "team=ci,empty="),
        ("PICUS_AWS_LAUNCH_TEMPLATE", "ci:$Latest"),
        ("PICUS_AWS_HOURLY_PRICE", "0.04"),
    ]);
    let LaunchSettings::Ec2(launched) = &all.pools[0].launch else { panic!("it launches") };
    assert_eq!(launched.instance_types, ["c7a.large", "m7a.large"]);
    assert_eq!(launched.ami, Some(AmiChoice::Newest { owner: "self".to_owned(), name: "ci-*".to_owned() }));
    assert_eq!((launched.spot, launched.volume_size, launched.hourly_price), (Spot::Prefer, Some(40), Some(0.04)));
    assert_eq!(launched.tags, [("team".to_owned(), "ci".to_owned()), ("empty".to_owned(), String::new())]);
    assert_eq!((launched.retire, all.pools[0].max), (RetireTo::Delete, 1));
    let stops = read(&[("PICUS_AWS_RETIRE", "stop")]);
    assert_eq!(stops.pools[0].launch.retire(), RetireTo::Stop { max_age: Duration::from_hours(168) });
    // Where and how it is launched makes no other machine of it; its image does.
    let mark = |more: &[(&str, &str)]| read(more).pools[0].launch.mark();
    assert_eq!(mark(&[]), mark(&[("PICUS_AWS_SUBNETS", "subnet-1"), ("PICUS_AWS_TAGS", "a=b")]));
    assert_ne!(mark(&[]), mark(&[("PICUS_AWS_VOLUME_SIZE", "40")]));
}

#[test]
fn settings_of_a_provider_that_no_pool_uses_are_told() {
    assert_eq!(
        settings(&[("PICUS_AWS_AMI", "ami-1")]).warnings,
        ["PICUS_AWS_AMI has no effect: no pool has PICUS_PROVIDER_TYPE=aws"]
    );
}
