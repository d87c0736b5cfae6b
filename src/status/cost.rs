//! What instances have cost since the process began, by the provider's prices and the pool's billing.
//!
//! By the second it is the time between two passes. By the started period it is a whole period when it begins: of an instance
//! that this process saw being made also the first; of one that was there before only those that begin from then on.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::age;
use crate::model::ids::InstanceId;
use crate::model::pool::Billing;

/// A longer time between two looks is not charged: nobody knows what was there.
const LONGEST_GAP: Duration = Duration::from_mins(10);

/// What was charged for an instance so far.
#[derive(Debug, Clone, Copy)]
struct Charged {
    /// When it was last looked at.
    seen: Timestamp,
    /// Periods that were charged; none where billing is by the second.
    periods: u64,
    created: Timestamp,
}

/// One billed instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Billed {
    /// When it was created or started.
    pub(super) created: Timestamp,
    /// Price of an hour.
    pub(super) hourly_price: f64,
    /// It does nothing.
    pub(super) idle: bool,
    /// How it is billed.
    pub(super) billing: Billing,
}

/// What one look adds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Charge {
    pub(super) cost: f64,
    pub(super) idle: f64,
}

/// Remembers what was charged.
#[derive(Debug, Default)]
pub(super) struct Meter(BTreeMap<InstanceId, Charged>);

impl Meter {
    /// Charges an instance up to `now`. `began`: when the process did.
    pub(super) fn charge(&mut self, id: &InstanceId, billed: Billed, now: Timestamp, began: Timestamp) -> Charge {
        let Billed { created, hourly_price, idle, billing } = billed;
        let before = self.0.get(id).copied().filter(|before| before.created == created);
        let from = before.map_or_else(|| created.max(began).min(now), |before| before.seen);
        let passed = age(now, from).min(LONGEST_GAP);
        let hours = |time: Duration| time.as_secs_f64() / 3600.0;
        let (cost, periods) = match billing {
            Billing::BySecond => (hourly_price * hours(passed), 0),
            Billing::ByPeriod(period) => {
                let started = |at: Timestamp| age(at, created).as_secs().checked_div(period.as_secs()).unwrap_or(0) + 1;
                let charged = match before {
                    Some(before) => before.periods,
                    None if created >= began => 0,
                    None => started(began),
                };
                let periods = started(now).max(charged);
                #[expect(clippy::cast_precision_loss, reason = "few periods")]
                let new = (periods - charged) as f64;
                (hourly_price * hours(period) * new, periods)
            }
        };
        self.0.insert(id.clone(), Charged { seen: now, periods, created });
        Charge { cost, idle: if idle { hourly_price * hours(passed) } else { 0.0 } }
    }

    /// Forgets what was not looked at this time.
    pub(super) fn keep_seen(&mut self, now: Timestamp) {
        self.0.retain(|_, charged| age(now, charged.seen) < LONGEST_GAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        format!("2026-12-01T{time}Z").parse().unwrap()
    }

    fn charged(billing: Billing, began: &str, created: &str, looks: &[(&str, bool)]) -> (f64, f64) {
        let mut meter = Meter::default();
        let mut sum = (0.0, 0.0);
        for (now, idle) in looks {
            let billed = Billed { created: at(created), hourly_price: 6.0, idle: *idle, billing };
            let charge = meter.charge(&"1".into(), billed, at(now), at(began));
            sum = (sum.0 + charge.cost, sum.1 + charge.idle);
        }
        let round = |sum: f64| (sum * 1000.0).round() / 1000.0;
        (round(sum.0), round(sum.1))
    }

    #[test]
    fn by_the_second_the_time_is_charged_and_by_the_period_what_has_begun() {
        let hour = Billing::ByPeriod(Duration::from_hours(1));
        let table = [
            // A new one: the first look charges what has passed since it was made.
            (Billing::BySecond, "12:00:00", "12:00:10", vec![("12:01:10", false), ("12:02:10", true)], (0.2, 0.1)),
            (hour, "12:00:00", "12:00:10", vec![("12:01:10", false), ("12:02:10", true)], (6.0, 0.1)),
            // One that was there before.
            (Billing::BySecond, "12:00:00", "11:30:00", vec![("12:01:00", true)], (0.1, 0.1)),
            (hour, "12:00:00", "11:30:00", vec![("12:01:00", false), ("12:09:00", false)], (0.0, 0.0)),
            (hour, "12:00:00", "11:04:00", vec![("12:01:00", false), ("12:05:00", false)], (6.0, 0.0)),
            // What could not be seen for long is not made up.
            (Billing::BySecond, "12:00:00", "12:00:00", vec![("12:00:00", false), ("13:00:00", false)], (1.0, 0.0)),
        ];
        for (billing, began, created, looks, wanted) in table {
            assert_eq!(charged(billing, began, created, &looks), wanted, "{billing:?}, {created}, {looks:?}");
        }
    }
}
