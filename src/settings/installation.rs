//! Puts the settings together: what holds for the installation, then each pool with its account.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tracing_subscriber::EnvFilter;

use super::environment::Environment;
use super::nearest::nearest;
use super::pools::{self, Pools};
use super::problems::Problems;
use super::raw::{self, Section as _};
use super::read::{Bounds, Reader, with_slash};
use super::registry;
use super::secrets::token;
use super::{
    AccountSettings, HttpSettings, LaunchSettings, LogFormat, LogSettings, PoolSettings, Problem, Settings,
    WoodpeckerSettings, agent, ec2, hetzner,
};
use crate::model::ids::{InstallationId, PoolName};
use crate::model::pool::{AccountId, Billing};

const POLL_INTERVAL: Bounds = Bounds {
    least: Duration::from_secs(1),
    most: Duration::from_hours(1),
    zero: None,
    why: "more often the server would do little else, more rarely no task would be served in time",
};

const IDLE_TIME: Bounds = Bounds {
    least: Duration::from_mins(1),
    most: Duration::from_hours(28 * 24),
    zero: None,
    why: "the server notes an agent's last work only by the minute, and four weeks are as good as for ever",
};

// Agents are retired in the last minutes of a period, so it must have more than those.
const BILLING_PERIOD: Bounds = Bounds {
    least: Duration::from_mins(10),
    most: Duration::from_hours(24),
    zero: Some("billed by the second"),
    why: "an idle agent is retired in the last minutes of a period",
};

const BOOT_TIMEOUT: Bounds = Bounds {
    least: Duration::from_mins(1),
    most: Duration::from_hours(2),
    zero: None,
    why: "no instance is ready in less, and one that takes longer never will be",
};

/// A shorter one could be tried out.
const SHORTEST_HTTP_TOKEN: usize = 16;

/// More than any account may have: a mistyped number does not become a bill.
const MOST_AGENTS: u32 = 10_000;

/// Reads everything from variables that are not empty.
pub fn read(vars: BTreeMap<String, String>) -> Result<Settings, Vec<Problem>> {
    let mut problems = Problems::default();
    let pools = Pools::read(vars.get(registry::POOLS.name).map(String::as_str), &mut problems);
    let half_a_key = half_a_key(&vars);
    let set_for_all: Vec<String> = vars.keys().cloned().collect();
    let environment = Environment::sort(vars, &pools, &mut problems);
    let base = assemble_base(&environment, &pools, &mut problems);
    let mut accounts = Accounts::default();
    let read: Vec<Option<PoolSettings>> =
        pools.names.iter().map(|name| pool(name, &environment, &mut accounts, &mut problems)).collect();
    say_what_no_pool_reads(&set_for_all, &accounts, &mut problems);
    if accounts.0.iter().any(|account| matches!(account, AccountSettings::Aws))
        && let Some((set, other)) = half_a_key
    {
        problems.add(other, None, format!("must be set, because `{set}` is: a key has both parts, or neither"));
    }
    let (found, warnings) = problems.finish(&pools.names);
    match (base, read.into_iter().collect::<Option<Vec<_>>>()) {
        (Some(Base { installation, woodpecker, poll_interval, http, log, dry_run }), Some(pools))
            if found.is_empty() =>
        {
            let accounts = accounts.0;
            Ok(Settings { installation, woodpecker, poll_interval, pools, accounts, http, log, dry_run, warnings })
        }
        _ => Err(found),
    }
}

/// Reads `PICUS_HTTP_*` alone: all that asking a running Picus takes.
pub fn read_http(mut vars: BTreeMap<String, String>) -> Result<HttpSettings, Vec<Problem>> {
    vars.retain(|name, _| name.starts_with(raw::Http::PREFIX));
    let mut problems = Problems::default();
    let pools = Pools::read(None, &mut problems);
    let environment = Environment::sort(vars, &pools, &mut problems);
    let read = http(&mut Reader { layer: &environment.base, pool: None, problems: &mut problems });
    let (found, _) = problems.finish(&pools.names);
    read.filter(|_| found.is_empty()).ok_or(found)
}

/// Settings of a provider at which no pool is have no effect.
fn say_what_no_pool_reads(set: &[String], accounts: &Accounts, problems: &mut Problems) {
    let hetzner = accounts.0.iter().any(|account| matches!(account, AccountSettings::Hetzner { .. }));
    let aws = accounts.0.iter().any(|account| matches!(account, AccountSettings::Aws));
    // Without any account there are problems that say more.
    if !hetzner && !aws {
        return;
    }
    for (prefix, used, provider) in [(raw::Hetzner::PREFIX, hetzner, "hcloud"), (raw::Aws::PREFIX, aws, "aws")] {
        for name in set.iter().filter(|name| name.starts_with(prefix) && !used) {
            if name != registry::HCLOUD_ID.name && registry::find(name).is_some() {
                problems.warn(format!("{name} has no effect: no pool has {}={provider}", registry::PROVIDER_TYPE.name));
            }
        }
    }
}

/// Of the SDK's static key: the part that is set, and the one that is not.
fn half_a_key(vars: &BTreeMap<String, String>) -> Option<(&'static str, &'static str)> {
    let (id, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    match (vars.contains_key(id), vars.contains_key(secret)) {
        (true, false) => Some((id, secret)),
        (false, true) => Some((secret, id)),
        (true, true) | (false, false) => None,
    }
}

struct Base {
    installation: InstallationId,
    woodpecker: WoodpeckerSettings,
    poll_interval: Duration,
    http: HttpSettings,
    log: LogSettings,
    dry_run: bool,
}

fn assemble_base(environment: &Environment, pools: &Pools, problems: &mut Problems) -> Option<Base> {
    let raw::Main { id, hcloud_id, poll_interval, log, log_format, dry_run } =
        raw::Main::read(&environment.base, problems);
    let mut reader = Reader { layer: &environment.base, pool: None, problems };
    let woodpecker = woodpecker(&mut reader);
    let installation = installation(&mut reader, id, hcloud_id, pools);
    let poll_interval = reader.duration(&registry::POLL_INTERVAL, poll_interval, &POLL_INTERVAL);
    let http = http(&mut reader);
    let filter = log_filter(&mut reader, log);
    let format = log_format_of(&mut reader, log_format);
    let dry_run = reader.switch(&registry::DRY_RUN, dry_run);
    Some(Base {
        installation: installation?,
        woodpecker: woodpecker?,
        poll_interval: poll_interval?,
        http: http?,
        log: LogSettings { filter: filter?, format: format? },
        dry_run: dry_run?,
    })
}

fn woodpecker(reader: &mut Reader<'_>) -> Option<WoodpeckerSettings> {
    let raw::Woodpecker { server, token: token_value, token_file, ca_file } =
        raw::Woodpecker::read(reader.layer, reader.problems);
    let variable = &registry::WOODPECKER_SERVER;
    let server = reader.url(variable, server).map(with_slash);
    if server.as_ref().is_some_and(|url| url.path().ends_with("/api/")) {
        let name = reader.name(variable);
        reader
            .problems
            .warn(format!("{name} ends in `/api`, which is added to it once more: is the URL without it meant?"));
    }
    let token = token(reader, &registry::WOODPECKER_TOKEN, token_value, token_file);
    let ca_file = reader.text(&registry::WOODPECKER_CA_FILE, ca_file).map(PathBuf::from);
    Some(WoodpeckerSettings { server: server?, token: token?, ca_file })
}

fn installation(
    reader: &mut Reader<'_>,
    id: Option<String>,
    hcloud_id: Option<String>,
    pools: &Pools,
) -> Option<InstallationId> {
    let (new, old) = (&registry::ID, &registry::HCLOUD_ID);
    let variable = if id.is_none() && hcloud_id.is_some() { old } else { new };
    if let (Some(id), Some(hcloud_id)) = (&id, &hcloud_id)
        && id.trim() != hcloud_id.trim()
    {
        let message = format!("means the same as `{}`, which has another value: remove one of the two", new.name);
        reader.refuse(old, hcloud_id, message);
    }
    let text = reader.text(variable, id.or(hcloud_id))?;
    let set = reader.layer.has(variable.name);
    // Without an id of its own it is the pool's name that is too long.
    let named = if set { variable.name } else { registry::POOLS.name };
    pools::installation(named, &text, set, pools, reader.problems)
}

fn http(reader: &mut Reader<'_>) -> Option<HttpSettings> {
    let raw::Http { addr, token: token_value, token_file } = raw::Http::read(reader.layer, reader.problems);
    let variable = &registry::HTTP_ADDR;
    let text = reader.text(variable, addr)?;
    let address = match text.to_lowercase().as_str() {
        "off" => None,
        // As `localhost:8080` and, in Go's way, `:8080` are understood elsewhere.
        other => {
            let spelt = match other.strip_prefix("localhost:") {
                Some(port) => format!("127.0.0.1:{port}"),
                None if other.starts_with(':') => format!("[::]{other}"),
                None => other.to_owned(),
            };
            let Ok(address) = spelt.parse::<SocketAddr>() else {
                let message = "must be an address and a port (`127.0.0.1:8080`, `0.0.0.0:8080`, `[::]:8080`), or `off`";
                reader.refuse(variable, &text, message);
                return None;
            };
            Some(address)
        }
    };
    let token = if token_value.is_some() || token_file.is_some() {
        let token = token(reader, &registry::HTTP_TOKEN, token_value, token_file)?;
        if token.expose_secret().len() < SHORTEST_HTTP_TOKEN {
            let name = reader.name(&registry::HTTP_TOKEN);
            let message = format!(
                "must have {SHORTEST_HTTP_TOKEN} letters at least, so that nobody guesses it: `openssl rand -hex 16` makes one"
            );
            reader.problems.add(name, None, message);
            return None;
        }
        Some(token)
    } else {
        None
    };
    Some(HttpSettings { address, token })
}

fn log_filter(reader: &mut Reader<'_>, raw: Option<String>) -> Option<String> {
    let variable = &registry::LOG;
    let filter = reader.text(variable, raw)?;
    if let Err(cause) = EnvFilter::try_new(&filter) {
        let message = format!(
            "must be a level (`error`, `warn`, `info`, `debug`, `trace`), or levels by module such as \
             `warn,picus=debug`; {cause}"
        );
        reader.refuse(variable, &filter, message);
        return None;
    }
    // A word that is no level is the name of a module: everything of that is logged, and nothing else.
    let levels = ["error", "warn", "info", "debug", "trace", "off"];
    for word in filter.split(',').map(str::trim).filter(|word| word.chars().all(char::is_alphabetic)) {
        if let Some((level, 1..=2)) = nearest(word, levels) {
            reader.problems.warn(format!("{}: `{word}` is taken for a module; is `{level}` meant?", variable.name));
        }
    }
    Some(filter)
}

fn log_format_of(reader: &mut Reader<'_>, raw: Option<String>) -> Option<LogFormat> {
    let variable = &registry::LOG_FORMAT;
    let format = reader.text(variable, raw)?;
    match format.to_lowercase().as_str() {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => {
            reader.refuse(variable, &format, "must be `text` or `json`");
            None
        }
    }
}

fn pool(
    name: &PoolName,
    environment: &Environment,
    accounts: &mut Accounts,
    problems: &mut Problems,
) -> Option<PoolSettings> {
    let layer = environment.for_pool(name);
    let raw::Pool { provider_type, max_idle_time, billing_period, boot_timeout, min_agents, max_agents, agent_image } =
        raw::Pool::read(&layer, problems);
    let mut reader = Reader { layer: &layer, pool: Some(name), problems };
    let provider = provider(&mut reader, provider_type);
    // Another provider's launch settings are not known, so what is missing of them is not said.
    let launch = provider.map(|provider| launch(&mut reader, provider));
    let fixed = match &launch {
        Some(Some((_, LaunchSettings::Fixed(fixed)))) => Some(fixed.instances.len()),
        Some(Some((_, LaunchSettings::Hetzner(_) | LaunchSettings::Ec2(_))) | None) | None => None,
    };
    let max_agents = max_agents.or_else(|| Some(fixed.unwrap_or(1).to_string()));
    let (min, max) = limits(&mut reader, min_agents, max_agents);
    let idle_timeout = reader.duration(&registry::MAX_IDLE_TIME, max_idle_time, &IDLE_TIME);
    let billing_period = billing_period.or_else(|| {
        let preset = match provider {
            Some(ProviderType::Hetzner) | None => "1h",
            Some(ProviderType::Aws) => "0s",
        };
        Some(preset.to_owned())
    });
    let billing = reader
        .duration(&registry::BILLING_PERIOD, billing_period, &BILLING_PERIOD)
        .map(|period| if period.is_zero() { Billing::BySecond } else { Billing::ByPeriod(period) });
    let boot_timeout = reader.duration(&registry::BOOT_TIMEOUT, boot_timeout, &BOOT_TIMEOUT);
    let launches = !(provider == Some(ProviderType::Aws) && ec2::is_fixed(&reader));
    let agent = agent::read(&mut reader, agent_image, launches);
    let (account, launch) = launch??;
    Some(PoolSettings {
        name: name.clone(),
        account: accounts.of(account),
        min: min?,
        max: max?,
        idle_timeout: idle_timeout?,
        billing: billing?,
        boot_timeout: boot_timeout?,
        agent: agent?,
        launch,
    })
}

/// A provider of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProviderType {
    Hetzner,
    Aws,
}

/// The provider. Also if nothing is set, which is reported: what is missing of Hetzner's settings is said then too, if
/// nothing speaks for EC2. `None`: it is not in this build, or unknown.
fn provider(reader: &mut Reader<'_>, raw: Option<String>) -> Option<ProviderType> {
    let variable = &registry::PROVIDER_TYPE;
    let wanted = raw.is_some();
    let Some(provider) = reader.text(variable, raw) else {
        let aws = registry::ALL.iter().any(|one| one.name.starts_with(raw::Aws::PREFIX) && reader.layer.has(one.name));
        return (!wanted).then_some(if aws { ProviderType::Aws } else { ProviderType::Hetzner });
    };
    let message = match provider.to_lowercase().as_str() {
        "hcloud" if cfg!(feature = "hcloud") => return Some(ProviderType::Hetzner),
        "aws" if cfg!(feature = "aws") => return Some(ProviderType::Aws),
        word @ ("hcloud" | "aws") => format!("is not in this build: build Picus with the cargo feature `{word}`"),
        _ => "must be `hcloud` (Hetzner Cloud) or `aws` (AWS EC2)".to_owned(),
    };
    reader.refuse(variable, &provider, message);
    None
}

/// The account and what is launched or started there.
fn launch(reader: &mut Reader<'_>, provider: ProviderType) -> Option<(Account, LaunchSettings)> {
    match provider {
        ProviderType::Hetzner => {
            if reader.layer.has(registry::WOODPECKER_AGENT_ID.name) {
                ec2::not_needed(reader);
            }
            let (account, launch) = hetzner::read(reader)?;
            Some((Account::Hetzner(account), LaunchSettings::Hetzner(launch)))
        }
        ProviderType::Aws => Some(match ec2::read(reader)? {
            ec2::Launch::Fixed(fixed) => (Account::Aws, LaunchSettings::Fixed(fixed)),
            ec2::Launch::Launched(launched) => (Account::Aws, LaunchSettings::Ec2(launched)),
        }),
    }
}

/// Where a pool's instances are.
enum Account {
    Hetzner(hetzner::Account),
    Aws,
}

fn limits(reader: &mut Reader<'_>, min: Option<String>, max: Option<String>) -> (Option<u32>, Option<u32>) {
    let (least, most) = (&registry::MIN_AGENTS, &registry::MAX_AGENTS);
    let min = reader.whole(least, min, 0..=MOST_AGENTS);
    let max = reader.whole(most, max, 1..=MOST_AGENTS);
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        let (least_name, most_name) = (reader.name(least), reader.name(most));
        // The one that was set for the pool is the one to look at; else the minimum, because the maximum costs.
        let pools_own_maximum = most_name != most.name && least_name == least.name;
        if pools_own_maximum {
            let message = format!("must be at least {min}, which is `{least_name}`, or lower that for this pool");
            reader.refuse(most, &max.to_string(), message);
        } else {
            let message = format!("must be at most {max}, which is `{most_name}`, or raise that");
            reader.refuse(least, &min.to_string(), message);
        }
    }
    (min, max)
}

/// The accounts found so far.
#[derive(Default)]
struct Accounts(Vec<AccountSettings>);

impl Accounts {
    /// The id of an account: that of an equal one that is there already, or a new one.
    fn of(&mut self, account: Account) -> AccountId {
        let same = self.0.iter().position(|known| match (known, &account) {
            (
                AccountSettings::Hetzner { token: known, endpoint: at },
                Account::Hetzner(hetzner::Account { token, endpoint }),
            ) => known.expose_secret() == token.expose_secret() && at == endpoint,
            // The SDK finds one set of credentials and one region in its own settings.
            (AccountSettings::Aws, Account::Aws) => true,
            (AccountSettings::Hetzner { .. }, Account::Aws) | (AccountSettings::Aws, Account::Hetzner(_)) => false,
        });
        AccountId(same.unwrap_or_else(|| {
            self.0.push(match account {
                Account::Hetzner(hetzner::Account { token, endpoint }) => AccountSettings::Hetzner { token, endpoint },
                Account::Aws => AccountSettings::Aws,
            });
            self.0.len() - 1
        }))
    }
}

#[cfg(test)]
#[cfg(not(feature = "hcloud"))]
mod tests {
    use crate::settings::Settings;

    #[test]
    fn a_build_without_the_provider_says_so() {
        let vars = [("PICUS_PROVIDER_TYPE".to_owned(), "hcloud".to_owned())];
        let problems = Settings::from_vars(vars).expect_err("there is no provider");
        assert!(problems.iter().any(|problem| {
            problem.to_string()
                == "PICUS_PROVIDER_TYPE=\"hcloud\": is not in this build: build Picus with the cargo feature `hcloud`"
        }));
    }
}
