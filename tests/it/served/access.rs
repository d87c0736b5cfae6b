//! Who sees what.

use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, COOKIE, HOST, LOCATION, SET_COOKIE};

use super::{Served, client};
use crate::harness::picus;

const TOKEN: &str = "0123456789abcdef;\"=\\";
const GUARDED: [&str; 5] = ["/", "/live", "/metrics", "/api/v1/status", "/api/v1/decisions"];

#[tokio::test]
async fn with_a_token_everything_but_health_takes_it() {
    let p = picus().start().await;
    p.pass().await;
    let served = Served::of(&p, Some(TOKEN)).await;
    for path in GUARDED {
        let (status, body) = served.get(path).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
        assert!(!body.contains("machines") && !body.contains("picus_"), "{path}: {body}");
        let answer = client().get(served.url(path)).header(AUTHORIZATION, format!("Bearer {TOKEN}")).send().await;
        assert_eq!(answer.expect("an answer").status(), StatusCode::OK, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(served.get(path).await.0, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn whoever_signs_in_gets_a_cookie_that_scripts_and_other_sites_can_not_use() {
    let p = picus().start().await;
    p.pass().await;
    let served = Served::of(&p, Some(TOKEN)).await;
    let sign_in = |token: &str| client().post(served.url("/sign-in")).form(&[("token", token)]).send();
    let refused = sign_in("not-the-token-but-as-long").await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(refused.headers().get(SET_COOKIE).is_none());
    assert!(refused.text().await.expect("a page").contains("not the token"));

    let answer = sign_in(TOKEN).await.expect("an answer");
    assert_eq!((answer.status(), answer.headers()[LOCATION].to_str().expect("text")), (StatusCode::SEE_OTHER, "/"));
    let cookie = answer.headers()[SET_COOKIE].to_str().expect("text").to_owned();
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"), "{cookie}");
    let pair = cookie.split(';').next().expect("a pair").to_owned();
    for path in GUARDED {
        let answer = client().get(served.url(path)).header(COOKIE, &pair).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
    }
    let out = client().post(served.url("/sign-out")).header(COOKIE, &pair).send().await.expect("an answer");
    assert!(out.headers()[SET_COOKIE].to_str().expect("text").contains("Max-Age=0"));
}

#[tokio::test]
async fn a_foreign_name_is_refused_on_loopback_but_for_health() {
    let p = picus().start().await;
    p.pass().await;
    let served = Served::of(&p, None).await;
    for path in GUARDED {
        assert_eq!(served.get(path).await.0, StatusCode::OK, "{path}");
        let answer = client().get(served.url(path)).header(HOST, "picus.attacker.example").send().await;
        assert_eq!(answer.expect("an answer").status(), StatusCode::MISDIRECTED_REQUEST, "{path}");
    }
    let health = client().get(served.url("/healthz")).header(HOST, "anything").send().await.expect("an answer");
    assert_eq!(health.status(), StatusCode::OK);
}

#[tokio::test]
async fn what_a_proxy_hands_on_is_from_elsewhere_and_the_page_says_what_to_set() {
    let p = picus().start().await;
    p.pass().await;
    let served = Served::of(&p, None).await;
    let get = async |path: &str| {
        let sent = client().get(served.url(path)).header("x-forwarded-for", "192.0.2.7").send().await;
        let answer = sent.expect("an answer");
        (answer.status(), answer.text().await.expect("a body"))
    };
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(get(path).await.0, StatusCode::OK, "{path}");
    }
    for path in ["/", "/live", "/api/v1/status", "/api/v1/decisions"] {
        let (status, body) = get(path).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(body.contains("PICUS_HTTP_TOKEN"), "{path}: {body}");
    }
}

#[tokio::test]
async fn every_answer_forbids_what_the_page_does_not_need() {
    let p = picus().start().await;
    p.pass().await;
    let served = Served::of(&p, None).await;
    for path in ["/", "/live", "/api/v1/status", "/style.css", "/script.js", "/nothing"] {
        let answer = client().get(served.url(path)).send().await.expect("an answer");
        let policy = answer.headers()["content-security-policy"].to_str().expect("text");
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{path}: {policy}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff", "{path}");
    }
    let (_, page) = served.get("/").await;
    assert!(!page.contains("style=\"") && !page.contains("onclick") && !page.contains("http://www"), "{page}");
}
