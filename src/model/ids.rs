//! Ids and names as types of their own, so that no agent's id is ever taken for a task's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Id of an agent record at the Woodpecker server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(pub i64);

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for AgentId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl FromStr for $name {
            type Err = std::convert::Infallible;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ok(Self(text.to_owned()))
            }
        }
    };
}

text_id! {
    /// Id of a task in Woodpecker's queue.
    TaskId
}
text_id! {
    /// Id of an instance at its provider (a number at Hetzner, `i-…` at EC2).
    InstanceId
}
text_id! {
    /// Name of a pool: letters and digits, lower case.
    PoolName
}
text_id! {
    /// Name of this installation (`PICUS_ID`), an RFC 1123 label.
    InstallationId
}

text_id! {
    /// Which Woodpecker server an instance was launched for, short enough for a label: see [`ServerMark::of`].
    ServerMark
}

impl ServerMark {
    /// The mark of the server at this address: host, port and path, so that `http` and `https` make no difference.
    #[must_use]
    pub fn of(server: &url::Url) -> Self {
        let port = server.port().map(|port| format!(":{port}")).unwrap_or_default();
        let address = format!("{}{port}{}", server.host_str().unwrap_or_default(), server.path().trim_end_matches('/'));
        Self(mark(&address))
    }
}

/// A few letters that stand for a text, short enough for a label and the same in every release; against accidents, not
/// against attackers.
#[must_use]
pub fn mark(text: &str) -> String {
    let mut rest = scramble(hash(text));
    let mut mark = String::new();
    for _ in 0..SUFFIX_LENGTH {
        mark.push(letter(rest));
        rest /= SUFFIX_LETTERS.len() as u64;
    }
    mark
}

/// Letters of a launch name's suffix: no vowels (no words), nothing that looks like something else.
const SUFFIX_LETTERS: &[u8; 27] = b"bcdfghjkmnpqrstvwxz23456789";
/// Random letters of a suffix; two check letters follow.
const SUFFIX_RANDOM: usize = 6;
/// Length of a whole suffix.
pub const SUFFIX_LENGTH: usize = SUFFIX_RANDOM + 2;

/// Name of an instance of ours and of its agent record: `<installation>-<pool>-<suffix>`.
///
/// The suffix ends in two check letters computed from all that stands before, so that an agent which somebody
/// named by hand (`picus-gpu-builder1`) is not taken for one of ours.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct LaunchName(String);

impl LaunchName {
    /// The name number `number` of this pool; equal numbers give equal names.
    #[must_use]
    pub fn new(installation: &InstallationId, pool: &PoolName, number: u64) -> Self {
        let mut name = format!("{installation}-{pool}-");
        let mut rest = scramble(number);
        for _ in 0..SUFFIX_RANDOM {
            name.push(letter(rest));
            rest /= SUFFIX_LETTERS.len() as u64;
        }
        let check = check_letters(&name);
        name.extend(check);
        Self(name)
    }

    /// Reads a name; `None` if it is not exactly of the form of this installation and pool.
    #[must_use]
    pub fn parse(text: &str, installation: &InstallationId, pool: &PoolName) -> Option<Self> {
        let suffix = text.strip_prefix(&installation.0)?.strip_prefix('-')?.strip_prefix(&pool.0)?.strip_prefix('-')?;
        Self::parse_suffix(text, suffix)
    }

    /// The pool in the name of an instance of this installation, whatever pool that is.
    #[must_use]
    pub fn pool_of(text: &str, installation: &InstallationId) -> Option<PoolName> {
        let (pool, suffix) = text.strip_prefix(&installation.0)?.strip_prefix('-')?.split_once('-')?;
        Self::parse_suffix(text, suffix).map(|_| PoolName(pool.to_owned()))
    }

    /// The name of an instance that its labels show to be ours although its name is not of our form: somebody renamed
    /// it. It is kept as it is, so that the instance stays visible; nothing reads it back as ours ([`Self::parse`]).
    #[must_use]
    pub fn renamed(text: &str) -> Self {
        Self(text.to_owned())
    }

    fn parse_suffix(text: &str, suffix: &str) -> Option<Self> {
        let ours = suffix.len() == SUFFIX_LENGTH
            && suffix.bytes().all(|byte| SUFFIX_LETTERS.contains(&byte))
            && check_letters(&text[..text.len() - 2]).into_iter().eq(suffix[SUFFIX_RANDOM..].chars());
        ours.then(|| Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LaunchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn letter(number: u64) -> char {
    let count = SUFFIX_LETTERS.len() as u64;
    let index = usize::try_from(number % count).unwrap_or(0);
    char::from(SUFFIX_LETTERS[index])
}

fn check_letters(text: &str) -> [char; 2] {
    let hash = scramble(hash(text));
    [letter(hash), letter(hash >> 32)]
}

/// FNV-1a, the same in every release; against accidents, not against attackers.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Spreads consecutive numbers over the whole range (the finaliser of splitmix64).
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_for_every_number_and_only_for_their_own_installation_and_pool() {
        let (installation, pool) = (InstallationId::from("a-b"), PoolName::from("arm64"));
        for number in 0..2000 {
            let name = LaunchName::new(&installation, &pool, number);
            assert_eq!(LaunchName::parse(name.as_str(), &installation, &pool), Some(name.clone()));
            assert_eq!(LaunchName::pool_of(name.as_str(), &installation), Some(pool.clone()));
            assert_eq!(LaunchName::parse(name.as_str(), &InstallationId::from("a"), &PoolName::from("b")), None);
            assert_eq!(LaunchName::parse(name.as_str(), &installation, &PoolName::from("arm6")), None);
        }
    }

    #[test]
    fn a_name_given_by_hand_is_not_ours() {
        let (installation, pool) = (InstallationId::from("picus"), PoolName::from("gpu"));
        for name in ["picus-gpu-builder1", "picus-gpu-", "picus-gpu", "picus-gpu-bcdfghjk", "picus-gpu-münchen2", ""] {
            assert_eq!(LaunchName::parse(name, &installation, &pool), None, "{name}");
        }
    }

    #[test]
    fn an_installation_whose_name_begins_like_ours_is_another() {
        let pool = PoolName::from("default");
        let theirs = LaunchName::new(&InstallationId::from("10"), &pool, 1);
        assert_eq!(LaunchName::parse(theirs.as_str(), &InstallationId::from("1"), &pool), None);
        assert_eq!(LaunchName::pool_of(theirs.as_str(), &InstallationId::from("1")), None);
    }

    #[test]
    fn a_servers_mark_is_a_label_and_tells_servers_apart_but_not_http_from_https() {
        let of = |url: &str| ServerMark::of(&url.parse().unwrap());
        assert_eq!(of("https://ci.example.com"), ServerMark::from(EXAMPLE));
        assert_eq!(of("https://ci.example.com/"), of("http://ci.example.com"));
        for other in
            ["https://ci.example.org", "https://ci.example.com:8000", "https://ci.example.com/ci", "http://[::1]"]
        {
            assert_ne!(of(other), of("https://ci.example.com"), "{other}");
            assert_eq!(of(other).0.len(), SUFFIX_LENGTH);
        }
    }

    /// Instances carry it: it must not change from one release to the next.
    const EXAMPLE: &str = "ww4b9zv9";

    #[test]
    fn ids_read_back_as_they_were_written() {
        for id in [i64::MIN, -1, 0, 1, 5, 4_294_967_296, 9_007_199_254_740_993, i64::MAX] {
            assert_eq!(AgentId(id).to_string().parse(), Ok(AgentId(id)));
        }
        for text in ["", "146", "-1", "i-0123456789abcdef0", "arm64", "a b", "ü🦀", "9223372036854775807"] {
            assert_eq!(TaskId::from(text).to_string().parse(), Ok(TaskId(text.to_owned())));
            assert_eq!(InstanceId::from(text).to_string().parse(), Ok(InstanceId(text.to_owned())));
            assert_eq!(PoolName::from(text).to_string().parse(), Ok(PoolName(text.to_owned())));
            assert_eq!(InstallationId::from(text).to_string().parse(), Ok(InstallationId(text.to_owned())));
        }
    }

    #[test]
    fn what_is_no_whole_number_is_no_agent_id() {
        for text in ["", "abc", "1.0", " 1", "9223372036854775808", "i-1"] {
            assert!(text.parse::<AgentId>().is_err(), "{text:?}");
        }
    }
}
