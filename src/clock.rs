//! The one place that asks what time it is, so that a demo can live a day in a minute and a test an hour in no time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::model::later;

/// Where time comes from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's.
    System,
    /// Runs `speed` times as fast from `start`.
    Fast {
        /// What it said at `began`.
        start: Timestamp,
        /// When it began.
        began: Instant,
        /// How many of its seconds pass in one.
        speed: u32,
    },
    /// Stands still until it is moved.
    Manual(Arc<watch::Sender<Timestamp>>),
}

impl Clock {
    /// A clock that runs `speed` times as fast, from now.
    #[expect(clippy::disallowed_methods, reason = "this is the place that asks")]
    #[must_use]
    pub fn fast(start: Timestamp, speed: u32) -> Self {
        Self::Fast { start, began: Instant::now(), speed }
    }

    /// A clock that stands at `start`.
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(watch::Sender::new(start)))
    }

    /// The time.
    #[expect(clippy::disallowed_methods, reason = "this is the place that asks")]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Fast { start, began, speed } => later(*start, began.elapsed().saturating_mul(*speed)),
            Self::Manual(time) => *time.borrow(),
        }
    }

    /// Moves a manual clock; the others move by themselves.
    pub fn advance(&self, by: Duration) {
        if let Self::Manual(time) = self {
            time.send_modify(|now| *now = later(*now, by));
        }
    }

    /// Returns once `wait` has passed on this clock.
    pub async fn sleep(&self, wait: Duration) {
        match self {
            Self::System => tokio::time::sleep(wait).await,
            Self::Fast { speed, .. } => tokio::time::sleep(wait / *speed).await,
            Self::Manual(time) => {
                let until = later(self.now(), wait);
                // The sender lives as long as this clock, so the wait can't fail.
                let _ = time.subscribe().wait_for(|now| *now >= until).await;
            }
        }
    }
}
