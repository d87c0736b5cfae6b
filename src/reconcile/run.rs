//! The loop: a timer, the server's events, what came of the steps, and shutdown lead to one and the same pass.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio_util::sync::CancellationToken;

use super::{Pass, Reconciler};
use crate::model::{age, later};

/// Two passes are at least so far apart, however many events come.
const BREATH: Duration = Duration::from_millis(300);
/// Passes that take long are as far apart, up to this.
const LONGEST_BREATH: Duration = Duration::from_secs(2);
/// An event can come before its task is in the queue: there is one more look after this.
const ECHO: Duration = Duration::from_millis(600);
/// Steps that were begun get so long to end at shutdown; what they leave the next start picks up. Containers are killed ten
/// seconds after they are asked to end, and a busy machine takes its time too.
const GRACE: Duration = Duration::from_secs(6);
/// First and longest pause before the event stream is tried again.
const STREAM_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));

impl Reconciler {
    /// Runs until `shutdown`, then lets what was begun come to an end. Instances stay.
    pub async fn run(&self, shutdown: CancellationToken) {
        let events = tokio::spawn(self.clone().follow_events(shutdown.clone()));
        // A pass only reads; dropping one half-way loses nothing.
        let _ = shutdown.run_until_cancelled(self.passes()).await;
        self.0.operations.close();
        if tokio::time::timeout(GRACE, self.0.operations.wait()).await.is_err() {
            tracing::warn!("steps are still under way; the next start picks up what they leave");
        }
        events.abort();
    }

    async fn passes(&self) {
        loop {
            let began = self.0.clock.now();
            let next_look = match self.pass().await {
                Pass::Skipped { .. } => None,
                Pass::Done { plan, .. } => plan.next_look,
            };
            let took = age(self.0.clock.now(), began);
            let poll = self.0.settings.poll_interval;
            let due = next_look.map_or(poll, |at| {
                age(at, self.0.clock.now()).clamp(Duration::from_secs(1), poll.max(Duration::from_secs(1)))
            });
            let ended = self.0.clock.now();
            self.0.board.waits(later(ended, due));
            tokio::select! {
                () = self.0.clock.sleep(due) => {}
                () = self.0.wake.notified() => {}
            }
            // A large server's answers take long: it is not asked for more than half of the time.
            let breath = took.clamp(BREATH, LONGEST_BREATH);
            self.0.clock.sleep(breath.saturating_sub(age(self.0.clock.now(), ended))).await;
        }
    }

    /// Follows the event stream. Without it the timer goes on; it is tried again with growing pauses.
    async fn follow_events(self, shutdown: CancellationToken) {
        let pauses = || {
            ExponentialBuilder::new()
                .with_min_delay(STREAM_PAUSES.0)
                .with_max_delay(STREAM_PAUSES.1)
                .with_jitter()
                .without_max_times()
                .build()
        };
        let mut pause = pauses();
        let mut said = false;
        while !shutdown.is_cancelled() {
            let error = match self.0.woodpecker.events().await {
                Err(error) => error,
                Ok(mut events) => {
                    tracing::debug!("following the server's events");
                    loop {
                        match events.next().await {
                            Ok(()) => {
                                pause = pauses();
                                said = false;
                                self.wake();
                                let echo = self.clone();
                                tokio::spawn(async move {
                                    echo.0.clock.sleep(ECHO).await;
                                    echo.wake();
                                });
                            }
                            Err(error) => break error,
                        }
                    }
                }
            };
            if !said {
                tracing::info!("the server's events can't be followed, so the queue is only polled: {error}");
                said = true;
            }
            self.0.clock.sleep(pause.next().unwrap_or(STREAM_PAUSES.1)).await;
        }
    }
}
