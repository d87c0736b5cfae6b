//! `PICUS_AWS_*`: the machines that are started and stopped, or what is launched. Credentials and region are the SDK's own
//! `AWS_*` and are not read here; whether what is named exists is asked by the provider.

use std::time::Duration;

use super::raw::{self, Section as _};
use super::read::{Bounds, Reader};
use super::registry::{self, Variable};
use super::{AmiChoice, Ec2Settings, FixedSettings, LaunchTemplate, Spot};
use crate::model::ids::{AgentId, InstanceId};
use crate::model::pool::{FixedInstance, RetireTo};
use crate::settings::environment::for_pool;

/// Longest key and value of a tag, in letters: <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html>.
const LONGEST_KEY: usize = 128;
const LONGEST_VALUE: usize = 256;

/// Keys that Picus itself sets.
const OWN_KEYS: [&str; 7] =
    ["Name", "picus", "picus-server", "picus-pool", "picus-agent", "picus-drain", "picus-settings"];

/// Sizes of a volume, in GiB: <https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html>.
const VOLUME_SIZES: std::ops::RangeInclusive<u32> = 1..=16_384;

const STOPPED_MAX_AGE: Bounds = Bounds {
    least: Duration::from_hours(1),
    most: Duration::from_hours(24 * 366),
    zero: None,
    why: "in less than an hour nothing is gained by stopping, and after a year nothing on the disk is of use",
};

/// What a pool at EC2 does.
pub enum Launch {
    /// It starts and stops machines that somebody else made.
    Fixed(FixedSettings),
    /// It launches.
    Launched(Box<Ec2Settings>),
}

/// Whether a pool at EC2 has fixed instances: it launches nothing, so it needs less.
pub fn is_fixed(reader: &Reader<'_>) -> bool {
    reader.layer.has(registry::AWS_INSTANCE_ID.name)
}

/// Reads the launch settings of a pool.
pub fn read(reader: &mut Reader<'_>) -> Option<Launch> {
    let raw::Aws {
        instance_id,
        instance_type,
        ami,
        subnets,
        security_groups,
        key_name,
        instance_profile,
        spot,
        volume_size,
        tags: tag_list,
        launch_template,
        retire,
        stopped_max_age,
        hourly_price,
    } = raw::Aws::read(reader.layer, reader.problems);
    let raw::AgentRecord { agent_id } = raw::AgentRecord::read(reader.layer, reader.problems);
    let prefix = prefix(reader);
    let hourly_price = price(reader, hourly_price);
    if instance_id.is_some() {
        let instances = fixed_instances(reader, instance_id, agent_id);
        refuse_launch_settings(reader);
        return Some(Launch::Fixed(FixedSettings { prefix, instances: instances?, hourly_price: hourly_price? }));
    }
    if agent_id.is_some() {
        not_needed(reader);
    }
    let template = template(reader, launch_template);
    let has_template = reader.layer.has(registry::AWS_LAUNCH_TEMPLATE.name);
    let instance_types = instance_types(reader, instance_type, has_template);
    let ami = image(reader, ami, has_template);
    let subnets = ids(reader, &registry::AWS_SUBNETS, subnets, "subnet-");
    let security_groups = ids(reader, &registry::AWS_SECURITY_GROUPS, security_groups, "sg-");
    let key_name = reader.text(&registry::AWS_KEY_NAME, key_name);
    let instance_profile = reader.text(&registry::AWS_INSTANCE_PROFILE, instance_profile);
    let spot = spot_of(reader, spot);
    let volume_size = volume(reader, volume_size);
    let tags = tags(reader, tag_list);
    let retire = retire_to(reader, retire, stopped_max_age, spot);
    Some(Launch::Launched(Box::new(Ec2Settings {
        prefix,
        instance_types: instance_types?,
        ami: ami?,
        subnets: subnets?,
        security_groups: security_groups?,
        key_name,
        instance_profile,
        spot: spot?,
        volume_size: volume_size?,
        tags: tags?,
        launch_template: template?,
        retire: retire?,
        hourly_price: hourly_price?,
    })))
}

/// Says that no agent's id is needed, where one is set for instances that are launched.
pub fn not_needed(reader: &mut Reader<'_>) {
    let name = reader.name(&registry::WOODPECKER_AGENT_ID);
    reader
        .problems
        .warn(format!("{name} is no longer needed: each agent that is launched gets a record and a token of its own"));
}

/// The pool's own prefix if any of its launch settings is its own.
fn prefix(reader: &Reader<'_>) -> String {
    let own = |variable: &&Variable| reader.layer.set_as(variable.name) != variable.name;
    let mut all = registry::ALL.iter().filter(|variable| variable.name.starts_with(raw::Aws::PREFIX));
    match reader.pool {
        Some(pool) if all.any(|variable| own(&variable)) => for_pool(raw::Aws::PREFIX, pool),
        Some(_) | None => raw::Aws::PREFIX.to_owned(),
    }
}

fn fixed_instances(
    reader: &mut Reader<'_>,
    instance_id: Option<String>,
    agent_id: Option<String>,
) -> Option<Vec<FixedInstance>> {
    let ids = ids(reader, &registry::AWS_INSTANCE_ID, instance_id, "i-")?;
    let variable = &registry::WOODPECKER_AGENT_ID;
    let whole = agent_id.clone().unwrap_or_default();
    let agents = reader.list(variable, agent_id)?;
    if !agents.is_empty() && agents.len() != ids.len() {
        let message = format!(
            "must have one agent for each machine in `{}`, in the same order: {} instead of {}",
            reader.name(&registry::AWS_INSTANCE_ID),
            ids.len(),
            agents.len()
        );
        reader.refuse(variable, &whole, message);
        return None;
    }
    let mut instances = Vec::new();
    let mut agents = agents.into_iter();
    for id in ids {
        let agent = match agents.next().map(|agent| agent.parse::<AgentId>().ok().filter(|agent| agent.0 > 0)) {
            Some(Some(agent)) => Some(agent),
            None => None,
            Some(None) => {
                reader.refuse(variable, &whole, "must be ids of agents, such as `5,7`");
                return None;
            }
        };
        instances.push(FixedInstance { id: InstanceId(id), agent });
    }
    Some(instances)
}

/// With machines that are there already nothing is launched.
fn refuse_launch_settings(reader: &mut Reader<'_>) {
    let about_both = [registry::AWS_INSTANCE_ID.name, registry::AWS_HOURLY_PRICE.name];
    for variable in registry::ALL {
        let is_launch_setting = variable.name.starts_with(raw::Aws::PREFIX) && !about_both.contains(&variable.name);
        if is_launch_setting && reader.layer.has(variable.name) {
            let name = reader.name(variable);
            let fixed = reader.name(&registry::AWS_INSTANCE_ID);
            let message =
                format!("has no effect with `{fixed}`, whose machines are only started and stopped: remove one");
            reader.problems.add(name, None, message);
        }
    }
}

/// The entries, each of which begins so.
fn ids(
    reader: &mut Reader<'_>,
    variable: &'static Variable,
    raw: Option<String>,
    beginning: &str,
) -> Option<Vec<String>> {
    let whole = raw.clone().unwrap_or_default();
    let entries = reader.list(variable, raw)?;
    let good = |id: &String| {
        id.strip_prefix(beginning).is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        })
    };
    if let Some(wrong) = entries.iter().find(|id| !good(id)) {
        let message =
            format!("must be ids such as `{beginning}0123456789abcdef0`, separated by commas; `{wrong}` is none");
        reader.refuse(variable, &whole, message);
        return None;
    }
    Some(entries)
}

fn instance_types(reader: &mut Reader<'_>, raw: Option<String>, has_template: bool) -> Option<Vec<String>> {
    let variable = &registry::AWS_INSTANCE_TYPE;
    let (is_set, whole) = (raw.is_some(), raw.clone().unwrap_or_default());
    let entries = reader.list(variable, raw)?;
    if !is_set && !has_template {
        reader.problems.missing(variable, reader.pool);
        return None;
    }
    let good = |entry: &String| {
        let part =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        entry.split_once('.').is_some_and(|(family, size)| part(family) && part(size))
    };
    if let Some(wrong) = entries.iter().find(|entry| !good(entry)) {
        let message = format!("must be instance types such as `c7a.large,m7a.large`; `{wrong}` is none");
        reader.refuse(variable, &whole, message);
        return None;
    }
    Some(entries)
}

/// `Some(None)`: the template has it.
#[expect(clippy::option_option, reason = "a problem, and nothing set, are two things")]
fn image(reader: &mut Reader<'_>, raw: Option<String>, has_template: bool) -> Option<Option<AmiChoice>> {
    let variable = &registry::AWS_AMI;
    if raw.is_none() {
        if has_template {
            return Some(None);
        }
        reader.problems.missing(variable, reader.pool);
        return None;
    }
    let text = reader.text(variable, raw)?;
    if let Some(path) = text.strip_prefix("resolve:ssm:").filter(|path| path.len() > 1) {
        return Some(Some(AmiChoice::Parameter(path.to_owned())));
    }
    if text.strip_prefix("ami-").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
    {
        return Some(Some(AmiChoice::Id(text)));
    }
    let is_owner = |owner: &str| {
        matches!(owner, "self" | "amazon" | "aws-marketplace")
            || (owner.len() == 12 && owner.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match text.split_once('/') {
        Some((owner, name)) if is_owner(owner) && !name.is_empty() => {
            Some(Some(AmiChoice::Newest { owner: owner.to_owned(), name: name.to_owned() }))
        }
        Some(_) | None => {
            let message = "must be an id (`ami-0123456789abcdef0`), an alias (`resolve:ssm:/aws/service/…`), or an owner and \
                           a name (`self/ci-*`, `amazon/al2023-ami-2023*`; owner `self`, `amazon`, `aws-marketplace` or an \
                           account's number)";
            reader.refuse(variable, &text, message);
            None
        }
    }
}

/// `Some(None)`: none.
#[expect(clippy::option_option, reason = "a problem, and nothing set, are two things")]
fn template(reader: &mut Reader<'_>, raw: Option<String>) -> Option<Option<LaunchTemplate>> {
    let variable = &registry::AWS_LAUNCH_TEMPLATE;
    if raw.is_none() {
        return Some(None);
    }
    let text = reader.text(variable, raw)?;
    let (name, version) = text.split_once(':').unwrap_or((&text, "$Default"));
    let is_version = matches!(version, "$Default" | "$Latest")
        || (!version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()));
    if name.is_empty() || !is_version {
        let message = "must be the id or name of a launch template, with a version if not the default one: `lt-0123:3`, \
                       `ci:$Latest`";
        reader.refuse(variable, &text, message);
        return None;
    }
    Some(Some(LaunchTemplate { name: name.to_owned(), version: version.to_owned() }))
}

fn spot_of(reader: &mut Reader<'_>, raw: Option<String>) -> Option<Spot> {
    let variable = &registry::AWS_SPOT;
    let text = reader.text(variable, raw)?;
    match text.to_lowercase().as_str() {
        "never" => Some(Spot::Never),
        "prefer" => Some(Spot::Prefer),
        "only" => Some(Spot::Only),
        _ => {
            reader.refuse(variable, &text, "must be `never`, `prefer` (on demand where there is no spot) or `only`");
            None
        }
    }
}

/// `Some(None)`: the image's own size.
#[expect(clippy::option_option, reason = "a problem, and nothing set, are two things")]
fn volume(reader: &mut Reader<'_>, raw: Option<String>) -> Option<Option<u32>> {
    if raw.is_none() {
        return Some(None);
    }
    reader.whole(&registry::AWS_VOLUME_SIZE, raw, VOLUME_SIZES).map(Some)
}

/// `Some(None)`: not told.
#[expect(clippy::option_option, reason = "a problem, and nothing set, are two things")]
fn price(reader: &mut Reader<'_>, raw: Option<String>) -> Option<Option<f64>> {
    if raw.is_none() {
        return Some(None);
    }
    let variable = &registry::AWS_HOURLY_PRICE;
    let text = reader.text(variable, raw)?;
    if let Some(price) = text.parse::<f64>().ok().filter(|price| price.is_finite() && (0.0..=10_000.0).contains(price))
    {
        Some(Some(price))
    } else {
        reader.refuse(variable, &text, "must be the price of an hour, such as `0.0416`");
        None
    }
}

fn retire_to(
    reader: &mut Reader<'_>,
    raw: Option<String>,
    max_age: Option<String>,
    spot: Option<Spot>,
) -> Option<RetireTo> {
    let variable = &registry::AWS_RETIRE;
    let max_age_set = max_age.clone();
    let text = reader.text(variable, raw)?;
    let max_age = reader.duration(&registry::AWS_STOPPED_MAX_AGE, max_age, &STOPPED_MAX_AGE)?;
    match text.to_lowercase().as_str() {
        "terminate" => {
            if let Some(set) = max_age_set {
                let message = format!("has no effect without `{}=stop`: remove it", variable.name);
                reader.refuse(&registry::AWS_STOPPED_MAX_AGE, &set, message);
            }
            Some(RetireTo::Delete)
        }
        "stop" if spot.is_some_and(|spot| spot != Spot::Never) => {
            let message = format!("spot instances can't be stopped: remove it, or `{}`", registry::AWS_SPOT.name);
            reader.refuse(variable, &text, message);
            None
        }
        "stop" => Some(RetireTo::Stop { max_age }),
        _ => {
            reader.refuse(variable, &text, "must be `terminate`, or `stop` to start the same instance again");
            None
        }
    }
}

fn tags(reader: &mut Reader<'_>, raw: Option<String>) -> Option<Vec<(String, String)>> {
    let variable = &registry::AWS_TAGS;
    let whole = raw.clone().unwrap_or_default();
    let mut tags: Vec<(String, String)> = Vec::new();
    for entry in reader.list(variable, raw)? {
        let (key, value) = entry.split_once('=').unwrap_or((&entry, ""));
        let (key, value) = (key.trim(), value.trim());
        let complaint = if key.is_empty() {
            Some(format!("`{entry}` has no key"))
        } else if key.chars().count() > LONGEST_KEY || value.chars().count() > LONGEST_VALUE {
            Some(format!("`{key}` is too long: a key has at most {LONGEST_KEY} letters, a value {LONGEST_VALUE}"))
        } else if key.to_lowercase().starts_with("aws:") {
            Some(format!("`{key}` is one of AWS's own"))
        } else if OWN_KEYS.contains(&key) {
            Some(format!("`{key}` is one of Picus's own"))
        } else if tags.iter().any(|(known, _)| known == key) {
            Some(format!("`{key}` is there twice"))
        } else {
            None
        };
        if let Some(complaint) = complaint {
            reader.refuse(variable, &whole, format!("must be tags such as `team=ci,cost-centre=42`; {complaint}"));
            return None;
        }
        tags.push((key.to_owned(), value.to_owned()));
    }
    Some(tags)
}
