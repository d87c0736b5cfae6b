//! Several pools: of one account, of two, and as fall-back for each other.

use picus::model::ids::TaskId;
use picus::world::{AnswerFault, Endpoint, Fault, Side, task};

use crate::harness::{Picus, Setup, hours, launches, minutes, picus, seconds};

/// An Intel pool and an Arm pool of one account.
fn two_platforms() -> Setup {
    picus().set("POOLS", "amd64,arm64").set("POOL_ARM64_HCLOUD_SERVER_TYPE", "cax11")
}

/// Two pools of the same scope at two accounts: the world's cloud by its number, and by its name.
fn two_accounts() -> Setup {
    picus().set("POOLS", "first,second").set("POOL_FIRST_HCLOUD_ENDPOINT", "http://localhost:{port}/v1")
}

fn of_pool(p: &Picus, pool: &str) -> usize {
    p.world.servers().iter().filter(|server| server.labels.get("picus-pool").is_some_and(|of| of == pool)).count()
}

#[tokio::test]
async fn each_pool_launches_for_the_tasks_of_its_platform() {
    let p = two_platforms().start().await;
    for platform in ["linux/amd64", "linux/arm64"] {
        for _ in 0..3 {
            p.world.push(task("build").label("platform", platform));
        }
    }
    assert_eq!(launches(&p.pass().await), 4);
    assert_eq!((of_pool(&p, "amd64"), of_pool(&p, "arm64")), (2, 2));
    p.ends_clean().await;
    assert_eq!(p.launched(), 4);
}

#[tokio::test]
async fn a_task_that_both_could_take_is_counted_once_for_the_first() {
    let p = two_platforms().start().await;
    p.world.push(task("anywhere"));
    p.pass().await;
    assert_eq!((of_pool(&p, "amd64"), of_pool(&p, "arm64")), (1, 0));
    p.ends_clean().await;
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn two_pools_of_one_account_share_its_listing() {
    let p = two_platforms().start().await;
    let before = p.world.calls_to(Side::Hetzner);
    p.live(hours(1)).await;
    assert!(p.world.calls_to(Side::Hetzner) - before < 100);
}

#[tokio::test]
async fn the_second_pool_is_the_fall_back_of_the_first() {
    let p = two_platforms().set("POOL_AMD64_MAX_AGENTS", 1).start().await;
    let tasks: Vec<TaskId> = (0..4).map(|_| p.world.push(task("anywhere").takes(minutes(5)))).collect();
    p.pass().await;
    assert_eq!((of_pool(&p, "amd64"), of_pool(&p, "arm64")), (1, 1), "the first is full");
    p.until_done(&tasks.iter().collect::<Vec<_>>()).await;
    p.ends_clean().await;
    assert_eq!(p.launched(), 2);
}

#[tokio::test]
async fn what_is_sold_out_in_the_first_pool_is_launched_in_the_second() {
    let p = two_platforms().start().await;
    p.world.sell_out("cx23", None, hours(2));
    let build = p.world.push(task("anywhere"));
    p.live(minutes(3)).await;
    assert!(p.is_done(&build), "{}", p.situation());
    assert_eq!(of_pool(&p, "arm64"), 1);
    p.ends_clean().await;
}

#[tokio::test]
async fn two_accounts_work_side_by_side() {
    let p = two_accounts().slots(1).max(1).start().await;
    assert_eq!(p.settings.accounts.len(), 2);
    for _ in 0..3 {
        p.world.push(task("build").takes(minutes(5)));
    }
    p.pass().await;
    assert_eq!((of_pool(&p, "first"), of_pool(&p, "second")), (1, 1));
    p.ends_clean().await;
}

#[tokio::test]
async fn a_pool_whose_cloud_is_down_does_not_hold_up_the_other() {
    // Nobody listens there.
    let p =
        picus().set("POOLS", "first,second").set("POOL_FIRST_HCLOUD_ENDPOINT", "http://127.0.0.1:9/v1").start().await;
    let build = p.world.push(task("build"));
    p.live(minutes(3)).await;
    assert!(p.is_done(&build), "{}", p.situation());
    p.ends_clean().await;
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn an_account_that_refuses_hands_its_tasks_to_the_next() {
    let p = two_accounts().start().await;
    p.world.fault(Fault::on(Endpoint::CreateServer, AnswerFault::Refused("resource_limit_exceeded")).times(1));
    let build = p.world.push(task("build"));
    p.live(minutes(2)).await;
    assert!(p.is_done(&build) || p.is_running(&build), "{}", p.situation());
    assert_eq!((of_pool(&p, "first"), of_pool(&p, "second")), (0, 1));
    p.ends_clean().await;
}

#[tokio::test]
async fn installations_whose_names_begin_alike_do_not_see_each_other() {
    let p = picus().start().await;
    let mut settings = p.settings.clone();
    settings.installation = "p10".into();
    let other = picus::app::App::new(settings, p.clock.clone(), 9).expect("good settings");
    other.ready(&tokio_util::sync::CancellationToken::new()).await.expect("a good start");
    let first = p.world.push(task("first").takes(minutes(20)));
    let second = p.world.push(task("second").takes(minutes(20)));
    p.until_run(&[&first, &second]).await;
    for _ in 0..60 {
        p.world.advance(seconds(30));
        other.reconciler.pass().await;
        other.reconciler.settled().await;
    }
    assert_eq!((p.servers(), p.world.agents().len()), (1, 1), "the other one retires nothing of ours");
    p.ends_clean().await;
}
