//! The paid period of an instance that is billed by the started hour: in its last minutes an idle one is retired.

use std::time::Duration;

use jiff::Timestamp;

use super::PERIOD_MARGIN;
use crate::model::{age, later};

/// The last part of the started period: when it opens and when it ends. It opens early enough that a pass falls into it
/// however sparse they are.
pub(super) fn closing_window(
    now: Timestamp,
    poll_interval: Duration,
    launched: Timestamp,
    period: Duration,
) -> (Timestamp, Timestamp) {
    let lived = age(now, launched).as_secs();
    let started = lived / period.as_secs().max(1) + 1;
    let ends = later(launched, Duration::from_secs(started.saturating_mul(period.as_secs().max(1))));
    let margin = PERIOD_MARGIN.saturating_add(poll_interval.saturating_mul(2));
    let margin = margin.min(period / 2);
    (ends.checked_sub(margin).unwrap_or(launched), ends)
}
