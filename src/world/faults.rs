//! What goes wrong, where, how often and for how long. Each fault is switched on by a verb and says in its type what
//! the caller gets to see; nothing here touches the state of the two servers.

use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt;
use rand::rngs::StdRng;

use super::endpoint::{Endpoint, Side};
use crate::model::later;

/// Names a fault that was switched on, to switch it off again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaultId(u64);

/// A fault. It fires always, unless limited by [`times`](Self::times), [`lasting`](Self::lasting),
/// [`chance`](Self::chance) or [`after`](Self::after), which can be combined.
#[derive(Debug, Clone)]
pub struct Fault {
    place: Place,
    spare: u32,
    left: Option<u32>,
    lasting: Option<Duration>,
    until: Option<Timestamp>,
    chance: Option<f64>,
}

#[derive(Debug, Clone)]
enum Place {
    Side(Side, AnswerFault),
    Endpoint(Endpoint, AnswerFault),
    Machine(MachineFault),
    Race(Race),
}

/// What a caller gets instead of an answer, or of the whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerFault {
    /// This status with a short text; the call is not carried out.
    Status(u16),
    /// A login page with status 200, as a proxy answers; not carried out.
    Html,
    /// Status 200 and nothing; not carried out.
    Empty,
    /// Status 200 and `null`; not carried out.
    Null,
    /// A list call answers that there is nothing; other calls answer `[]`; not carried out.
    EmptyList,
    /// JSON of another shape; not carried out.
    WrongJson,
    /// The token is not known; not carried out.
    Unauthorised,
    /// The token lacks rights; not carried out.
    Forbidden,
    /// 429. At Hetzner no call is carried out for so long, whether the fault still lasts or not.
    RateLimited(Duration),
    /// This error code of Hetzner's (`resource_unavailable`, `placement_error`, `resource_limit_exceeded`, `locked`, …)
    /// with its status; not carried out.
    Refused(&'static str),
    /// The connection is cut before the call is carried out.
    Cut,
    /// The call is carried out, and the connection is cut before the answer.
    LostAnswer,
    /// The call is carried out, and the connection is cut in the middle of the answer.
    CutBody,
    /// The call is carried out, and the answer held back for so long (real time, not the world's).
    Stall(Duration),
}

/// What goes wrong with a server that is created while the fault is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineFault {
    /// It runs, but its agent never connects.
    NeverBoots,
    /// Its agent connects so much later.
    BootsSlowly(Duration),
    /// Its start fails after the create call has answered: it stays `off`.
    StaysOff,
    /// Lists leave it out for so long; asked for by its id it is there.
    ListedLate(Duration),
    /// Once deleted it shows as `deleting` for so long.
    DeletesSlowly(Duration),
    /// Its status is a word that no documentation knows.
    OddStatus,
}

/// The two races of cordoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Race {
    /// A heartbeat that read the record before the PATCH writes the old flag back, within 10 s.
    WriteBack,
    /// A slot that began to poll between the kick and the PATCH's write takes one more task.
    OneMoreTask,
}

impl Fault {
    fn new(place: Place) -> Self {
        Self { place, spare: 0, left: None, lasting: None, until: None, chance: None }
    }

    /// On every call to one of the servers.
    #[must_use]
    pub fn side(side: Side, fault: AnswerFault) -> Self {
        Self::new(Place::Side(side, fault))
    }

    /// On one kind of call.
    #[must_use]
    pub fn on(endpoint: Endpoint, fault: AnswerFault) -> Self {
        Self::new(Place::Endpoint(endpoint, fault))
    }

    /// On servers that are created.
    #[must_use]
    pub fn machine(fault: MachineFault) -> Self {
        Self::new(Place::Machine(fault))
    }

    /// On cordons.
    #[must_use]
    pub fn race(race: Race) -> Self {
        Self::new(Place::Race(race))
    }

    /// Fires so many times, then never again.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.left = Some(times);
        self
    }

    /// Spares the first so many.
    #[must_use]
    pub fn after(mut self, spared: u32) -> Self {
        self.spare = spared;
        self
    }

    /// Is over so long after it is switched on, by the world's clock.
    #[must_use]
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = Some(time);
        self
    }

    /// Fires with this probability, drawn from the world's seed.
    #[must_use]
    pub fn chance(mut self, probability: f64) -> Self {
        self.chance = Some(probability.clamp(0.0, 1.0));
        self
    }

    /// Whether it fires this time.
    fn fires(&mut self, now: Timestamp, rng: &mut StdRng) -> bool {
        if self.until.is_some_and(|until| now >= until) || self.left == Some(0) {
            return false;
        }
        if self.spare > 0 {
            self.spare -= 1;
            return false;
        }
        if self.chance.is_some_and(|chance| !rng.random_bool(chance)) {
            return false;
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        true
    }
}

/// The faults that are on.
#[derive(Default)]
pub(super) struct Faults {
    on: Vec<(FaultId, Fault)>,
    next: u64,
}

impl Faults {
    pub(super) fn switch_on(&mut self, mut fault: Fault, now: Timestamp) -> FaultId {
        fault.until = fault.lasting.map(|time| later(now, time));
        self.next += 1;
        let id = FaultId(self.next);
        self.on.push((id, fault));
        id
    }

    pub(super) fn switch_off(&mut self, id: FaultId) {
        self.on.retain(|(other, _)| *other != id);
    }

    pub(super) fn switch_all_off(&mut self) {
        self.on.clear();
    }

    /// The fault of this call: the first that fires.
    pub(super) fn answer(&mut self, called: Endpoint, now: Timestamp, rng: &mut StdRng) -> Option<AnswerFault> {
        self.on.iter_mut().find_map(|(_, on)| {
            let fault = match &on.place {
                Place::Side(side, fault) if *side == called.side() => fault.clone(),
                Place::Endpoint(endpoint, fault) if *endpoint == called => fault.clone(),
                Place::Side(..) | Place::Endpoint(..) | Place::Machine(_) | Place::Race(_) => return None,
            };
            on.fires(now, rng).then_some(fault)
        })
    }

    /// All faults of a server that is created now.
    pub(super) fn machine(&mut self, now: Timestamp, rng: &mut StdRng) -> Vec<MachineFault> {
        let mut faults = Vec::new();
        for (_, on) in &mut self.on {
            if let Place::Machine(fault) = on.place
                && on.fires(now, rng)
            {
                faults.push(fault);
            }
        }
        faults
    }

    /// Whether the race is lost this time.
    pub(super) fn race(&mut self, race: Race, now: Timestamp, rng: &mut StdRng) -> bool {
        self.on.iter_mut().any(|(_, on)| match on.place {
            Place::Race(on_race) if on_race == race => on.fires(now, rng),
            Place::Race(_) | Place::Machine(_) | Place::Side(..) | Place::Endpoint(..) => false,
        })
    }
}
