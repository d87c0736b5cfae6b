//! Collects what is wrong and what deserves a word. Decides how much of a value may be shown.

use std::collections::BTreeMap;

use super::Problem;
use super::registry::{Kind, Variable};
use crate::model::ids::PoolName;

/// Longest value that a message shows whole; a line of log stays a line.
const LONGEST_SHOWN: usize = 200;

/// Words in a name after which its value is taken for a secret: what agents and plug-ins call theirs.
const SECRET_WORDS: [&str; 9] =
    ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "KEY", "CREDENTIAL", "AUTH", "PRIVATE"];

/// Everything found so far.
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<Problem>,
    warnings: Vec<String>,
    missing: BTreeMap<&'static str, Missing>,
}

#[derive(Debug)]
struct Missing {
    variable: &'static Variable,
    pools: Vec<PoolName>,
}

impl Problems {
    /// Adds a problem; a variable that several pools read is reported once.
    pub fn add(&mut self, variable: impl Into<String>, had: Option<String>, message: impl Into<String>) {
        let mut message = message.into();
        if had.as_deref().is_some_and(is_quoted) {
            message.push_str(" (the quotes are part of the value: remove them)");
        }
        let problem = Problem { variable: variable.into(), had, message };
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    /// Adds a required variable that is not set; `pool` is `None` for one that holds for the installation.
    pub fn missing(&mut self, variable: &'static Variable, pool: Option<&PoolName>) {
        let entry = self.missing.entry(variable.name).or_insert_with(|| Missing { variable, pools: Vec::new() });
        entry.pools.extend(pool.cloned());
    }

    /// Adds a warning, once.
    pub fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// All problems, what is missing first, and the warnings. `pools` are all that are configured.
    #[must_use]
    pub fn finish(self, pools: &[PoolName]) -> (Vec<Problem>, Vec<String>) {
        let missing = self.missing.into_values().map(|missing| {
            let Missing { variable, pools: of } = missing;
            let file = match variable.kind {
                Kind::Secret => format!(" (or `{}_FILE`, a file that holds it)", variable.name),
                Kind::Text | Kind::Whole | Kind::Duration | Kind::Switch | Kind::List | Kind::Url | Kind::Word => {
                    String::new()
                }
            };
            let place = match of.as_slice() {
                some if some.len() < pools.len() && !some.is_empty() => {
                    let names: Vec<String> = some
                        .iter()
                        .map(|pool| format!("`{}`", super::environment::for_pool(variable.name, pool)))
                        .collect();
                    format!(", or {} for the pool that lacks it", names.join(" and "))
                }
                _ => String::new(),
            };
            let message = format!("must be set{file}{place}: {}", variable.meaning);
            Problem { variable: variable.name.to_owned(), had: None, message }
        });
        (missing.chain(self.found).collect(), self.warnings)
    }
}

/// As much of a value as may be shown: nothing of a secret, no credentials and no query of a URL, no long tail.
#[must_use]
pub fn shown(variable: &str, kind: Kind, value: &str) -> Option<String> {
    match kind {
        Kind::Secret => None,
        Kind::Text | Kind::Whole | Kind::Duration | Kind::Switch | Kind::List | Kind::Url | Kind::Word => {
            if looks_secret(variable, value) {
                None
            } else {
                Some(shorten(&without_credentials(value, kind)))
            }
        }
    }
}

/// Whether a variable of the agent holds a secret, as far as its name or the form of its value tells.
#[must_use]
pub fn looks_secret(variable: &str, value: &str) -> bool {
    // Names of keys at Hetzner are no secrets.
    let name = variable.replace("SSH_KEYS", "");
    SECRET_WORDS.iter().any(|word| name.contains(word)) || value.contains("PRIVATE KEY")
}

/// Hides what stands before an `@`, and in a URL what follows a `?` or `#`: credentials live there.
fn without_credentials(value: &str, kind: Kind) -> String {
    if kind == Kind::List && !value.contains("://") {
        // Names may have an `@` in them.
        return value.to_owned();
    }
    let (scheme, rest) = value.split_once("://").map_or(("", value), |(scheme, rest)| (scheme, rest));
    let mut text = String::new();
    if !scheme.is_empty() || value.starts_with("://") {
        // A second URL or an address with credentials may hide before the scheme.
        text.push_str(scheme.rsplit_once('@').map_or(scheme, |(_, after)| after));
        text.push_str("://");
    }
    let rest = match rest.rsplit_once('@') {
        Some((_, after)) => {
            text.push_str("…@");
            after
        }
        None => rest,
    };
    match rest.find(['?', '#']).filter(|_| kind == Kind::Url || !text.is_empty()) {
        Some(at) => text.extend([&rest[..=at], "…"]),
        None => text.push_str(rest),
    }
    text
}

fn shorten(value: &str) -> String {
    match value.char_indices().nth(LONGEST_SHOWN) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}

fn is_quoted(value: &str) -> bool {
    value.len() >= 2 && ['"', '\''].iter().any(|quote| value.starts_with(*quote) && value.ends_with(*quote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_without_what_is_secret_in_them() {
        for (variable, value, expected) in [
            ("PICUS_X", "plain", Some("plain")),
            ("PICUS_X", "https://user:pass@host/a", Some("https://…@host/a")),
            ("PICUS_X", "https://user:p@ss@host/a", Some("https://…@host/a")),
            ("PICUS_X", "user:pass@host", Some("…@host")),
            ("PICUS_X", "https://host/a?token=x", Some("https://host/a?…")),
            ("PICUS_X", "https://host/a#token=x", Some("https://host/a#…")),
            ("PICUS_X", "://a@b", Some("://…@b")),
            ("PICUS_HCLOUD_SSH_KEYS", "me", Some("me")),
            ("PICUS_AGENT_WOODPECKER_REGISTRY_PASSWORD", "x", None),
            ("PICUS_AGENT_WOODPECKER_PEM", "-----BEGIN PRIVATE KEY-----", None),
        ] {
            assert_eq!(shown(variable, Kind::Text, value).as_deref(), expected, "{variable}={value}");
        }
        assert_eq!(shown("PICUS_X", Kind::Secret, "x"), None);
        assert_eq!(shown("PICUS_X", Kind::Url, "host?token=x").as_deref(), Some("host?…"));
        assert_eq!(shown("PICUS_X", Kind::Text, &"ä".repeat(300)).map(|text| text.chars().count()), Some(201));
    }
}
