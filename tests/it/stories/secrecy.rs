//! No token, secret or user data in anything that is shown, whatever goes wrong. What the program itself prints is
//! looked at in `super::printed`.

use picus::world::{AnswerFault, Endpoint, Fault, Side, task};
use tracing::level_filters::LevelFilter;

use crate::harness::log::{Log, collect};
use crate::harness::{Picus, minutes, picus, seconds};

const SHARED_SECRET: &str = "a-secret-that-all-agents-share";
const REGISTRY_PASSWORD: &str = "the-password-of-a-registry";

/// Every token that Woodpecker's answers hold, by asking it.
pub async fn agent_tokens(world: &picus::world::World) -> Vec<String> {
    let url = format!("{}api/agents", world.woodpecker_url());
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let answer = client.get(url).bearer_auth(world.admin_token()).send().await.expect("an answer");
    let agents: serde_json::Value = answer.json().await.expect("JSON");
    let agents = agents.as_array().cloned().unwrap_or_default();
    agents.iter().filter_map(|agent| agent["token"].as_str().map(str::to_owned)).collect()
}

fn assert_hidden(what: &str, text: &str, secrets: &[String]) {
    for secret in secrets {
        let at = text.find(secret.as_str());
        let around = at.map(|at| text[..at].lines().last().unwrap_or_default().to_owned());
        assert!(at.is_none(), "{what}: a secret follows after: {around:?}");
    }
    for part in ["#cloud-config", "write_files", "WOODPECKER_AGENT_SECRET="] {
        assert!(!text.contains(part), "{what}: user data");
    }
}

/// A life with failures on both sides; gives every secret that was in play.
async fn live_with_failures(p: &mut Picus) -> Vec<String> {
    let mut secrets = vec![
        p.world.admin_token().to_owned(),
        p.world.hetzner_token().to_owned(),
        SHARED_SECRET.to_owned(),
        REGISTRY_PASSWORD.to_owned(),
    ];
    let faults = [
        AnswerFault::Status(500),
        AnswerFault::Html,
        AnswerFault::Empty,
        AnswerFault::WrongJson,
        AnswerFault::Unauthorised,
        AnswerFault::Forbidden,
        AnswerFault::Cut,
        AnswerFault::LostAnswer,
        AnswerFault::CutBody,
    ];
    for fault in faults {
        // The pauses after failures are forgotten, so that there is something to fail again.
        p.restart().await;
        let good = p.world.push(task("good").takes(minutes(3)));
        p.until_run(&[&good]).await;
        secrets.extend(agent_tokens(&p.world).await);
        let on =
            [Side::Woodpecker, Side::Hetzner].map(|side| p.world.fault(Fault::side(side, fault.clone()).chance(0.4)));
        for endpoint in [Endpoint::CreateServer, Endpoint::CreateAgent, Endpoint::DeleteAgent] {
            p.world.fault(Fault::on(endpoint, fault.clone()).times(1));
        }
        p.world.push(task("bad").takes(minutes(1)));
        p.live(seconds(150)).await;
        for fault in on {
            p.world.mend(fault);
        }
        secrets.extend(agent_tokens(&p.world).await);
        p.world.mend_all();
    }
    secrets.sort();
    secrets.dedup();
    secrets
}

async fn look_at_everything(mut p: Picus, log: &Log, least: usize) {
    let secrets = live_with_failures(&mut p).await;
    assert!(secrets.len() >= least && secrets.iter().all(|secret| secret.len() >= 20), "{secrets:?}");
    assert!(log.text().contains("TRACE"), "everything is collected");
    assert_hidden("the log", &log.text(), &secrets);
    let pass = p.try_pass().await;
    assert_hidden("a pass: snapshot and plan", &format!("{pass:?} {pass:#?}"), &secrets);
    if let picus::reconcile::Pass::Done { plan, .. } = &pass {
        assert_hidden("a plan", &serde_json::to_string(plan).expect("JSON"), &secrets);
    }
    assert_hidden("the settings", &format!("{:?} {:#?}", p.settings, p.settings), &secrets);
    assert_hidden("the client", &format!("{:?}", p.app().woodpecker), &secrets);
    for fault in [AnswerFault::Unauthorised, AnswerFault::Forbidden, AnswerFault::Html] {
        let on = p.world.fault(Fault::side(Side::Woodpecker, fault));
        let error = p.try_ready().await.expect_err("no start");
        p.world.mend(on);
        assert_hidden("a failed start", &format!("{error} {error:?}"), &secrets);
    }
}

#[tokio::test]
async fn nothing_that_is_shown_holds_a_secret_where_each_agent_has_its_own_token() {
    let (log, _guard) = collect(LevelFilter::TRACE);
    let p = picus().slots(1).max(9).set("AGENT_WOODPECKER_DOCKER_PASSWORD", REGISTRY_PASSWORD).start().await;
    look_at_everything(p, &log, 7).await;
}

#[tokio::test]
async fn nothing_that_is_shown_holds_a_secret_where_agents_share_one() {
    let (log, _guard) = collect(LevelFilter::TRACE);
    let p = picus().slots(1).max(9).shared_secret(SHARED_SECRET).start().await;
    look_at_everything(p, &log, 4).await;
}
