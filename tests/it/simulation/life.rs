//! A life: hours in which anything happens, then the faults end, then a quiet time and a last piece of work.

use std::time::Duration;

use picus::clock::Clock;
use picus::model::{age, later};
use picus::reconcile::Pass;
use picus::world::{Endpoint, World};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::{Builder, Runtime};

use super::hands::{self, Work};
use super::process::{Process, Start};
use super::setup::{Setup, pick};
use super::trouble;
use super::watch::{By, Watch};

/// Passes of the first part.
const PASSES: u32 = 220;
/// The longest pause after failed launches is an hour, and so is the longest after a cordon by hand that billing keeps.
const NOTHING_MOVES: Duration = Duration::from_mins(80);
/// Everything must be quiet so long after the faults, besides the time that the work itself takes.
const RECOVERY: Duration = Duration::from_hours(4);

pub struct Life {
    setup: Setup,
    rng: StdRng,
    clock: Clock,
    world: World,
    work: Work,
    watch: Watch,
    processes: Vec<Process>,
    started: usize,
    /// Last, so that the world can still stop its servers.
    _runtime: Runtime,
}

impl Life {
    /// `told`: so many lines are told of a life that fails.
    pub fn new(seed: u64, told: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let setup = Setup::draw(seed, &mut rng);
        let clock = Clock::manual("2026-12-01T08:00:00Z".parse().expect("a time"));
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let world = runtime.block_on(World::start(clock.clone(), setup.world_options())).expect("loopback");
        let mut watch = Watch::new(&setup, told);
        hands::settle_others(&world, &mut rng, &mut watch);
        Self {
            setup,
            rng,
            clock,
            world,
            work: Work::default(),
            watch,
            processes: Vec::new(),
            started: 0,
            _runtime: runtime,
        }
    }

    pub fn live(mut self) {
        for _ in 0..PASSES {
            self.happen();
            let gap = self.gap();
            self.world.advance(gap);
            self.passes();
        }
        self.mend();
        self.recover();
        self.count_launches();
        self.rest();
        self.last_work();
        for process in self.processes {
            process.kill();
        }
        self.world.shutdown();
    }

    fn note(&mut self, what: &str) {
        self.watch.note(self.clock.now(), what);
    }

    /// Mostly some seconds, at times minutes.
    fn gap(&mut self) -> Duration {
        let poll = self.setup.poll.as_secs();
        Duration::from_secs(match self.rng.random_range(0..10) {
            0..2 => self.rng.random_range(1..=5),
            2..8 => self.rng.random_range(poll..=2 * poll),
            8 => self.rng.random_range(30..=90),
            _ => self.rng.random_range(60..=300),
        })
    }

    /// What goes on between two passes.
    fn happen(&mut self) {
        let Self { setup, rng, world, work, watch, .. } = self;
        let busy = work.open(world) > 40;
        if !busy && rng.random_bool(0.2) {
            hands::live(world, rng, setup, watch, work);
        }
        if rng.random_bool(0.05 * setup.trouble) {
            hands::meddle(world, rng, setup, watch, false);
        }
        if rng.random_bool(0.12 * setup.trouble) {
            let (what, fault) = trouble::draw(rng, setup);
            watch.note(world.now(), &format!("fault: {what}"));
            world.fault(fault);
        }
        if rng.random_bool(0.02 * setup.trouble) {
            self.shortage();
        }
    }

    /// The project has less to give.
    fn shortage(&mut self) {
        match self.rng.random_range(0..4) {
            0..2 => {
                let offers = [("cx23", None), ("cx23", Some("nbg1")), ("cax11", None), ("cx53", None), ("cx33", None)];
                let (server_type, place) = *pick(&mut self.rng, &offers);
                let time = Duration::from_secs(self.rng.random_range(60..=1800));
                self.note(&format!("{server_type} is sold out in {place:?} for {} s", time.as_secs()));
                self.world.sell_out(server_type, place, time);
            }
            2 => {
                let limit = self.rng.random_range(0..=4);
                self.note(&format!("the project may have {limit} servers"));
                self.world.set_server_limit(limit);
            }
            _ => self.world.set_server_limit(100),
        }
    }

    /// Every process looks once; some are slow, some are killed, some come.
    fn passes(&mut self) {
        if self.processes.is_empty() {
            self.begin();
        }
        if self.setup.pairs && self.processes.len() == 1 && self.rng.random_bool(0.05) {
            self.begin();
        } else if self.processes.len() > 1 && self.rng.random_bool(0.1) {
            let gone = self.rng.random_range(0..2);
            self.end(gone);
        }
        let mut looked = Vec::new();
        let mut ended = Vec::new();
        for index in 0..self.processes.len() {
            match self.processes[index].start() {
                Start::Done => looked.push(index),
                Start::Waits => {}
                Start::Ended(why) => {
                    self.note(&format!("the start of {} ended: {}", self.processes[index].name, first_line(&why)));
                    ended.push(index);
                }
            }
        }
        self.watch.acting = self.watch.acting.max(looked.len());
        let mut has_steps = false;
        for &index in &looked {
            has_steps |= self.pass(index);
        }
        if self.rng.random_bool(if has_steps { 0.4 } else { 0.05 }) {
            self.between(&looked);
        }
        let die = self.setup.restarts && self.rng.random_bool(0.04);
        for &index in &looked {
            let process = &self.processes[index];
            if die || self.rng.random_bool(0.2) {
                process.settle_for(&self.world, self.rng.random_range(0..8));
            } else {
                process.settle();
            }
        }
        let alive = self.processes.len();
        self.watch.check(&self.world);
        if die && !looked.is_empty() {
            self.end(0);
        }
        for index in ended.into_iter().rev() {
            if index < self.processes.len() && !looked.contains(&index) {
                self.end(index.min(self.processes.len() - 1));
            }
        }
        if alive < 2 {
            self.watch.acting = 1;
        }
    }

    /// The world moves on between a look and its steps, or in the middle of them.
    fn between(&mut self, looked: &[usize]) {
        for &index in looked {
            self.processes[index].settle_for(&self.world, self.rng.random_range(0..5));
        }
        self.watch.check(&self.world);
        let Self { setup, rng, world, work, watch, .. } = self;
        watch.note(world.now(), "meanwhile");
        if rng.random_bool(0.7) {
            work.push(world, rng, setup);
        }
        if rng.random_bool(0.2 * setup.trouble / 3.0) {
            hands::meddle(world, rng, setup, watch, true);
        }
        hands::second_thoughts(world, rng, watch);
        world.advance(Duration::from_millis(rng.random_range(100..=3000)));
        watch.absorb(world, By::Hand);
    }

    fn begin(&mut self) {
        self.started += 1;
        let name = format!("picus{}", self.started);
        self.note(&format!("{name} starts"));
        let settings = self.setup.settings(&self.world);
        self.processes.push(Process::new(name, settings, &self.clock, self.rng.random()));
    }

    fn end(&mut self, index: usize) {
        let process = self.processes.remove(index);
        self.note(&format!("{} is killed", process.name));
        process.kill();
        // A call that was on its way arrives or not, but not later than this.
        std::thread::sleep(Duration::from_millis(2));
        self.watch.check(&self.world);
    }

    /// Looks and begins; whether there is anything to do.
    fn pass(&mut self, index: usize) -> bool {
        let process = &self.processes[index];
        let mut has_steps = false;
        let line = match process.pass() {
            Pass::Skipped { why } => format!("{} skips: {}", process.name, first_line(&why)),
            Pass::Done { plan, .. } if plan.steps.is_empty() => format!("{} looks", process.name),
            Pass::Done { plan, .. } => {
                has_steps = true;
                let steps: Vec<String> =
                    plan.steps.iter().map(|step| format!("{} ({})", step.action, step.reason)).collect();
                format!("{}: {}", process.name, steps.join("; "))
            }
        };
        self.note(&line);
        has_steps
    }

    /// A pass without anything special, so long after the one before.
    fn plain_pass(&mut self, gap: Duration) {
        self.world.advance(gap);
        if self.processes.is_empty() {
            self.begin();
        }
        match self.processes[0].start() {
            Start::Done => {}
            Start::Waits => return,
            Start::Ended(why) => self.watch.fail(&format!("it does not start though nothing is wrong: {why}")),
        }
        self.pass(0);
        self.processes[0].settle();
        self.watch.check(&self.world);
        self.watch.acting = 1;
    }

    /// Nothing goes wrong any more, and nothing new comes.
    fn mend(&mut self) {
        self.note("faults end");
        while self.processes.len() > 1 {
            self.processes[1].settle();
            self.end(1);
        }
        if let Some(process) = self.processes.first() {
            process.settle();
        }
        self.world.mend_all();
        self.world.restock();
        self.world.set_server_limit(100);
        self.world.resume_queue();
        self.watch.check(&self.world);
        self.watch.acting = 1;
    }

    /// Until every task of ours has ended and only the minimum is left.
    fn recover(&mut self) {
        let mended = self.clock.now();
        let work = self.work.longest.saturating_mul(u32::try_from(self.work.open(&self.world)).unwrap_or(u32::MAX));
        let deadline = later(mended, RECOVERY + work);
        loop {
            let gap = Duration::from_secs(self.rng.random_range(10..=60));
            self.plain_pass(gap);
            let now = self.clock.now();
            let Err(what) = self.is_quiet() else { return };
            let moved = self.watch.tally.moved.unwrap_or(mended).max(mended);
            let runs = self.world.agents().iter().any(|agent| !agent.running.is_empty());
            let stalls = self.work.open(&self.world) > 0 && !runs && age(now, moved) > NOTHING_MOVES;
            self.watch.demand(!stalls, || format!("tasks wait and nothing moves: {what}"));
            self.watch.demand(now < deadline, || format!("it does not become quiet: {what}"));
        }
    }

    /// Every task of ours has ended, and only the minimum is left. Else what is missing.
    fn is_quiet(&self) -> Result<(), String> {
        let open: Vec<_> = self.work.ours.iter().map(|id| (id, self.world.task(id))).collect();
        let open: Vec<_> =
            open.into_iter().filter(|(_, task)| task.as_ref().is_none_or(|task| !task.is_done())).collect();
        if !open.is_empty() {
            return Err(format!("tasks are open: {open:?}"));
        }
        let mut expected = 0;
        for pool in &self.setup.pools {
            let servers = Watch::servers_of(&self.world, pool.name);
            if servers.len() != pool.min as usize || !servers.iter().all(|server| server.connected) {
                return Err(format!("pool {} has {servers:?}, its minimum is {}", pool.name, pool.min));
            }
            expected += servers.len();
        }
        let agents = self.world.agents().into_iter();
        let ours: Vec<_> = agents.filter(|agent| self.watch.is_ours(agent)).collect();
        if ours.len() != expected || ours.iter().any(|agent| agent.no_schedule) {
            return Err(format!("{expected} instances, and these records: {ours:?}"));
        }
        Ok(())
    }

    /// Each machine that connected was launched for something.
    fn count_launches(&self) {
        let min: u32 = self.setup.pools.iter().map(|pool| pool.min).sum();
        let tally = self.watch.tally;
        let needed = min as usize + self.work.ours.len() + tally.requeued + tally.by_hand;
        let most = if self.setup.pairs { 2 * needed } else { needed };
        self.watch.demand(tally.connected <= most, || format!("{tally:?} for {} tasks", self.work.ours.len()));
    }

    /// For more than an hour nothing happens, and nothing is done.
    fn rest(&mut self) {
        let writes = |world: &World| {
            let writes = [
                Endpoint::CreateAgent,
                Endpoint::PatchAgent,
                Endpoint::DeleteAgent,
                Endpoint::CreateServer,
                Endpoint::DeleteServer,
            ];
            writes.map(|endpoint| world.calls(endpoint))
        };
        self.note("rest");
        let before = writes(&self.world);
        for _ in 0..15 {
            self.plain_pass(Duration::from_mins(5));
        }
        let after = writes(&self.world);
        self.watch.demand(before == after, || format!("it does something at rest: {before:?} calls became {after:?}"));
    }

    /// A little work for each pool: it starts within a boot, takes no more machines than it needs, and they go again.
    fn last_work(&mut self) {
        self.note("last work");
        let begun = self.clock.now();
        let launched = self.watch.tally.launched;
        let mut needed = 0;
        let mut tasks = Vec::new();
        for pool in self.setup.pools.clone() {
            let count = self.rng.random_range(1..=pool.max * pool.slots);
            needed += count.div_ceil(pool.slots).saturating_sub(pool.min) as usize;
            for number in 0..count {
                let task = pool.task(format!("last-{}-{number}", pool.name)).takes(Duration::from_mins(10));
                tasks.push(self.world.push(task));
            }
        }
        self.watch.absorb(&self.world, By::Hand);
        let pass = Duration::from_secs(10);
        let in_time = later(begun, self.setup.boot_time + self.setup.boot_spread + 3 * pass);
        while self.clock.now() < in_time {
            self.plain_pass(pass);
        }
        for task in &tasks {
            let state = self.world.task(task);
            let runs = state.as_ref().is_some_and(|state| state.is_running() || state.is_done());
            self.watch.demand(runs, || format!("task {task} has not started within a boot: {state:?}"));
        }
        let launched = self.watch.tally.launched - launched;
        self.watch.demand(launched <= needed, || format!("{launched} launches where {needed} were needed"));
        self.work.ours.extend(tasks);
        let idle = self.setup.pools.iter().map(|pool| {
            if pool.by_hour { Duration::from_mins(62) } else { pool.idle_timeout + Duration::from_mins(3) }
        });
        let gone = later(begun, Duration::from_mins(15) + idle.max().unwrap_or_default());
        while self.is_quiet().is_err() && self.clock.now() < gone {
            self.plain_pass(Duration::from_secs(30));
        }
        if let Err(what) = self.is_quiet() {
            self.watch.fail(&format!("machines outstay their time: {what}"));
        }
    }
}

/// The beginning of a text that may be long.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(150).collect()
}
