//! The last actions, and the holds that changed: what `GET /api/v1/decisions` answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::view::{DecisionEntry, Inputs, PoolStatus};
use crate::model::action::{Plan, Step};
use crate::model::age;
use crate::model::machine::Fate;

/// So many entries are kept.
const KEPT: usize = 1_000;
/// The same action for the same reason is not noted again before this: one that fails is tried each pass.
const NOTED_AGAIN: Duration = Duration::from_hours(1);

/// The entries, oldest first, and what was noted last.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    entries: VecDeque<DecisionEntry>,
    number: u64,
    /// By pool and kind of hold.
    holds: BTreeSet<(String, &'static str)>,
    /// By machine: why it was left alone.
    keeps: BTreeMap<String, &'static str>,
    notices: Vec<String>,
    actions: BTreeMap<String, (String, Timestamp)>,
}

impl Decisions {
    /// The entries, newest first.
    pub(super) fn newest_first(&self) -> Vec<DecisionEntry> {
        self.entries.iter().rev().cloned().collect()
    }

    fn note(&mut self, at: Timestamp, kind: &str, pool: Option<(&str, Inputs)>, about: (&str, &str, String)) {
        self.number += 1;
        let (subject, word, why) = about;
        self.entries.push_back(DecisionEntry {
            number: self.number,
            at,
            kind: kind.to_owned(),
            pool: pool.map(|(name, _)| name.to_owned()),
            subject: subject.to_owned(),
            word: word.to_owned(),
            why,
            inputs: pool.map(|(_, inputs)| inputs).unwrap_or_default(),
        });
        if self.entries.len() > KEPT {
            self.entries.pop_front();
        }
    }

    /// A pass decided.
    pub(super) fn decided(&mut self, now: Timestamp, plan: &Plan, pools: &[PoolStatus]) {
        let inputs: BTreeMap<&str, Inputs> = pools.iter().map(|pool| (pool.name.as_str(), pool.inputs())).collect();
        let of = |pool: &str| inputs.get_key_value(pool).map(|(name, inputs)| (*name, *inputs));
        self.actions.retain(|_, (_, at)| age(now, *at) < NOTED_AGAIN);
        for Step { pool, action, reason } in &plan.steps {
            let (what, why) = (action.to_string(), reason.to_string());
            if self.actions.get(&what).is_none_or(|(before, _)| *before != why) {
                self.actions.insert(what.clone(), (why.clone(), now));
                self.note(now, "action", of(&pool.0), (&what, action.kind(), why));
            }
        }
        self.see_holds(now, plan, &of);
        let mut keeps = BTreeMap::new();
        for machine in &plan.machines {
            let Fate::Kept { why } = &machine.fate else { continue };
            if self.keeps.get(&machine.name) != Some(&why.kind()) {
                self.note(now, "keep", of(&machine.pool.0), (&machine.name, why.kind(), why.to_string()));
            }
            keeps.insert(machine.name.clone(), why.kind());
        }
        self.keeps = keeps;
        let notices: Vec<String> = plan.notices.iter().map(ToString::to_string).collect();
        for notice in notices.iter().filter(|notice| !self.notices.contains(notice)).cloned().collect::<Vec<_>>() {
            self.note(now, "notice", None, ("", "notice", notice));
        }
        self.notices = notices;
    }

    fn see_holds<'a>(&mut self, now: Timestamp, plan: &Plan, of: &impl Fn(&str) -> Option<(&'a str, Inputs)>) {
        let holds = plan.holds();
        let now_held = holds.keys().map(|(pool, word)| (pool.to_string(), *word)).collect();
        let before = std::mem::replace(&mut self.holds, now_held);
        for ((pool, word), (_, hold)) in holds {
            if !before.contains(&(pool.to_string(), word)) {
                self.note(now, "hold", of(&pool.0), (&pool.0, word, hold.to_string()));
            }
        }
        for (pool, word) in before {
            if !self.holds.contains(&(pool.clone(), word)) {
                let why = "no task is held back for this any more".to_owned();
                self.note(now, "release", of(&pool), (&pool, word, why));
            }
        }
    }
}
