//! What the answers say.

use std::collections::{BTreeMap, BTreeSet};

use picus::metrics::registry;
use picus::status::view::Status;
use picus::world::{AnswerFault, Endpoint, Fault, Side, agent, task};
use reqwest::StatusCode;

use super::Served;
use crate::harness::{Picus, Setup, hours, minutes, picus, seconds};

/// Two pools, of which one has a label.
fn two_pools() -> Setup {
    picus()
        .set("POOLS", "amd64,gpu")
        .set("POOL_GPU_AGENT_WOODPECKER_FILTER_LABELS", "!gpu=true")
        .set("POOL_GPU_MAX_AGENTS", 1)
        .set("POOL_GPU_HCLOUD_SERVER_TYPE", "cpx32")
}

/// Something of everything: tasks that run, boot, are held back, wait for others or are not ours; an agent of others.
async fn full() -> Picus {
    let p = two_pools().max(1).start().await;
    p.world.add_agent(agent("office").label("!site", "office"));
    let first = p.world.push(task("first").takes(hours(1)));
    p.until_run(&[&first]).await;
    p.world.push(task("second").takes(hours(1)));
    p.world.push(task("third"));
    p.world.push(task("fourth"));
    p.world.push(task("later").needs(&first));
    p.world.push(task("mac").label("platform", "darwin/arm64"));
    p.world.push(task("train").label("gpu", "true"));
    p.live(seconds(30)).await;
    p
}

#[tokio::test]
async fn health_stays_good_through_outages_and_ends_with_passes_that_do_not_come() {
    let p = picus().start().await;
    let served = Served::of(&p, None).await;
    assert_eq!(served.get("/healthz").await.0, StatusCode::OK, "it is starting");
    assert_eq!(served.get("/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(served.get("/api/v1/status").await.0, StatusCode::SERVICE_UNAVAILABLE);
    p.pass().await;
    assert_eq!(served.get("/readyz").await.0, StatusCode::OK);

    p.world.fault(Fault::side(Side::Woodpecker, AnswerFault::Status(502)).lasting(minutes(30)));
    p.live(minutes(20)).await;
    let (status, _) = served.get("/healthz").await;
    assert_eq!(status, StatusCode::OK, "an outage is no reason to restart");
    assert_eq!(served.get("/readyz").await.0, StatusCode::OK);
    let shown = served.json("/api/v1/status").await;
    assert_eq!(shown["pass"]["outcome"], "skipped");
    assert!(shown["pass"]["why"].as_str().expect("why").contains("502"), "{shown}");

    p.world.advance(seconds(49));
    assert_eq!(served.get("/healthz").await.0, StatusCode::OK, "late, but not by more than five intervals");
    p.world.advance(seconds(2));
    let (status, why) = served.get("/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(why.contains("has not begun"), "{why}");
    let (_, page) = served.get("/").await;
    assert!(page.contains("Not working"), "{page}");
}

#[tokio::test]
async fn a_pass_that_hangs_is_told_and_nothing_waits_for_it() {
    let p = picus().start().await;
    p.pass().await;
    let served = Served::of(&p, None).await;
    p.world.fault(Fault::on(Endpoint::Queue, AnswerFault::Stall(seconds(8))).times(1));
    let reconciler = p.app().reconciler.clone();
    let pass = tokio::spawn(async move { reconciler.pass().await });
    while p.world.calls(Endpoint::Queue) < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for path in ["/", "/live", "/metrics", "/api/v1/status", "/api/v1/decisions", "/healthz", "/readyz"] {
        assert_eq!(served.get(path).await.0, StatusCode::OK, "{path}");
    }
    assert!(!pass.is_finished(), "all of that was answered while the pass hung");
    p.world.advance(minutes(3));
    let (status, why) = served.get("/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(why.contains("does not come to its end"), "{why}");
    pass.await.expect("no panic");
}

#[tokio::test]
async fn the_status_has_everything_with_its_reason_and_no_secret() {
    let p = full().await;
    let served = Served::of(&p, None).await;
    let shown = served.json("/api/v1/status").await;
    let status: Status = serde_json::from_value(shown.clone()).expect("what the terminal reads");
    let why: BTreeMap<&str, (&str, &str)> =
        status.tasks.iter().map(|task| (task.name.as_str(), (&*task.pool, &*task.decision))).collect();
    let wanted = [
        ("third", ("amd64", "at_maximum")),
        ("fourth", ("amd64", "at_maximum")),
        ("later", ("amd64", "dependencies")),
        ("train", ("gpu", "booting")),
    ];
    assert_eq!(why, wanted.into_iter().collect());
    assert_eq!((status.queue.waiting, status.queue.not_ours, status.queue.running), (5, 1, 2));
    let doing: BTreeSet<(&str, &str)> =
        status.machines.iter().map(|machine| (machine.pool.as_str(), machine.state.as_str())).collect();
    assert_eq!(doing, [("amd64", "busy"), ("gpu", "booting")].into());
    assert!(status.machines.iter().all(|machine| !machine.why.is_empty() && machine.hourly_price.is_some()));
    let amd64 = &status.pools[0];
    assert_eq!((amd64.demand, amd64.waiting, amd64.slots.busy, amd64.instances, amd64.max), (2, 3, 2, 1, 1));
    assert!(amd64.cost > 0.0 && amd64.cost_per_hour.expect("a price") > 0.0);
    assert_eq!(status.others.iter().map(|other| other.name.as_str()).collect::<Vec<_>>(), ["office"]);
    assert!(status.steps.iter().all(|step| step.outcome == "done"), "{:?}", status.steps);

    let decisions = served.json("/api/v1/decisions").await;
    let entries = decisions["decisions"].as_array().expect("a list");
    let numbers: Vec<u64> = entries.iter().map(|entry| entry["number"].as_u64().expect("a number")).collect();
    assert!(numbers.is_sorted_by(|newer, older| newer > older), "newest first: {numbers:?}");
    for kind in ["action", "hold", "keep"] {
        assert!(entries.iter().any(|entry| entry["kind"] == kind), "{kind}: {decisions}");
    }
    let hold = entries.iter().find(|entry| entry["word"] == "at_maximum").expect("the hold");
    assert_eq!((&hold["inputs"]["max"], &hold["inputs"]["demand"]), (&1.into(), &2.into()));

    for path in ["/", "/metrics", "/api/v1/status", "/api/v1/decisions"] {
        let (_, body) = served.get(path).await;
        for secret in [p.world.admin_token(), p.world.hetzner_token(), p.world.user_token()] {
            assert!(!body.contains(secret), "{path}");
        }
    }
}

/// The form of the API: names and kinds of all fields, whatever the values are.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "the form is long")]
async fn the_form_of_the_api_is_what_it_was() {
    fn form(value: &serde_json::Value, path: &str, all: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields) if path.ends_with("labels") => {
                let _ = fields;
                all.insert(format!("{path}: labels"));
            }
            serde_json::Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| form(value, &format!("{path}.{name}"), all));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| form(item, &format!("{path}[]"), all)),
            serde_json::Value::Null => {}
            serde_json::Value::Bool(_) => drop(all.insert(format!("{path}: truth"))),
            serde_json::Value::Number(_) => drop(all.insert(format!("{path}: number"))),
            serde_json::Value::String(_) => drop(all.insert(format!("{path}: text"))),
        }
    }
    let p = full().await;
    p.world.sell_out("cpx32", None, hours(1));
    p.live(seconds(20)).await;
    let served = Served::of(&p, None).await;
    let mut all = BTreeSet::new();
    form(&served.json("/api/v1/status").await, "status", &mut all);
    form(&served.json("/api/v1/decisions").await, "decisions", &mut all);
    let all: Vec<String> = all.into_iter().collect();
    insta::assert_snapshot!(all.join("\n"), @r"
    decisions.decisions[].at: text
    decisions.decisions[].inputs.demand: number
    decisions.decisions[].inputs.instances: number
    decisions.decisions[].inputs.max: number
    decisions.decisions[].inputs.slots.booting: number
    decisions.decisions[].inputs.slots.busy: number
    decisions.decisions[].inputs.slots.cordoned: number
    decisions.decisions[].inputs.slots.free: number
    decisions.decisions[].kind: text
    decisions.decisions[].number: number
    decisions.decisions[].pool: text
    decisions.decisions[].subject: text
    decisions.decisions[].why: text
    decisions.decisions[].word: text
    decisions.version: number
    status.accounts[].listed: text
    status.accounts[].pools[]: text
    status.accounts[].provider: text
    status.dry_run: truth
    status.installation: text
    status.machines[].agent: number
    status.machines[].hourly_price: number
    status.machines[].instance: text
    status.machines[].location: text
    status.machines[].name: text
    status.machines[].pool: text
    status.machines[].reason: text
    status.machines[].running: number
    status.machines[].server_type: text
    status.machines[].since: text
    status.machines[].slots: number
    status.machines[].state: text
    status.machines[].why: text
    status.now: text
    status.others[].agent: number
    status.others[].cordoned: truth
    status.others[].name: text
    status.others[].running: number
    status.others[].slots: number
    status.pass.ended: text
    status.pass.last_done: text
    status.pass.number: number
    status.pass.outcome: text
    status.pass.took_seconds: number
    status.picus: text
    status.pools[].billing_period_seconds: number
    status.pools[].boot_timeout_seconds: number
    status.pools[].cost: number
    status.pools[].cost_per_hour: number
    status.pools[].demand: number
    status.pools[].idle_cost: number
    status.pools[].idle_timeout_seconds: number
    status.pools[].instances: number
    status.pools[].labels: labels
    status.pools[].max: number
    status.pools[].min: number
    status.pools[].name: text
    status.pools[].offers[].hourly_price: number
    status.pools[].offers[].location: text
    status.pools[].offers[].server_type: text
    status.pools[].oldest_wait_seconds: number
    status.pools[].provider: text
    status.pools[].slots.booting: number
    status.pools[].slots.busy: number
    status.pools[].slots.cordoned: number
    status.pools[].slots.free: number
    status.pools[].slots_per_agent: number
    status.pools[].waiting: number
    status.queue.not_ours: number
    status.queue.paused: truth
    status.queue.running: number
    status.queue.waiting: number
    status.server: text
    status.started: text
    status.steps[].action: text
    status.steps[].began: text
    status.steps[].number: number
    status.steps[].outcome: text
    status.steps[].pool: text
    status.steps[].took_seconds: number
    status.steps[].what: text
    status.steps[].why: text
    status.tasks[].decision: text
    status.tasks[].id: text
    status.tasks[].labels: labels
    status.tasks[].name: text
    status.tasks[].pipeline: number
    status.tasks[].pool: text
    status.tasks[].repo: text
    status.tasks[].since: text
    status.tasks[].why: text
    status.version: number
    ");
}

#[tokio::test]
async fn metrics_are_those_of_the_registry_and_few() {
    let p = full().await;
    let served = Served::of(&p, None).await;
    let (_, text) = served.get("/metrics").await;
    let known: BTreeSet<&str> = registry::ALL.iter().map(|metric| metric.name).collect();
    let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for line in &series {
        let name = line.split(['{', ' ']).next().expect("a name");
        let base = ["_total", "_bucket", "_sum", "_count", "_info"].iter().find_map(|end| name.strip_suffix(end));
        assert!(known.contains(name) || base.is_some_and(|base| known.contains(base)), "{line}");
    }
    let value = |series: &str| -> f64 {
        let line =
            text.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series} in\n{text}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    };
    for (series, wanted) in [
        (r#"picus_tasks_waiting{pool="amd64",reason="at_maximum"}"#, 2.0),
        (r#"picus_tasks_waiting{pool="amd64",reason="dependencies"}"#, 1.0),
        (r#"picus_tasks_waiting{pool="gpu",reason="booting"}"#, 1.0),
        (r#"picus_tasks_waiting{pool="gpu",reason="at_maximum"}"#, 0.0),
        (r#"picus_agents{pool="amd64",state="busy"}"#, 1.0),
        (r#"picus_slots{pool="amd64",state="busy"}"#, 2.0),
        (r#"picus_agents_max{pool="amd64"}"#, 1.0),
        (
            r#"picus_launches_total{pool="amd64",provider="hetzner",server_type="cx23",location="nbg1",outcome="ok"}"#,
            1.0,
        ),
        (r#"picus_first_contact_seconds_count{pool="amd64"}"#, 1.0),
        (r#"picus_provider_calls_total{provider="hetzner",operation="create_server",outcome="ok"}"#, 2.0),
        (r#"picus_breaker_open{pool="amd64"}"#, 0.0),
    ] {
        assert!((value(series) - wanted).abs() < 1e-9, "{series} is {}, not {wanted}", value(series));
    }
    assert!(value(r#"picus_cost_total{pool="amd64"}"#) > 0.0);
    assert!(value(r#"picus_rate_budget_remaining{provider="hetzner"}"#) > 0.0);
    assert!(value("picus_last_good_pass_timestamp_seconds") > 1.7e9);
    // Two pools: what grows with tasks, agents or time would show here.
    assert!(series.len() < 260, "{} series", series.len());
    p.world.push(task("one-more"));
    p.live(minutes(5)).await;
    let later = served.get("/metrics").await.1.lines().filter(|line| !line.starts_with('#')).count();
    assert!(later < series.len() + 40, "{later} after {}", series.len());
}

#[tokio::test]
async fn the_page_tells_what_waits_and_why_without_any_script() {
    let p = full().await;
    let served = Served::of(&p, None).await;
    p.world.push(task("<script>alert(1)</script>").repo("a/<b>"));
    p.pass().await;
    let (status, page) = served.get("/").await;
    assert_eq!(status, StatusCode::OK);
    for told in
        ["Working", "the maximum of 1 instance is reached", "boots for it", "busy", "an hour", "office", "launch "]
    {
        assert!(page.contains(told), "nothing of {told:?} in\n{page}");
    }
    assert!(page.contains("&#60;script&#62;alert(1)") && !page.contains("<script>alert"), "{page}");
    // What changes can be had alone, and is the same.
    let (_, live) = served.get("/live").await;
    assert!(live.contains("the maximum of 1 instance is reached") && !live.contains("<html"));
}
