//! The suite. Each test runs against every provider; where one can't be had here, that part is skipped with a line.

use std::collections::BTreeSet;
use std::time::Duration;

use secrecy::SecretString;

use super::{Peer, Trouble, ec2, hetzner};
use crate::model::age;
use crate::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, PoolName, ServerMark};
use crate::model::instance::{Instance, InstanceState, OfferKey};
use crate::provider::{Launch, PrepareError, ProviderError};

const USER_DATA: &str = "#cloud-config\nruncmd: [secret-that-nobody-may-see]\n";

/// Every provider that can be had here.
async fn peers() -> Vec<(&'static str, Box<dyn Peer>)> {
    let mut peers: Vec<(&'static str, Box<dyn Peer>)> = vec![("Hetzner", Box::new(hetzner::Hetzner::start().await))];
    if let Some(peer) = ec2::Ec2::start().await {
        peers.push(("EC2", Box::new(peer)));
    }
    peers
}

fn installation() -> InstallationId {
    "p1".into()
}

async fn offers(peer: &dyn Peer) -> Vec<OfferKey> {
    let prepared = peer.provider().prepare(peer.pool()).await.expect("it is prepared");
    prepared.offers.into_iter().map(|offer| offer.key).collect()
}

/// The launch with this number, of agent number 5.
async fn launch(peer: &dyn Peer, installation: &InstallationId, number: u64) -> Result<Instance, ProviderError> {
    let offer = offers(peer).await.remove(0);
    launch_of(peer, installation, number, &offer).await
}

async fn launch_of(
    peer: &dyn Peer,
    installation: &InstallationId,
    number: u64,
    offer: &OfferKey,
) -> Result<Instance, ProviderError> {
    let name = LaunchName::new(installation, &PoolName::from("default"), number);
    let launch = Launch {
        installation,
        server: &ServerMark::from("bcdfghjk"),
        pool: peer.pool(),
        name: &name,
        agent: Some(AgentId(5)),
        offer,
        user_data: &SecretString::from(USER_DATA),
    };
    peer.provider().launch(&launch).await
}

async fn list(peer: &dyn Peer) -> Vec<Instance> {
    peer.provider().list(&installation()).await.expect("a list")
}

#[tokio::test]
async fn a_pool_has_a_platform_and_its_offers_in_order() {
    for (what, peer) in peers().await {
        let prepared = peer.provider().prepare(peer.pool()).await.expect(what);
        assert_eq!(prepared.platform, "linux/amd64", "{what}");
        assert_eq!(prepared.offers.len(), 2, "{what}");
        assert_ne!(prepared.offers[0].key, prepared.offers[1].key, "{what}");
        assert!(!prepared.findings.is_empty(), "{what}: `picus check` has something to tell");
    }
}

#[tokio::test]
async fn all_that_does_not_exist_is_named_at_once() {
    for (what, peer) in peers().await {
        let (pool, wrong) = peer.wrong_pool();
        let Err(PrepareError::Settings(problems)) = peer.provider().prepare(&pool).await else { panic!("{what}") };
        let named: BTreeSet<&str> = problems.iter().map(|problem| problem.variable.as_str()).collect();
        assert_eq!(named, wrong.into_iter().collect(), "{what}");
        assert!(problems.iter().all(|problem| problem.had.is_some()), "{what}: {problems:?}");
    }
}

#[tokio::test]
async fn a_launch_is_listed_as_what_it_is() {
    for (what, peer) in peers().await {
        let offer = offers(peer.as_ref()).await.remove(1);
        let launched = launch_of(peer.as_ref(), &installation(), 1, &offer).await.expect(what);
        let listed = list(peer.as_ref()).await;
        assert_eq!(listed.len(), 1, "{what}");
        let one = &listed[0];
        assert_eq!((&one.id, &one.name, &one.offer), (&launched.id, &launched.name, &offer), "{what}");
        assert_eq!((one.pool.0.as_str(), one.agent), ("default", Some(AgentId(5))), "{what}");
        assert_eq!(one.server, Some(ServerMark::from("bcdfghjk")), "{what}");
        assert!(matches!(one.state, InstanceState::Starting | InstanceState::Running), "{what}: {:?}", one.state);
        assert!(!one.name.as_str().is_empty() && one.draining.is_none() && one.stopped_since.is_none(), "{what}");
    }
}

#[tokio::test]
async fn what_is_not_exactly_ours_is_not_listed() {
    for (what, peer) in peers().await {
        peer.strangers_instance().await;
        launch(peer.as_ref(), &"p10".into(), 1).await.expect(what);
        assert!(list(peer.as_ref()).await.is_empty(), "{what}");
        let others = peer.provider().list(&"p10".into()).await.expect(what);
        assert_eq!(others.len(), 1, "{what}");
    }
}

#[tokio::test]
async fn a_list_has_more_than_one_page() {
    for (what, peer) in peers().await {
        let offer = offers(peer.as_ref()).await.remove(0);
        for number in 0..101 {
            launch_of(peer.as_ref(), &installation(), number, &offer).await.expect(what);
        }
        let ids: BTreeSet<InstanceId> = list(peer.as_ref()).await.into_iter().map(|one| one.id).collect();
        assert_eq!(ids.len(), 101, "{what}");
    }
}

#[tokio::test]
async fn a_launch_that_is_sent_twice_is_one_instance() {
    for (what, peer) in peers().await {
        let first = launch(peer.as_ref(), &installation(), 1).await.expect(what);
        let second = launch(peer.as_ref(), &installation(), 1).await.expect(what);
        assert_eq!(first.id, second.id, "{what}");
        assert_eq!(list(peer.as_ref()).await.len(), 1, "{what}");
    }
}

#[tokio::test]
async fn a_launch_whose_answer_is_lost_leaves_one_instance_that_is_known() {
    for (what, peer) in peers().await {
        offers(peer.as_ref()).await;
        peer.trouble(Some(Trouble::LostAnswer));
        let launched = launch(peer.as_ref(), &installation(), 1).await;
        peer.trouble(None);
        if let Err(error) = &launched {
            assert_eq!(error.kind(), "unclear", "{what}: {error}");
        }
        let listed = list(peer.as_ref()).await;
        assert_eq!(listed.len(), 1, "{what}");
        let again = launch(peer.as_ref(), &installation(), 1).await.expect(what);
        assert_eq!(again.id, listed[0].id, "{what}");
        assert_eq!(list(peer.as_ref()).await.len(), 1, "{what}");
    }
}

#[tokio::test]
async fn what_is_deleted_is_gone_and_may_be_deleted_again() {
    for (what, peer) in peers().await {
        let launched = launch(peer.as_ref(), &installation(), 1).await.expect(what);
        let other = launch(peer.as_ref(), &installation(), 2).await.expect(what);
        for _ in 0..2 {
            peer.provider().delete(&launched.id).await.expect(what);
        }
        let left: Vec<Instance> = list(peer.as_ref()).await;
        let left: Vec<&InstanceId> =
            left.iter().filter(|one| one.state != InstanceState::Deleting).map(|one| &one.id).collect();
        assert_eq!(left, [&other.id], "{what}");
    }
}

#[tokio::test]
async fn every_refusal_has_its_kind_makes_nothing_and_shows_no_secret() {
    for (what, peer) in peers().await {
        for (trouble, kind) in
            [(Trouble::SoldOut, "sold_out"), (Trouble::Quota, "quota"), (Trouble::Unauthorised, "unauthorised")]
        {
            let offer = offers(peer.as_ref()).await.remove(0);
            peer.trouble(Some(trouble));
            let error = launch_of(peer.as_ref(), &installation(), 1, &offer).await.expect_err(what);
            peer.trouble(None);
            assert_eq!(error.kind(), kind, "{what}, {trouble:?}: {error}");
            for secret in [peer.secret(), "secret-that-nobody-may-see"] {
                assert!(!format!("{error} {error:?}").contains(secret), "{what}: {error}");
            }
            assert!(list(peer.as_ref()).await.is_empty(), "{what}, {trouble:?}");
        }
    }
}

#[tokio::test]
async fn a_cloud_in_trouble_gives_no_list_and_recovers() {
    for (what, peer) in peers().await {
        launch(peer.as_ref(), &installation(), 1).await.expect(what);
        peer.trouble(Some(Trouble::Broken));
        let error = peer.provider().list(&installation()).await.expect_err(what);
        assert_eq!(error.kind(), "unavailable", "{what}: {error}");
        let id = InstanceId::from("1");
        assert!(peer.provider().delete(&id).await.is_err(), "{what}: what was not carried out is no success");
        peer.trouble(None);
        assert_eq!(list(peer.as_ref()).await.len(), 1, "{what}");
    }
}

#[tokio::test]
async fn after_throttling_no_call_leaves_until_the_pause_is_over() {
    for (what, peer) in peers().await {
        peer.trouble(Some(Trouble::Throttled));
        let mut calls = 0;
        let mut throttled = None;
        for _ in 0..3 {
            match peer.provider().list(&installation()).await.expect_err(what) {
                ProviderError::RateLimited { until } => throttled = Some(until),
                other => panic!("{what}: {other}"),
            }
            let so_far = peer.calls();
            assert!(calls == 0 || so_far == calls, "{what}: a call left");
            calls = so_far;
        }
        peer.trouble(None);
        let until = throttled.expect("it was throttled");
        let mut waited = Duration::ZERO;
        while peer.provider().list(&installation()).await.is_err() {
            assert!(waited < Duration::from_mins(15), "{what}: until {until}");
            assert_eq!(peer.calls(), calls, "{what}: a call left");
            peer.pass(Duration::from_secs(5));
            waited += Duration::from_secs(5);
        }
        assert!(age(until, jiff::Timestamp::UNIX_EPOCH) > Duration::ZERO && waited > Duration::ZERO, "{what}");
    }
}
