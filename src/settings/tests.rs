//! Settings as a whole: what an environment becomes, and what is said about one that is wrong.
//! What a build without the provider says stands in `installation`.

mod accepted;
mod refused;
mod secrecy;

use super::{Problem, Settings};

/// The least that works.
const LEAST: [(&str, &str); 5] = [
    ("PICUS_WOODPECKER_SERVER", "https://ci.example.org"),
    ("PICUS_WOODPECKER_TOKEN", "admin-token"),
    ("PICUS_PROVIDER_TYPE", "hcloud"),
    ("PICUS_HCLOUD_TOKEN", "cloud-token"),
    ("PICUS_AGENT_WOODPECKER_SERVER", "ci.example.org:9000"),
];

/// Reads the least that works with `more` over it.
fn read(more: &[(&str, &str)]) -> Result<Settings, Vec<Problem>> {
    let vars = LEAST.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::from_vars(vars)
}

/// Settings that must be accepted.
fn settings(more: &[(&str, &str)]) -> Settings {
    read(more).unwrap_or_else(|problems| panic!("{more:?} is refused: {problems:#?}"))
}

/// The problems of settings that must be refused, one a line.
fn problems(more: &[(&str, &str)]) -> String {
    let Err(found) = read(more) else { panic!("{more:?} is accepted") };
    assert!(!found.is_empty());
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The problems of each, one a line.
fn each(table: &[&[(&str, &str)]]) -> String {
    table.iter().map(|more| problems(more)).collect::<Vec<_>>().join("\n")
}

/// The problems of each value of one variable, one a line.
fn each_value(variable: &str, values: &[&str]) -> String {
    values.iter().map(|value| problems(&[(variable, value)])).collect::<Vec<_>>().join("\n")
}
