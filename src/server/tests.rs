//! Who is let in, by address, name and key. What is served stands in the integration tests.

use std::net::IpAddr;

use axum::http::HeaderMap;
use secrecy::SecretString;

use super::access::{Access, Admission};

const TOKEN: &str = "a token; with signs=and more";

fn headers(all: &[(&str, &str)]) -> HeaderMap {
    let pairs = all
        .iter()
        .map(|(name, value)| (axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap()));
    pairs.collect()
}

fn admits(token: Option<&str>, peer: &str, all: &[(&str, &str)]) -> Admission {
    let access = Access::new(token.map(SecretString::from));
    access.admits(&headers(all), peer.parse::<IpAddr>().unwrap())
}

#[test]
fn without_a_token_only_this_machine_is_let_in_and_only_under_its_own_name() {
    use Admission::{ForeignName, FromElsewhere, Whole};
    for (peer, sent, wanted) in [
        ("127.0.0.1", vec![("host", "localhost:8080")], Whole),
        ("127.0.0.1", vec![("host", "LOCALHOST")], Whole),
        ("127.0.0.1", vec![("host", "127.0.0.1:8080")], Whole),
        ("::1", vec![("host", "[::1]:8080")], Whole),
        ("127.0.0.1", vec![("host", "picus.example.org")], ForeignName),
        ("127.0.0.1", vec![("host", "localhost.example.org:8080")], ForeignName),
        ("127.0.0.1", vec![("host", "192.0.2.7")], ForeignName),
        ("127.0.0.1", vec![("host", "evil@localhost.example.org")], ForeignName),
        ("127.0.0.1", vec![], ForeignName),
        ("127.0.0.1", vec![("host", "localhost"), ("x-forwarded-for", "192.0.2.7")], FromElsewhere),
        ("127.0.0.1", vec![("host", "localhost"), ("forwarded", "for=192.0.2.7")], FromElsewhere),
        ("192.0.2.7", vec![("host", "localhost")], FromElsewhere),
        ("172.17.0.1", vec![("host", "127.0.0.1")], FromElsewhere),
        // A key that nobody has set opens nothing.
        ("192.0.2.7", vec![("host", "localhost"), ("authorization", "Bearer ")], FromElsewhere),
    ] {
        assert_eq!(admits(None, peer, &sent), wanted, "{peer}: {sent:?}");
    }
}

#[test]
fn with_a_token_only_the_token_counts() {
    let cookie: String = url::form_urlencoded::byte_serialize(TOKEN.as_bytes()).collect();
    let with = |cookie: &str| format!("other=1; picus_token={cookie}; more=2");
    for (peer, name, value, good) in [
        ("127.0.0.1", "host", "localhost".to_owned(), false),
        ("192.0.2.7", "authorization", format!("Bearer {TOKEN}"), true),
        ("192.0.2.7", "authorization", format!("bearer {TOKEN}"), true),
        ("127.0.0.1", "authorization", format!("Bearer {TOKEN}x"), false),
        ("127.0.0.1", "authorization", format!("Bearer {}", &TOKEN[..5]), false),
        ("127.0.0.1", "authorization", "Bearer".to_owned(), false),
        ("127.0.0.1", "authorization", format!("Basic {TOKEN}"), false),
        ("192.0.2.7", "cookie", with(&cookie), true),
        ("192.0.2.7", "cookie", with("wrong"), false),
        ("192.0.2.7", "cookie", with(""), false),
    ] {
        let wanted = if good { Admission::Whole } else { Admission::NoToken };
        assert_eq!(admits(Some(TOKEN), peer, &[(name, &value)]), wanted, "{name}: {value}");
    }
}
