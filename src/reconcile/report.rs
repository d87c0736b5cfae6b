//! Says what was decided: each thing when it changes, not once a pass.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::model::action::{Action, Notice, Plan};
use crate::model::age;
use crate::model::ids::PoolName;
use crate::model::memory::Trouble;
use crate::model::snapshot::{Listing, Snapshot};

/// A step that fails again and again in the same way is told again after this.
const TOLD_AGAIN: Duration = Duration::from_hours(1);

/// What was said last.
#[derive(Default)]
pub(super) struct Said {
    skipped: Option<String>,
    notices: Vec<Notice>,
    holds: BTreeSet<(PoolName, &'static str)>,
    listings: BTreeMap<usize, String>,
    /// By pool: how many launches in a row had failed.
    troubles: BTreeMap<PoolName, u32>,
    /// By step: how it failed, and when that was said.
    failures: BTreeMap<String, (String, Timestamp)>,
}

impl Said {
    /// A pass could not read Woodpecker.
    pub(super) fn skipped(&mut self, why: &str) {
        if self.skipped.as_deref() != Some(why) {
            tracing::warn!("nothing is decided: {why}");
            self.skipped = Some(why.to_owned());
        }
    }

    /// A pass decided.
    pub(super) fn decided(&mut self, snapshot: &Snapshot, plan: &Plan) {
        if self.skipped.take().is_some() {
            tracing::info!("Woodpecker answers again");
        }
        self.failures.retain(|_, (_, said)| age(snapshot.now, *said) < TOLD_AGAIN);
        for step in plan.steps.iter().filter(|step| !self.failures.contains_key(&step.action.to_string())) {
            tracing::info!(pool = %step.pool, kind = step.action.kind(), "{}: {}", step.action, step.reason);
        }
        for notice in plan.notices.iter().filter(|notice| !self.notices.contains(notice)) {
            tracing::warn!("{notice}");
        }
        self.notices.clone_from(&plan.notices);
        self.say_listings(snapshot);
        self.say_holds(plan);
        for (pool, totals) in &plan.totals {
            tracing::debug!(%pool, uncovered = totals.uncovered, instances = totals.instances, "planned");
        }
    }

    /// A step failed; whether that is to be said, because it did not fail in this way a moment ago.
    pub(super) fn failed(&mut self, action: &Action, why: &str, now: Timestamp) -> bool {
        let key = action.to_string();
        let new = self.failures.get(&key).is_none_or(|(before, _)| before != why);
        if new {
            self.failures.insert(key, (why.to_owned(), now));
        }
        new
    }

    /// A step was carried out.
    pub(super) fn done(&mut self, action: &Action) {
        self.failures.remove(&action.to_string());
    }

    /// Launches or boots of a pool fail, or do so no more.
    pub(super) fn troubles(&mut self, troubles: &BTreeMap<PoolName, Trouble>) {
        for (pool, Trouble { failures, why, until, counted: _ }) in troubles {
            if self.troubles.get(pool) != Some(failures) {
                tracing::error!(%pool, failures, "launching fails, the next try is after {until:.0}: {why}");
            }
        }
        for pool in self.troubles.keys().filter(|pool| !troubles.contains_key(pool)) {
            tracing::info!(%pool, "launching works again");
        }
        self.troubles = troubles.iter().map(|(pool, trouble)| (pool.clone(), trouble.failures)).collect();
    }

    fn say_listings(&mut self, snapshot: &Snapshot) {
        for (account, listing) in &snapshot.instances {
            match listing {
                Listing::Unknown { why } => {
                    if self.listings.insert(account.0, why.clone()).as_ref() != Some(why) {
                        tracing::warn!("instances are not known, so none is created or removed: {why}");
                    }
                }
                Listing::Known { .. } => {
                    if self.listings.remove(&account.0).is_some() {
                        tracing::info!("instances are known again");
                    }
                }
            }
        }
    }

    /// How many tasks wait for which reason, when that changes.
    fn say_holds(&mut self, plan: &Plan) {
        let holds = plan.holds();
        for ((pool, kind), (tasks, hold)) in &holds {
            if !self.holds.contains(&((*pool).clone(), *kind)) {
                tracing::warn!(%pool, tasks, hold = kind, "tasks wait: {hold}");
            }
        }
        self.holds = holds.into_keys().map(|(pool, kind)| (pool.clone(), kind)).collect();
    }
}
