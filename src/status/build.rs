//! From what was observed and decided to what is shown. Pure; linear in the number of tasks and agents.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::cost::Billed;
use super::view::{
    AccountStatus, Inputs, MachineStatus, OfferStatus, OtherAgent, PoolStatus, QueueStatus, Slots, SoldOut, TaskStatus,
    TroubleStatus,
};
use super::{AccountFacts, Facts, PoolFacts};
use crate::model::action::Plan;
use crate::model::age;
use crate::model::decision::{Hold, TaskDecision};
use crate::model::ids::{AgentId, InstanceId, PoolName, TaskId};
use crate::model::instance::{Instance, InstanceState, OfferKey};
use crate::model::labels::{Labels, fit};
use crate::model::machine::{Fate, MachineDecision, MachineState};
use crate::model::memory::Memory;
use crate::model::pool::{AccountId, Billing, Market, Offer, Pool};
use crate::model::snapshot::{Launching, Listing, Snapshot};
use crate::model::task::Task;
use crate::plan::SEEN_LATELY;

/// What one pass shows, without the loop's own numbers.
pub(super) struct Shown {
    pub(super) queue: QueueStatus,
    pub(super) pools: Vec<PoolStatus>,
    pub(super) tasks: Vec<TaskStatus>,
    pub(super) machines: Vec<MachineStatus>,
    pub(super) others: Vec<OtherAgent>,
    pub(super) accounts: Vec<AccountStatus>,
    pub(super) sold_out: Vec<SoldOut>,
    pub(super) notices: Vec<String>,
    /// What is billed now, with its pool.
    pub(super) billed: Vec<(InstanceId, usize, Billed)>,
}

impl PoolStatus {
    /// The numbers from which something is decided.
    pub(super) fn inputs(&self) -> Inputs {
        Inputs { demand: self.demand, slots: self.slots, instances: self.instances, max: self.max }
    }
}

pub(super) fn shown(snapshot: &Snapshot, plan: &Plan, memory: &Memory, facts: &Facts) -> Shown {
    let configured = snapshot.pools.iter().zip(&facts.pools);
    let mut pools: Vec<PoolStatus> = configured.map(|(pool, facts)| of_pool(pool, plan, memory, facts)).collect();
    let index: HashMap<&PoolName, usize> =
        snapshot.pools.iter().enumerate().map(|(index, pool)| (&pool.name, index)).collect();
    let (tasks, queue) = tasks(snapshot, plan, &index, &mut pools);
    let (machines, billed) = machines(snapshot, plan, facts, &index, &mut pools);
    let accounts = facts.accounts.iter().enumerate().map(|(account, of_account)| {
        let of_it = |pool: &&Pool| pool.account.0 == account;
        let id = AccountId(account);
        let (listed, unknown) = match snapshot.instances.get(&id) {
            Some(Listing::Known { listed, .. }) => (Some(*listed), None),
            Some(Listing::Unknown { why }) => (None, Some(why.clone())),
            None => (None, Some("they were not asked for yet".to_owned())),
        };
        AccountStatus {
            provider: of_account.provider.to_owned(),
            pools: snapshot.pools.iter().filter(of_it).map(|pool| pool.name.to_string()).collect(),
            listed,
            unknown,
            refused: memory.refusals.get(&id).map(|refusal| refusal.why.clone()),
        }
    });
    let sold_out = memory.sold_out.iter().filter(|(_, until)| snapshot.now < **until);
    let sold_out = sold_out.map(|((account, offer), until)| SoldOut {
        provider: facts.provider(*account).to_owned(),
        server_type: offer.server_type.clone(),
        location: offer.location.clone(),
        until: *until,
    });
    Shown {
        queue,
        tasks,
        machines,
        others: others(snapshot, plan),
        accounts: accounts.collect(),
        sold_out: sold_out.collect(),
        notices: plan.notices.iter().map(ToString::to_string).collect(),
        billed,
        pools,
    }
}

fn of_pool(pool: &Pool, plan: &Plan, memory: &Memory, facts: &PoolFacts) -> PoolStatus {
    let (not_ready, offers) = match &pool.market {
        Market::NotReady { why } => (Some(why.clone()), Vec::new()),
        Market::Open { platform: _, offers } => (None, offers.clone()),
    };
    let is_priced = facts.hourly_price.is_some() || offers.iter().any(|offer| offer.hourly_price.is_some());
    let offer = |offer: Offer| OfferStatus {
        server_type: offer.key.server_type,
        location: offer.key.location,
        hourly_price: offer.hourly_price,
    };
    let trouble = memory.troubles.get(&pool.name).map(|trouble| TroubleStatus {
        failures: trouble.failures,
        why: trouble.why.clone(),
        until: trouble.until,
    });
    PoolStatus {
        name: pool.name.to_string(),
        provider: facts.account.provider.to_owned(),
        labels: pool.effective_labels().map(|labels| pairs(labels.iter())),
        not_ready,
        offers: offers.into_iter().map(offer).collect(),
        min: pool.min,
        max: pool.max,
        slots_per_agent: pool.slots,
        idle_timeout_seconds: pool.idle_timeout.as_secs(),
        boot_timeout_seconds: pool.boot_timeout.as_secs(),
        billing_period_seconds: match pool.billing {
            Billing::BySecond => 0,
            Billing::ByPeriod(period) => period.as_secs(),
        },
        demand: 0,
        waiting: 0,
        oldest_wait_seconds: None,
        slots: Slots::default(),
        instances: plan.totals.get(&pool.name).map_or(0, |totals| totals.instances),
        cost_per_hour: is_priced.then_some(0.0),
        cost: 0.0,
        idle_cost: 0.0,
        trouble,
    }
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// What tasks with the same labels have in common: the first pool that could take them, and the labels as they are shown.
struct Kind {
    pool: Option<usize>,
    labels: Arc<BTreeMap<String, String>>,
}

/// Kinds of tasks, and sentences that many share.
struct Common<'a> {
    pools: Vec<Option<Labels>>,
    kinds: HashMap<Vec<(&'a str, &'a str)>, Kind>,
    /// By the list of holds, which tasks that wait for the same have in common.
    holds: HashMap<*const (PoolName, Hold), Arc<str>>,
}

impl<'a> Common<'a> {
    fn kind(&mut self, task: &'a Task) -> &Kind {
        let Self { pools, kinds, holds: _ } = self;
        kinds.entry(task.labels.relevant().collect()).or_insert_with(|| Kind {
            pool: pools.iter().position(|pool| pool.as_ref().is_some_and(|pool| fit(pool, &task.labels).is_ok())),
            labels: Arc::new(pairs(task.labels.relevant())),
        })
    }

    fn sentence(&mut self, decision: &TaskDecision) -> Arc<str> {
        match decision {
            TaskDecision::Held { why } => {
                Arc::clone(self.holds.entry(why.as_ptr()).or_insert_with(|| decision.to_string().into()))
            }
            TaskDecision::Covered { .. }
            | TaskDecision::Starting { .. }
            | TaskDecision::Booting { .. }
            | TaskDecision::Uncordoned { .. }
            | TaskDecision::NotReady { .. }
            | TaskDecision::NotOurs { .. }
            | TaskDecision::Stuck { .. } => decision.to_string().into(),
        }
    }
}

fn tasks(
    snapshot: &Snapshot,
    plan: &Plan,
    index: &HashMap<&PoolName, usize>,
    pools: &mut [PoolStatus],
) -> (Vec<TaskStatus>, QueueStatus) {
    let by_id: HashMap<&TaskId, &Task> =
        snapshot.queue.pending.iter().chain(&snapshot.queue.waiting).map(|task| (&task.id, task)).collect();
    let mut common = Common {
        pools: snapshot.pools.iter().map(Pool::effective_labels).collect(),
        kinds: HashMap::new(),
        holds: HashMap::new(),
    };
    let names: Vec<Arc<str>> = pools.iter().map(|pool| pool.name.as_str().into()).collect();
    let mut shown = Vec::with_capacity(plan.tasks.len());
    let mut not_ours = 0;
    for (id, decision) in &plan.tasks {
        let Some(task) = by_id.get(id) else { continue };
        let Kind { pool: first, labels } = common.kind(task);
        let (first, labels) = (*first, Arc::clone(labels));
        let of = match decision {
            TaskDecision::NotOurs { .. } => None,
            TaskDecision::Starting { pool, .. }
            | TaskDecision::Booting { pool, .. }
            | TaskDecision::Uncordoned { pool, .. } => index.get(pool).copied(),
            TaskDecision::Held { why } => why.first().and_then(|(pool, _)| index.get(pool).copied()),
            TaskDecision::Covered { .. } | TaskDecision::NotReady { .. } | TaskDecision::Stuck { .. } => first,
        };
        let Some((of, pool)) = of.and_then(|of| Some((of, pools.get_mut(of)?))) else {
            not_ours += 1;
            continue;
        };
        pool.waiting += 1;
        match decision {
            TaskDecision::NotReady { .. } | TaskDecision::Stuck { .. } | TaskDecision::NotOurs { .. } => {}
            TaskDecision::Covered { .. }
            | TaskDecision::Starting { .. }
            | TaskDecision::Booting { .. }
            | TaskDecision::Uncordoned { .. }
            | TaskDecision::Held { .. } => pool.demand += 1,
        }
        let waits = task.created.map(|created| age(snapshot.now, created).as_secs());
        pool.oldest_wait_seconds = pool.oldest_wait_seconds.max(waits);
        shown.push(TaskStatus {
            id: id.to_string(),
            name: task.name.clone(),
            repo: task.repo().to_owned(),
            pipeline: task.pipeline_number,
            pool: Arc::clone(&names[of]),
            labels,
            since: task.created,
            decision: Cow::Borrowed(decision.kind()),
            why: common.sentence(decision),
        });
    }
    let queue = QueueStatus {
        paused: snapshot.queue.paused,
        waiting: plan.tasks.len(),
        not_ours,
        running: snapshot.queue.running.len(),
    };
    (shown, queue)
}

/// What is known of a machine beside what was decided.
#[derive(Clone, Copy)]
struct Place<'a> {
    offer: &'a OfferKey,
    since: Timestamp,
    state: InstanceState,
}

impl<'a> Place<'a> {
    fn listed(instance: &'a Instance) -> Self {
        Self { offer: &instance.offer, since: instance.created, state: instance.state }
    }

    fn launching(launch: &'a Launching) -> Self {
        Self { offer: &launch.offer, since: launch.since, state: InstanceState::Starting }
    }
}

fn machines(
    snapshot: &Snapshot,
    plan: &Plan,
    facts: &Facts,
    index: &HashMap<&PoolName, usize>,
    pools: &mut [PoolStatus],
) -> (Vec<MachineStatus>, Vec<(InstanceId, usize, Billed)>) {
    let instances: HashMap<&InstanceId, &Instance> =
        snapshot.listed().map(|instance| (&instance.id, instance)).collect();
    let launching: HashMap<&str, &Launching> =
        snapshot.in_flight.launches.iter().map(|launch| (launch.name.as_str(), launch)).collect();
    let capacities: HashMap<AgentId, u32> =
        snapshot.agents.iter().filter(|agent| agent.capacity > 0).map(|agent| (agent.id, agent.capacity)).collect();
    let (mut shown, mut billed) = (Vec::new(), Vec::new());
    for machine in &plan.machines {
        let listed = machine.instance.as_ref().and_then(|id| instances.get(id)).map(|one| Place::listed(one));
        let place = listed.or_else(|| launching.get(machine.name.as_str()).map(|launch| Place::launching(launch)));
        let slots = machine.agent.and_then(|agent| capacities.get(&agent).copied());
        let mut price = None;
        if let Some(of) = index.get(&machine.pool).copied() {
            let (pool, shown, facts) = (&snapshot.pools[of], &mut pools[of], &facts.pools[of]);
            add_slots(shown, machine, slots);
            if let Some(place) = place.filter(|place| is_billed(place.state, facts.account)) {
                price = price_of(pool, place.offer, facts.hourly_price);
                shown.cost_per_hour = shown.cost_per_hour.zip(price).map(|(sum, price)| sum + price);
                if let (Some(hourly_price), Some(id)) = (price, &machine.instance) {
                    let idle = matches!(machine.state, MachineState::Idle | MachineState::Cordoned)
                        && machine.running.unwrap_or(0) == 0;
                    let one = Billed { created: place.since, hourly_price, idle, billing: pool.billing };
                    billed.push((id.clone(), of, one));
                }
            }
        }
        shown.push(of_machine(machine, place, slots, price));
    }
    (shown, billed)
}

fn of_machine(
    machine: &MachineDecision,
    place: Option<Place<'_>>,
    slots: Option<u32>,
    hourly_price: Option<f64>,
) -> MachineStatus {
    let (action, why) = match &machine.fate {
        Fate::Step { action, reason } => (Some((*action).to_owned()), reason.to_string()),
        Fate::Kept { why } => (None, why.to_string()),
    };
    MachineStatus {
        name: machine.name.clone(),
        pool: machine.pool.to_string(),
        agent: machine.agent.map(|agent| agent.0),
        instance: machine.instance.as_ref().map(ToString::to_string),
        server_type: place.map(|place| place.offer.server_type.clone()),
        location: place.map(|place| place.offer.location.clone()),
        since: place.map(|place| place.since),
        state: machine.state.kind().to_owned(),
        running: machine.running,
        slots,
        action,
        reason: machine.fate.kind().to_owned(),
        why,
        hourly_price,
    }
}

fn add_slots(pool: &mut PoolStatus, machine: &MachineDecision, slots: Option<u32>) {
    let running = machine.running.unwrap_or(0);
    let free = slots.unwrap_or(0).saturating_sub(running);
    match machine.state {
        MachineState::Booting => pool.slots.booting += slots.unwrap_or(pool.slots_per_agent),
        MachineState::Busy | MachineState::Idle => {
            pool.slots.busy += running;
            pool.slots.free += free;
        }
        MachineState::Cordoned => {
            pool.slots.busy += running;
            pool.slots.cordoned += free;
        }
        MachineState::Lost
        | MachineState::Failed
        | MachineState::Orphan
        | MachineState::Deleting
        | MachineState::Stopping
        | MachineState::Stopped => {}
    }
}

fn is_billed(state: InstanceState, account: AccountFacts) -> bool {
    match state {
        InstanceState::Starting | InstanceState::Running | InstanceState::Unknown => true,
        InstanceState::Stopping | InstanceState::Stopped => account.bills_stopped,
        InstanceState::Deleting => false,
    }
}

/// That of its offer, else that of its type anywhere, else what the settings say.
fn price_of(pool: &Pool, key: &OfferKey, fallback: Option<f64>) -> Option<f64> {
    let offers = match &pool.market {
        Market::Open { offers, .. } => offers.as_slice(),
        Market::NotReady { .. } => &[],
    };
    let exact = offers.iter().find(|offer| offer.key == *key);
    let like = exact.or_else(|| offers.iter().find(|offer| offer.key.server_type == key.server_type));
    like.and_then(|offer| offer.hourly_price).or(fallback)
}

fn others(snapshot: &Snapshot, plan: &Plan) -> Vec<OtherAgent> {
    let ours: BTreeSet<AgentId> = plan.machines.iter().filter_map(|machine| machine.agent).collect();
    let mut running: HashMap<AgentId, u32> = HashMap::new();
    for agent in snapshot.queue.running.iter().filter_map(|task| task.agent) {
        *running.entry(agent).or_default() += 1;
    }
    let connected = |last: Option<Timestamp>| last.is_some_and(|last| age(snapshot.now, last) < SEEN_LATELY);
    let others = snapshot.agents.iter().filter(|agent| !ours.contains(&agent.id) && connected(agent.last_contact));
    others
        .map(|agent| OtherAgent {
            name: agent.name.clone(),
            agent: agent.id.0,
            running: running.get(&agent.id).copied().unwrap_or(0),
            slots: agent.capacity,
            cordoned: agent.no_schedule,
        })
        .collect()
}
