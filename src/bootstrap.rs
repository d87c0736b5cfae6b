//! What a fresh instance runs: user data for cloud-init. Touches nothing; `crate::provider` sends it.
//!
//! The instance gets four files, the first two for root alone: the agent's environment, the name of its image, the
//! script that starts it (`bootstrap/start-agent.sh`) and the unit that closes the metadata address at every boot.
//! A value is never pasted into a command: it is serialised here, and read from a file there.
//!
//! A job that is trusted with the machine (privileged, on the host's network as root, or with its disk) can still
//! read what root can read.

mod cloud_config;
pub mod image;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};

use self::cloud_config::{CloudConfig, FIRST_LINE, File};
use crate::model::ids::{InstallationId, LaunchName};
use crate::settings::{AgentSettings, PoolSettings, Problem};

const SCRIPT_PATH: &str = "/usr/local/lib/picus/start-agent.sh";
const SCRIPT: &str = include_str!("bootstrap/start-agent.sh");
const UNIT_PATH: &str = "/etc/systemd/system/picus-metadata.service";
const UNIT: &str = include_str!("bootstrap/picus-metadata.service");
const ENVIRONMENT_PATH: &str = "/etc/picus/agent.env";
const IMAGE_PATH: &str = "/etc/picus/image";

/// Stands for a token that is not known yet. Woodpecker's are 56 letters (32 bytes in base 32); some are to spare.
const LONGEST_TOKEN: usize = 64;
/// Stands for the image of a server whose version is not known yet.
const LONGEST_IMAGE: usize = 100;

/// The user data of one instance: its agent starts with `secret` (its own token, or the shared secret) and the host
/// name `name`. Holds the secret and every value of the agent's environment.
///
/// Call [`check_size`] once for a pool before: it finds what can't be written, and what is too large.
#[must_use]
pub fn user_data(agent: &AgentSettings, image: &str, name: &LaunchName, secret: &SecretString) -> SecretString {
    render(&environment(agent, name.as_str(), secret), image).unwrap_or_default().into()
}

/// Whether the user data of every launch of `pool`, whose size `sent` tells in the form in which it is sent, is at most
/// `limit` bytes, and whether an agent can be given all of its environment.
///
/// # Errors
///
/// The problem with both numbers and what takes the room; or a variable that no shell can hand on.
pub fn check_size(
    pool: &PoolSettings,
    installation: &InstallationId,
    limit: usize,
    sent: impl Fn(&str) -> usize,
) -> Result<(), Problem> {
    let problem = |variable: &str, message: String| Problem { variable: variable.to_owned(), had: None, message };
    let placeholder = SecretString::from("t".repeat(LONGEST_TOKEN));
    let secret = pool.agent.shared_secret.as_ref().unwrap_or(&placeholder);
    let longest_image = "i".repeat(LONGEST_IMAGE);
    let image = pool.agent.image.as_ref().unwrap_or(&longest_image);
    // All names of a pool are equally long.
    let name = LaunchName::new(installation, &pool.name, 0);
    let environment = environment(&pool.agent, name.as_str(), secret);

    for (key, value) in &environment {
        let variable = setting_name(key);
        if !is_variable_name(key) {
            return Err(problem(&variable, "must be made of letters, digits and `_` to reach the agent".to_owned()));
        }
        if value.contains(['\n', '\0']) {
            return Err(problem(&variable, "must not have a line break".to_owned()));
        }
    }
    if image.contains(['\n', '\0']) {
        return Err(problem("PICUS_AGENT_IMAGE", "must not have a line break".to_owned()));
    }
    let size = match render(&environment, image) {
        Ok(text) => sent(&text),
        Err(error) => return Err(problem("PICUS_AGENT_WOODPECKER_*", format!("can't be written as YAML: {error}"))),
    };
    if size <= limit {
        return Ok(());
    }
    let mut sizes: Vec<(usize, &str)> =
        environment.iter().map(|(key, value)| (key.len() + value.len() + 2, key.as_str())).collect();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let largest: Vec<String> =
        sizes.iter().take(3).map(|(size, key)| format!("{} ({size} bytes)", setting_name(key))).collect();
    Err(problem(
        "PICUS_AGENT_WOODPECKER_*",
        format!(
            "makes user data of {size} bytes for pool {}; the provider takes at most {limit}. The largest: {}",
            pool.name,
            largest.join(", ")
        ),
    ))
}

/// The variable of ours that becomes the agent's variable `key`.
fn setting_name(key: &str) -> String {
    format!("PICUS_AGENT_{key}")
}

/// POSIX's form of a name; the script exports each, and a shell stops on any other.
fn is_variable_name(key: &str) -> bool {
    !key.starts_with(|first: char| first.is_ascii_digit())
        && !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What the agent's process is given. What Picus itself relies on comes from the read settings, whatever the raw
/// variables say; the rest is passed on as it is.
fn environment(agent: &AgentSettings, hostname: &str, secret: &SecretString) -> BTreeMap<String, String> {
    let mut environment: BTreeMap<String, String> =
        agent.environment.iter().map(|(key, value)| (key.clone(), value.expose_secret().to_owned())).collect();
    let labelled =
        ["WOODPECKER_AGENT_LABELS", "WOODPECKER_FILTER_LABELS"].iter().any(|key| environment.contains_key(*key));
    let labels = agent.labels.to_string();
    if !labelled && !labels.is_empty() {
        environment.insert("WOODPECKER_AGENT_LABELS".to_owned(), labels);
    }
    for (key, value) in [
        ("WOODPECKER_SERVER", agent.server.clone()),
        ("WOODPECKER_MAX_WORKFLOWS", agent.slots.to_string()),
        ("WOODPECKER_BACKEND", agent.backend.clone()),
        ("WOODPECKER_HOSTNAME", hostname.to_owned()),
        ("WOODPECKER_AGENT_SECRET", secret.expose_secret().to_owned()),
    ] {
        environment.insert(key.to_owned(), value);
    }
    environment
}

fn render(environment: &BTreeMap<String, String>, image: &str) -> Result<String, serde_saphyr::SerializeError> {
    let mut lines = String::new();
    for (key, value) in environment {
        for part in [key, "=", value, "\n"] {
            lines.push_str(part);
        }
    }
    let config = CloudConfig {
        write_files: vec![
            File::new(ENVIRONMENT_PATH, "0600", lines),
            File::new(IMAGE_PATH, "0600", format!("{image}\n")),
            File::new(SCRIPT_PATH, "0700", SCRIPT.to_owned()),
            File::new(UNIT_PATH, "0644", UNIT.to_owned()),
        ],
        runcmd: vec![vec!["/bin/sh", SCRIPT_PATH]],
    };
    Ok(format!("{FIRST_LINE}{}", serde_saphyr::to_string(&config)?))
}
