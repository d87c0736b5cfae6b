//! `PICUS_AGENT_IMAGE` and `PICUS_AGENT_WOODPECKER_*`: what the agents of a pool run, and what is passed to them.
//!
//! What the agent does with its settings: `cmd/agent/core/flags.go` and `agent.go` in Woodpecker 3.17,
//! <https://github.com/woodpecker-ci/woodpecker/blob/v3.17.0/cmd/agent/core/flags.go>.

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use secrecy::SecretString;

use super::AgentSettings;
use super::environment::{AGENT_PREFIX, Layer};
use super::nearest::nearest;
use super::problems::{Problems, shown};
use super::raw::{self, Section as _};
use super::read::{Reader, control_character};
use super::registry::{self, ALL, Kind};
use super::secrets::secret;
use crate::model::labels::Labels;

/// More slots than any machine has use for; a mistyped number does not become supply for the whole queue.
const SLOTS: RangeInclusive<u32> = 1..=1000;

/// Woodpecker's own default for the gRPC port.
const GRPC_PORT: u16 = 9000;

/// Settings of the agent that can't be passed on, and why.
const REFUSED: [(&str, &str); 2] = [
    ("HOSTNAME", "can't be set: every agent is named like its instance, or they could not be told apart; remove it"),
    ("MAX_PROCS", "is an old name: set `PICUS_AGENT_WOODPECKER_MAX_WORKFLOWS`"),
];

/// Reads the agents' settings of a pool; where it launches nothing, its agents are set up already.
pub fn read(reader: &mut Reader<'_>, image: Option<String>, launches: bool) -> Option<AgentSettings> {
    let raw::Agent {
        server,
        agent_labels,
        filter_labels,
        max_workflows,
        agent_single_workflow,
        backend,
        agent_secret,
        agent_secret_file,
    } = raw::Agent::read(reader.layer, reader.problems);
    let image = image_reference(reader, image);
    let server = server_address(reader, server, launches);
    let shared_secret = secret(reader, &registry::AGENT_SECRET, agent_secret, agent_secret_file);
    let (labels, without) = labels(reader, agent_labels, filter_labels);
    let slots = slots(reader, max_workflows, agent_single_workflow);
    let backend = reader.text(&registry::AGENT_BACKEND, backend);
    let environment = environment(reader.layer, without, slots, reader.problems);
    Some(AgentSettings {
        image,
        server: server?,
        labels: labels?,
        slots: slots?.0,
        // With Docker on the instance and nothing else, that is what the agent finds.
        backend: backend.map(|backend| if backend == "auto-detect" { "docker".to_owned() } else { backend })?,
        shared_secret,
        environment,
    })
}

fn image_reference(reader: &mut Reader<'_>, raw: Option<String>) -> Option<String> {
    let image = reader.text(&registry::AGENT_IMAGE, raw)?;
    let possible = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    if image.chars().all(possible)
        && !image.contains("://")
        && image.starts_with(|letter: char| letter.is_ascii_alphanumeric())
    {
        return Some(image);
    }
    let message = "must be the name of an image, such as `woodpeckerci/woodpecker-agent:v3.17.0`";
    reader.refuse(&registry::AGENT_IMAGE, &image, message);
    None
}

/// Empty where it is not needed.
fn server_address(reader: &mut Reader<'_>, raw: Option<String>, needed: bool) -> Option<String> {
    let variable = &registry::AGENT_SERVER;
    if raw.is_none() {
        if needed {
            reader.problems.missing(variable, reader.pool);
            return None;
        }
        return Some(String::new());
    }
    let address = reader.text(variable, raw)?;
    match host_of(&address) {
        Ok(host) => {
            if host == "localhost" || host.starts_with("127.") || host == "[::1]" {
                reader.problems.warn(format!(
                    "{}: `{address}` is the agent's own machine; instances reach the server by another address",
                    reader.name(variable)
                ));
            }
            Some(address)
        }
        Err(message) => {
            reader.refuse(variable, &address, message);
            None
        }
    }
}

/// The host in `host:port`, or what to write instead.
fn host_of(address: &str) -> Result<&str, String> {
    let (scheme, rest) = address.split_once("://").map_or((None, address), |(scheme, rest)| (Some(scheme), rest));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let plain = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = split_port(plain);
    let usable = !host.is_empty() && is_host(host);
    let number = port.and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
    if usable && number.is_some() && plain == address {
        return Ok(host);
    }
    let secure = scheme.is_some_and(|scheme| matches!(scheme.to_lowercase().as_str(), "https" | "grpcs"));
    let right = number.unwrap_or(if secure { 443 } else { GRPC_PORT });
    let right = if usable { format!("{host}:{right}") } else { format!("ci.example.org:{GRPC_PORT}") };
    let tls = if secure { format!(" (and `{AGENT_PREFIX}GRPC_SECURE=true` for TLS)") } else { String::new() };
    Err(format!("must be the gRPC address as `host:port`, without a scheme or path, such as `{right}`{tls}"))
}

fn split_port(address: &str) -> (&str, Option<&str>) {
    if address.parse::<Ipv6Addr>().is_ok() {
        return (address, None);
    }
    match address.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (address, None),
    }
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    }
}

/// Slots, and whether the agent starts afresh after each task.
fn slots(reader: &mut Reader<'_>, max_workflows: Option<String>, single: Option<String>) -> Option<(u32, bool)> {
    let slots = reader.whole(&registry::AGENT_MAX_WORKFLOWS, max_workflows, SLOTS);
    let single = reader.switch(&registry::AGENT_SINGLE_WORKFLOW, single)?;
    let slots = slots?;
    if single && slots > 1 {
        let most = reader.name(&registry::AGENT_MAX_WORKFLOWS);
        let single = reader.name(&registry::AGENT_SINGLE_WORKFLOW);
        reader.problems.warn(format!("{most}={slots} has no effect: with {single} an agent has one slot"));
    }
    Some((if single { 1 } else { slots }, single))
}

/// The labels, and the variable that is not passed on because another one wins.
fn labels(
    reader: &mut Reader<'_>,
    agent: Option<String>,
    filter: Option<String>,
) -> (Option<Labels>, Option<&'static str>) {
    let mut without = None;
    if let (Some(agent), Some(filter)) = (&agent, &filter)
        && agent != filter
    {
        without = registry::AGENT_FILTER_LABELS.name.strip_prefix(AGENT_PREFIX);
        let (wins, loses) = (reader.name(&registry::AGENT_LABELS), reader.name(&registry::AGENT_FILTER_LABELS));
        reader.problems.warn(format!("{loses} has no effect: {wins} is set too, and wins"));
    }
    let (variable, raw) =
        if agent.is_some() { (&registry::AGENT_LABELS, agent) } else { (&registry::AGENT_FILTER_LABELS, filter) };
    let Some(raw) = raw else { return (Some(Labels::default()), without) };
    let Some(list) = reader.text(variable, Some(raw)) else { return (None, without) };
    match Labels::parse_list(&list) {
        Ok(labels) => {
            warn_of_labels(reader, &reader.name(variable), &labels);
            (Some(labels), without)
        }
        Err(problem) => {
            let message = format!("must be a list such as `type=picus,zone=*,!gpu=true`; {problem}");
            reader.refuse(variable, &list, message);
            (None, without)
        }
    }
}

fn warn_of_labels(reader: &mut Reader<'_>, name: &str, labels: &Labels) {
    if labels.get("org-id").is_some_and(|id| id != "*") {
        reader.problems.warn(format!("{name}: the label `org-id` has no effect, because the server sets it itself"));
    }
    for (key, value) in labels.iter() {
        if key.trim() != key || value.trim() != value {
            reader.problems.warn(format!("{name}: the spaces in `{key}={value}` are part of the label"));
        }
    }
}

/// Everything that is passed on, in order of the names.
fn environment(
    layer: &Layer,
    without: Option<&str>,
    slots: Option<(u32, bool)>,
    problems: &mut Problems,
) -> Vec<(String, SecretString)> {
    let mut environment = Vec::new();
    let own = [registry::AGENT_SECRET.name.to_owned(), format!("{}_FILE", registry::AGENT_SECRET.name)];
    for (short, set_as, value) in layer.agent() {
        let name = format!("{AGENT_PREFIX}{short}");
        if own.contains(&name) || without == Some(short) {
            continue;
        }
        if let Some((_, message)) = REFUSED.iter().find(|(refused, _)| *refused == short) {
            problems.add(set_as, shown(set_as, Kind::Text, value), *message);
            continue;
        }
        let value = if let Some(variable) = ALL.iter().find(|variable| variable.name == name) {
            // What Picus reads, the agent gets as it was read: Go takes `010` for 8 and does not know `yes`.
            match slots {
                Some((slots, _)) if variable.name == registry::AGENT_MAX_WORKFLOWS.name => slots.to_string(),
                Some((_, single)) if variable.name == registry::AGENT_SINGLE_WORKFLOW.name => single.to_string(),
                Some(_) | None => value.trim().to_owned(),
            }
        } else {
            if let Some(message) = control_character(value) {
                problems.add(set_as, shown(set_as, Kind::Text, value), message);
            }
            warn_of_typing_error(&name, set_as, problems);
            value.to_owned()
        };
        environment.push((format!("WOODPECKER_{short}"), SecretString::from(value)));
    }
    environment
}

/// Any name is passed on, so one that differs by a letter or two from one that Picus reads deserves a word.
fn warn_of_typing_error(name: &str, set_as: &str, problems: &mut Problems) {
    let known =
        ALL.iter().filter_map(|variable| variable.name.strip_prefix(AGENT_PREFIX)).filter(|known| *known != "*");
    let short = name.strip_prefix(AGENT_PREFIX).unwrap_or(name);
    if let Some((near, 1..=2)) = nearest(short, known) {
        problems.warn(format!("{set_as} is passed to the agent as WOODPECKER_{short}; is WOODPECKER_{near} meant?"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_accepted() {
        for (address, host) in [
            ("ci.example.org:9000", "ci.example.org"),
            ("10.0.0.2:443", "10.0.0.2"),
            ("[2001:db8::1]:9000", "[2001:db8::1]"),
            ("woodpecker_server:9000", "woodpecker_server"),
        ] {
            assert_eq!(host_of(address), Ok(host));
        }
    }

    #[test]
    fn anything_else_is_answered_with_the_right_form() {
        for (address, right) in [
            ("https://ci.example.org", "`ci.example.org:443` (and `PICUS_AGENT_WOODPECKER_GRPC_SECURE=true` for TLS)"),
            ("https://ci.example.org:9000/", "`ci.example.org:9000` (and"),
            ("http://ci.example.org", "`ci.example.org:9000`"),
            ("grpc://u:p@ci.example.org:1/x?y", "`ci.example.org:1`"),
            ("ci.example.org", "`ci.example.org:9000`"),
            ("ci.example.org:", "`ci.example.org:9000`"),
            ("ci.example.org:0", "`ci.example.org:9000`"),
            ("ci.example.org:99999", "`ci.example.org:9000`"),
            ("ci.example.org:9000/", "`ci.example.org:9000`"),
            ("unix:///run/woodpecker", "`ci.example.org:9000`"),
            (":9000", "`ci.example.org:9000`"),
            ("a b:9000", "`ci.example.org:9000`"),
            ("2001:db8::1", "`ci.example.org:9000`"),
        ] {
            let message = host_of(address).expect_err(address);
            assert!(message.contains(&format!("such as {right}")), "{address}: {message}");
        }
    }
}
