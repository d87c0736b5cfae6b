//! Labels, and the server's own rule by which an agent is given a task.
//!
//! The rule is that of `server/scheduler/filter.go` in Woodpecker 3.17:
//! <https://github.com/woodpecker-ci/woodpecker/blob/v3.17.0/server/scheduler/filter.go>.
//! Reading a label list is that of the agent (`cmd/agent/core/agent.go`, `stringSliceAddToMap`).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use serde::Serialize;

/// Labels of a task whose key begins so are the server's own and are not matched (plain prefix, no dot or slash).
pub const INTERNAL_PREFIX: &str = "woodpecker-ci.org";

/// A set of labels, of a task or of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The pair of `key`, as kept here.
    #[must_use]
    pub fn pair(&self, key: &str) -> Option<(&str, &str)> {
        self.0.get_key_value(key).map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Sets `key`, in place of what it had.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.insert(key.into(), value.into());
    }

    /// All pairs in order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Those pairs of a task's labels that matching looks at: not the server's own, not those without a value.
    pub fn relevant(&self) -> impl Iterator<Item = (&str, &str)> {
        // In order of the keys the server's own stand together, and mostly nothing comes behind them.
        let internal_to_the_end = self.0.last_key_value().is_some_and(|(key, _)| key.starts_with(INTERNAL_PREFIX));
        self.iter()
            .take_while(move |(key, _)| !(internal_to_the_end && key.starts_with(INTERNAL_PREFIX)))
            .filter(|(key, value)| !value.is_empty() && !key.starts_with(INTERNAL_PREFIX))
    }

    /// What an agent with these labels demands of a task (`!key=value`), without the `!`. Allocates nothing.
    pub fn demanded(&self) -> impl Iterator<Item = (&str, &str)> {
        // Keys that begin with `!` stand together, up to the character after it.
        let marked = self.0.range::<str, _>((Bound::Included("!"), Bound::Excluded("\"")));
        marked.filter_map(|(key, value)| Some((key.strip_prefix('!')?, value.as_str())))
    }

    /// Reads a list as the agent reads it: `type=picus,zone=*,!gpu=true`. The same key twice: the last wins. Space
    /// around a pair is dropped, but none around its `=`; empty pairs are skipped.
    ///
    /// The agent's flag splits at each comma and trims (urfave/cli 3.11, `flag_slice_base.go`, `flag_string.go`), then
    /// each pair is cut at its first `=`.
    ///
    /// # Errors
    ///
    /// The pair on which the agent would stop, or with which it would never be given a task.
    pub fn parse_list(list: &str) -> Result<Self, LabelProblem> {
        let mut labels = Self::default();
        for pair in list.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("", _)) => return Err(LabelProblem::NoKey(pair.to_owned())),
                None | Some((_, "")) => return Err(LabelProblem::NoValue(pair.to_owned())),
                Some(("!", _)) => return Err(LabelProblem::NoRequiredKey(pair.to_owned())),
                Some((key, value)) => labels.set(key, value),
            }
        }
        Ok(labels)
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Labels {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

/// A pair of a label list that no agent can work with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelProblem {
    /// `a` or `a=`
    #[error("`{0}` has no value: the agent stops on it")]
    NoValue(String),
    /// `=b`
    #[error("`{0}` has no key: the agent stops on it")]
    NoKey(String),
    /// `!=x`: asks for a task label without a name
    #[error("`{0}` asks for a label without a name: an agent with it is never given a task")]
    NoRequiredKey(String),
}

/// How well an agent fits a task: the best score is given the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score(pub u32);

/// Why an agent is not given a task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Mismatch {
    /// The agent takes only tasks with this label (`!key=value`), and this one has it not.
    Required {
        /// Key without the `!`.
        key: String,
        /// The value that must be there.
        value: String,
    },
    /// The task asks for a label that the agent has not.
    Missing {
        /// The task's key.
        key: String,
        /// The task's value.
        wanted: String,
    },
    /// The agent has the label with another value.
    Differs {
        /// The task's key.
        key: String,
        /// The task's value.
        wanted: String,
        /// The agent's value.
        has: String,
    },
    /// The task has no label at all to match (real ones always have `repo`); the server never assigns a score of 0.
    Unlabelled,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required { key, value } => write!(f, "takes only tasks with {key}={value}"),
            Self::Missing { key, wanted } => write!(f, "no label {key} (the task wants {key}={wanted})"),
            Self::Differs { key, wanted, has } => write!(f, "{key} is {has} (the task wants {key}={wanted})"),
            Self::Unlabelled => f.write_str("the task has no labels to match"),
        }
    }
}

/// Whether an agent with labels `agent` is given a task with labels `task`, and with which score.
///
/// # Errors
///
/// The first rule that speaks against it, in order of the keys.
pub fn fit(agent: &Labels, task: &Labels) -> Result<Score, Mismatch> {
    // Before the server's own labels and empty values are left out, as the server does: both can be demanded.
    for (key, value) in agent.demanded() {
        if task.get(key) != Some(value) {
            return Err(Mismatch::Required { key: key.to_owned(), value: value.to_owned() });
        }
    }
    let mut score = 0;
    for (key, wanted) in task.relevant() {
        let demanded = || agent.demanded().find(|(demanded, _)| *demanded == key).map(|(_, value)| value);
        let has = agent.get(key).or_else(demanded);
        match has {
            Some("*") => score += 1,
            Some(has) if has == wanted => score += 10,
            Some(has) => {
                return Err(Mismatch::Differs { key: key.to_owned(), wanted: wanted.to_owned(), has: has.to_owned() });
            }
            None => return Err(Mismatch::Missing { key: key.to_owned(), wanted: wanted.to_owned() }),
        }
    }
    if score == 0 { Err(Mismatch::Unlabelled) } else { Ok(Score(score)) }
}

/// The labels under which the server keeps an agent: what the engine reports, the custom labels over it, and
/// `org-id` over those, because the server sets it.
#[must_use]
pub fn effective(platform: &str, backend: &str, custom: &Labels, organisation: Option<i64>) -> Labels {
    let mut labels: Labels = [("platform", platform), ("backend", backend), ("repo", "*")].into_iter().collect();
    for (key, value) in custom.iter() {
        labels.set(key, value);
    }
    labels.set("org-id", organisation.map_or_else(|| "*".to_owned(), |id| id.to_string()));
    labels
}

#[cfg(test)]
mod tests;
