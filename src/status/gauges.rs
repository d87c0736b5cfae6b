//! The gauges of a pass. Every combination that can be is set each time, so that none stays at what it was.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::build::Shown;
use super::{AccountFacts, Facts};
use crate::metrics::Metrics;
use crate::model::action::Plan;
use crate::model::machine::MachineState;
use crate::model::memory::Memory;

/// Why tasks of ours wait: the words of `TaskDecision::kind`, without that of a task that is not ours.
pub(super) const REASONS: [&str; 15] = [
    "covered",
    "starting",
    "booting",
    "uncordoned",
    "at_maximum",
    "nothing_to_start",
    "sold_out",
    "refused",
    "trouble",
    "listing_unknown",
    "not_ready",
    "paused",
    "dependencies",
    "concurrency",
    "stuck",
];

pub(super) fn set(metrics: &Metrics, facts: &Facts, shown: &Shown, plan: &Plan, memory: &Memory, now: Timestamp) {
    let mut waiting: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for task in &shown.tasks {
        *waiting.entry((&task.pool, &task.decision)).or_default() += 1.0;
    }
    let mut states: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for machine in &plan.machines {
        *states.entry((&machine.pool.0, machine.state.kind())).or_default() += 1.0;
    }
    for pool in &shown.pools {
        let name = pool.name.as_str();
        for reason in REASONS {
            metrics.tasks_waiting.set(&[name, reason], waiting.get(&(name, reason)).copied().unwrap_or(0.0));
        }
        for state in MachineState::ALL.map(MachineState::kind) {
            metrics.agents.set(&[name, state], states.get(&(name, state)).copied().unwrap_or(0.0));
        }
        metrics.orphans.set(&[name], states.get(&(name, "orphan")).copied().unwrap_or(0.0));
        #[expect(clippy::cast_precision_loss, reason = "no task waits that long")]
        metrics.oldest_wait.set(&[name], pool.oldest_wait_seconds.unwrap_or(0) as f64);
        let slots = pool.slots;
        for (state, count) in
            [("free", slots.free), ("busy", slots.busy), ("booting", slots.booting), ("cordoned", slots.cordoned)]
        {
            metrics.slots.set(&[name, state], f64::from(count));
        }
        metrics.agents_min.set(&[name], f64::from(pool.min));
        metrics.agents_max.set(&[name], f64::from(pool.max));
        // What is not known is no number: a 0 would be taken for one.
        metrics.cost_per_hour.set(&[name], pool.cost_per_hour.unwrap_or(f64::NAN));
        let trouble = pool.trouble.as_ref();
        metrics.breaker_open.set(&[name], truth(trouble.is_some_and(|trouble| now < trouble.until)));
        metrics.failures_in_a_row.set(&[name], trouble.map_or(0.0, |trouble| f64::from(trouble.failures)));
        for offer in &pool.offers {
            let is_sold_out = shown.sold_out.iter().any(|sold_out| {
                sold_out.provider == pool.provider
                    && sold_out.server_type == offer.server_type
                    && sold_out.location == offer.location
            });
            let labels = [pool.provider.as_str(), offer.server_type.as_str(), offer.location.as_str()];
            metrics.offer_sold_out.set(&labels, truth(is_sold_out));
        }
    }
    // Several accounts of a provider are one: one of them in trouble is trouble.
    for AccountFacts { provider, .. } in &facts.accounts {
        let of_it = || shown.accounts.iter().filter(|account| account.provider == *provider);
        metrics.listing_unknown.set(&[provider], truth(of_it().any(|account| account.unknown.is_some())));
        let refused = memory
            .refusals
            .iter()
            .any(|(account, refusal)| now < refusal.until && facts.provider(*account) == *provider);
        metrics.provider_refuses.set(&[provider], truth(refused));
    }
}

fn truth(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}
