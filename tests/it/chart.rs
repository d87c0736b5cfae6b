//! The Helm chart and the settings: whatever can be set has its place in the values, and nothing else has. What it renders
//! is checked with a real helm by `deploy/helm/check.py`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use picus::settings::registry::{ALL, Availability, Kind, Scope};
use serde_json::Value;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/helm/picus").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `serverType` as a part of a name: `SERVER_TYPE`.
fn part(key: &str) -> String {
    let mut name = String::new();
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// The variables that a part of the schema stands for.
fn names(schema: &Value, prefix: &str, all: &mut BTreeSet<String>) {
    for (key, value) in schema["properties"].as_object().expect("properties") {
        let name = format!("{prefix}_{}", part(key));
        if value["properties"].is_object() {
            names(value, &name, all);
        } else {
            all.insert(name);
        }
    }
}

/// Variables of the registry that are no secrets and no families.
fn wanted(only_pools: bool) -> BTreeSet<String> {
    let here = ALL.iter().filter(|variable| variable.availability == Availability::Here);
    let plain = here.filter(|variable| variable.kind != Kind::Secret && !variable.name.ends_with('*'));
    let of_scope = plain.filter(|variable| !only_pools || variable.scope == Scope::Pool);
    of_scope.map(|variable| variable.name.to_owned()).filter(|name| name != "PICUS_POOLS").collect()
}

#[test]
fn every_setting_has_its_place_in_the_values_and_nothing_else_has() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    let mut of_all = BTreeSet::new();
    names(&schema["properties"]["settings"], "PICUS", &mut of_all);
    assert_eq!(of_all, wanted(false));
    let mut pool = schema["definitions"]["pool"].clone();
    pool["properties"].as_object_mut().expect("properties").remove("secrets");
    let mut of_pools = BTreeSet::new();
    names(&pool, "PICUS", &mut of_pools);
    assert_eq!(of_pools, wanted(true));
}

#[test]
fn every_secret_has_its_place_in_the_values() {
    let helpers = read("templates/_helpers.tpl");
    let list = helpers.split_once("define \"picus.secretVariables\"").expect("the list").1;
    let list = list.split_once("end").expect("its end").0;
    let secrets =
        ALL.iter().filter(|variable| variable.kind == Kind::Secret && variable.availability == Availability::Here);
    for secret in secrets {
        assert!(list.contains(&format!(": {}\n", secret.name)), "{} has no place", secret.name);
    }
}

#[test]
fn the_chart_is_of_this_release() {
    let chart = read("Chart.yaml");
    assert!(chart.contains(&format!("\nappVersion: \"{}\"\n", env!("CARGO_PKG_VERSION"))), "{chart}");
}
