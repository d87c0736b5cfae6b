//! The last hours of each pool, for the plot: a point a minute.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::view::Sample;
use crate::model::age;

/// A point is made so often.
const EVERY: Duration = Duration::from_mins(1);
/// So many points are kept: six hours.
const POINTS: usize = 360;

/// Points in time and, for each pool, its numbers then.
#[derive(Debug, Clone, Default)]
pub struct History(VecDeque<(Timestamp, BTreeMap<String, Sample>)>);

impl History {
    /// Notes the numbers of all pools at `now`. Between two points the peak of each is kept: a short burst shows.
    pub(super) fn note(&mut self, now: Timestamp, pools: BTreeMap<String, Sample>) {
        match self.0.back_mut() {
            Some((at, last)) if age(now, *at) < EVERY => {
                for (pool, sample) in pools {
                    let peak = last.entry(pool).or_insert(sample);
                    peak.demand = peak.demand.max(sample.demand);
                    peak.slots = peak.slots.max(sample.slots);
                    peak.instances = peak.instances.max(sample.instances);
                    peak.cost_per_hour = peak.cost_per_hour.max(sample.cost_per_hour);
                }
            }
            Some(_) | None => {
                self.0.push_back((now, pools));
                if self.0.len() > POINTS {
                    self.0.pop_front();
                }
            }
        }
    }

    /// The points of a pool, oldest first.
    pub fn of<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = (Timestamp, Sample)> + 'a {
        self.0.iter().filter_map(move |(at, pools)| Some((*at, *pools.get(pool)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::later;

    #[test]
    fn there_is_a_point_a_minute_with_the_peak_and_six_hours_of_them() {
        let start: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let mut history = History::default();
        for second in (0..7 * 3600).step_by(10) {
            let demand = u32::from(second % 60 == 30);
            let sample = Sample { demand, ..Sample::default() };
            history.note(later(start, Duration::from_secs(second)), [("default".to_owned(), sample)].into());
        }
        let points: Vec<_> = history.of("default").collect();
        assert_eq!(points.len(), POINTS);
        assert!(points.iter().all(|(_, sample)| sample.demand == 1), "the peak shows");
        assert_eq!(history.of("other").count(), 0);
    }
}
