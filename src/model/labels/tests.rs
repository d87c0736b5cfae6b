//! The server's rule as tables. What stands here was read off `filter.go` and `filter_test.go` of Woodpecker 3.17.

use super::*;
use crate::model::ids::PoolName;
use crate::model::pool::{AccountId, Billing, Market, Pool, RetireTo};

/// Labels from `a=b c=`, without any check, so that each side can have what no agent's list could.
fn labels(text: &str) -> Labels {
    text.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect()
}

/// The labels of a pool's agents with this filter, as the server keeps them.
fn pool(filter: &str, platform: &str) -> Labels {
    effective(platform, "docker", &labels(filter), None)
}

/// A task as the server queues it: its own labels and the two that every task has.
fn task(own: &str) -> Labels {
    labels(&format!("repo=acme/app org-id=3 {own}"))
}

#[test]
fn the_servers_own_table() {
    for (agent, wants, score) in [
        ("org-id=123 platform=linux", "org-id=123 platform=linux", Some(20)),
        ("org-id=* platform=linux", "org-id=123 platform=linux", Some(11)),
        ("org-id=123 platform=linux", "org-id=123 platform=windows", None),
        ("org-id=456 platform=linux", "org-id=123 platform=windows", None),
        ("platform=linux", "needed=some", None),
        ("org-id=123 platform=linux extra=value", "org-id=123 platform=linux empty=", Some(20)),
        ("org-id=* platform=*", "org-id=123 platform=linux", Some(2)),
        ("!org-id=123 platform=linux extra=value", "org-id=123 platform=linux empty=", Some(20)),
        ("docker=true", "hello=true", None),
        ("docker=true", "docker=true", Some(10)),
        ("", "docker=true", None),
        ("docker=true shell=true gpu=true", "docker=true shell=true gpu=true", Some(30)),
        ("docker=true shell=true gpu=true", "docker=true shell=true", Some(20)),
        ("docker=true shell=true", "docker=true shell=true gpu=true", None),
        ("!org-id=123 platform=linux", "platform=linux", None),
        ("platform=linux", "platform=linux woodpecker-ci.orgrepo=some/repo", Some(10)),
        ("!os=linux platform=arm64", "os=linux", Some(10)),
        ("!os=linux platform=amd64", "os=windows", None),
        ("!os=linux", "arch=amd64", None),
    ] {
        assert_eq!(fit(&labels(agent), &labels(wants)).ok(), score.map(Score), "{agent} | {wants}");
    }
}

#[test]
fn a_score_of_zero_is_never_assigned() {
    for (agent, wants) in
        [("platform=linux", ""), ("", ""), ("a=b", "a="), ("a=b", "woodpecker-ci.org/a=b"), ("!a=", "a=")]
    {
        assert_eq!(fit(&labels(agent), &labels(wants)), Err(Mismatch::Unlabelled), "{agent} | {wants}");
    }
}

#[test]
fn which_tasks_a_pool_is_given() {
    // `repo` and `org-id` are wildcards of the pool: 2 to begin with.
    for (filter, own, score) in [
        // Plain labels.
        ("", "type=picus", None),
        ("type=picus", "type=picus", Some(12)),
        ("type=picus", "type=picus foo=bar", None),
        ("type=picus", "", Some(2)),
        ("type=picus", "type=picus platform=linux/arm64", None),
        ("type=picus", "type=picus platform=linux/amd64", Some(22)),
        ("type=picus", "type=PICUS", None),
        // Wildcards, on the agent's side only.
        ("zone=*", "zone=eu", Some(3)),
        ("zone=*", "zone=*", Some(3)),
        ("zone=eu", "zone=*", None),
        // Empty values.
        ("", "platform=", Some(2)),
        ("", "gpu=", Some(2)),
        ("type=picus", "type=", Some(2)),
        // The server's own labels: a plain prefix.
        ("", "woodpecker-ci.org/new=1", Some(2)),
        ("", "woodpecker-ci.organic=1", Some(2)),
        ("", "woodpecker-ci.or=1", None),
        ("", "x-woodpecker-ci.org/new=1", None),
        // Demanded labels.
        ("!gpu=true", "", None),
        ("!gpu=true", "gpu=true", Some(12)),
        ("!gpu=true", "gpu=false", None),
        ("!gpu=true", "gpu=", None),
        ("!gpu=*", "gpu=true", None),
        ("!gpu=*", "gpu=*", Some(3)),
        ("!gpu=true gpu=*", "gpu=true", Some(3)),
        ("!gpu=true gpu=false", "gpu=true", None),
        ("!gpu=true", "!gpu=true", None),
        // Demanded before internal ones and empty values are left out.
        ("!woodpecker-ci.org/event=push", "woodpecker-ci.org/event=push", Some(2)),
        ("!woodpecker-ci.org/event=push", "", None),
        ("!gpu=", "gpu=", Some(2)),
        ("!gpu=", "", None),
        // The usual ones.
        ("", "backend=docker", Some(12)),
        ("", "backend=local", None),
        ("", "hostname=build7", None),
        ("hostname=build7", "hostname=build7", Some(12)),
        ("", "type=windows", None),
        ("", "platform=linux/arm64", None),
        // Filter labels over the usual ones.
        ("platform=linux/arm64", "platform=linux/arm64", Some(12)),
        ("platform=linux/arm64", "platform=linux/amd64", None),
        ("platform=*", "platform=windows/amd64", Some(3)),
        ("repo=acme/app", "", Some(11)),
        ("repo=acme/other", "", None),
        // Except `org-id`, which the server sets.
        ("org-id=4", "", Some(2)),
        ("org-id=3", "", Some(2)),
        ("!org-id=3", "", Some(2)),
        ("!org-id=4", "", None),
    ] {
        let found = fit(&pool(filter, "linux/amd64"), &task(own));
        assert_eq!(found.clone().ok(), score.map(Score), "{filter} | {own}: {found:?}");
    }
}

#[test]
fn an_agent_of_one_organisation_takes_its_tasks_with_the_better_score_and_no_others() {
    let agent = |organisation| effective("linux/amd64", "docker", &Labels::default(), organisation);
    assert_eq!(fit(&agent(None), &task("")), Ok(Score(2)));
    assert_eq!(fit(&agent(Some(3)), &task("")), Ok(Score(11)));
    assert_eq!(fit(&agent(Some(0)), &labels("repo=a/b org-id=0")), Ok(Score(11)));
    let differs = Mismatch::Differs { key: "org-id".into(), wanted: "3".into(), has: "4".into() };
    assert_eq!(fit(&agent(Some(4)), &task("")), Err(differs));
}

#[test]
fn the_platform_is_that_of_the_server_type_and_unknown_until_the_provider_told_it() {
    let mut arm = Pool {
        name: PoolName::from("arm64"),
        account: AccountId(0),
        filter_labels: labels("type=picus"),
        backend: "docker".to_owned(),
        market: Market::NotReady { why: "not asked".to_owned() },
        slots: 2,
        min: 0,
        max: 4,
        idle_timeout: std::time::Duration::from_mins(10),
        billing: Billing::BySecond,
        boot_timeout: std::time::Duration::from_mins(10),
        shared_secret: false,
        fixed: Vec::new(),
        retire: RetireTo::Delete,
        launch_settings: None,
    };
    assert_eq!(arm.effective_labels(), None);
    arm.market = Market::Open { platform: "linux/arm64".to_owned(), offers: Vec::new() };
    let agent = arm.effective_labels().unwrap();
    assert_eq!(agent.to_string(), "backend=docker,org-id=*,platform=linux/arm64,repo=*,type=picus");
    assert_eq!(fit(&agent, &task("platform=linux/arm64")), Ok(Score(12)));
    assert!(fit(&agent, &task("platform=linux/amd64")).is_err());
    arm.filter_labels = labels("platform=linux/arm org-id=7");
    let agent = arm.effective_labels().unwrap();
    assert_eq!(agent.to_string(), "backend=docker,org-id=*,platform=linux/arm,repo=*");
}

#[test]
fn a_mismatch_says_which_label_and_why() {
    for (filter, own, text) in [
        ("", "platform=linux/arm64", "platform is linux/amd64 (the task wants platform=linux/arm64)"),
        ("", "type=windows", "no label type (the task wants type=windows)"),
        ("", "hostname=build7", "no label hostname (the task wants hostname=build7)"),
        ("!gpu=true", "gpu=false", "takes only tasks with gpu=true"),
        // A demand is named before what else does not fit.
        ("!gpu=true", "a=b", "takes only tasks with gpu=true"),
    ] {
        let mismatch = fit(&pool(filter, "linux/amd64"), &task(own)).unwrap_err();
        assert_eq!(mismatch.to_string(), text, "{filter} | {own}");
    }
}

#[test]
fn demands_are_found_among_all_other_keys() {
    let agent = labels("!gpu=true !a=b a=c \u{20}=x \"q=1 #h=2 !!twice=3 zz=! !=nameless");
    let demands: Vec<_> = agent.demanded().collect();
    assert_eq!(demands, [("", "nameless"), ("!twice", "3"), ("a", "b"), ("gpu", "true")]);
    assert_eq!(labels("a=b z=!").demanded().count(), 0);
}

#[test]
fn a_label_list_is_read_as_the_agent_reads_it() {
    for (list, read) in [
        ("", ""),
        ("   ", ""),
        (",", ""),
        (" , ,", ""),
        ("type=picus,zone=*,!gpu=true", "!gpu=true,type=picus,zone=*"),
        ("a=b=c", "a=b=c"),
        ("a==", "a=="),
        ("a=b, c=d", "a=b,c=d"),
        ("\ta=b ,\n c=d ", "a=b,c=d"),
        ("a=b,", "a=b"),
        (",a=b", "a=b"),
        ("a=b,,c=d", "a=b,c=d"),
        ("a=1,a=2", "a=2"),
        ("a=1,!a=2", "!a=2,a=1"),
        ("a = b", "a = b"),
        ("!gpu=*", "!gpu=*"),
        ("a=\"b\"", "a=\"b\""),
        ("schön=ja,a=🦀", "a=🦀,schön=ja"),
    ] {
        assert_eq!(Labels::parse_list(list).map(|labels| labels.to_string()), Ok(read.to_owned()), "{list:?}");
    }
}

#[test]
fn a_pair_on_which_the_agent_would_stop_is_named() {
    for (list, problem) in [
        ("a", LabelProblem::NoValue("a".into())),
        ("a=", LabelProblem::NoValue("a=".into())),
        ("a= ", LabelProblem::NoValue("a=".into())),
        ("b=c, a", LabelProblem::NoValue("a".into())),
        ("a b", LabelProblem::NoValue("a b".into())),
        ("!", LabelProblem::NoValue("!".into())),
        ("!=", LabelProblem::NoValue("!=".into())),
        ("!gpu=", LabelProblem::NoValue("!gpu=".into())),
        ("=b", LabelProblem::NoKey("=b".into())),
        ("=", LabelProblem::NoKey("=".into())),
        ("a=b,=c", LabelProblem::NoKey("=c".into())),
        ("!=x", LabelProblem::NoRequiredKey("!=x".into())),
    ] {
        assert_eq!(Labels::parse_list(list), Err(problem), "{list:?}");
    }
}
