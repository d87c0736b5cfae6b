//! Every variable: its name, what it means, what holds without it. The README's table, the check of names and the
//! messages about what is missing come from here; how a value is read stands with its section.

/// One variable, or a family of them if its name ends in `*`.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// The whole name, `PICUS_MAX_AGENTS`.
    pub name: &'static str,
    /// What it means, as a noun phrase for the table and for "must be set: …".
    pub meaning: &'static str,
    /// What holds if it is not set.
    pub preset: Preset,
    /// What sort of value it takes.
    pub kind: Kind,
    /// Whether `PICUS_POOL_<NAME>_…` may override it.
    pub scope: Scope,
    /// Whether this release has what it is for.
    pub availability: Availability,
}

/// What holds if a variable is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// It must be set.
    Required,
    /// Nothing.
    Nothing,
    /// This value, read like one that was set.
    Value(&'static str),
    /// Something that is no fixed value, in words.
    Words(&'static str),
}

/// What sort of value a variable takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text, name or address; its section says which.
    Text,
    /// Never shown; also from a file, with `_FILE` appended to the name.
    Secret,
    /// A whole number.
    Whole,
    /// A duration as Go writes it.
    Duration,
    /// On or off.
    Switch,
    /// Comma separated.
    List,
    /// `http` or `https`.
    Url,
    /// One of a few words.
    Word,
}

/// Where a variable may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Once, for the whole installation.
    Installation,
    /// For all pools, and for each again.
    Pool,
}

/// Whether this release has what a variable is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// It has.
    Here,
    /// It has not; the half sentence says what is missing. Setting the variable is a problem, not a thing to ignore.
    Missing(&'static str),
}

const fn variable(name: &'static str, scope: Scope, kind: Kind, preset: Preset, meaning: &'static str) -> Variable {
    Variable { name, meaning, preset, kind, scope, availability: Availability::Here }
}

const fn missing(name: &'static str, what: &'static str) -> Variable {
    Variable {
        name,
        meaning: what,
        preset: Preset::Nothing,
        kind: Kind::Text,
        scope: Scope::Pool,
        availability: Availability::Missing(what),
    }
}

use Kind::{Duration, List, Secret, Switch, Text, Url, Whole, Word};
use Preset::{Nothing, Required, Value, Words};
use Scope::{Installation, Pool};

macro_rules! variables {
    ($($(#[$doc:meta])* $constant:ident = $variable:expr;)*) => {
        $($(#[$doc])* pub const $constant: Variable = $variable;)*

        /// Every variable in the order of the table.
        pub const ALL: &[Variable] = &[$($constant),*];
    };
}

variables! {
    /// Base URL of the server.
    WOODPECKER_SERVER = variable("PICUS_WOODPECKER_SERVER", Installation, Url, Required,
        "base URL of the Woodpecker server, such as `https://ci.example.org`");
    /// The admin's token.
    WOODPECKER_TOKEN = variable("PICUS_WOODPECKER_TOKEN", Installation, Secret, Required,
        "personal token of an admin of the Woodpecker server");
    /// Own certificate authority.
    WOODPECKER_CA_FILE = variable("PICUS_WOODPECKER_CA_FILE", Installation, Text, Nothing,
        "PEM bundle to trust besides the system's, for self-hosted servers; `HTTPS_PROXY` and friends are honoured");
    /// Records of fixed instances.
    WOODPECKER_AGENT_ID = variable("PICUS_WOODPECKER_AGENT_ID", Pool, List, Nothing,
        "ids of the agents on the machines in `PICUS_AWS_INSTANCE_ID`, in the same order, if their names don't tell");
    /// The installation.
    ID = variable("PICUS_ID", Installation, Text, Value("picus"),
        "this installation: lower-case letters, digits and `-`; instances and agents bear its name");
    /// Its older name.
    HCLOUD_ID = variable("PICUS_HCLOUD_ID", Installation, Text, Nothing, "means the same as `PICUS_ID`");
    /// The cloud.
    PROVIDER_TYPE = variable("PICUS_PROVIDER_TYPE", Pool, Word, Required, "the cloud: `hcloud` or `aws`");
    /// The pools.
    POOLS = variable("PICUS_POOLS", Installation, List, Words("one pool"),
        "several pools in order of preference, such as `amd64,arm64` (lower-case letters and digits); \
         `PICUS_POOL_ARM64_X` overrides `PICUS_X` for that pool");
    /// Time between looks.
    POLL_INTERVAL = variable("PICUS_POLL_INTERVAL", Installation, Duration, Value("10s"),
        "time between looks at the queue; an event of the server looks at once");
    /// Idle time.
    MAX_IDLE_TIME = variable("PICUS_MAX_IDLE_TIME", Pool, Duration, Value("30m"),
        "idle time before an agent is retired, where billing is by the second");
    /// Billing.
    BILLING_PERIOD = variable("PICUS_BILLING_PERIOD", Pool, Duration, Words("`1h` at Hetzner, `0s` at EC2"),
        "how the cloud bills: `1h` by the started hour, so that an idle agent is kept until shortly before the \
         next one starts; `0s` by the second");
    /// Boot timeout.
    BOOT_TIMEOUT = variable("PICUS_BOOT_TIMEOUT", Pool, Duration, Value("10m"),
        "from launch to the agent's first contact; an instance that takes longer is replaced");
    /// Minimum.
    MIN_AGENTS = variable("PICUS_MIN_AGENTS", Pool, Whole, Value("0"), "instances kept also without work");
    /// Maximum.
    MAX_AGENTS = variable("PICUS_MAX_AGENTS", Pool, Whole, Words("`1`; as many as there are in `PICUS_AWS_INSTANCE_ID`"),
        "instances at most, in whatever state; of machines in `PICUS_AWS_INSTANCE_ID`, how many may be up");
    /// The agent's image.
    AGENT_IMAGE = variable("PICUS_AGENT_IMAGE", Pool, Text,
        Words("that of the server's own version, `woodpeckerci/woodpecker-agent:v…`"), "image of the agent");
    /// The agent's own settings.
    AGENT_ANY = variable("PICUS_AGENT_WOODPECKER_*", Pool, Text, Nothing,
        "any other setting of the agent, passed to it as `WOODPECKER_*`");
    /// gRPC address.
    AGENT_SERVER = variable("PICUS_AGENT_WOODPECKER_SERVER", Pool, Text, Words("required where instances are launched"),
        "the Woodpecker server's gRPC address that instances reach, such as `ci.example.org:9000`");
    /// The scope.
    AGENT_FILTER_LABELS = variable("PICUS_AGENT_WOODPECKER_FILTER_LABELS", Pool, List, Nothing,
        "labels of the agents, the scope: `type=picus,zone=*,!gpu=true`");
    /// The same, newer name.
    AGENT_LABELS = variable("PICUS_AGENT_WOODPECKER_AGENT_LABELS", Pool, List, Nothing,
        "newer name of the same in Woodpecker; wins if both are set");
    /// Slots.
    AGENT_MAX_WORKFLOWS = variable("PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS", Pool, Whole, Value("1"),
        "slots: how many tasks an agent runs at once");
    /// One task an agent process.
    AGENT_SINGLE_WORKFLOW = variable("PICUS_AGENT_WOODPECKER_AGENT_SINGLE_WORKFLOW", Pool, Switch, Value("false"),
        "the agent has one slot and starts afresh after each task");
    /// The engine.
    AGENT_BACKEND = variable("PICUS_AGENT_WOODPECKER_BACKEND", Pool, Text, Value("docker"), "engine of the agent");
    /// The shared secret.
    AGENT_SECRET = variable("PICUS_AGENT_WOODPECKER_AGENT_SECRET", Pool, Secret, Nothing,
        "the Woodpecker server's shared secret, instead of a token for each agent");
    /// The project's token.
    HCLOUD_TOKEN = variable("PICUS_HCLOUD_TOKEN", Pool, Secret, Required,
        "API token of the Hetzner Cloud project, with read and write access");
    /// Another API.
    HCLOUD_ENDPOINT = variable("PICUS_HCLOUD_ENDPOINT", Pool, Url, Value("https://api.hetzner.cloud/v1"),
        "base URL of Hetzner's API");
    /// Server types.
    HCLOUD_SERVER_TYPE = variable("PICUS_HCLOUD_SERVER_TYPE", Pool, List, Value("cx23"),
        "server types in order of preference; one may name its own location: `cx23,cpx32:fsn1`");
    /// Locations.
    HCLOUD_LOCATION = variable("PICUS_HCLOUD_LOCATION", Pool, List, Value("nbg1,fsn1,hel1"),
        "locations in order of preference");
    /// Image of the machine.
    HCLOUD_IMAGE = variable("PICUS_HCLOUD_IMAGE", Pool, Text, Value("docker-ce"),
        "image of the instances, name or id; one with Docker boots faster");
    /// SSH keys.
    HCLOUD_SSH_KEYS = variable("PICUS_HCLOUD_SSH_KEYS", Pool, List, Nothing,
        "SSH keys, names or ids; without one Hetzner mails a root password for each instance");
    /// Networks.
    HCLOUD_NETWORKS = variable("PICUS_HCLOUD_NETWORKS", Pool, List, Nothing, "private networks, names or ids");
    /// Firewalls.
    HCLOUD_FIREWALLS = variable("PICUS_HCLOUD_FIREWALLS", Pool, List, Nothing, "firewalls, names or ids");
    /// Placement group.
    HCLOUD_PLACEMENT_GROUP = variable("PICUS_HCLOUD_PLACEMENT_GROUP", Pool, Text, Nothing,
        "placement group, name or id");
    /// Labels.
    HCLOUD_LABELS = variable("PICUS_HCLOUD_LABELS", Pool, List, Nothing,
        "labels of your own on each instance: `team=ci,cost-centre=42`");
    /// IPv4.
    HCLOUD_PUBLIC_IPV4 = variable("PICUS_HCLOUD_PUBLIC_IPV4", Pool, Switch, Value("true"),
        "whether instances get a public IPv4 address");
    /// IPv6.
    HCLOUD_PUBLIC_IPV6 = variable("PICUS_HCLOUD_PUBLIC_IPV6", Pool, Switch, Value("true"),
        "whether instances get a public IPv6 address");
    /// Fixed instances.
    AWS_INSTANCE_ID = variable("PICUS_AWS_INSTANCE_ID", Pool, List, Nothing,
        "machines with an agent, to be started and stopped: `i-…,i-…`; nothing is launched then");
    /// Instance types.
    AWS_INSTANCE_TYPE = variable("PICUS_AWS_INSTANCE_TYPE", Pool, List, Words("required without a launch template"),
        "instance types in order of preference: `c7a.large,m7a.large`");
    /// Image.
    AWS_AMI = variable("PICUS_AWS_AMI", Pool, Text, Words("required without a launch template"),
        "image of the instances: an id, an alias (`resolve:ssm:/aws/service/…`), or the newest of an owner and a name \
         (`self/ci-*`)");
    /// Subnets.
    AWS_SUBNETS = variable("PICUS_AWS_SUBNETS", Pool, List, Words("the default one"),
        "subnets in order of preference: `subnet-…,subnet-…`");
    /// Security groups.
    AWS_SECURITY_GROUPS = variable("PICUS_AWS_SECURITY_GROUPS", Pool, List, Words("the network's default"),
        "security groups: `sg-…`");
    /// Key pair.
    AWS_KEY_NAME = variable("PICUS_AWS_KEY_NAME", Pool, Text, Nothing, "key pair for SSH");
    /// Instance profile.
    AWS_INSTANCE_PROFILE = variable("PICUS_AWS_INSTANCE_PROFILE", Pool, Text, Nothing,
        "instance profile, name or ARN: jobs have its rights");
    /// Spot.
    AWS_SPOT = variable("PICUS_AWS_SPOT", Pool, Word, Value("never"),
        "spot instances: `never`, `prefer` (on demand where there is no spot) or `only`");
    /// Root volume.
    AWS_VOLUME_SIZE = variable("PICUS_AWS_VOLUME_SIZE", Pool, Whole, Words("the image's"), "size of the disk in GiB");
    /// Tags.
    AWS_TAGS = variable("PICUS_AWS_TAGS", Pool, List, Nothing,
        "tags of your own on each instance and its disk: `team=ci,cost-centre=42`");
    /// Launch template.
    AWS_LAUNCH_TEMPLATE = variable("PICUS_AWS_LAUNCH_TEMPLATE", Pool, Text, Nothing,
        "launch template, id or name, with a version if not the default one: `ci:$Latest`; other settings go over it");
    /// How instances end.
    AWS_RETIRE = variable("PICUS_AWS_RETIRE", Pool, Word, Value("terminate"),
        "what becomes of a retired instance: `terminate`, or `stop` to start the same one again");
    /// Age of stopped instances.
    AWS_STOPPED_MAX_AGE = variable("PICUS_AWS_STOPPED_MAX_AGE", Pool, Duration, Value("168h"),
        "with `PICUS_AWS_RETIRE=stop`: how long a stopped instance is kept");
    /// Price.
    AWS_HOURLY_PRICE = variable("PICUS_AWS_HOURLY_PRICE", Pool, Text, Nothing,
        "price of an hour of an instance, for cost figures");
    /// Where the status page is.
    HTTP_ADDR = variable("PICUS_HTTP_ADDR", Installation, Text, Value("127.0.0.1:8080"),
        "address of the health checks, metrics and status page, such as `0.0.0.0:8080` (which the image sets); `off`");
    /// Its key.
    HTTP_TOKEN = variable("PICUS_HTTP_TOKEN", Installation, Secret, Nothing,
        "opens status page, API and metrics; without it only health and metrics are served beyond this machine");
    /// Log filter.
    LOG = variable("PICUS_LOG", Installation, Text, Value("info"),
        "what is logged: `info`, `debug`, or by module, `warn,picus=debug`");
    /// Form of the log.
    LOG_FORMAT = variable("PICUS_LOG_FORMAT", Installation, Word, Value("text"), "form of the log: `text` or `json`");
    /// Do nothing.
    DRY_RUN = variable("PICUS_DRY_RUN", Installation, Switch, Value("false"), "decide and say, do nothing");

    /// The installer.
    INSTALL_ANY = missing("PICUS_INSTALL_*", "this release has no installer with steps yet");
    /// The installer's reports.
    PUBLIC_URL = missing("PICUS_PUBLIC_URL", "this release takes no reports of instances yet");
    /// The installer's template.
    USER_DATA_TEMPLATE_FILE = missing("PICUS_USER_DATA_TEMPLATE_FILE", "this release has no user data templates yet");
    /// Notifications.
    NOTIFY_ANY = missing("PICUS_NOTIFY_*", "this release sends no notifications yet");
}

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub enum Found {
    /// A variable; a member of a family stands for the family.
    Variable(&'static Variable),
    /// The file of a secret variable.
    FileOf(&'static Variable),
}

/// The variable of this name, `None` if there is none.
#[must_use]
pub fn find(name: &str) -> Option<Found> {
    let exact = |name: &str| ALL.iter().find(|variable| variable.name == name);
    let family = || {
        ALL.iter().find(|variable| {
            let prefix = variable.name.strip_suffix('*').unwrap_or("\0");
            name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty())
        })
    };
    let file = || name.strip_suffix("_FILE").and_then(exact).filter(|variable| variable.kind == Secret);
    exact(name).map(Found::Variable).or_else(|| file().map(Found::FileOf)).or_else(|| family().map(Found::Variable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_alike_are_unique_and_only_families_end_in_a_star() {
        let mut seen = std::collections::BTreeSet::new();
        for variable in ALL {
            let plain = variable.name.strip_suffix('*').unwrap_or(variable.name);
            assert!(plain.starts_with("PICUS_"), "{}", variable.name);
            assert!(plain.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_'));
            assert!(seen.insert(variable.name), "{} is there twice", variable.name);
            assert!(!variable.meaning.is_empty());
        }
    }

    #[test]
    fn names_are_found_with_their_files_and_families() {
        let describe = |name: &str| match find(name) {
            Some(Found::Variable(variable)) => variable.name.to_owned(),
            Some(Found::FileOf(variable)) => format!("file of {}", variable.name),
            None => "none".to_owned(),
        };
        for (name, found) in [
            ("PICUS_ID", "PICUS_ID"),
            ("PICUS_HCLOUD_TOKEN_FILE", "file of PICUS_HCLOUD_TOKEN"),
            ("PICUS_HCLOUD_IMAGE_FILE", "none"),
            ("PICUS_WOODPECKER_CA_FILE", "PICUS_WOODPECKER_CA_FILE"),
            ("PICUS_AGENT_WOODPECKER_AGENT_SECRET_FILE", "file of PICUS_AGENT_WOODPECKER_AGENT_SECRET"),
            ("PICUS_AGENT_WOODPECKER_GRPC_SECURE", "PICUS_AGENT_WOODPECKER_*"),
            ("PICUS_AGENT_WOODPECKER_", "none"),
            ("PICUS_AWS_AMI", "PICUS_AWS_AMI"),
            ("PICUS_AWS_AMY", "none"),
            ("PICUS_NOTIFY_URL", "PICUS_NOTIFY_*"),
            ("PICUS_", "none"),
            ("PICUS_id", "none"),
        ] {
            assert_eq!(describe(name), found, "{name}");
        }
    }
}
