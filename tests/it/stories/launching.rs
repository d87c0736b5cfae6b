//! What is launched for which tasks, and what is not.

use picus::model::decision::{TaskDecision, Wait};
use picus::model::ids::TaskId;
use picus::world::{Endpoint, agent, task};

use crate::harness::{decision, hours, kinds, launches, minutes, picus, seconds};

#[tokio::test]
async fn a_booting_agent_covers_as_many_tasks_as_it_will_have_slots() {
    let p = picus().world(|world| world.boot_time = seconds(90)).start().await;
    p.world.push(task("first"));
    assert_eq!(launches(&p.pass().await), 1);
    p.world.advance(seconds(40));
    p.world.push(task("second"));
    for _ in 0..10 {
        assert_eq!(launches(&p.pass().await), 0, "two tasks, two slots of one that boots");
    }
    assert_eq!(p.launched(), 1);
    for number in 3..=5 {
        p.world.push(task(format!("task-{number}")));
    }
    assert_eq!(launches(&p.pass().await), 2, "three more tasks, two slots each");
    assert_eq!(launches(&p.pass().await), 0);
    p.ends_clean().await;
    assert_eq!(p.launched(), 3);
}

#[tokio::test]
async fn full_agents_are_no_supply() {
    let p = picus().max(10).start().await;
    let begin = |count: usize| (0..count).map(|_| p.world.push(task("long").takes(hours(1)))).collect::<Vec<TaskId>>();
    let long = begin(6);
    p.until_run(&long.iter().collect::<Vec<_>>()).await;
    assert_eq!(p.servers(), 3);
    begin(2);
    assert_eq!(launches(&p.pass_after(seconds(10)).await), 1);
    p.ends_clean().await;
    assert_eq!(p.launched(), 4);
}

#[tokio::test]
async fn an_idle_agent_that_only_takes_other_tasks_covers_none() {
    let p = picus().start().await;
    p.world.add_agent(agent("gpu").label("!type", "gpu").slots(4));
    p.world.push(task("build").label("platform", "linux/amd64"));
    assert_eq!(launches(&p.pass_after(seconds(1)).await), 1);
    p.ends_clean().await;
}

#[tokio::test]
async fn idle_matching_agents_of_others_cover_demand() {
    let p = picus().start().await;
    p.world.add_agent(agent("office").slots(2));
    for number in 0..3 {
        p.world.push(task(format!("task-{number}")));
    }
    assert_eq!(launches(&p.pass().await), 1, "two are for the office's agent, before the server has handed them out");
    assert_eq!(launches(&p.pass_after(seconds(1)).await), 0);
    p.ends_clean().await;
}

#[tokio::test]
async fn busy_cordoned_unseen_and_other_organisations_agents_of_others_cover_nothing() {
    let p = picus().start().await;
    let busy = p.world.add_agent(agent("busy"));
    p.world.push(task("long").takes(hours(1)));
    p.world.advance(seconds(1));
    assert_eq!(p.world.agent(busy).expect("it is there").running.len(), 1);
    let cordoned = p.world.add_agent(agent("cordoned").slots(9));
    p.world.cordon(cordoned);
    let unseen = p.world.add_agent(agent("unseen").slots(9));
    p.world.kill_agent(unseen);
    p.world.add_agent(agent("theirs").organisation(99).slots(9));
    p.world.add_agent(agent("windows").label("!type", "windows").slots(9));
    p.world.advance(minutes(2));
    p.world.push(task("build"));
    assert_eq!(launches(&p.pass_after(seconds(1)).await), 1);
    p.ends_clean().await;
    let left: Vec<String> = p.world.agents().into_iter().map(|agent| agent.name).collect();
    assert_eq!(left, ["busy", "cordoned", "unseen", "theirs", "windows"], "agents of others are nobody's business");
}

#[tokio::test]
async fn tasks_of_another_scope_are_left_alone_each_with_its_reason() {
    let p = picus().start().await;
    let arm = p.world.push(task("arm").label("platform", "linux/arm64"));
    let windows = p.world.push(task("windows").label("type", "windows"));
    let host = p.world.push(task("host").label("hostname", "build7"));
    let plan = p.pass_after(seconds(1)).await;
    assert_eq!(launches(&plan), 0);
    for (task, label) in [(&arm, "platform"), (&windows, "type"), (&host, "hostname")] {
        let TaskDecision::NotOurs { why } = decision(&plan, task) else { panic!("{plan:?}") };
        assert!(why.len() == 1 && why[0].1.to_string().contains(label), "{why:?}");
    }
    p.ends_with(&[&arm, &windows, &host]).await;
    assert_eq!(p.launched(), 0);
}

#[tokio::test]
async fn labels_of_woodpeckers_own_do_not_matter() {
    let p = picus().start().await;
    p.world.push(task("new").label("woodpecker-ci.org/new", "1"));
    p.world.push(task("organic").label("woodpecker-ci.organic", "1"));
    p.world.push(task("any").label("platform", ""));
    p.ends_clean().await;
}

#[tokio::test]
async fn a_chain_that_the_server_has_not_sorted_yet_asks_for_one_slot() {
    let p = picus().slots(1).start().await;
    let a = p.world.push(task("a"));
    let b = p.world.push(task("b").needs(&a));
    let c = p.world.push(task("c").needs(&b));
    let plan = p.pass().await;
    assert_eq!(launches(&plan), 1);
    assert_eq!(*decision(&plan, &c), TaskDecision::NotReady { why: Wait::Dependencies { on: vec![b] } });
    p.ends_clean().await;
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn what_must_be_skipped_needs_an_agent_too() {
    let p = picus().start().await;
    let a = p.world.push(task("a").fails());
    let b = p.world.push(task("b").needs(&a).label("platform", "linux/amd64"));
    p.ends_clean().await;
    assert!(p.is_done(&a) && p.is_done(&b));
}

#[tokio::test]
async fn a_full_group_asks_for_nothing_and_one_with_a_place_left_for_one_slot() {
    for (limit, more) in [(1, 0), (2, 1)] {
        let p = picus().slots(1).max(9).start().await;
        let first = p.world.push(task("first").group("deploy", limit).takes(minutes(20)));
        p.until_run(&[&first]).await;
        for number in 0..5 {
            p.world.push(task(format!("later-{number}")).group("deploy", limit).takes(minutes(1)));
        }
        p.live(minutes(5)).await;
        assert_eq!(p.launched(), 1 + more, "limit {limit}");
        p.ends_clean().await;
    }
}

#[tokio::test]
async fn a_later_pipeline_waits_for_an_earlier_one_of_its_group() {
    let p = picus().slots(1).start().await;
    let lint = p.world.push(task("lint").takes(minutes(20)));
    p.world.push(task("deploy").needs(&lint).group("deploy", 1));
    p.until_run(&[&lint]).await;
    let later = p.world.push(task("deploy").group("deploy", 1));
    let plan = p.pass_after(seconds(10)).await;
    assert_eq!(launches(&plan), 0);
    let held = Wait::Concurrency { group: "deploy".to_owned(), limit: 1 };
    assert_eq!(*decision(&plan, &later), TaskDecision::NotReady { why: held });
    p.ends_clean().await;
}

#[tokio::test]
async fn a_paused_queue_launches_nothing_and_idle_agents_are_retired_as_ever() {
    let p = picus().start().await;
    let first = p.world.push(task("first"));
    p.until_done(&[&first]).await;
    p.world.pause_queue();
    for number in 0..10 {
        p.world.push(task(format!("task-{number}")));
    }
    p.live(minutes(12)).await;
    assert_eq!((p.launched(), p.servers()), (1, 0));
    p.world.resume_queue();
    p.ends_clean().await;
}

#[tokio::test]
async fn a_sold_out_candidate_is_skipped_for_a_while_and_those_behind_the_next_are_not_touched() {
    let p = picus().set("HCLOUD_LOCATION", "nbg1,fsn1,hel1").slots(1).start().await;
    p.world.sell_out("cx23", Some("nbg1"), hours(1));
    p.world.push(task("build").takes(minutes(3)));
    p.live(minutes(1)).await;
    let places = || p.world.servers().into_iter().map(|server| server.location).collect::<Vec<_>>();
    assert_eq!(places(), ["fsn1"]);
    assert_eq!(p.world.calls(Endpoint::CreateServer), 2);
    p.world.push(task("build").takes(minutes(3)));
    p.live(minutes(1)).await;
    assert_eq!(places(), ["fsn1", "fsn1"]);
    assert_eq!(p.world.calls(Endpoint::CreateServer), 3, "the one that was sold out a minute ago is not asked for");
    p.ends_clean().await;
}

#[tokio::test]
async fn when_everything_is_sold_out_it_is_waited_for() {
    let p = picus().start().await;
    p.world.sell_out("cx23", None, minutes(25));
    let build = p.world.push(task("build"));
    p.live(minutes(20)).await;
    assert!(p.world.calls(Endpoint::CreateServer) <= 9, "three places, each asked at most every ten minutes");
    assert!(!p.is_done(&build));
    p.ends_clean().await;
}

#[tokio::test]
async fn own_labels_are_on_the_server_beside_ours() {
    let p = picus().set("HCLOUD_LABELS", "a=b,team=ci").start().await;
    p.world.push(task("build"));
    p.pass().await;
    let labels = p.world.servers()[0].labels.clone();
    for (key, value) in [("a", "b"), ("team", "ci"), ("picus", "p1"), ("picus-pool", "default")] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    p.ends_clean().await;
}

#[tokio::test]
async fn the_minimum_is_kept_and_counts_only_what_can_take_our_work() {
    let p = picus().min(1).set("POLL_INTERVAL", "30s").start().await;
    p.live(hours(1)).await;
    assert_eq!((p.launched(), p.servers()), (1, 1));
    let only = p.ours().agents[0].id;
    p.world.cordon(only);
    p.live(minutes(5)).await;
    assert_eq!(p.launched(), 2, "one that takes nothing is none");
    p.live(hours(1)).await;
    assert_eq!((p.launched(), p.servers()), (2, 1), "and goes once it has been idle for long enough");
}

#[tokio::test]
async fn draining_agents_that_still_work_leave_the_maximum_as_it_is() {
    let p = picus().max(2).slots(1).start().await;
    let begin = |name: &str| p.world.push(task(name).takes(minutes(30)));
    let first = [begin("a"), begin("b")];
    p.until_run(&first.iter().collect::<Vec<_>>()).await;
    for agent in p.ours().agents {
        p.world.cordon(agent.id);
    }
    for _ in 0..4 {
        begin("more");
    }
    p.live(minutes(10)).await;
    assert_eq!(p.launched(), 2);
}

#[tokio::test]
async fn as_many_drains_are_undone_as_are_needed() {
    for (tasks, uncordoned, launched) in [(1, 1, 0), (7, 3, 1)] {
        let p = picus().start().await;
        let first: Vec<TaskId> = (0..6).map(|_| p.world.push(task("first").takes(minutes(2)))).collect();
        p.until_done(&first.iter().collect::<Vec<_>>()).await;
        let mut plan = p.pass_after(seconds(10)).await;
        while !kinds(&plan).contains(&"cordon") {
            plan = p.pass_after(seconds(10)).await;
        }
        assert_eq!(kinds(&plan), ["cordon"; 3]);
        for number in 0..tasks {
            p.world.push(task(format!("late-{number}")));
        }
        let plan = p.pass_after(seconds(1)).await;
        let count = |kind: &str| kinds(&plan).iter().filter(|step| **step == kind).count();
        assert_eq!((count("uncordon"), count("launch")), (uncordoned, launched), "{tasks} tasks: {:?}", plan.steps);
        p.ends_clean().await;
        assert_eq!(p.launched(), 3 + launched);
    }
}
