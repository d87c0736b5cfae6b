//! `PICUS_HCLOUD_*`: the account and what is ordered there. Whether it exists is asked by the provider, not here.

use secrecy::SecretString;
use url::Url;

use super::raw::{self, Section as _};
use super::read::{Reader, without_slash};
use super::registry::{self, Variable};
use super::secrets::token;
use super::{HetznerSettings, ServerTypeChoice};
use crate::settings::environment::for_pool;

/// Longest key (without its prefix) and value of a label, in letters.
const LONGEST_LABEL: usize = 63;

/// Longest prefix of a key: a DNS name.
const LONGEST_PREFIX: usize = 253;

/// Keys that Picus itself sets on every instance (`provider::label`).
const OWN_KEYS: [&str; 4] = ["picus", "picus-server", "picus-pool", "picus-agent"];

/// The account of a pool.
pub struct Account {
    /// The project's token.
    pub token: SecretString,
    /// The API, without a slash at the end.
    pub endpoint: Url,
}

/// Reads account and launch settings of a pool.
pub fn read(reader: &mut Reader<'_>) -> Option<(Account, HetznerSettings)> {
    let raw::Hetzner {
        token: token_value,
        token_file,
        endpoint,
        server_type,
        location,
        image,
        ssh_keys,
        networks,
        firewalls,
        placement_group,
        labels: label_list,
        public_ipv4,
        public_ipv6,
    } = raw::Hetzner::read(reader.layer, reader.problems);
    let prefix = prefix(reader);
    let token = token(reader, &registry::HCLOUD_TOKEN, token_value, token_file);
    let endpoint = reader.url(&registry::HCLOUD_ENDPOINT, endpoint).map(without_slash);
    let server_types = server_types(reader, server_type);
    let locations = locations(reader, location);
    let image = reader.text(&registry::HCLOUD_IMAGE, image);
    let ssh_keys = reader.list(&registry::HCLOUD_SSH_KEYS, ssh_keys);
    let networks = reader.list(&registry::HCLOUD_NETWORKS, networks);
    let firewalls = reader.list(&registry::HCLOUD_FIREWALLS, firewalls);
    let placement_group = reader.text(&registry::HCLOUD_PLACEMENT_GROUP, placement_group);
    let labels = labels(reader, label_list);
    let ipv6_as_set = public_ipv6.clone().unwrap_or_default();
    let public_ipv4 = reader.switch(&registry::HCLOUD_PUBLIC_IPV4, public_ipv4);
    let public_ipv6 = reader.switch(&registry::HCLOUD_PUBLIC_IPV6, public_ipv6);
    if public_ipv4 == Some(false) && public_ipv6 == Some(false) && networks.as_ref().is_some_and(Vec::is_empty) {
        let other = reader.name(&registry::HCLOUD_PUBLIC_IPV4);
        let message = format!(
            "leaves instances without any network, because {other} is off too: switch one of them on, or set `{}`",
            reader.name(&registry::HCLOUD_NETWORKS)
        );
        reader.refuse(&registry::HCLOUD_PUBLIC_IPV6, &ipv6_as_set, message);
    }
    let account = Account { token: token?, endpoint: endpoint? };
    let settings = HetznerSettings {
        prefix,
        server_types: server_types?,
        locations: locations?,
        image: image?,
        ssh_keys: ssh_keys?,
        networks: networks?,
        firewalls: firewalls?,
        placement_group,
        labels: labels?,
        public_ipv4: public_ipv4?,
        public_ipv6: public_ipv6?,
    };
    Some((account, settings))
}

/// The pool's own prefix if any of its launch settings is its own, so that a message sends nobody to the wrong place.
fn prefix(reader: &Reader<'_>) -> String {
    let own = |variable: &&Variable| reader.layer.set_as(variable.name) != variable.name;
    let any = registry::ALL
        .iter()
        .filter(|variable| variable.name.starts_with(raw::Hetzner::PREFIX))
        .any(|variable| own(&variable));
    match reader.pool {
        Some(pool) if any => for_pool(raw::Hetzner::PREFIX, pool),
        Some(_) | None => raw::Hetzner::PREFIX.to_owned(),
    }
}

/// Whether it can be the name of a server type or of a location; Hetzner's are lower case.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn server_types(reader: &mut Reader<'_>, raw: Option<String>) -> Option<Vec<ServerTypeChoice>> {
    let variable = &registry::HCLOUD_SERVER_TYPE;
    let whole = raw.clone().unwrap_or_default();
    let mut choices = Vec::new();
    for entry in reader.list(variable, raw)? {
        let lower = entry.to_lowercase();
        let (name, location) =
            lower.split_once(':').map_or((lower.as_str(), None), |(name, place)| (name, Some(place)));
        if !is_name(name) || location.is_some_and(|location| !is_name(location)) {
            let message = format!(
                "must be server types separated by commas, each alone or with its location, such as \
                 `cx23,cpx32:fsn1`; `{entry}` is neither"
            );
            reader.refuse(variable, &whole, message);
            return None;
        }
        let choice = ServerTypeChoice { name: name.to_owned(), location: location.map(ToOwned::to_owned) };
        if !choices.contains(&choice) {
            choices.push(choice);
        }
    }
    Some(choices)
}

fn locations(reader: &mut Reader<'_>, raw: Option<String>) -> Option<Vec<String>> {
    let variable = &registry::HCLOUD_LOCATION;
    let whole = raw.clone().unwrap_or_default();
    let mut locations: Vec<String> = Vec::new();
    for entry in reader.list(variable, raw)? {
        let lower = entry.to_lowercase();
        if !is_name(&lower) {
            let message = format!("must be locations separated by commas, such as `nbg1,fsn1`; `{entry}` is none");
            reader.refuse(variable, &whole, message);
            return None;
        }
        if !locations.contains(&lower) {
            locations.push(lower);
        }
    }
    Some(locations)
}

fn labels(reader: &mut Reader<'_>, raw: Option<String>) -> Option<Vec<(String, String)>> {
    let variable = &registry::HCLOUD_LABELS;
    let whole = raw.clone().unwrap_or_default();
    let mut labels: Vec<(String, String)> = Vec::new();
    for pair in reader.list(variable, raw)? {
        let read = label(&pair).and_then(|(key, value)| {
            if labels.iter().any(|(before, _)| *before == key) {
                return Err(format!("`{key}` is there twice"));
            }
            Ok((key, value))
        });
        match read {
            Ok(label) => labels.push(label),
            Err(complaint) => {
                reader.refuse(variable, &whole, format!("must be labels such as `team=ci,stage=`; {complaint}"));
                return None;
            }
        }
    }
    Some(labels)
}

/// One pair, by the rules of <https://docs.hetzner.cloud/reference/cloud> (Labels).
fn label(pair: &str) -> Result<(String, String), String> {
    let (key, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` has no `=`"))?;
    let (key, value) = (key.trim(), value.trim());
    let name = match key.rsplit_once('/') {
        Some((prefix, name)) => {
            let dns =
                |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            if prefix.len() > LONGEST_PREFIX || !prefix.split('.').all(dns) {
                return Err(format!("`{prefix}` before the slash is no domain name"));
            }
            name
        }
        None => key,
    };
    if name.is_empty() || !is_label_part(name) {
        return Err(format!("the key `{key}` {LABEL_RULE}"));
    }
    if !value.is_empty() && !is_label_part(value) {
        return Err(format!("the value `{value}` {LABEL_RULE}, or be empty"));
    }
    if OWN_KEYS.contains(&key) {
        return Err(format!("`{key}` is a label by which Picus knows its own instances: choose another key"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

const LABEL_RULE: &str = "must have at most 63 letters, digits, `.`, `_` and `-`, with a letter or digit at both ends";

fn is_label_part(text: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_LABEL
        && end(bytes.first())
        && end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::label::{AGENT, INSTALLATION, POOL, SERVER};

    #[test]
    fn our_own_keys_are_those_of_the_providers() {
        assert_eq!(OWN_KEYS, [INSTALLATION, SERVER, POOL, AGENT]);
    }

    #[test]
    fn labels_follow_the_rules_of_hetzner() {
        let long = "a".repeat(64);
        for pair in ["a=b", "a=", "A.b_c-1=x", "example.com/team=ci", "0=0", &format!("{}=x", &long[1..])] {
            assert!(label(pair).is_ok(), "{pair}");
        }
        for pair in [
            "a",
            "=b",
            "a=b=c",
            "-a=b",
            "a-=b",
            "a=-",
            "a=b c",
            "a/b/c=d",
            "/a=b",
            "a b/c=d",
            "ä=b",
            "a=ü",
            "picus=x",
            "picus-pool=x",
            "picus-agent=",
            &format!("{long}=x"),
            &format!("x={long}"),
        ] {
            assert!(label(pair).is_err(), "{pair}");
        }
    }
}
