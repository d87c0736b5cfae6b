//! What a life begins with, drawn from its seed: pools, billing, boot times, how agents register.

use std::fmt::Write as _;
use std::time::Duration;

use picus::settings::Settings;
use picus::world::{TaskSpec, World, WorldOptions, task};
use rand::RngExt;
use rand::rngs::StdRng;

/// The installation of every life.
pub const INSTALLATION: &str = "picus";

/// One pool.
#[derive(Debug, Clone)]
pub struct PoolSetup {
    pub name: &'static str,
    pub platform: &'static str,
    /// Value of its agents' label `type`.
    pub kind: &'static str,
    types: &'static str,
    pub min: u32,
    pub max: u32,
    pub slots: u32,
    pub by_hour: bool,
    pub idle_timeout: Duration,
    pub boot_timeout: Duration,
}

/// The draw of a life.
#[derive(Debug, Clone)]
pub struct Setup {
    pub seed: u64,
    pub pools: Vec<PoolSetup>,
    /// Agents register with the server's secret instead of a token each.
    pub shared_secret: Option<String>,
    pub boot_time: Duration,
    pub boot_spread: Duration,
    pub poll: Duration,
    /// Picus is killed and started again now and then.
    pub restarts: bool,
    /// A second Picus runs beside the first for a while.
    pub pairs: bool,
    /// How much goes wrong, from 0 to 3.
    pub trouble: f64,
}

impl Setup {
    pub fn draw(seed: u64, rng: &mut StdRng) -> Self {
        let mut pools = match rng.random_range(0..6) {
            0..3 => vec![pool(rng, "default", "linux/amd64", "ci", "cx23,cx33")],
            3..5 => vec![
                pool(rng, "amd64", "linux/amd64", "ci", "cx23"),
                pool(rng, "arm64", "linux/arm64", "ci", "cax11,cax21:fsn1"),
            ],
            _ => vec![
                pool(rng, "amd64", "linux/amd64", "ci", "cx23,cpx22"),
                pool(rng, "arm64", "linux/arm64", "ci", "cax11"),
                pool(rng, "big", "linux/amd64", "big", "cx53,cx43"),
            ],
        };
        if pools.iter().all(|pool| pool.max < 2) {
            pools[0].max += 1;
        }
        Self {
            seed,
            pools,
            shared_secret: rng.random_bool(0.3).then(|| "a-secret-that-all-agents-share".to_owned()),
            boot_time: Duration::from_secs(rng.random_range(20..=90)),
            boot_spread: Duration::from_secs(rng.random_range(0..=60)),
            poll: Duration::from_secs(*pick(rng, &[5, 10, 20, 30])),
            restarts: rng.random_bool(0.7),
            pairs: rng.random_bool(0.4),
            trouble: *pick(rng, &[0.0, 0.3, 1.0, 2.0, 3.0]),
        }
    }

    pub fn world_options(&self) -> WorldOptions {
        WorldOptions {
            seed: self.seed,
            shared_secret: self.shared_secret.clone(),
            boot_time: self.boot_time,
            boot_spread: self.boot_spread,
            ..WorldOptions::default()
        }
    }

    /// The settings of a user who has these two servers.
    pub fn settings(&self, world: &World) -> Settings {
        let mut vars: Vec<(String, String)> = Vec::new();
        let mut set = |name: String, value: String| vars.push((name, value));
        set("PICUS_WOODPECKER_SERVER".to_owned(), world.woodpecker_url().to_string());
        set("PICUS_WOODPECKER_TOKEN".to_owned(), world.admin_token().to_owned());
        set("PICUS_PROVIDER_TYPE".to_owned(), "hcloud".to_owned());
        set("PICUS_HCLOUD_TOKEN".to_owned(), world.hetzner_token().to_owned());
        set("PICUS_HCLOUD_ENDPOINT".to_owned(), world.hetzner_url().to_string());
        set("PICUS_HCLOUD_SSH_KEYS".to_owned(), "admin".to_owned());
        set("PICUS_ID".to_owned(), INSTALLATION.to_owned());
        set("PICUS_POLL_INTERVAL".to_owned(), format!("{}s", self.poll.as_secs()));
        set("PICUS_AGENT_WOODPECKER_SERVER".to_owned(), "woodpecker.example.com:9000".to_owned());
        if let Some(secret) = &self.shared_secret {
            set("PICUS_AGENT_WOODPECKER_AGENT_SECRET".to_owned(), secret.clone());
        }
        let several = self.pools.len() > 1;
        if several {
            let names: Vec<&str> = self.pools.iter().map(|pool| pool.name).collect();
            set("PICUS_POOLS".to_owned(), names.join(","));
        }
        for pool in &self.pools {
            let prefix =
                if several { format!("PICUS_POOL_{}_", pool.name.to_uppercase()) } else { "PICUS_".to_owned() };
            let billing = if pool.by_hour { "1h" } else { "0s" };
            for (name, value) in [
                ("MIN_AGENTS", pool.min.to_string()),
                ("MAX_AGENTS", pool.max.to_string()),
                ("MAX_IDLE_TIME", format!("{}s", pool.idle_timeout.as_secs())),
                ("BOOT_TIMEOUT", format!("{}s", pool.boot_timeout.as_secs())),
                ("BILLING_PERIOD", billing.to_owned()),
                ("AGENT_WOODPECKER_MAX_WORKFLOWS", pool.slots.to_string()),
                ("AGENT_WOODPECKER_AGENT_LABELS", format!("type={}", pool.kind)),
                ("HCLOUD_SERVER_TYPE", pool.types.to_owned()),
            ] {
                set(format!("{prefix}{name}"), value);
            }
        }
        Settings::from_vars(vars).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    /// The draw in a line for each pool.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "boot {} to {} s, poll {} s, {}, restarts {}, pairs {}, trouble {}",
            self.boot_time.as_secs(),
            (self.boot_time + self.boot_spread).as_secs(),
            self.poll.as_secs(),
            if self.shared_secret.is_some() { "shared secret" } else { "own tokens" },
            self.restarts,
            self.pairs,
            self.trouble
        );
        for pool in &self.pools {
            let _ = write!(
                text,
                "\n  pool {} ({}, type={}): {} to {} instances of {} slots, billed by the {}, idle {} s, boot {} s",
                pool.name,
                pool.platform,
                pool.kind,
                pool.min,
                pool.max,
                pool.slots,
                if pool.by_hour { "hour" } else { "second" },
                pool.idle_timeout.as_secs(),
                pool.boot_timeout.as_secs()
            );
        }
        text
    }
}

impl PoolSetup {
    /// A task that only this pool takes.
    pub fn task(&self, name: String) -> TaskSpec {
        task(name).label("type", self.kind).label("platform", self.platform)
    }
}

/// One of several.
pub fn pick<'a, T>(rng: &mut StdRng, from: &'a [T]) -> &'a T {
    &from[rng.random_range(0..from.len())]
}

fn pool(
    rng: &mut StdRng,
    name: &'static str,
    platform: &'static str,
    kind: &'static str,
    types: &'static str,
) -> PoolSetup {
    let max = rng.random_range(1..=4);
    PoolSetup {
        name,
        platform,
        kind,
        types,
        min: if rng.random_bool(0.3) { rng.random_range(0..=max.min(2)) } else { 0 },
        max,
        slots: rng.random_range(1..=3),
        by_hour: rng.random_bool(0.5),
        idle_timeout: Duration::from_secs(60 * rng.random_range(2..=15)),
        boot_timeout: Duration::from_secs(60 * rng.random_range(4..=10)),
    }
}
