//! Carries out a plan on a snapshot, as a perfect executor on a perfect day would.

use crate::model::action::{Action, Plan};
use crate::model::ids::{AgentId, InstanceId};
use crate::model::instance::InstanceState;
use crate::model::memory::{Cordon, Memory};
use crate::model::snapshot::{Launching, Listing, Snapshot};

/// The world at the same instant, with every step done.
pub fn execute(plan: &Plan, snapshot: &Snapshot, memory: &Memory) -> (Snapshot, Memory) {
    let (mut snapshot, mut memory) = (snapshot.clone(), memory.clone());
    memory.next_launch = memory.next_launch.wrapping_add(plan.names_used);
    for step in &plan.steps {
        match &step.action {
            Action::Uncordon { agent, .. } => {
                set_no_schedule(&mut snapshot, *agent, false);
                memory.cordons.remove(agent);
            }
            Action::Launch { name, offer } => snapshot.in_flight.launches.push(Launching {
                pool: step.pool.clone(),
                name: name.clone(),
                offer: offer.clone(),
                since: snapshot.now,
                agent: None,
            }),
            Action::Cordon { agent, .. } => {
                set_no_schedule(&mut snapshot, *agent, true);
                memory.cordons.insert(*agent, Cordon { since: snapshot.now, ours: true });
            }
            Action::Retire { agent, instance, .. } => {
                snapshot.agents.retain(|record| record.id != *agent);
                if let Some(instance) = instance {
                    delete(&mut snapshot, instance);
                }
            }
            Action::Start { instance, .. } => {
                memory.started.insert(instance.clone(), snapshot.now);
                set_state(&mut snapshot, instance, InstanceState::Starting);
            }
            Action::Stop { instance, .. } => {
                memory.started.remove(instance);
                set_state(&mut snapshot, instance, InstanceState::Stopping);
            }
            Action::DeleteInstance { instance, .. } => delete(&mut snapshot, instance),
        }
    }
    (snapshot, memory)
}

fn set_no_schedule(snapshot: &mut Snapshot, agent: AgentId, no_schedule: bool) {
    for record in snapshot.agents.iter_mut().filter(|record| record.id == agent) {
        record.no_schedule = no_schedule;
    }
}

fn set_state(snapshot: &mut Snapshot, id: &InstanceId, state: InstanceState) {
    let now = snapshot.now;
    for listing in snapshot.instances.values_mut() {
        if let Listing::Known { instances, .. } = listing {
            for instance in instances.iter_mut().filter(|instance| instance.id == *id) {
                instance.state = state;
                instance.stopped_since = None;
                if state == InstanceState::Starting {
                    instance.created = now;
                }
            }
        }
    }
}

fn delete(snapshot: &mut Snapshot, instance: &InstanceId) {
    for listing in snapshot.instances.values_mut() {
        if let Listing::Known { instances, .. } = listing {
            instances.retain(|listed| listed.id != *instance);
        }
    }
}
