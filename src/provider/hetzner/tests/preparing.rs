use serde_json::{Value, json};

use super::fake::{Fake, Reply, Seen, list, pool, refusal, server_type};
use crate::provider::{PrepareError, Prepared, Provider};
use crate::settings::{HetznerSettings, Problem};

async fn prepare(types: &[&str], change: impl FnOnce(&mut HetznerSettings)) -> Result<Prepared, PrepareError> {
    Fake::start(|_| Reply::Usual).await.hetzner.prepare(&pool(types, change)).await
}

async fn prepare_with(server_types: Vec<Value>, types: &[&str]) -> Result<Prepared, PrepareError> {
    let fake = Fake::start(move |seen: &Seen| match seen.call.as_str() {
        "GET /server_types" => Reply::Json(200, list("server_types", &json!(server_types))),
        _ => Reply::Usual,
    })
    .await;
    fake.hetzner.prepare(&pool(types, |_| {})).await
}

fn problems(prepared: Result<Prepared, PrepareError>) -> Vec<Problem> {
    match prepared {
        Err(PrepareError::Settings(problems)) => problems,
        other => panic!("{other:?}"),
    }
}

fn offers(prepared: &Prepared) -> Vec<String> {
    prepared.offers.iter().map(|offer| offer.key.to_string()).collect()
}

#[tokio::test]
async fn offers_come_type_by_type_and_place_by_place() {
    let prepared = prepare(&["cx23", "cpx32:hel1", "cpx32"], |_| {}).await.unwrap();
    assert_eq!(prepared.platform, "linux/amd64");
    assert_eq!(offers(&prepared), ["cx23:nbg1", "cx23:fsn1", "cpx32:hel1", "cpx32:nbg1", "cpx32:fsn1"]);
    let prices: Vec<Option<f64>> = prepared.offers.iter().take(3).map(|offer| offer.hourly_price).collect();
    assert_eq!(prices, [Some(0.006), Some(0.007), None]);
    assert!(prepared.findings.iter().any(|line| line.contains("cx23") && line.contains("nbg1 at 0.0060")));
    assert!(prepared.findings.iter().any(|line| line.contains("docker-ce")));
}

#[tokio::test]
async fn arm_types_make_an_arm_pool() {
    assert_eq!(prepare(&["cax11"], |_| {}).await.unwrap().platform, "linux/arm64");
}

#[tokio::test]
async fn without_a_key_the_mailed_password_is_warned_of() {
    let warned = |prepared: Prepared| prepared.warnings.iter().any(|warning| warning.contains("PICUS_HCLOUD_SSH_KEYS"));
    assert!(warned(prepare(&["cx23"], |_| {}).await.unwrap()));
    assert!(!warned(prepare(&["cx23"], |settings| settings.ssh_keys = vec!["laptop".to_owned()]).await.unwrap()));
}

#[tokio::test]
async fn a_type_that_does_not_exist_is_named_with_those_that_do() {
    let mut ended = server_type("cx11", "x86", &["nbg1"]);
    ended["deprecation"] = json!({"announced": "2023-01-01T00:00:00Z", "unavailable_after": "2024-01-01T00:00:00Z"});
    let types = vec![ended, server_type("cx23", "x86", &["nbg1", "fsn1"])];
    let found = problems(prepare_with(types, &["cx22", "cx11", "cx23"]).await);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((found[0].variable.as_str(), found[0].had.as_deref()), ("PICUS_HCLOUD_SERVER_TYPE", Some("cx22")));
    assert_eq!(found[1].had.as_deref(), Some("cx11"));
    for problem in found {
        assert!(problem.message.ends_with("there are cx23"), "{problem}");
    }
}

#[tokio::test]
async fn a_deprecated_type_is_used_with_a_warning() {
    let mut ending = server_type("cx23", "x86", &["nbg1"]);
    ending["deprecation"] = json!({"announced": "2026-11-01T00:00:00Z", "unavailable_after": "2027-02-01T00:00:00Z"});
    let prepared = prepare_with(vec![ending], &["cx23"]).await.unwrap();
    assert_eq!(offers(&prepared), ["cx23:nbg1"]);
    assert!(prepared.warnings.iter().any(|warning| warning.contains("cx23") && warning.contains("2027-02-01")));
}

#[tokio::test]
async fn a_place_where_the_type_ends_or_is_not_offered_is_left_out() {
    let ended = json!({"announced": "2026-01-01T00:00:00Z", "unavailable_after": "2026-06-01T00:00:00Z"});
    let ending = json!({"announced": "2026-11-01T00:00:00Z", "unavailable_after": "2027-02-01T00:00:00Z"});
    let at = |nbg1: Value| {
        let mut kind = server_type("cx23", "x86", &[]);
        kind["locations"] = json!([nbg1, {"name": "fsn1", "available": true}]);
        kind
    };
    for (what, place) in [
        ("ended", json!({"name": "nbg1", "available": true, "deprecation": ended})),
        ("ending", json!({"name": "nbg1", "available": true, "deprecation": ending})),
        ("elsewhere", json!({"name": "hil", "available": true})),
    ] {
        let prepared = prepare_with(vec![at(place)], &["cx23"]).await.unwrap();
        assert_eq!(offers(&prepared), ["cx23:fsn1"], "{what}");
        assert!(prepared.warnings.iter().any(|warning| warning.contains("nbg1")), "{what}: {:?}", prepared.warnings);
    }
}

#[tokio::test]
async fn a_place_where_the_type_is_not_in_stock_is_tried_after_everything_else() {
    let mut small = server_type("cx23", "x86", &[]);
    small["locations"] = json!([{"name": "nbg1", "available": false}, {"name": "fsn1", "available": true}]);
    let prepared =
        prepare_with(vec![small, server_type("cx33", "x86", &["nbg1", "fsn1"])], &["cx23", "cx33"]).await.unwrap();
    assert_eq!(offers(&prepared), ["cx23:fsn1", "cx33:nbg1", "cx33:fsn1", "cx23:nbg1"]);
    assert!(prepared.warnings.iter().any(|warning| warning.contains("nbg1")), "{:?}", prepared.warnings);
}

#[tokio::test]
async fn what_still_can_be_ordered_does_not_stop_the_start() {
    let ending = json!({"announced": "2026-11-01T00:00:00Z", "unavailable_after": "2027-02-01T00:00:00Z"});
    for place in [json!({"name": "nbg1", "deprecation": ending}), json!({"name": "nbg1", "available": false})] {
        let mut kind = server_type("cx23", "x86", &[]);
        kind["locations"] = json!([place]);
        assert_eq!(offers(&prepare_with(vec![kind], &["cx23"]).await.unwrap()), ["cx23:nbg1"], "{place}");
    }
}

#[tokio::test]
async fn a_type_that_is_offered_in_none_of_the_places_is_a_problem() {
    let found = problems(prepare_with(vec![server_type("cx23", "x86", &["hel1"])], &["cx23"]).await);
    assert_eq!(found[0].variable, "PICUS_HCLOUD_SERVER_TYPE");
    assert!(found[0].message.contains("cx23 is not offered in nbg1"), "{}", found[0]);
}

#[tokio::test]
async fn an_answer_that_does_not_tell_the_places_leaves_them_all() {
    let kind = json!({"id": 1, "name": "cx23", "architecture": "x86"});
    assert_eq!(offers(&prepare_with(vec![kind], &["cx23"]).await.unwrap()), ["cx23:nbg1", "cx23:fsn1"]);
}

#[tokio::test]
async fn types_of_two_architectures_are_two_pools() {
    let found = problems(prepare(&["cx23", "cax11"], |_| {}).await);
    assert_eq!(found[0].had.as_deref(), Some("cx23,cax11"));
    assert!(found[0].message.contains("cax11 is arm") && found[0].message.contains("two pools"), "{}", found[0]);
}

#[tokio::test]
async fn an_architecture_of_the_future_is_a_problem() {
    let found = problems(prepare_with(vec![server_type("rv1", "riscv", &["nbg1"])], &["rv1"]).await);
    assert!(found[0].message.contains("riscv"), "{}", found[0]);
}

#[tokio::test]
async fn whatever_is_named_and_does_not_exist_is_a_problem_and_all_are_told_together() {
    let found = problems(
        prepare(&["cx23", "cpx32:mars1"], |settings| {
            settings.prefix = "PICUS_POOL_X_HCLOUD_".to_owned();
            settings.locations = vec!["nbg1".to_owned(), "moon1".to_owned()];
            settings.image = "nothing".to_owned();
            settings.ssh_keys = vec!["laptop".to_owned(), "lost".to_owned()];
            settings.networks = vec!["99".to_owned()];
            settings.firewalls = vec!["open".to_owned()];
            settings.placement_group = Some("together".to_owned());
        })
        .await,
    );
    let told: Vec<(&str, &str)> =
        found.iter().map(|problem| (problem.variable.as_str(), problem.had.as_deref().unwrap_or_default())).collect();
    for expected in [
        ("PICUS_POOL_X_HCLOUD_LOCATION", "moon1"),
        ("PICUS_POOL_X_HCLOUD_SERVER_TYPE", "cpx32:mars1"),
        ("PICUS_POOL_X_HCLOUD_IMAGE", "nothing"),
        ("PICUS_POOL_X_HCLOUD_SSH_KEYS", "lost"),
        ("PICUS_POOL_X_HCLOUD_NETWORKS", "99"),
        ("PICUS_POOL_X_HCLOUD_FIREWALLS", "open"),
        ("PICUS_POOL_X_HCLOUD_PLACEMENT_GROUP", "together"),
    ] {
        assert!(told.contains(&expected), "{expected:?} in {told:?}");
    }
    let text = PrepareError::Settings(found).to_string();
    for exists in ["fsn1, nbg1, hel1, ash", "docker-ce", "laptop, desk", "inside", "closed", "apart"] {
        assert!(text.contains(exists), "{exists} in {text}");
    }
}

#[tokio::test]
async fn an_image_is_found_by_id_and_has_to_fit() {
    prepare(&["cx23"], |settings| settings.image = "11".to_owned()).await.unwrap();
    for (image, part) in [("12", "is for arm"), ("13", "no such image")] {
        let found = problems(prepare(&["cx23"], |settings| settings.image = image.to_owned()).await);
        assert_eq!(found[0].variable, "PICUS_HCLOUD_IMAGE");
        assert!(found[0].message.contains(part), "{}", found[0]);
    }
}

#[tokio::test]
async fn an_image_has_to_be_there_and_current() {
    for (status, deprecated, outcome) in [
        (json!("available"), json!(null), Ok("")),
        (json!(null), json!(null), Ok("")),
        (json!("available"), json!("2027-01-01T00:00:00Z"), Ok("2027-01-01")),
        (json!("available"), json!("2026-01-01T00:00:00Z"), Err("2026-01-01")),
        (json!("creating"), json!(null), Err("creating")),
    ] {
        let fake = Fake::start(move |seen: &Seen| match seen.call.as_str() {
            "GET /images" => {
                let image = json!({"id": 11, "name": "docker-ce", "status": status, "deprecated": deprecated});
                Reply::Json(200, list("images", &json!([image])))
            }
            _ => Reply::Usual,
        })
        .await;
        match (fake.hetzner.prepare(&pool(&["cx23"], |_| {})).await, outcome) {
            (Ok(prepared), Ok(warning)) => {
                assert!(warning.is_empty() || prepared.warnings.iter().any(|text| text.contains(warning)));
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (prepared, outcome) => panic!("{prepared:?}, not {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_bad_token_says_which() {
    let fake = Fake::start(|_| Reply::Json(401, refusal("unauthorized"))).await;
    let error = fake.hetzner.prepare(&pool(&["cx23"], |_| {})).await.unwrap_err();
    assert!(matches!(&error, PrepareError::Provider(inner) if inner.kind() == "unauthorised"), "{error:?}");
    assert!(error.to_string().contains("PICUS_HCLOUD_TOKEN"));
}

#[tokio::test]
async fn a_catalogue_that_is_empty_is_no_answer_instead_of_a_problem_with_the_settings() {
    for path in ["server_types", "locations"] {
        let fake = Fake::start(move |seen: &Seen| {
            if seen.call == format!("GET /{path}") { Reply::Json(200, list(path, &json!([]))) } else { Reply::Usual }
        })
        .await;
        let error = fake.hetzner.prepare(&pool(&["cx23"], |_| {})).await.unwrap_err();
        assert!(matches!(&error, PrepareError::Provider(inner) if inner.kind() == "unavailable"), "{error:?}");
    }
}

#[tokio::test]
async fn pools_are_prepared_at_the_same_time_and_again() {
    let fake = Fake::start(|_| Reply::Usual).await;
    let pool = pool(&["cx23"], |_| {});
    let (one, other) = tokio::join!(fake.hetzner.prepare(&pool), fake.hetzner.prepare(&pool));
    assert_eq!(one.unwrap(), other.unwrap());
    assert!(fake.hetzner.prepare(&pool).await.is_ok());
}
