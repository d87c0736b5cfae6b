//! Sorts the environment: what holds for all pools, what for one, what is no setting of ours. Reads no values.
//!
//! Every `PICUS_*` name that is not empty is accounted for: a setting, a problem, or what Kubernetes sets by itself.

use std::collections::BTreeMap;

use super::kubernetes;
use super::nearest::nearest;
use super::pools::Pools;
use super::problems::Problems;
use super::registry::{ALL, Availability, Found, Kind, Scope, Variable, find};
use crate::model::ids::PoolName;

/// Begins every setting.
pub const PREFIX: &str = "PICUS_";
/// Begins every setting of one pool.
const POOL_PREFIX: &str = "PICUS_POOL_";
/// Begins what is passed on to the agent.
pub const AGENT_PREFIX: &str = "PICUS_AGENT_WOODPECKER_";

/// Variables of which setting one for a pool puts all others of the group out of force.
pub const GROUPS: [[&str; 2]; 3] = [
    ["PICUS_HCLOUD_TOKEN", "PICUS_HCLOUD_TOKEN_FILE"],
    ["PICUS_AGENT_WOODPECKER_AGENT_SECRET", "PICUS_AGENT_WOODPECKER_AGENT_SECRET_FILE"],
    ["PICUS_AGENT_WOODPECKER_AGENT_LABELS", "PICUS_AGENT_WOODPECKER_FILTER_LABELS"],
];

/// The name of a variable for one pool: `PICUS_POOL_ARM64_MAX_AGENTS` for `PICUS_MAX_AGENTS`.
#[must_use]
pub fn for_pool(name: &str, pool: &PoolName) -> String {
    format!("{POOL_PREFIX}{}_{}", pool.0.to_uppercase(), name.strip_prefix(PREFIX).unwrap_or(name))
}

/// Values by the name for all pools. Holds secrets, so it has no `Debug`.
#[derive(Clone, Default)]
pub struct Layer(BTreeMap<String, Entry>);

#[derive(Clone)]
struct Entry {
    set_as: String,
    value: String,
}

impl Layer {
    /// The name under which the value of `name` was set; `name` itself if it was not.
    #[must_use]
    pub fn set_as<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.get(name).map_or(name, |entry| &entry.set_as)
    }

    /// Whether `name` has a value.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Values of the variables that the registry knows by name, for `envy`. A family's members are not among them:
    /// their names may be anything.
    pub fn known(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().filter(|(name, _)| is_known(name)).map(|(name, entry)| (name.clone(), entry.value.clone()))
    }

    /// What goes to the agent: the name without our prefix, the name as it was set, the value; in order of the names.
    pub fn agent(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.0.iter().filter_map(|(name, entry)| {
            let short = name.strip_prefix(AGENT_PREFIX)?;
            Some((short, entry.set_as.as_str(), entry.value.as_str()))
        })
    }

    fn set(&mut self, name: String, set_as: String, value: String) {
        self.0.insert(name, Entry { set_as, value });
    }

    /// This layer with another one over it.
    fn under(&self, over: &Self) -> Self {
        let mut layer = self.clone();
        for group in GROUPS {
            if group.iter().any(|name| over.has(name)) {
                layer.0.retain(|name, _| !group.contains(&name.as_str()));
            }
        }
        layer.0.extend(over.0.clone());
        layer
    }
}

fn is_known(name: &str) -> bool {
    match find(name) {
        Some(Found::Variable(variable)) => variable.name == name,
        Some(Found::FileOf(_)) => true,
        None => false,
    }
}

/// The sorted environment.
pub struct Environment {
    /// What holds for all pools.
    pub base: Layer,
    pools: BTreeMap<PoolName, Layer>,
}

impl Environment {
    /// Sorts `vars`, which must be free of empty values.
    #[must_use]
    pub fn sort(vars: BTreeMap<String, String>, pools: &Pools, problems: &mut Problems) -> Self {
        let mut environment = Self { base: Layer::default(), pools: BTreeMap::new() };
        for (name, value) in vars {
            if !name.starts_with(PREFIX) || kubernetes::sets(&name) {
                continue;
            }
            match place(&name, &value, pools) {
                Ok(Place::Base) => environment.base.set(name.clone(), name, value),
                Ok(Place::Pool(pool, base_name)) => {
                    environment.pools.entry(pool).or_default().set(base_name, name, value);
                }
                // The value is not shown: a mistyped name may be that of a secret.
                Err(message) => problems.add(name, None, message),
                Ok(Place::SaidElsewhere) => {}
            }
        }
        environment
    }

    /// What holds for a pool.
    #[must_use]
    pub fn for_pool(&self, pool: &PoolName) -> Layer {
        self.pools.get(pool).map_or_else(|| self.base.clone(), |over| self.base.under(over))
    }
}

enum Place {
    Base,
    Pool(PoolName, String),
    /// What is wrong with it follows from another problem.
    SaidElsewhere,
}

/// Where a variable belongs, or what is wrong with its name.
fn place(name: &str, value: &str, pools: &Pools) -> Result<Place, String> {
    if let Some(rest) = name.strip_prefix(POOL_PREFIX) {
        return place_of_pool(name, rest, pools);
    }
    match find(name) {
        Some(Found::FileOf(_)) => Ok(Place::Base),
        Some(Found::Variable(variable)) => match variable.availability {
            Availability::Here => check_agent_name(name).map(|()| Place::Base),
            Availability::Missing(what) => Err(format!("{what}: remove it")),
        },
        None => Err(kubernetes::hint(name, value).unwrap_or_else(|| unknown(name, candidates(None)))),
    }
}

fn place_of_pool(name: &str, rest: &str, pools: &Pools) -> Result<Place, String> {
    let (segment, short) = rest.split_once('_').unwrap_or((rest, ""));
    let base_name = format!("{PREFIX}{short}");
    let Some(pool) = pools.names.iter().find(|pool| pool.0.to_uppercase() == segment) else {
        // What is wrong with `PICUS_POOLS` is reported; what follows from it would only hide that.
        return if pools.sound { Err(no_such_pool(rest, segment, pools)) } else { Ok(Place::SaidElsewhere) };
    };
    match find(&base_name) {
        Some(Found::FileOf(variable) | Found::Variable(variable)) => match (variable.availability, variable.scope) {
            (Availability::Missing(what), _) => Err(format!("{what}: remove it")),
            (Availability::Here, Scope::Installation) => Err(format!(
                "can't be set for one pool, because it holds for the whole installation: set `{base_name}`"
            )),
            (Availability::Here, Scope::Pool) => {
                check_agent_name(&base_name)?;
                Ok(Place::Pool(pool.clone(), base_name))
            }
        },
        None if short.is_empty() => {
            Err(format!("is not a setting; `{POOL_PREFIX}{segment}_MAX_AGENTS` and the like are, for pool `{pool}`"))
        }
        None => Err(unknown(name, candidates(Some(pool)))),
    }
}

fn no_such_pool(rest: &str, segment: &str, pools: &Pools) -> String {
    if let Some(pool) = pools.names.iter().find(|pool| pool.0.eq_ignore_ascii_case(segment)) {
        let short = rest.split_once('_').map_or("", |(_, short)| short);
        return format!("must be written in capitals: `{}`", for_pool(short, pool));
    }
    let base_name = format!("{PREFIX}{rest}");
    if find(&base_name).is_some() {
        let example = pools.names.first().map_or_else(|| "ARM64".to_owned(), |pool| pool.0.to_uppercase());
        return format!(
            "names no pool: `{base_name}` holds for all pools, `{POOL_PREFIX}{example}_{rest}` for one named in \
             `PICUS_POOLS`"
        );
    }
    let pool = segment.to_lowercase();
    if pools.configured {
        let names: Vec<&str> = pools.names.iter().map(|pool| pool.0.as_str()).collect();
        format!("there is no pool `{pool}`: `PICUS_POOLS` has `{}`", names.join(","))
    } else {
        format!("there is no pool `{pool}`, because `PICUS_POOLS` is not set")
    }
}

/// What is passed to the agent keeps its name, so that must be one that an agent can read.
fn check_agent_name(name: &str) -> Result<(), String> {
    let Some(short) = name.strip_prefix(AGENT_PREFIX) else { return Ok(()) };
    if short.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_') {
        Ok(())
    } else {
        let right: String = short.to_uppercase().chars().filter(|letter| !letter.is_whitespace()).collect();
        Err(format!(
            "what is passed to the agent has a name of capitals, digits and `_`; is `{AGENT_PREFIX}{right}` meant?"
        ))
    }
}

fn unknown(name: &str, candidates: Vec<String>) -> String {
    if let Some(plain) = name.strip_suffix("_FILE")
        && candidates.iter().any(|candidate| candidate == plain)
    {
        return format!("only a secret can come from a file: set `{plain}`");
    }
    match nearest(name, candidates) {
        Some((near, _)) => format!("is not a setting; the nearest that exists is `{near}`"),
        None => "is not a setting".to_owned(),
    }
}

/// Names to suggest: all, or those for one pool.
fn candidates(pool: Option<&PoolName>) -> Vec<String> {
    let name = |variable: &Variable, suffix: &str| {
        let name = format!("{}{suffix}", variable.name);
        pool.map_or_else(|| name.clone(), |pool| for_pool(&name, pool))
    };
    ALL.iter()
        .filter(|variable| variable.availability == Availability::Here && !variable.name.ends_with('*'))
        .filter(|variable| pool.is_none() || variable.scope == Scope::Pool)
        .flat_map(|variable| {
            let file = (variable.kind == Kind::Secret).then(|| name(variable, "_FILE"));
            std::iter::once(name(variable, "")).chain(file)
        })
        .collect()
}
