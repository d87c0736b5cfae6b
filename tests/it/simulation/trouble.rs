//! What goes wrong: one draw is one fault, for a while or a few times.

use std::time::Duration;

use picus::world::{AnswerFault, Endpoint, Fault, MachineFault, Race, Side};
use rand::RngExt;
use rand::rngs::StdRng;

use super::setup::{Setup, pick};

/// Draws a fault and says which.
pub fn draw(rng: &mut StdRng, setup: &Setup) -> (String, Fault) {
    let (what, fault, kind) = match rng.random_range(0..12) {
        0..2 => {
            let answer = anywhere(rng);
            let side = *pick(rng, &[Side::Woodpecker, Side::Hetzner]);
            (format!("{side:?}: {answer:?}"), Fault::side(side, answer), Kind::Answer)
        }
        2..5 => {
            let (endpoint, answer) = woodpecker(rng);
            (format!("{endpoint:?}: {answer:?}"), Fault::on(endpoint, answer), Kind::Answer)
        }
        5..8 => {
            let (endpoint, answer) = hetzner(rng);
            let once = answer == AnswerFault::EmptyList;
            let kind = if once { Kind::Once } else { Kind::Answer };
            (format!("{endpoint:?}: {answer:?}"), Fault::on(endpoint, answer), kind)
        }
        8..11 => {
            let machine = machine(rng, setup);
            (format!("{machine:?}"), Fault::machine(machine), Kind::Lasting)
        }
        _ => {
            let race = *pick(rng, &[Race::WriteBack, Race::OneMoreTask]);
            (format!("{race:?}"), Fault::race(race), Kind::Lasting)
        }
    };
    limit(rng, what, fault, kind)
}

enum Kind {
    /// For a while, a few times, or now and then.
    Answer,
    /// For a while or now and then.
    Lasting,
    /// A second time would be a lie that nobody can see through.
    Once,
}

fn limit(rng: &mut StdRng, what: String, fault: Fault, kind: Kind) -> (String, Fault) {
    let time = Duration::from_secs(rng.random_range(10..=900));
    let chance = *pick(rng, &[0.1, 0.3, 0.6, 1.0]);
    let times = rng.random_range(1..=4);
    match kind {
        Kind::Once => (format!("{what}, once"), fault.times(1)),
        Kind::Answer if rng.random_bool(0.4) => {
            let after = rng.random_range(0..4);
            (format!("{what}, {times} times after {after}"), fault.times(times).after(after))
        }
        Kind::Answer | Kind::Lasting => {
            (format!("{what} for {} s, chance {chance}", time.as_secs()), fault.lasting(time).chance(chance))
        }
    }
}

/// What can happen to any call.
fn anywhere(rng: &mut StdRng) -> AnswerFault {
    let wait = Duration::from_secs(rng.random_range(20..=600));
    pick(
        rng,
        &[
            AnswerFault::Status(500),
            AnswerFault::Status(502),
            AnswerFault::Status(503),
            AnswerFault::Status(404),
            AnswerFault::Html,
            AnswerFault::Empty,
            AnswerFault::WrongJson,
            AnswerFault::Cut,
            AnswerFault::LostAnswer,
            AnswerFault::CutBody,
            AnswerFault::Unauthorised,
            AnswerFault::Forbidden,
            AnswerFault::RateLimited(wait),
        ],
    )
    .clone()
}

fn woodpecker(rng: &mut StdRng) -> (Endpoint, AnswerFault) {
    let endpoint = *pick(
        rng,
        &[
            Endpoint::Version,
            Endpoint::Queue,
            Endpoint::Agents,
            Endpoint::Agents,
            Endpoint::Agent,
            Endpoint::AgentTasks,
            Endpoint::CreateAgent,
            Endpoint::CreateAgent,
            Endpoint::PatchAgent,
            Endpoint::DeleteAgent,
            Endpoint::DeleteAgent,
        ],
    );
    let answer = match rng.random_range(0..4) {
        0 => pick(rng, &[AnswerFault::Null, AnswerFault::EmptyList, AnswerFault::Empty]).clone(),
        _ => anywhere(rng),
    };
    (endpoint, answer)
}

fn hetzner(rng: &mut StdRng) -> (Endpoint, AnswerFault) {
    match rng.random_range(0..10) {
        0..2 => {
            let answers = [AnswerFault::EmptyList, AnswerFault::Null];
            let answer = if rng.random_bool(0.5) { anywhere(rng) } else { pick(rng, &answers).clone() };
            (Endpoint::Servers, answer)
        }
        2..7 => {
            let codes = [
                "resource_unavailable",
                "placement_error",
                "resource_limit_exceeded",
                "conflict",
                "invalid_input",
                "server_error",
                "maintenance",
                "uniqueness_error",
                "unauthorized",
            ];
            let answer = match rng.random_range(0..3) {
                0 => anywhere(rng),
                1 => pick(rng, &[AnswerFault::LostAnswer, AnswerFault::CutBody]).clone(),
                _ => AnswerFault::Refused(*pick(rng, &codes)),
            };
            (Endpoint::CreateServer, answer)
        }
        7..9 => {
            let codes = ["locked", "conflict", "server_error", "forbidden"];
            let answer = if rng.random_bool(0.5) { anywhere(rng) } else { AnswerFault::Refused(*pick(rng, &codes)) };
            (Endpoint::DeleteServer, answer)
        }
        _ => {
            let endpoints = [Endpoint::Server, Endpoint::ServerTypes, Endpoint::Images, Endpoint::SshKeys];
            (*pick(rng, &endpoints), anywhere(rng))
        }
    }
}

fn machine(rng: &mut StdRng, setup: &Setup) -> MachineFault {
    let time = Duration::from_secs(rng.random_range(10..=900));
    // An instance of a shared secret that no list shows has no trace at all until it connects: a process that begins
    // then can't know of it.
    let late = if setup.shared_secret.is_some() && (setup.restarts || setup.pairs) { 0 } else { 100 };
    let late = Duration::from_secs(rng.random_range(0..=late));
    *pick(
        rng,
        &[
            MachineFault::NeverBoots,
            MachineFault::BootsSlowly(time),
            MachineFault::StaysOff,
            MachineFault::ListedLate(late),
            MachineFault::DeletesSlowly(time),
            MachineFault::OddStatus,
        ],
    )
}
