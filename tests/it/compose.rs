//! The compose files and the examples in README.md: what they set is accepted, and Picus is given no right there that
//! it does not need.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use picus::settings::Settings;
use serde::Deserialize;
use tempfile::TempDir;

/// The part of a compose file that is looked at.
#[derive(Deserialize)]
struct Compose {
    services: BTreeMap<String, Service>,
    #[serde(default)]
    secrets: BTreeMap<String, Secret>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Service {
    environment: BTreeMap<String, String>,
    secrets: Vec<String>,
    ports: Vec<String>,
    volumes: Vec<String>,
    cap_drop: Vec<String>,
    cap_add: Vec<String>,
    security_opt: Vec<String>,
    read_only: bool,
    privileged: bool,
    restart: Option<String>,
    user: Option<String>,
}

#[derive(Deserialize)]
struct Secret {
    file: String,
}

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    let path = project().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn compose(file: &str) -> Compose {
    let text = read(&format!("deploy/compose/{file}"));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn picus(file: &str) -> Service {
    compose(file).services.remove("picus").unwrap_or_else(|| panic!("no service picus in {file}"))
}

/// The lines `KEY=value` of a file that compose or a shell reads.
fn assignments(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once('=').unwrap_or_else(|| panic!("not KEY=value: {line}")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The variables between `${` and `}` of a text, each with what follows its name (`:-default`, `:?message`, nothing).
fn references(text: &str) -> Vec<(&str, &str)> {
    text.split("${")
        .skip(1)
        .map(|rest| rest.split_once('}').unwrap_or_else(|| panic!("no end: {rest}")).0)
        .map(|inner| inner.split_at(inner.find(':').unwrap_or(inner.len())))
        .collect()
}

/// What compose makes of a value: `${X}`, `${X:-default}` and `${X:?message}`, where empty counts as unset.
fn substitute(value: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let mut result = value.to_owned();
    for (name, rest) in references(value) {
        let set = variables.get(name).filter(|set| !set.is_empty() || rest.is_empty());
        let text = match (set, rest.get(..2)) {
            (Some(set), _) => set.as_str(),
            (None, Some(":-")) => &rest[2..],
            (None, Some(":?")) => return Err(format!("{name} is required: {}", &rest[2..])),
            (None, _) => return Err(format!("{name} is set nowhere and has no default")),
        };
        result = result.replace(&format!("${{{name}{rest}}}"), text);
    }
    Ok(result)
}

/// Stand-ins for the secrets that compose mounts at `/run/secrets`: those that the service asks for.
fn mounted(service: &Service, declared: &BTreeMap<String, Secret>) -> TempDir {
    let directory = TempDir::new().expect("a temporary directory");
    for name in &service.secrets {
        assert!(declared.contains_key(name), "the secret {name} is not declared");
        let secret = if name == "hcloud_token" { "0".repeat(64) } else { format!("the-{name}") };
        fs::write(directory.path().join(name), secret + "\n").expect("a secret");
    }
    directory
}

fn settings(
    environment: &BTreeMap<String, String>,
    variables: &BTreeMap<String, String>,
    secrets: &Path,
) -> Result<Settings, String> {
    let vars = environment
        .iter()
        .map(|(key, value)| Ok((key.clone(), substitute(value, variables)?)))
        .map(|var| var.map(|(key, value)| (key, value.replace("/run/secrets", &secrets.display().to_string()))))
        .collect::<Result<Vec<_>, String>>()?;
    Settings::from_vars(vars)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn pools(settings: &Settings) -> Vec<(String, u32)> {
    settings.pools.iter().map(|pool| (pool.name.to_string(), pool.max)).collect()
}

#[test]
fn the_compose_file_is_accepted_with_the_example_environment_and_with_the_least() {
    let compose = compose("docker-compose.yml");
    let picus = &compose.services["picus"];
    let secrets = mounted(picus, &compose.secrets);
    let example = assignments(&read("deploy/compose/.env.example"));
    let least = example.iter().filter(|(key, _)| !key.starts_with("PICUS_"));
    let least = least.map(|(key, value)| (key.clone(), value.clone())).collect();

    for variables in [example, least] {
        let settings =
            settings(&picus.environment, &variables, secrets.path()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(pools(&settings), [("default".to_owned(), 2)]);
        assert_eq!(settings.installation.0, "picus");
        assert_eq!(settings.pools[0].agent.server, "ci-agents.example.org:443");
        assert_eq!(settings.warnings, Vec::<String>::new());
    }
}

#[test]
fn the_compose_file_with_several_pools_is_accepted() {
    let base = compose("docker-compose.yml");
    let secrets = mounted(&base.services["picus"], &base.secrets);
    let mut environment = base.services["picus"].environment.clone();
    environment.extend(picus("pools.yml").environment);
    let example = assignments(&read("deploy/compose/.env.example"));

    let settings = settings(&environment, &example, secrets.path()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(pools(&settings), [("amd64".to_owned(), 4), ("arm64".to_owned(), 2), ("large".to_owned(), 1)]);
    assert_eq!(settings.accounts.len(), 1);
    assert_eq!(settings.pools[2].agent.labels.get("!size"), Some("large"));
}

#[test]
fn the_compose_file_for_ec2_is_accepted() {
    let base = compose("docker-compose.yml");
    let over = compose("aws.yml");
    let picus = &over.services["picus"];
    let secrets = mounted(picus, &base.secrets.into_iter().chain(over.secrets).collect());
    let example = assignments(&read("deploy/compose/.env.example"));
    let settings = settings(&picus.environment, &example, secrets.path()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(pools(&settings), [("default".to_owned(), 2)]);
    assert_eq!(settings.warnings, Vec::<String>::new());
    // It takes the place of what the other file says, so nothing of that may be missing.
    let others = |name: &&String| !name.contains("HCLOUD");
    let missing: Vec<_> = base.services["picus"].environment.keys().filter(others).collect();
    assert!(missing.iter().all(|name| picus.environment.contains_key(*name)), "{missing:?}");
}

#[test]
fn without_what_it_requires_compose_does_not_start() {
    let compose = compose("docker-compose.yml");
    for (name, service) in &compose.services {
        let all = service.environment.values().map(|value| substitute(value, &BTreeMap::new())).collect::<Vec<_>>();
        assert!(all.iter().any(Result::is_err), "{name} would start with nothing set");
    }
}

#[test]
fn the_example_environment_names_every_variable_of_the_compose_files_and_no_other() {
    let files = ["docker-compose.yml", "pools.yml", "aws.yml"].map(|file| read(&format!("deploy/compose/{file}")));
    let used = files.iter().flat_map(|text| references(text)).map(|(name, _)| name.to_owned());
    let example = assignments(&read("deploy/compose/.env.example"));
    assert_eq!(used.collect::<BTreeSet<_>>(), example.into_keys().collect());
}

#[test]
fn picus_runs_with_no_right_that_it_does_not_need() {
    let picus = picus("docker-compose.yml");
    assert!(picus.read_only);
    assert!(!picus.privileged);
    assert_eq!(picus.cap_drop, ["ALL"]);
    assert_eq!(picus.cap_add, Vec::<String>::new());
    assert_eq!(picus.security_opt, ["no-new-privileges:true"]);
    assert_eq!(picus.ports, Vec::<String>::new());
    assert_eq!(picus.volumes, Vec::<String>::new());
    assert_eq!(picus.user.as_deref(), Some("65532:65532"));
    assert_eq!(picus.restart.as_deref(), Some("unless-stopped"));
}

#[test]
fn secrets_of_picus_are_files_that_the_repository_ignores() {
    let compose = compose("docker-compose.yml");
    for (name, value) in &compose.services["picus"].environment {
        let secret = name.contains("TOKEN") || name.contains("SECRET");
        assert!(!secret || name.ends_with("_FILE") && value.starts_with("/run/secrets/"), "{name}={value}");
    }
    for secret in compose.secrets.values() {
        assert!(secret.file.starts_with("./secrets/"), "{}", secret.file);
    }
    assert!(read("deploy/compose/secrets/.gitignore").starts_with("*\n"));
}

#[test]
fn the_examples_in_the_readme_are_accepted() {
    let secrets = TempDir::new().expect("a temporary directory");
    let readme = read("README.md");
    let blocks: Vec<_> = readme.split("\n```env\n").skip(1).map(|rest| rest.split("\n```").next()).collect();
    assert!(!blocks.is_empty(), "README.md has no block of settings");
    for block in blocks.into_iter().flatten() {
        let mut environment =
            assignments("PICUS_WOODPECKER_SERVER=https://ci.example.org\nPICUS_WOODPECKER_TOKEN=token");
        environment.extend(assignments(block));
        if !environment.contains_key("PICUS_PROVIDER_TYPE") {
            environment.insert("PICUS_PROVIDER_TYPE".to_owned(), "hcloud".to_owned());
            environment.insert("PICUS_HCLOUD_TOKEN".to_owned(), "0".repeat(64));
        }
        if !environment.contains_key("PICUS_AWS_INSTANCE_ID") {
            let address = "ci-agents.example.org:443".to_owned();
            environment.insert("PICUS_AGENT_WOODPECKER_SERVER".to_owned(), address);
        }
        let settings = settings(&environment, &BTreeMap::new(), secrets.path());
        let warnings = settings.map(|settings| settings.warnings);
        assert_eq!(warnings, Ok(Vec::new()), "{block}");
    }
}
