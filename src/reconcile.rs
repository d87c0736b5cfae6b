//! Observe, plan, execute: one pass, and what outlives it.
//!
//! | file | does |
//! |---|---|
//! | `observe` | reads both sides into a snapshot |
//! | `remember` | learns from what was observed and decided |
//! | `execute` | the only place that changes the outside world |
//! | `market` | asks the providers what can be ordered |
//! | `report` | says what was decided, once |
//! | `run` | the loop: timer, events, shutdown |
//!
//! Expected flow: `pass` reads the queue and the agents, takes the listing of each account (at most a minute old; a
//! fresh one if something is to be created or removed), plans, and begins the steps. Steps run beside the loop and
//! count in the next snapshot as what they are going to be.
//!
//! Guarantees: a pass that could not read Woodpecker does nothing. A step that fails leaves the world in a state that
//! the next pass understands. Nothing but this process's own memory is lost when it dies.

mod execute;
pub mod market;
mod observe;
mod remember;
mod report;
pub mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::model::action::Plan;
use crate::model::ids::{InstanceId, LaunchName};
use crate::model::memory::Memory;
use crate::model::pool::AccountId;
use crate::model::snapshot::{InFlight, Snapshot};
use crate::plan::plan;
use crate::provider::Provider;
use crate::settings::Settings;
use crate::status::Board;
use crate::woodpecker::Client;

/// So many operations of one account run at once: enough for a burst, few enough for a rate limit.
const OPERATIONS_AT_ONCE: usize = 8;

/// Keeps the fleet as the queue needs it. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Reconciler(Arc<Inner>);

struct Inner {
    settings: Settings,
    woodpecker: Client,
    providers: Vec<Account>,
    clock: Clock,
    state: Mutex<State>,
    /// What is shown.
    board: Arc<Board>,
    /// Something happened: look now.
    wake: Notify,
    operations: TaskTracker,
}

/// A provider account and how much of it is in use.
struct Account {
    provider: Arc<dyn Provider>,
    permits: Arc<Semaphore>,
}

/// What outlives a pass. Locked for moments, never across an await.
#[derive(Default)]
struct State {
    memory: Memory,
    in_flight: InFlight,
    /// Launches whose operation still runs; the others in `in_flight` wait for a listing to show them.
    operating: BTreeSet<LaunchName>,
    /// Instances whose deletion was tried a moment ago, and until when it is not tried again.
    resting: BTreeMap<InstanceId, Timestamp>,
    listings: observe::Listings,
    agents: observe::AgentsSeen,
    market: market::Stalls,
    said: report::Said,
}

/// What came of one pass.
#[derive(Debug)]
pub enum Pass {
    /// Woodpecker could not be read; nothing was decided.
    Skipped {
        /// Why, for people.
        why: String,
    },
    /// Decided, and begun unless this is a dry run.
    Done {
        /// What was observed.
        snapshot: Box<Snapshot>,
        /// What was decided.
        plan: Box<Plan>,
    },
}

impl Reconciler {
    /// Wires the loop; `providers` in the order of the settings' accounts. `first_name` numbers the first launch: a
    /// random number, so that two processes don't choose the same names.
    #[must_use]
    pub fn new(
        settings: Settings,
        woodpecker: Client,
        providers: Vec<Arc<dyn Provider>>,
        board: Arc<Board>,
        clock: Clock,
        first_name: u64,
    ) -> Self {
        let account = |provider| Account { provider, permits: Arc::new(Semaphore::new(OPERATIONS_AT_ONCE)) };
        let mut state = State::default();
        state.memory.next_launch = first_name;
        Self(Arc::new(Inner {
            settings,
            woodpecker,
            providers: providers.into_iter().map(account).collect(),
            clock,
            state: Mutex::new(state),
            board,
            wake: Notify::new(),
            operations: TaskTracker::new(),
        }))
    }

    /// One pass: looks, decides, begins.
    pub async fn pass(&self) -> Pass {
        self.0.board.pass_began();
        let looked = self.look().await;
        match &looked {
            Pass::Skipped { why } => {
                let mut state = self.state();
                state.said.skipped(why);
                state.memory.watch.failed(self.0.clock.now());
                drop(state);
                self.0.board.skipped(why);
            }
            Pass::Done { snapshot, plan } => {
                let mut state = self.state();
                let State { said, memory, .. } = &mut *state;
                said.decided(snapshot, plan);
                memory.decided(snapshot, plan);
                said.troubles(&memory.troubles);
                self.0.board.decided(snapshot, plan, memory);
                drop(state);
                if !self.0.settings.dry_run {
                    for step in &plan.steps {
                        self.begin(step);
                    }
                }
            }
        }
        looked
    }

    /// Looks and decides, but does nothing.
    pub async fn look(&self) -> Pass {
        self.refresh_market();
        let woodpecker = match self.read_woodpecker().await {
            Ok(woodpecker) => woodpecker,
            Err(why) => return Pass::Skipped { why },
        };
        self.list(&self.accounts(), observe::LISTING_KEPT).await;
        let (snapshot, decided) = self.decide(&woodpecker);
        if decided.stale.is_empty() {
            return Pass::Done { snapshot: Box::new(snapshot), plan: Box::new(decided) };
        }
        // What can't be read again is unknown from here, so the second plan rests on nothing that is stale.
        self.list(&decided.stale, crate::plan::LISTING_FRESH).await;
        let (snapshot, decided) = self.decide(&woodpecker);
        Pass::Done { snapshot: Box::new(snapshot), plan: Box::new(decided) }
    }

    /// The server could not be asked: what it will say at first may leave out what happened meanwhile.
    pub fn unanswered(&self) {
        self.state().memory.watch.failed(self.0.clock.now());
    }

    /// Waits until everything that was begun has ended.
    pub async fn settled(&self) {
        self.0.operations.close();
        self.0.operations.wait().await;
        self.0.operations.reopen();
    }

    /// Makes the loop look now.
    pub fn wake(&self) {
        self.0.wake.notify_one();
    }

    fn decide(&self, woodpecker: &observe::Woodpecker) -> (Snapshot, Plan) {
        let mut state = self.state();
        let snapshot = self.snapshot(woodpecker, &mut state);
        state.memory.observed(&snapshot);
        let plan = plan(&snapshot, &state.memory);
        (snapshot, plan)
    }

    fn accounts(&self) -> Vec<AccountId> {
        (0..self.0.providers.len()).map(AccountId).collect()
    }

    /// A panic while the lock was held leaves plain data that the next pass corrects from what it observes.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
