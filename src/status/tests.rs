//! What is shown uses the words of the model, all of them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::gauges::REASONS;
use crate::model::decision::{Hold, TaskDecision, Wait};
use crate::model::ids::PoolName;
use crate::model::machine::MachineState;

#[test]
fn every_decision_for_a_task_of_ours_has_its_gauge() {
    let (pool, until) = (PoolName::from("default"), Timestamp::UNIX_EPOCH);
    let (by, why) = ("one".to_owned(), "why".to_owned());
    let held = |hold: Hold| TaskDecision::Held { why: [(pool.clone(), hold)].into_iter().collect() };
    let not_ready = |why: Wait| TaskDecision::NotReady { why };
    let all = [
        TaskDecision::Covered { by: by.clone() },
        TaskDecision::Starting { by: by.clone(), pool: pool.clone() },
        TaskDecision::Booting { by: by.clone(), pool: pool.clone() },
        TaskDecision::Uncordoned { by: by.clone(), pool: pool.clone() },
        TaskDecision::Stuck { since: until, agent: by },
        held(Hold::AtMaximum { max: 1 }),
        held(Hold::NothingToStart { machines: 1 }),
        held(Hold::SoldOut { until }),
        held(Hold::Refused { why: why.clone(), until }),
        held(Hold::Trouble { failures: 1, why: why.clone(), until }),
        held(Hold::ListingUnknown { why: why.clone() }),
        held(Hold::NotReady { why }),
        not_ready(Wait::Paused),
        not_ready(Wait::Dependencies { on: Vec::new() }),
        not_ready(Wait::Concurrency { group: String::new(), limit: 1 }),
    ];
    let words: BTreeSet<&str> = all.iter().map(TaskDecision::kind).collect();
    assert_eq!(words, REASONS.into_iter().collect());
}

#[test]
fn every_state_of_a_machine_is_there_once() {
    let words: BTreeSet<&str> = MachineState::ALL.map(MachineState::kind).into_iter().collect();
    assert_eq!(words.len(), MachineState::ALL.len());
}
