//! A running Picus that can be stopped between any two calls.
//!
//! Each has a runtime of its own that runs only while it is waited for: what was begun stands still between two passes
//! unless it is driven on, and is dropped with the runtime as `kill -9` would.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use picus::app::{App, StartError};
use picus::clock::Clock;
use picus::reconcile::Pass;
use picus::settings::Settings;
use picus::world::{Side, World};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing here takes so long of real time; what does hangs.
const HANGS: Duration = Duration::from_secs(120);

pub struct Process {
    pub name: String,
    runtime: Runtime,
    app: Arc<App>,
    clock: Clock,
    starting: Option<JoinHandle<Result<bool, StartError>>>,
}

/// How a start stands.
pub enum Start {
    Done,
    /// It waits for the server.
    Waits,
    /// The process has ended.
    Ended(String),
}

impl Process {
    /// Starts one; [`Self::start`] drives the start on.
    pub fn new(name: String, settings: Settings, clock: &Clock, first_name: u64) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let app = {
            let _inside = runtime.enter();
            Arc::new(App::new(settings, clock.clone(), first_name).expect("settings that were drawn are good ones"))
        };
        let ready = Arc::clone(&app);
        let starting = runtime.spawn(async move { ready.ready(&CancellationToken::new()).await });
        Self { name, runtime, app, clock: clock.clone(), starting: Some(starting) }
    }

    fn drive<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(HANGS, work).await })
            .unwrap_or_else(|_| panic!("{what} hangs"))
    }

    /// Drives the start on, to its end or until it waits for time to pass.
    pub fn start(&mut self) -> Start {
        let Some(mut starting) = self.starting.take() else { return Start::Done };
        let Clock::Manual(time) = self.clock.clone() else { panic!("the clock is moved by hand") };
        let ended = self.drive("the start", async {
            loop {
                tokio::select! {
                    biased;
                    ended = &mut starting => return Some(ended),
                    () = tokio::time::sleep(Duration::from_millis(1)) => {
                        // Whoever sleeps on the clock listens to it.
                        if time.receiver_count() > 0 {
                            return None;
                        }
                    }
                }
            }
        });
        match ended {
            None => {
                self.starting = Some(starting);
                Start::Waits
            }
            Some(Ok(Ok(_))) => Start::Done,
            Some(Ok(Err(error))) => Start::Ended(error.to_string()),
            Some(Err(error)) => panic!("the start of {} fell over: {error}", self.name),
        }
    }

    /// One pass; what it begins stands still.
    pub fn pass(&self) -> Pass {
        self.drive("a pass", self.app.reconciler.pass())
    }

    /// Lets what was begun come to its end.
    pub fn settle(&self) {
        self.drive("a step", self.app.reconciler.settled());
    }

    /// Lets what was begun go on for so many calls, answered or not.
    pub fn settle_for(&self, world: &World, calls: usize) {
        let made = || world.calls_to(Side::Woodpecker) + world.calls_to(Side::Hetzner);
        let enough = made() + calls;
        self.drive("a step", async {
            tokio::select! {
                biased;
                () = async { while made() < enough { tokio::task::yield_now().await } } => {}
                () = self.app.reconciler.settled() => {}
            }
        });
    }

    /// As `kill -9`: nothing more happens, wherever it was.
    pub fn kill(self) {
        drop(self.app);
        self.runtime.shutdown_background();
    }
}
