//! `PICUS_POOLS` and `PICUS_ID`: the names from which everything that is launched gets its own.

use super::problems::{Problems, shown};
use super::registry::{Kind, POOLS};
use crate::model::ids::{InstallationId, LaunchName, PoolName, SUFFIX_LENGTH};

/// A host name's label, a Hetzner server's name and a Hetzner label's value hold at most so many letters.
const LONGEST_NAME: usize = 63;

/// The pool's name where `PICUS_POOLS` is not set.
const ONLY_POOL: &str = "default";

/// The pools by name.
#[derive(Debug)]
pub struct Pools {
    /// In the order of the settings; what was almost right is here too, so that its variables are not taken for
    /// typing errors.
    pub names: Vec<PoolName>,
    /// `PICUS_POOLS` is set.
    pub configured: bool,
    /// There was nothing wrong with it.
    pub sound: bool,
}

impl Pools {
    /// Reads `PICUS_POOLS`.
    #[must_use]
    pub fn read(value: Option<&str>, problems: &mut Problems) -> Self {
        let Some(value) = value else {
            return Self { names: vec![PoolName::from(ONLY_POOL)], configured: false, sound: true };
        };
        let mut pools = Self { names: Vec::new(), configured: true, sound: true };
        let mut complain = |what: String| {
            let message = format!("must be names of lower-case letters and digits, separated by commas; {what}");
            problems.add(POOLS.name, shown(POOLS.name, Kind::List, value), message);
            pools.sound = false;
        };
        for entry in value.split(',').map(str::trim) {
            let lower = PoolName(entry.to_lowercase());
            let possible = !entry.is_empty() && lower.0.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if entry.is_empty() {
                complain("there is an empty entry".to_owned());
            } else if !possible {
                complain(format!("`{entry}` has something else in it"));
            } else if lower.0 != entry {
                complain(format!("write `{lower}` instead of `{entry}`"));
            } else if pools.names.contains(&lower) {
                complain(format!("`{entry}` is there twice"));
            }
            if possible && !pools.names.contains(&lower) {
                pools.names.push(lower);
            }
        }
        if pools.names.is_empty() {
            // What is set for all pools is read all the same, so that its problems are told in the same message.
            pools.names.push(PoolName::from(ONLY_POOL));
        }
        pools
    }
}

/// Checks the name of the installation and that names of instances fit with every pool. What is wrong is said of
/// `variable`, which is that of the pools if `set` says that the name is the preset.
///
/// It must be an RFC 1123 label: <https://www.rfc-editor.org/rfc/rfc1123#page-13>.
pub fn installation(
    variable: &str,
    id: &str,
    set: bool,
    pools: &Pools,
    problems: &mut Problems,
) -> Option<InstallationId> {
    let had = || if set { shown(variable, Kind::Text, id) } else { None };
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !id.bytes().all(inner) || id.starts_with('-') || id.ends_with('-') || id.is_empty() {
        let message = "must be lower-case letters, digits and `-`, with a letter or digit at both ends, such as \
                       `picus` or `ci-2`";
        problems.add(variable, had(), message);
        return None;
    }
    let installation = InstallationId::from(id);
    let longest = pools.names.iter().max_by_key(|pool| pool.0.len())?;
    let whole = LaunchName::new(&installation, longest, 0).as_str().len();
    if whole > LONGEST_NAME {
        let (id_length, pool_length) = (id.len(), longest.0.len());
        let (what, taken) = if set { ("", pool_length) } else { ("the pool's name ", id_length) };
        // Two dashes and the suffix stand between and after the two.
        let remedy = match LONGEST_NAME.checked_sub(taken + SUFFIX_LENGTH + 2).filter(|room| *room > 0) {
            Some(room) => format!("use at most {room} letters"),
            None => "use a shorter name for the pool".to_owned(),
        };
        let message = format!(
            "{what}is too long: instances are named `<id>-<pool>-<{SUFFIX_LENGTH} letters>`, with `{id}` and `{longest}` \
             that is {id_length} + 1 + {pool_length} + 1 + {SUFFIX_LENGTH} = {whole} letters, and at most {LONGEST_NAME} \
             are possible: {remedy}"
        );
        problems.add(variable, had(), message);
        return None;
    }
    Some(installation)
}
