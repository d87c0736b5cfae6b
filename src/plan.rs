//! Pure decisions: from one snapshot and what is remembered to the steps of one pass, each with its reason.
//!
//! No clock, no randomness, no I/O: the same input gives the same plan, in whatever order the input's lists are.
//! Planning again after the steps were executed plans nothing new.
//!
//! | file | decides |
//! |---|---|
//! | `fleet` | which record, instance and launch belong together, and what state that machine is in |
//! | `demand` | which tasks could start now, and which pools could take them |
//! | `supply` | which slots there are, and which task is laid on which, the way the server would give them out |
//! | `matching` | that as many tasks as possible have a slot |
//! | `period` | when an hour that is paid for ends |
//! | `stopped` | which stopped instances are of use |
//! | `scale_up` | drains to undo, instances to start and launches for what remains |
//! | `scale_down` | what is retired, what is an orphan, what is left alone and why |

mod demand;
mod fleet;
mod matching;
mod period;
mod scale_down;
mod scale_up;
mod stopped;
mod supply;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::action::{Action, Notice, Plan, PoolTotals};
use crate::model::age;
use crate::model::decision::{Hold, TaskDecision};
use crate::model::ids::PoolName;
use crate::model::machine::{Fate, Keep};
use crate::model::memory::Memory;
use crate::model::pool::AccountId;
use crate::model::snapshot::{Listing, Snapshot};

/// An agent is connected if it was heard of so lately. Its heartbeat comes every 10 s, and the server gives a silent
/// agent's task to another after about a minute.
pub const SEEN_LATELY: Duration = Duration::from_mins(1);
/// Steps that create or remove rest on a listing that is at most so old.
pub const LISTING_FRESH: Duration = Duration::from_secs(15);
/// A created instance may be missing from a listing, and a record may be without its instance, for so long.
pub const LISTING_LAG: Duration = Duration::from_mins(2);
/// A record must be missing for so long before its instance is taken for an orphan.
pub const RECORD_ABSENCE: Duration = Duration::from_mins(1);
/// The same where the server lists no agent at all though there were records: that all were deleted at once is less likely
/// than a server that has lost its senses for a while.
pub const ALL_RECORDS_ABSENCE: Duration = Duration::from_mins(20);
/// After a cordon a slot that was polling may still be given one task, and a heartbeat (every 10 s) that had read the
/// record before may write the flag back: only what is seen after this counts.
pub const CORDON_SETTLES: Duration = Duration::from_secs(10);
/// An agent at work moves its `last_work` at least so often: it extends its runs every 20 s, and the server writes that
/// down once a minute (`updateAgentLastWorkDelay`). A server that was restarted knows nothing of runs that go on, so this
/// is all that shows them.
pub const WORK_SHOWS: Duration = Duration::from_secs(90);
/// The server gives a task to a free slot within a second. If it does not for so long, the slots of agents that worked a
/// moment ago are not taken for free: a server that was restarted knows nothing of what they run.
pub const PASSED_OVER: Duration = Duration::from_secs(30);
/// After an outage of the server an agent that is connected again has extended its runs within this.
pub const RUNS_SHOW: Duration = Duration::from_mins(1);
/// After an outage of the server agents come back within this: their process gives up after two minutes without a
/// connection (`WOODPECKER_RETRY_TIMEOUT`) and is started again at most a minute later.
pub const AGENTS_RETURN: Duration = Duration::from_mins(3);
/// A task that an idle, connected, matching agent is not given for so long is stuck.
pub const STUCK_AFTER: Duration = Duration::from_mins(5);
/// A paid period's last minutes, in which an idle instance is retired: cordon, settle, two readings and the deletion
/// take well under this with the default interval.
pub const PERIOD_MARGIN: Duration = Duration::from_mins(2);
/// An idle agent of ours that somebody else has cordoned makes room for waiting tasks only after this: whoever cordoned it
/// may change his mind.
pub const ROOM_PATIENCE: Duration = Duration::from_mins(2);
/// A listing may show an instance as stopped for so long after it was started.
pub const START_SHOWS: Duration = Duration::from_secs(30);
/// Cordon, settle, read twice, delete: it takes about so long until an idle instance is gone.
pub const DRAIN_TAKES: Duration = Duration::from_secs(20);

/// Decides the steps of one pass.
#[must_use]
pub fn plan(snapshot: &Snapshot, memory: &Memory) -> Plan {
    let fleet = fleet::Fleet::new(snapshot, memory);
    let demand = demand::Demand::new(snapshot, &fleet);
    let supply = supply::Supply::new(snapshot, memory, &fleet);
    let up = scale_up::scale_up(snapshot, memory, &fleet, &demand, &supply);

    // Every task is laid on what will be there, so that the next plan says the same.
    let mut laid = up.add_to(&supply).lay(snapshot, memory, &demand);
    let loads = laid.loads();
    let unneeded = up.unneeded(&loads);
    laid.close(&unneeded);
    let (mut decisions, needed) = laid.lay_waiting(snapshot, &demand);
    up.explain(&demand, &mut decisions);
    let (steps, begins) = up.steps(&loads, &unneeded);
    let beside = scale_down::Beside { needed: &needed, begins: &begins, short: &up.short(&decisions) };
    let down = scale_down::scale_down(snapshot, memory, &fleet, &beside);

    let mut plan = Plan { steps, names_used: up.names_used, ..Plan::default() };
    plan.steps.extend(down.steps);
    plan.machines = down.machines;
    plan.tasks = demand.into_decisions(decisions);
    plan.notices = notices(snapshot, &fleet, &plan);
    plan.stale = stale_accounts(snapshot, &plan);
    plan.next_look = next_look(snapshot, &plan);
    for (index, pool) in snapshot.pools.iter().enumerate() {
        let launches = plan.steps.iter().filter(|step| step.pool == pool.name);
        plan.totals.insert(
            pool.name.clone(),
            PoolTotals {
                uncovered: up.uncovered(index),
                instances: fleet.existing(index),
                launches: count(launches.filter(|step| matches!(step.action, Action::Launch { .. })).count()),
            },
        );
    }
    plan
}

/// Accounts with steps that create or remove, and a listing that is too old for that.
fn stale_accounts(snapshot: &Snapshot, plan: &Plan) -> Vec<AccountId> {
    let mut stale = BTreeSet::new();
    for step in &plan.steps {
        let rests_on_listing = match step.action {
            Action::Launch { .. }
            | Action::Start { .. }
            | Action::Stop { .. }
            | Action::Retire { .. }
            | Action::DeleteInstance { .. } => true,
            Action::Uncordon { .. } | Action::Cordon { .. } => false,
        };
        let account = snapshot.pools.iter().find(|pool| pool.name == step.pool).map(|pool| pool.account);
        if let (true, Some(account)) = (rests_on_listing, account)
            && let Some(Listing::Known { listed, .. }) = snapshot.instances.get(&account)
            && age(snapshot.now, *listed) >= LISTING_FRESH
        {
            stale.insert(account);
        }
    }
    stale.into_iter().collect()
}

fn notices(snapshot: &Snapshot, fleet: &fleet::Fleet<'_>, plan: &Plan) -> Vec<Notice> {
    let mut notices = BTreeSet::new();
    for (task, decision) in &plan.tasks {
        if let TaskDecision::Stuck { agent, .. } = decision {
            notices.insert(Notice::StuckTask { task: task.clone(), agent: agent.clone() });
        }
    }
    let pools: BTreeSet<&PoolName> = snapshot.pools.iter().map(|pool| &pool.name).collect();
    for listing in snapshot.instances.values() {
        let Listing::Known { instances, .. } = listing else { continue };
        for instance in instances.iter().filter(|instance| !pools.contains(&instance.pool)) {
            notices.insert(Notice::StrayInstance { name: instance.name.clone(), pool: instance.pool.clone() });
        }
    }
    for machine in &plan.machines {
        if let (Fate::Kept { why: Keep::NoRecord }, Some(instance)) = (&machine.fate, &machine.instance) {
            notices.insert(Notice::NoRecord { pool: machine.pool.clone(), instance: instance.clone() });
        }
    }
    for pool in &snapshot.pools {
        if let Some(Listing::Known { instances, .. }) = snapshot.instances.get(&pool.account) {
            let missing = pool.fixed.iter().filter(|fixed| instances.iter().all(|listed| listed.id != fixed.id));
            notices.extend(
                missing.map(|fixed| Notice::NoSuchInstance { pool: pool.name.clone(), instance: fixed.id.clone() }),
            );
        }
    }
    for instance in &fleet.of_other_servers {
        notices.insert(Notice::OtherServersInstance { name: instance.name.clone() });
    }
    notices.into_iter().collect()
}

/// When the same world would be decided differently: a wait of a machine or of a task ends.
fn next_look(snapshot: &Snapshot, plan: &Plan) -> Option<Timestamp> {
    let machines = plan.machines.iter().filter_map(|machine| match &machine.fate {
        Fate::Kept { why } => match why {
            Keep::Boots { until }
            | Keep::IdleUntil { until }
            | Keep::PaidUntil { until }
            | Keep::Settling { until }
            | Keep::MayWork { until }
            | Keep::MissingLately { until }
            | Keep::LostLately { until } => Some(*until),
            Keep::Busy
            | Keep::Needed
            | Keep::Minimum
            | Keep::CordonedByOthers
            | Keep::Named
            | Keep::Stopping
            | Keep::Stopped
            | Keep::NoRecord
            | Keep::ListingUnknown
            | Keep::InstanceNotListed
            | Keep::InFlight
            | Keep::Deleting => None,
        },
        Fate::Step { .. } => None,
    });
    let tasks = plan.tasks.iter().flat_map(|(_, decision)| -> &[(PoolName, Hold)] {
        match decision {
            TaskDecision::Held { why } => why,
            TaskDecision::Covered { .. }
            | TaskDecision::Booting { .. }
            | TaskDecision::Starting { .. }
            | TaskDecision::Uncordoned { .. }
            | TaskDecision::NotReady { .. }
            | TaskDecision::NotOurs { .. }
            | TaskDecision::Stuck { .. } => &[],
        }
    });
    let tasks = tasks.filter_map(|(_, hold)| match hold {
        Hold::SoldOut { until } | Hold::Refused { until, .. } | Hold::Trouble { until, .. } => Some(*until),
        Hold::AtMaximum { .. } | Hold::NothingToStart { .. } | Hold::ListingUnknown { .. } | Hold::NotReady { .. } => {
            None
        }
    });
    machines.chain(tasks).filter(|until| *until > snapshot.now).min()
}

/// A length as `u32`; no list here comes near its end.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
