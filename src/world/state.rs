//! Everything in the world at one instant, and how it moves on.
//!
//! What is going to happen lies in the agenda; `advance_to` takes it out in order of time. An entry that no longer
//! holds (its server was deleted, its task given to another) is recognised when it is due, so nothing has to be taken
//! out of the agenda early.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::WorldOptions;
use super::endpoint::Calls;
use super::faults::Faults;
use super::hetzner::Hetzner;
use super::history::{Event, History};
use super::machine::{Process, ProcessId};
use super::woodpecker::Woodpecker;
use crate::model::later;

/// Letters of tokens.
const TOKEN_LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The world.
pub(super) struct State {
    pub(super) now: Timestamp,
    pub(super) options: WorldOptions,
    pub(super) rng: StdRng,
    pub(super) woodpecker: Woodpecker,
    pub(super) hetzner: Hetzner,
    /// Agent processes that live, those of others included.
    pub(super) processes: BTreeMap<ProcessId, Process>,
    pub(super) faults: Faults,
    pub(super) calls: Calls,
    pub(super) history: History,
    agenda: BinaryHeap<Reverse<Appointment>>,
    appointments: u64,
}

/// Something that is going to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Appointment {
    at: Timestamp,
    /// Keeps the order of what is due at the same instant.
    number: u64,
    due: Due,
}

/// What is going to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The queue's ticker finds something to do.
    QueueTick,
    /// The run of a task ends.
    TaskEnds { task: u64, run: u32 },
    /// The server gives up a run whose agent died.
    TaskExpires { task: u64, run: u32 },
    /// A heartbeat that read the record earlier writes the old flag back.
    WriteBack { agent: i64, no_schedule: bool },
    /// A server is being started.
    ServerStarts { server: u64 },
    /// A server is up.
    ServerRuns { server: u64 },
    /// A server's agent is started.
    AgentStarts { server: u64 },
    /// A slow deletion ends.
    ServerGone { server: u64 },
}

impl State {
    pub(super) fn new(now: Timestamp, options: WorldOptions) -> Self {
        let mut rng = StdRng::seed_from_u64(options.seed);
        let woodpecker = Woodpecker::new(token(&mut rng, 52), token(&mut rng, 52));
        let hetzner = Hetzner::new(token(&mut rng, 64), options.calls_an_hour, now);
        Self {
            now,
            options,
            rng,
            woodpecker,
            hetzner,
            processes: BTreeMap::new(),
            faults: Faults::default(),
            calls: Calls::default(),
            history: History::default(),
            agenda: BinaryHeap::new(),
            appointments: 0,
        }
    }

    /// Puts something on the agenda, `wait` from now.
    pub(super) fn schedule(&mut self, wait: Duration, due: Due) {
        self.appointments += 1;
        let at = later(self.now, wait);
        self.agenda.push(Reverse(Appointment { at, number: self.appointments, due }));
    }

    /// Lets everything happen that is due until `now`. Time never goes back.
    pub(super) fn advance_to(&mut self, now: Timestamp) {
        while let Some(Reverse(next)) = self.agenda.peek().copied() {
            if next.at > now {
                break;
            }
            self.agenda.pop();
            self.now = self.now.max(next.at);
            self.happen(next.due);
        }
        self.now = self.now.max(now);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::QueueTick => self.queue_tick(),
            Due::TaskEnds { task, run } => self.task_ends(task, run),
            Due::TaskExpires { task, run } => self.task_expires(task, run),
            Due::WriteBack { agent, no_schedule } => self.write_back(agent, no_schedule),
            Due::ServerStarts { server } => self.server_starts(server),
            Due::ServerRuns { server } => self.server_runs(server),
            Due::AgentStarts { server } => self.agent_starts(server),
            Due::ServerGone { server } => self.server_gone(server),
        }
    }

    /// Writes down what happened now.
    pub(super) fn tell(&mut self, event: Event) {
        self.history.tell(self.now, event);
    }

    /// A fresh random token.
    pub(super) fn token(&mut self, length: usize) -> String {
        token(&mut self.rng, length)
    }

    /// A duration from nothing to `most`.
    pub(super) fn draw_up_to(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.rng.random_range(0..=most))
    }
}

fn token(rng: &mut StdRng, length: usize) -> String {
    (0..length).map(|_| char::from(TOKEN_LETTERS[rng.random_range(0..TOKEN_LETTERS.len())])).collect()
}
