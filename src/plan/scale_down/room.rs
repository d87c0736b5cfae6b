//! Which machines stand in the way: their pool is at its maximum while tasks wait, and they can't take any of them.
//!
//! They would be retired later anyway: agents with labels that the pool had under earlier settings, and idle ones that
//! somebody else has cordoned (also this process before a restart: nothing tells the two apart). No more of them go than
//! are needed, and nothing here is at work.

use std::collections::{BTreeMap, BTreeSet};

use super::super::ROOM_PATIENCE;
use super::Beside;
use crate::model::later;
use crate::model::machine::MachineState;
use crate::model::memory::Memory;
use crate::model::snapshot::Snapshot;
use crate::plan::fleet::{Fleet, Machine};

/// Names of the machines that make room.
pub(super) fn in_the_way<'a>(
    snapshot: &Snapshot,
    memory: &Memory,
    fleet: &Fleet<'a>,
    beside: &Beside<'_>,
) -> BTreeSet<&'a str> {
    let Beside { needed, begins, short } = *beside;
    let undone = |machine: &Machine<'_>| machine.agent.is_some_and(|agent| begins.undone.contains_key(&agent.id));
    let mut short: BTreeMap<usize, u32> = short.iter().copied().enumerate().filter(|(_, short)| *short > 0).collect();
    for machine in fleet.machines.iter().filter(|machine| goes_already(snapshot, memory, machine)) {
        if undone(machine) {
            continue;
        }
        if let Some(short) = short.get_mut(&machine.pool) {
            *short = short.saturating_sub(1);
        }
    }
    let mut names = BTreeSet::new();
    for machine in &fleet.machines {
        if let Some(short) = short.get_mut(&machine.pool)
            && *short > 0
            && is_in_the_way(snapshot, memory, machine)
            && !needed.contains(machine.name)
        {
            *short -= 1;
            names.insert(machine.name);
        }
    }
    names
}

/// Whether it makes room by itself.
fn goes_already(snapshot: &Snapshot, memory: &Memory, machine: &Machine<'_>) -> bool {
    let drains = machine.agent.is_some_and(|agent| memory.cordons.get(&agent.id).is_some_and(|cordon| cordon.ours));
    match machine.state {
        MachineState::Deleting | MachineState::Failed | MachineState::Lost | MachineState::Orphan => true,
        MachineState::Cordoned => drains && !machine.undone(snapshot),
        MachineState::Booting
        | MachineState::Busy
        | MachineState::Idle
        | MachineState::Stopping
        | MachineState::Stopped => false,
    }
}

fn is_in_the_way(snapshot: &Snapshot, memory: &Memory, machine: &Machine<'_>) -> bool {
    let Some(agent) = machine.agent else { return false };
    let alone = machine.running == 0 && machine.instance.is_some() && !machine.in_flight;
    alone
        && match machine.state {
            MachineState::Idle => !machine.fits_pool,
            MachineState::Cordoned => memory
                .cordons
                .get(&agent.id)
                .is_some_and(|cordon| !cordon.ours && later(cordon.since, ROOM_PATIENCE) <= snapshot.now),
            MachineState::Booting
            | MachineState::Busy
            | MachineState::Lost
            | MachineState::Failed
            | MachineState::Orphan
            | MachineState::Deleting
            | MachineState::Stopping
            | MachineState::Stopped => false,
        }
}
