//! What holds in every world.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use super::execute::execute;
use super::worlds::{extreme_worlds, worlds};
use crate::model::action::{Action, Plan, Proof, Step};
use crate::model::age;
use crate::model::agent::Agent;
use crate::model::decision::{Hold, TaskDecision};
use crate::model::ids::{AgentId, InstanceId, LaunchName, PoolName, TaskId};
use crate::model::instance::{Instance, InstanceState};
use crate::model::machine::{Fate, Keep, MachineState};
use crate::model::memory::Memory;
use crate::model::pool::{Market, Pool};
use crate::model::reason::Reason;
use crate::model::snapshot::{Listing, Snapshot};
use crate::plan::fleet::Fleet;
use crate::plan::{SEEN_LATELY, plan};

/// `PROPTEST_CASES` sets how many worlds each property is tried on; 256 without it.
fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        max_shrink_iters: 4_000,
        ..ProptestConfig::default()
    }
}

fn pool<'s>(snapshot: &'s Snapshot, name: &PoolName) -> &'s Pool {
    snapshot.pools.iter().find(|pool| pool.name == *name).unwrap()
}

/// `None`: unknown.
fn listed<'s>(snapshot: &'s Snapshot, pool: &Pool) -> Option<Vec<&'s Instance>> {
    match snapshot.instances.get(&pool.account)? {
        Listing::Known { instances, .. } => {
            let of_pool = |one: &&Instance| one.pool == pool.name && is_ours(snapshot, one);
            Some(instances.iter().filter(of_pool).collect())
        }
        Listing::Unknown { .. } => None,
    }
}

/// It was launched for this server, or its record is here all the same.
fn is_ours(snapshot: &Snapshot, instance: &Instance) -> bool {
    let is_its = |agent: &Agent| agent.name == instance.name.as_str() && instance.agent.is_none_or(|id| id == agent.id);
    instance.server.as_ref().is_none_or(|server| *server == snapshot.server) || snapshot.agents.iter().any(is_its)
}

/// Instances of a pool and launches that no listing shows yet.
fn existing(snapshot: &Snapshot, pool: &Pool) -> u64 {
    let instances = listed(snapshot, pool).unwrap_or_default();
    let launches = snapshot.in_flight.launches.iter().filter(|launch| launch.pool == pool.name);
    let unlisted = launches.filter(|launch| instances.iter().all(|instance| instance.name != launch.name));
    (instances.len() + unlisted.count()) as u64
}

fn launches(plan: &Plan, pool: &Pool) -> u64 {
    let steps = plan.steps.iter().filter(|step| step.pool == pool.name);
    steps.filter(|step| matches!(step.action, Action::Launch { .. })).count() as u64
}

fn starts(plan: &Plan, pool: &Pool) -> u64 {
    let steps = plan.steps.iter().filter(|step| step.pool == pool.name);
    steps.filter(|step| matches!(step.action, Action::Start { .. })).count() as u64
}

fn busy(snapshot: &Snapshot, agent: AgentId) -> bool {
    snapshot.queue.running.iter().any(|task| task.agent == Some(agent))
}

fn record_of(snapshot: &Snapshot, agent: AgentId) -> Option<&Agent> {
    snapshot.agents.iter().find(|record| record.id == agent)
}

fn connected(snapshot: &Snapshot, agent: &Agent) -> bool {
    agent.last_contact.is_some_and(|contact| age(snapshot.now, contact) < SEEN_LATELY)
}

/// A record is ours by the label of an instance of ours or a launch, or by its name.
fn ours(snapshot: &Snapshot, pool: &Pool, agent: &Agent) -> bool {
    LaunchName::parse(&agent.name, &snapshot.installation, &pool.name).is_some()
        || listed(snapshot, pool).unwrap_or_default().iter().any(|instance| instance.agent == Some(agent.id))
        || snapshot.in_flight.launches.iter().any(|launch| launch.agent == Some(agent.id))
        || listed(snapshot, pool).unwrap_or_default().iter().any(|instance| instance.known_as.contains(&agent.name))
}

/// Whether its steps make way for others.
fn removes(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| match step.action {
        Action::Retire { .. } | Action::DeleteInstance { .. } | Action::Stop { .. } => true,
        Action::Uncordon { .. } => matches!(step.reason, Reason::Stopped | Reason::PaidAgain { .. }),
        Action::Cordon { .. } | Action::Launch { .. } | Action::Start { .. } => false,
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn never_above_the_maximum((snapshot, memory) in worlds()) {
        let plan = plan(&snapshot, &memory);
        for pool in &snapshot.pools {
            let (existing, launches) = (existing(&snapshot, pool), launches(&plan, pool));
            prop_assert!(existing + launches <= u64::from(pool.max).max(existing), "{}", pool.name);
            if pool.is_fixed() {
                let is_up = |one: &&&Instance| !matches!(one.state, InstanceState::Stopped | InstanceState::Stopping);
                let up = listed(&snapshot, pool).unwrap_or_default().iter().filter(is_up).count() as u64;
                prop_assert!(launches == 0 && up + starts(&plan, pool) <= u64::from(pool.max).max(up), "{}", pool.name);
            }
            prop_assert!(u64::from(plan.totals[&pool.name].instances) >= existing);
            prop_assert_eq!(u64::from(plan.totals[&pool.name].launches), launches);
        }
    }

    #[test]
    fn never_below_the_minimum_by_our_own_action((snapshot, memory) in worlds()) {
        let plan = plan(&snapshot, &memory);
        let (after, after_memory) = execute(&plan, &snapshot, &memory);
        for (index, pool) in snapshot.pools.iter().enumerate() {
            let before = Fleet::new(&snapshot, &memory).usable(&snapshot, index);
            let after = Fleet::new(&after, &after_memory).usable(&after, index);
            prop_assert!(after >= before.min(pool.min), "{}: {before} before, {after} after\n{}", pool.name, super::text::plan(&plan, &BTreeMap::new()));
        }
    }

    #[test]
    fn nothing_busy_uncordoned_foreign_or_unknown_is_touched((snapshot, memory) in worlds()) {
        let plan = plan(&snapshot, &memory);
        for step in &plan.steps {
            let pool = pool(&snapshot, &step.pool);
            let instances = listed(&snapshot, pool);
            let has = |id: &InstanceId| instances.iter().flatten().any(|instance| instance.id == *id);
            match &step.action {
                Action::Launch { name, offer } => {
                    prop_assert!(instances.is_some());
                    prop_assert!(snapshot.agents.iter().all(|agent| agent.name != name.as_str()));
                    let Market::Open { offers, .. } = &pool.market else { panic!("nothing can be ordered") };
                    prop_assert!(offers.iter().any(|one| one.key == *offer));
                    let sold_out = memory.sold_out.get(&(pool.account, offer.clone()));
                    prop_assert!(sold_out.is_none_or(|until| *until <= snapshot.now));
                    let refused = memory.refusals.get(&pool.account);
                    prop_assert!(refused.is_none_or(|refusal| refusal.until <= snapshot.now));
                    if let Some(trouble) = memory.troubles.get(&pool.name) {
                        prop_assert!(trouble.until <= snapshot.now && launches(&plan, pool) == 1);
                    }
                }
                Action::Start { instance, .. } => {
                    let started = instances.iter().flatten().find(|one| one.id == *instance).unwrap();
                    prop_assert!(pool.keeps_stopped() && started.state == InstanceState::Stopped);
                    prop_assert!(!snapshot.in_flight.instances.contains(instance));
                    let record = plan.machines.iter().find(|one| one.instance.as_ref() == Some(instance)).unwrap().agent;
                    let record = record.and_then(|agent| record_of(&snapshot, agent));
                    prop_assert!(record.is_none_or(|record| !record.no_schedule));
                    let sold_out = memory.sold_out.get(&(pool.account, started.offer.clone()));
                    prop_assert!(sold_out.is_none_or(|until| *until <= snapshot.now));
                    if let Some(trouble) = memory.troubles.get(&pool.name) {
                        prop_assert!(trouble.until <= snapshot.now && launches(&plan, pool) + starts(&plan, pool) == 1);
                    }
                }
                Action::Stop { agent, instance, proof, .. } => {
                    prop_assert!(pool.keeps_stopped() && has(instance));
                    prop_assert!(!snapshot.in_flight.instances.contains(instance));
                    if let Some(agent) = agent {
                        let record = record_of(&snapshot, *agent).unwrap();
                        prop_assert!(!busy(&snapshot, *agent) && ours(&snapshot, pool, record));
                        prop_assert!(!snapshot.in_flight.agents.contains(agent));
                        prop_assert!(record.no_schedule || *proof != Proof::Cordoned);
                        prop_assert!(*proof != Proof::Silent || !connected(&snapshot, record) || pool.keeps_stopped());
                    } else {
                        prop_assert!(memory.started.contains_key(instance));
                    }
                }
                Action::Uncordon { agent, name, noted_on } => {
                    let record = record_of(&snapshot, *agent).unwrap();
                    let stopped = step.reason == Reason::Stopped;
                    prop_assert!(memory.cordons[agent].ours && record.no_schedule);
                    prop_assert!(connected(&snapshot, record) || stopped);
                    prop_assert!(noted_on.is_none() || pool.keeps_stopped());
                    prop_assert!(ours(&snapshot, pool, record) && record.name == *name);
                    prop_assert!(!snapshot.in_flight.agents.contains(agent));
                }
                Action::Cordon { agent, name, noted_on } => {
                    prop_assert_eq!(noted_on.is_some(), pool.keeps_stopped());
                    let record = record_of(&snapshot, *agent).unwrap();
                    prop_assert!(instances.is_some() && !busy(&snapshot, *agent) && !record.no_schedule);
                    prop_assert!(ours(&snapshot, pool, record) && record.name == *name);
                    prop_assert!(!snapshot.in_flight.agents.contains(agent));
                }
                Action::Retire { agent, name, instance, proof } => {
                    prop_assert!(!pool.is_fixed() || instance.is_none());
                    let record = record_of(&snapshot, *agent).unwrap();
                    prop_assert!(instances.is_some() && !busy(&snapshot, *agent));
                    prop_assert!(ours(&snapshot, pool, record) && record.name == *name);
                    prop_assert!(!snapshot.in_flight.agents.contains(agent));
                    prop_assert!(instance.as_ref().is_none_or(has));
                    prop_assert!(instance.as_ref().is_none_or(|id| !snapshot.in_flight.instances.contains(id)));
                    match proof {
                        Proof::Cordoned => {
                            prop_assert!(record.no_schedule);
                            let cordon = memory.cordons[agent];
                            prop_assert!(age(snapshot.now, cordon.since) >= crate::plan::CORDON_SETTLES);
                        }
                        Proof::NeverHeardOf => prop_assert!(record.last_contact.is_none()),
                        Proof::Silent => {
                            prop_assert!(instance.is_none() || pool.keeps_stopped());
                            prop_assert!(!connected(&snapshot, record) || pool.keeps_stopped());
                        }
                    }
                }
                Action::DeleteInstance { instance, agent, .. } => {
                    prop_assert!(has(instance) && !snapshot.in_flight.instances.contains(instance));
                    let record = agent.and_then(|agent| record_of(&snapshot, agent));
                    prop_assert!(record.is_none() && agent.is_none_or(|agent| !busy(&snapshot, agent)));
                }
            }
        }
    }

    #[test]
    fn a_machine_that_a_task_is_laid_on_is_not_taken_away((snapshot, memory) in worlds()) {
        let plan = plan(&snapshot, &memory);
        let ours: BTreeSet<&str> = plan.machines.iter().map(|machine| machine.name.as_str()).collect();
        let laid_on: BTreeSet<&str> = plan
            .tasks
            .iter()
            .filter_map(|(_, decision)| match decision {
                TaskDecision::Covered { by } | TaskDecision::Uncordoned { by, .. } => Some(by.as_str()),
                TaskDecision::Booting { .. }
                | TaskDecision::Starting { .. }
                | TaskDecision::Held { .. }
                | TaskDecision::NotReady { .. }
                | TaskDecision::NotOurs { .. }
                | TaskDecision::Stuck { .. } => None,
            })
            .filter(|name| ours.contains(name))
            .collect();
        for step in &plan.steps {
            if let Action::Cordon { name, .. }
            | Action::Stop { name, proof: Proof::Cordoned, .. }
            | Action::Retire { name, proof: Proof::Cordoned, .. } = &step.action
            {
                prop_assert!(!laid_on.contains(name.as_str()), "{name}");
            }
        }
    }

    #[test]
    fn planning_after_executing_changes_nothing((snapshot, memory) in worlds()) {
        let first = plan(&snapshot, &memory);
        let (mut snapshot, mut memory) = execute(&first, &snapshot, &memory);
        let mut again = plan(&snapshot, &memory);
        if !removes(&first) {
            let text = |plan| super::text::plan(plan, &BTreeMap::new());
            // What was launched, undone or started counts for the minimum from now on; and a drain that turned out not to be
            // needed may be undone because it is paid for.
            let for_minimum: BTreeSet<AgentId> = first
                .machines
                .iter()
                .filter(|machine| machine.fate == Fate::Kept { why: Keep::Minimum })
                .filter_map(|machine| machine.agent)
                .collect();
            let freed = |step: &Step| {
                matches!(&step.action, Action::Cordon { agent, .. } if for_minimum.contains(agent))
                    || matches!(step.reason, Reason::PaidAgain { .. })
            };
            prop_assert!(again.steps.iter().all(freed), "first:\n{}again:\n{}", text(&first), text(&again));
            // One that is still being stopped is not started yet: what was launched meanwhile may take its tasks.
            if first.machines.iter().any(|machine| machine.state == MachineState::Stopping) {
                return Ok(());
            }
            prop_assert_eq!(told_but_stuck(&again, &first), told_but_stuck(&first, &first), "first:\n{}again:\n{}", text(&first), text(&again));
        }
        // What was removed makes room for launches, and those end it.
        for _ in 0..3 {
            (snapshot, memory) = execute(&again, &snapshot, &memory);
            again = plan(&snapshot, &memory);
        }
        prop_assert_eq!(&again.steps, &[]);
    }

    #[test]
    fn the_order_of_the_input_does_not_matter((snapshot, memory) in worlds(), seed in any::<u64>()) {
        let mut other = snapshot.clone();
        shuffle(&mut other.agents, seed);
        shuffle(&mut other.queue.pending, seed);
        shuffle(&mut other.queue.waiting, seed);
        shuffle(&mut other.queue.running, seed);
        shuffle(&mut other.in_flight.launches, seed);
        for listing in other.instances.values_mut() {
            if let Listing::Known { instances, .. } = listing {
                shuffle(instances, seed);
            }
        }
        prop_assert_eq!(plan(&snapshot, &memory), plan(&other, &memory));
    }

    #[test]
    fn every_task_that_waits_gets_one_decision_and_the_steps_serve_as_many_as_they_say((snapshot, memory) in worlds()) {
        let plan = plan(&snapshot, &memory);
        let mut waiting: Vec<&TaskId> =
            snapshot.queue.pending.iter().chain(&snapshot.queue.waiting).map(|task| &task.id).collect();
        let mut decided: Vec<&TaskId> = plan.tasks.iter().map(|(task, _)| task).collect();
        waiting.sort();
        decided.sort();
        prop_assert_eq!(waiting, decided);

        let mut served: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, decision) in &plan.tasks {
            if let TaskDecision::Booting { by, .. }
            | TaskDecision::Starting { by, .. }
            | TaskDecision::Uncordoned { by, .. } = decision
            {
                *served.entry(by).or_default() += 1;
            }
        }
        let names: BTreeMap<AgentId, &str> =
            plan.machines.iter().filter_map(|machine| Some((machine.agent?, machine.name.as_str()))).collect();
        for step in &plan.steps {
            let name = match &step.action {
                Action::Launch { name, .. } => name.as_str(),
                Action::Start { name, .. } => name.as_str(),
                Action::Uncordon { .. } if step.reason == Reason::Stopped => continue,
                Action::Uncordon { agent, .. } => names[agent],
                Action::Cordon { .. } | Action::Stop { .. } | Action::Retire { .. } | Action::DeleteInstance { .. } => continue,
            };
            if plan.machines.iter().filter(|machine| machine.name == name).count() > 1 {
                // A record of the same name: decisions don't tell the two apart.
                continue;
            }
            let tasks = if let Reason::TasksWait { tasks } = step.reason { tasks } else { 0 };
            prop_assert_eq!(served.get(name).copied().unwrap_or(0), tasks, "{}", name);
            prop_assert!(!snapshot.queue.paused || tasks == 0);
        }
    }

    #[test]
    fn a_task_is_held_only_where_nothing_more_can_be_had((snapshot, memory) in worlds()) {
        let plan = plan(&snapshot, &memory);
        prop_assert!(plan.next_look.is_none_or(|at| at > snapshot.now));
        for (task, decision) in &plan.tasks {
            let TaskDecision::Held { why } = decision else { continue };
            prop_assert!(!why.is_empty(), "{}", task);
            for (name, hold) in why {
                let pool = pool(&snapshot, name);
                if let Hold::AtMaximum { max } = hold {
                    let totals = &plan.totals[name];
                    if pool.is_fixed() {
                        prop_assert!(*max <= pool.max);
                    } else {
                        prop_assert!(*max == pool.max && totals.instances + totals.launches >= *max);
                    }
                }
            }
        }
    }

    #[test]
    fn no_value_makes_it_panic((snapshot, memory) in extreme_worlds()) {
        let plan = plan(&snapshot, &memory);
        prop_assert!(plan.next_look.is_none_or(|at| at > snapshot.now));
    }
}

/// Decisions, without what changes when a step is done.
fn told(plan: &Plan) -> Vec<(TaskId, String)> {
    let text = |decision: &TaskDecision| match decision {
        // Undone is free.
        TaskDecision::Covered { by } | TaskDecision::Uncordoned { by, .. } => format!("slot of {by}"),
        TaskDecision::Booting { by, .. } | TaskDecision::Starting { by, .. } => format!("{by} boots"),
        TaskDecision::NotReady { .. } | TaskDecision::NotOurs { .. } => String::new(),
        TaskDecision::Held { .. } => "held".to_owned(),
        TaskDecision::Stuck { .. } => "stuck".to_owned(),
    };
    plan.tasks.iter().map(|(task, decision)| (task.clone(), text(decision))).collect()
}

/// Decisions but for tasks that were stuck: their agent may be cordoned now.
fn told_but_stuck(plan: &Plan, first: &Plan) -> Vec<(TaskId, String)> {
    let stuck = |id: &TaskId| {
        first.tasks.iter().any(|(task, decision)| task == id && matches!(decision, TaskDecision::Stuck { .. }))
    };
    told(plan).into_iter().filter(|(task, _)| !stuck(task)).collect()
}

fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut state = seed;
    for index in (1..list.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        list.swap(index, usize::try_from(state >> 33).unwrap() % (index + 1));
    }
}

#[test]
fn the_worlds_hold_every_kind_of_step_and_decision() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..1500 {
        let (snapshot, memory): (Snapshot, Memory) = worlds().new_tree(&mut runner).unwrap().current();
        let plan = plan(&snapshot, &memory);
        let word = |debug: String| debug.split([' ', '{', '(']).next().unwrap_or_default().to_owned();
        for kind in plan
            .steps
            .iter()
            .map(|step| format!("{} {}", step.action.kind(), word(format!("{:?}", step.reason))))
            .chain(plan.tasks.iter().map(|(_, decision)| word(format!("{decision:?}"))))
            .chain(plan.machines.iter().map(|machine| format!("{:?}", machine.state)))
        {
            *kinds.entry(kind).or_default() += 1;
        }
    }
    insta::assert_snapshot!(kinds.keys().map(String::as_str).collect::<Vec<_>>().join("\n"), @r"
    Booting
    Busy
    Cordoned
    Covered
    Deleting
    Failed
    Held
    Idle
    Lost
    NotOurs
    NotReady
    Orphan
    Starting
    Stopped
    Stopping
    Stuck
    Uncordoned
    cordon ContactLost
    cordon Idle
    cordon MakesRoom
    cordon PeriodEnds
    delete_instance NeverConnected
    delete_instance RecordGone
    delete_instance SettingsChanged
    delete_instance StoppedFor
    launch BelowMinimum
    launch TasksWait
    retire ContactLost
    retire Idle
    retire InstanceGone
    retire MakesRoom
    retire NeverConnected
    retire PeriodEnds
    retire SettingsChanged
    retire StoppedFor
    start BelowMinimum
    start TasksWait
    stop ContactLost
    stop Idle
    stop NeverConnected
    stop PeriodEnds
    uncordon BelowMinimum
    uncordon PaidAgain
    uncordon Stopped
    uncordon TasksWait
    ");
}
