//! The plot of a pool's last hours, as an SVG's lines.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::model::age;
use crate::status::view::Sample;

/// Size of the picture, in its own units.
pub(super) const WIDTH: f64 = 360.0;
/// See [`WIDTH`].
pub(super) const HEIGHT: f64 = 80.0;

/// Three lines over the same time, on one scale, and one of cost on its own.
pub(super) struct Plot {
    /// Points of the lines, as SVG writes them.
    pub(super) demand: String,
    pub(super) slots: String,
    pub(super) instances: String,
    pub(super) cost: String,
    /// The top of the scale.
    pub(super) most: u32,
    /// The top of the cost's scale.
    pub(super) most_cost: String,
    /// How long it is, in minutes.
    pub(super) minutes: u64,
    /// The same in words.
    pub(super) words: String,
}

impl Plot {
    /// The plot of these points, oldest first.
    pub(super) fn of(points: impl Iterator<Item = (Timestamp, Sample)>) -> Self {
        let points: Vec<(Timestamp, Sample)> = points.collect();
        let most = points.iter().map(|(_, point)| point.demand.max(point.slots).max(point.instances)).max();
        let most = most.unwrap_or(0).max(1);
        let most_cost = points.iter().map(|(_, point)| point.cost_per_hour).fold(0.0, f64::max);
        let (from, to) = match (points.first(), points.last()) {
            (Some((from, _)), Some((to, _))) => (*from, *to),
            _ => (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH),
        };
        let whole = age(to, from).as_secs_f64().max(60.0);
        let line = |value: &dyn Fn(&Sample) -> f64, top: f64| {
            let mut line = String::new();
            let mut before: Option<f64> = None;
            for (at, point) in &points {
                let x = WIDTH * age(*at, from).as_secs_f64() / whole;
                let y = HEIGHT - (HEIGHT - 4.0) * (value(point) / top) - 2.0;
                // Numbers stay what they are until the next point: steps, no slopes.
                if let Some(before) = before {
                    let _ = write!(line, "{x:.1},{before:.1} ");
                }
                let _ = write!(line, "{x:.1},{y:.1} ");
                before = Some(y);
            }
            line.trim_end().to_owned()
        };
        let top = f64::from(most);
        let last = points.last().map(|(_, point)| *point).unwrap_or_default();
        let minutes = age(to, from).as_secs() / 60;
        Self {
            demand: line(&|point| f64::from(point.demand), top),
            slots: line(&|point| f64::from(point.slots), top),
            instances: line(&|point| f64::from(point.instances), top),
            cost: line(&|point| point.cost_per_hour, most_cost.max(f64::MIN_POSITIVE)),
            most,
            most_cost: format!("{most_cost:.3}"),
            minutes,
            words: format!(
                "now {} tasks could start, {} slots, {} instances; at most {most} of one in the last {minutes} minutes",
                last.demand, last.slots, last.instances
            ),
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn lines_are_steps_within_the_picture() {
        let start: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let point = |minute: u64, demand| {
            let sample = Sample { demand, slots: 1, instances: 2, cost_per_hour: 0.5 };
            (crate::model::later(start, std::time::Duration::from_mins(minute)), sample)
        };
        let plot = Plot::of([point(0, 0), point(1, 4), point(2, 1)].into_iter());
        assert_eq!(plot.demand, "0.0,78.0 180.0,78.0 180.0,2.0 360.0,2.0 360.0,59.0");
        assert_eq!((plot.most, plot.minutes, plot.most_cost.as_str()), (4, 2, "0.500"));
        let empty = Plot::of(std::iter::empty());
        assert_eq!((empty.demand.as_str(), empty.most), ("", 1));
    }
}
