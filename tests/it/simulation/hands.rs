//! What people do while Picus runs: push work, bring and take agents of their own, pause the queue, meddle by hand.

use std::time::Duration;

use picus::model::ids::{AgentId, TaskId};
use picus::world::{AgentView, World, agent, task};
use rand::RngExt;
use rand::rngs::StdRng;

use super::setup::{INSTALLATION, Setup, pick};
use super::watch::{By, Watch};

/// A heartbeat that had read the record before writes a cordon back within this.
const WRITE_BACK: Duration = Duration::from_secs(11);

/// What was put into the queue.
#[derive(Default)]
pub struct Work {
    /// Tasks that some pool could take.
    pub ours: Vec<TaskId>,
    pub longest: Duration,
    number: u32,
}

impl Work {
    /// A pipeline: a few tasks for a pool, some of which need others, share a group, or fail.
    pub fn push(&mut self, world: &World, rng: &mut StdRng, setup: &Setup) {
        let pool = pick(rng, &setup.pools);
        let count = rng.random_range(1..=(pool.max * pool.slots + 1));
        let group = rng.random_bool(0.15).then(|| (format!("group-{}", pool.name), rng.random_range(1..=2)));
        let mut pipeline: Vec<TaskId> = Vec::new();
        for _ in 0..count {
            self.number += 1;
            let name = format!("t{}", self.number);
            // Some leave it to the server which architecture they get.
            let mut task = if rng.random_bool(0.2) { task(name).label("type", pool.kind) } else { pool.task(name) };
            let takes = if rng.random_bool(0.1) { rng.random_range(300..=2400) } else { rng.random_range(5..=300) };
            let takes = Duration::from_secs(takes);
            self.longest = self.longest.max(takes);
            task = task.takes(takes);
            if let Some((group, limit)) = &group {
                task = task.group(group.clone(), *limit);
            }
            if let Some(other) = (!pipeline.is_empty()).then(|| pick(rng, &pipeline).clone()) {
                task = if rng.random_bool(0.4) { task.needs(&other) } else { task.beside(&other) };
            }
            if rng.random_bool(0.1) {
                task = task.fails();
            }
            match rng.random_range(0..10) {
                0 => task = task.always(),
                1 => task = task.on_failure(),
                _ => {}
            }
            pipeline.push(world.push(task));
        }
        self.ours.extend(pipeline);
    }

    /// Tasks that have not ended.
    pub fn open(&self, world: &World) -> usize {
        let open = |id: &&TaskId| world.task(id).is_some_and(|task| !task.is_done());
        self.ours.iter().filter(open).count()
    }
}

/// Agents and records of others that are there from the beginning, some with names that look like ours.
pub fn settle_others(world: &World, rng: &mut StdRng, watch: &mut Watch) {
    let kept = world.add_agent(agent("office").label("type", "office").slots(2));
    watch.foreign.insert(kept, false);
    let alike = [
        format!("{INSTALLATION}-default-builder1"),
        format!("{INSTALLATION}-amd64-bcdfghjk"),
        format!("{INSTALLATION}-2-default-bcdfghjk"),
        INSTALLATION.to_owned(),
    ];
    for name in alike.iter().filter(|_| rng.random_bool(0.5)) {
        watch.foreign.insert(world.add_record(name), false);
    }
    if rng.random_bool(0.2) {
        // More than a page of them.
        for number in 0..55 {
            watch.foreign.insert(world.add_record(&format!("desk-{number}")), false);
        }
    }
    watch.absorb(world, By::Hand);
}

/// Something that people do with the queue and their own agents.
pub fn live(world: &World, rng: &mut StdRng, setup: &Setup, watch: &mut Watch, work: &mut Work) {
    match rng.random_range(0..10) {
        0..5 => work.push(world, rng, setup),
        5 => {
            // Nobody of ours takes these.
            let odd = [("platform", "windows/amd64"), ("type", "gpu"), ("hostname", "build7")];
            let (key, value) = *pick(rng, &odd);
            world.push(task("odd").label(key, value).takes(Duration::from_mins(1)));
        }
        6 => world.pause_queue(),
        7 => world.resume_queue(),
        8 => {
            let pool = pick(rng, &setup.pools);
            let slots = rng.random_range(1..=3);
            let comes = agent("theirs").platform(pool.platform).slots(slots);
            let comes = if rng.random_bool(0.7) { comes.label("type", pool.kind) } else { comes };
            watch.foreign.insert(world.add_agent(comes), false);
        }
        _ => leave(world, rng, watch),
    }
    watch.absorb(world, By::Hand);
}

/// An agent of others goes; what it works on is lost.
fn leave(world: &World, rng: &mut StdRng, watch: &mut Watch) {
    let theirs: Vec<AgentId> = watch.foreign.keys().copied().collect();
    let gone = *pick(rng, &theirs);
    if watch.foreign.len() > 1 {
        world.kill_agent(gone);
        if rng.random_bool(0.5) && world.delete_record_by_hand(gone) {
            watch.foreign.remove(&gone);
        }
    }
}

/// Somebody meddles with our agents and servers, or with others' agents. Not `between` two calls of a step that sets the
/// same flag: there no cordon of an administrator's can be told from Picus's own.
pub fn meddle(world: &World, rng: &mut StdRng, setup: &Setup, watch: &mut Watch, between: bool) {
    let agents = world.agents();
    let any = pick(rng, &agents).clone();
    let ours: Vec<AgentView> = agents.into_iter().filter(|agent| !watch.foreign.contains_key(&agent.id)).collect();
    let chosen = if ours.is_empty() || rng.random_bool(0.15) { any } else { pick(rng, &ours).clone() };
    let foreign = watch.foreign.contains_key(&chosen.id);
    match rng.random_range(if between { 3 } else { 0 }..10) {
        0..3 if !chosen.no_schedule => {
            world.cordon(chosen.id);
            watch.touch(&chosen.name);
            watch.absorb(world, By::Hand);
            world.advance(WRITE_BACK);
            watch.absorb(world, By::Hand);
            let kept = world.agent(chosen.id).is_some_and(|agent| agent.no_schedule);
            if foreign {
                watch.foreign.insert(chosen.id, kept);
            } else if kept {
                watch.admin_cordons.insert(chosen.id);
            }
        }
        3..5 if chosen.no_schedule => {
            world.uncordon(chosen.id);
            watch.touch(&chosen.name);
            watch.admin_cordons.remove(&chosen.id);
            if foreign {
                watch.foreign.insert(chosen.id, false);
            }
        }
        5 if !foreign && setup.shared_secret.is_none() => {
            let name = format!("renamed-{}", chosen.id);
            watch.note(world.now(), &format!("{} is renamed to {name}", chosen.name));
            watch.rename(&chosen.name, &name);
            world.rename(chosen.id, &name);
        }
        6 if !foreign => {
            watch.touch(&chosen.name);
            world.kill_agent(chosen.id);
        }
        7 if !foreign => {
            watch.touch(&chosen.name);
            world.delete_record_by_hand(chosen.id);
        }
        8 => {
            let servers = world.servers();
            if !servers.is_empty() {
                let server = pick(rng, &servers);
                watch.touch(&server.name);
                world.delete_server_by_hand(&server.id);
            }
        }
        9 => {
            let servers = world.servers();
            if !servers.is_empty() {
                let time = Duration::from_secs(rng.random_range(30..=600));
                world.lock_server(&pick(rng, &servers).id, time);
            }
        }
        _ => {}
    }
    watch.absorb(world, By::Hand);
}

/// At times an administrator lets one of our agents that is cordoned take tasks again.
pub fn second_thoughts(world: &World, rng: &mut StdRng, watch: &mut Watch) {
    let agents = world.agents().into_iter();
    let cordoned: Vec<AgentView> =
        agents.filter(|agent| agent.no_schedule && !watch.foreign.contains_key(&agent.id)).collect();
    if !cordoned.is_empty() && rng.random_bool(0.2) {
        let chosen = pick(rng, &cordoned);
        world.uncordon(chosen.id);
        watch.touch(&chosen.name);
        watch.admin_cordons.remove(&chosen.id);
        watch.absorb(world, By::Hand);
    }
}
