//! The queue's rules, as in `server/queue/fifo.go`: what waits for what, who is given what, what comes back.
//!
//! The real queue looks every 100 ms. Here a look is put on the agenda whenever something changed, 100 ms later, so that
//! for a moment after a push the queue shows itself unsorted, as the real one does.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use rand::RngExt;

use super::{LabelSet, Pipeline, Task};
use crate::model::ids::{AgentId, TaskId};
use crate::world::history::Event;
use crate::world::machine::{Process, ProcessId};
use crate::world::state::{Due, State};
use crate::world::task::{Outcome, TaskSpec, TaskState};

/// `processTimeInterval`
const TICK: Duration = Duration::from_millis(100);
/// A run is given up a minute after its agent last extended it; seen 60 to 80 s after a machine's death.
const EXPIRY: Duration = Duration::from_mins(1);
/// The spread of that.
const EXPIRY_SPREAD: Duration = Duration::from_secs(20);

/// Free slots of one agent that polls.
struct Polling {
    process: ProcessId,
    agent: i64,
    labels: LabelSet,
    free: u32,
}

impl State {
    /// Puts a task at the end of the queue.
    pub(in crate::world) fn push(&mut self, spec: TaskSpec) -> TaskId {
        let pipeline = self.pipeline_of(&spec);
        let server = &mut self.woodpecker;
        server.last_task += 1;
        let number = server.last_task;
        let mut labels = spec.labels.clone();
        let mut pid = 1;
        if let Some(found) = server.pipelines.get_mut(&pipeline) {
            found.tasks += 1;
            pid = found.tasks;
            labels.set("woodpecker-ci.org/branch", "main");
            labels.set("woodpecker-ci.org/event", "push");
            labels.set("woodpecker-ci.org/repo-full-name", found.repo.clone());
            labels.set("woodpecker-ci.org/repo-id", found.repo_id.to_string());
        }
        labels.set("repo", spec.repo.clone());
        labels.set("org-id", spec.organisation.to_string());
        let mut dep_status = BTreeMap::new();
        for needed in &spec.needs {
            if let Some((_, Task { state: TaskState::Done { outcome, .. }, .. })) = server.task(needed) {
                dep_status.insert(needed.0.clone(), outcome.word());
            }
        }
        let (id, name) = (TaskId(number.to_string()), spec.name.clone());
        let label_set = server.label_sets.number(&labels);
        let state = TaskState::Pending;
        let task = Task { spec, pid, labels, label_set, dep_status, agent: None, pipeline, run: 0, state };
        server.tasks.insert(number, task);
        server.pending.push_back(number);
        server.publish(pipeline, "pending");
        self.tell(Event::TaskQueued { task: id.clone(), name });
        self.queue_changed();
        id
    }

    /// The pipeline of the tasks that it needs or lies beside, or a new one.
    fn pipeline_of(&mut self, spec: &TaskSpec) -> i64 {
        let now = self.now;
        let server = &mut self.woodpecker;
        let mut relatives = spec.beside.iter().chain(&spec.needs);
        if let Some((_, found)) = relatives.find_map(|other| server.task(other)) {
            return found.pipeline;
        }
        let repos = i64::try_from(server.repos.len()).unwrap_or(i64::MAX);
        let repo = server.repos.entry(spec.repo.clone()).or_insert((repos.saturating_add(1), 0));
        repo.1 += 1;
        let id = server.pipelines.last_key_value().map_or(1, |(last, _)| last + 1);
        let pipeline = Pipeline { number: repo.1, repo_id: repo.0, repo: spec.repo.clone(), created: now, tasks: 0 };
        server.pipelines.insert(id, pipeline);
        id
    }

    /// Something changed that the ticker may act on.
    pub(in crate::world) fn queue_changed(&mut self) {
        if !self.woodpecker.tick_is_due {
            self.woodpecker.tick_is_due = true;
            self.schedule(TICK, Due::QueueTick);
        }
    }

    /// One look of the ticker. While the queue is paused it stands still.
    pub(in crate::world) fn queue_tick(&mut self) {
        self.woodpecker.tick_is_due = false;
        if self.woodpecker.paused {
            return;
        }
        self.resubmit_expired();
        self.sort_waiting();
        self.assign();
    }

    /// Runs whose agent is dead go back to the front.
    fn resubmit_expired(&mut self) {
        for number in std::mem::take(&mut self.woodpecker.expired) {
            self.woodpecker.running.remove(&number);
            if let Some(task) = self.woodpecker.tasks.get_mut(&number) {
                task.state = TaskState::Pending;
                let name = task.spec.name.clone();
                self.woodpecker.pending.push_front(number);
                self.tell(Event::TaskRequeued { task: TaskId(number.to_string()), name });
            }
        }
    }

    /// Tasks whose dependencies are still pending or running wait; those whose dependencies are gone are pending.
    fn sort_waiting(&mut self) {
        let server = &mut self.woodpecker;
        let waiting = std::mem::take(&mut server.waiting);
        server.pending.extend(waiting);
        let in_queue: BTreeSet<u64> = server.pending.iter().chain(&server.running).copied().collect();
        let mut ready = Vec::new();
        for number in std::mem::take(&mut server.pending) {
            let Some(task) = server.tasks.get_mut(&number) else { continue };
            let waits = task.spec.needs.iter().any(|id| id.0.parse().is_ok_and(|number| in_queue.contains(&number)));
            if waits {
                task.state = TaskState::Waiting;
                server.waiting.push(number);
            } else {
                task.state = TaskState::Pending;
                ready.push(number);
            }
        }
        server.pending = ready.into();
    }

    /// Gives pending tasks, in order, to the agents that fit best; equals are drawn.
    fn assign(&mut self) {
        let mut polling = self.polling();
        // Slots only get fewer in one look, so what fitted none of them fits none later.
        let mut hopeless = HashSet::new();
        let mut index = 0;
        while !polling.is_empty()
            && let Some(number) = self.woodpecker.pending.get(index).copied()
        {
            let Some(labels) = self.woodpecker.tasks.get(&number).map(|task| task.label_set) else { break };
            if hopeless.contains(&labels) || !self.may_run_now(number) {
                index += 1;
                continue;
            }
            let Some(chosen) = self.best(&polling, labels) else {
                hopeless.insert(labels);
                index += 1;
                continue;
            };
            self.woodpecker.pending.remove(index);
            let Some(slot) = polling.get_mut(chosen) else { break };
            if self.start(number, slot) {
                slot.free -= 1;
                if slot.free == 0 {
                    polling.swap_remove(chosen);
                }
            }
        }
    }

    fn polling(&self) -> Vec<Polling> {
        let agents = self.woodpecker.agents.values().filter_map(|record| {
            let process = record.process?;
            let running = self.processes.get(&process)?;
            let free = running.slots.saturating_sub(u32::try_from(running.tasks.len()).unwrap_or(u32::MAX));
            let free = match (record.no_schedule, record.one_more) {
                (false, _) => free,
                (true, true) => free.min(1),
                (true, false) => 0,
            };
            (free > 0).then_some(Polling { process, agent: record.id, labels: running.labels, free })
        });
        agents.collect()
    }

    /// Idle slots that poll, as `worker_count` counts them.
    pub(super) fn idle_slots(&self) -> u32 {
        self.polling().iter().map(|agent| agent.free).sum()
    }

    /// `canRunConcurrent`: the group has room that no earlier pipeline has a right to.
    fn may_run_now(&self, number: u64) -> bool {
        let server = &self.woodpecker;
        let Some(task) = server.tasks.get(&number) else { return false };
        if task.spec.limit == 0 || task.spec.group.is_empty() {
            return true;
        }
        let limit = usize::try_from(task.spec.limit).unwrap_or(usize::MAX);
        let member = |number: &u64| server.tasks.get(number).filter(|other| other.spec.group == task.spec.group);
        let running = server.running.iter().filter_map(member).count();
        let place = |task: &Task| {
            let created = server.pipelines.get(&task.pipeline).map(|pipeline| pipeline.created.as_second());
            (created, task.spec.name.clone())
        };
        let mine = place(task);
        let queued = server.pending.iter().chain(&server.waiting).filter_map(member);
        let ahead = queued.filter(|other| other.pipeline != task.pipeline && place(other) < mine).count();
        running + ahead < limit
    }

    fn best(&mut self, polling: &[Polling], task: LabelSet) -> Option<usize> {
        let mut best = Vec::new();
        let mut best_score = None;
        for (index, agent) in polling.iter().enumerate() {
            let Some(score) = self.woodpecker.label_sets.fit(agent.labels, task) else { continue };
            if best_score.is_none_or(|best| score > best) {
                best_score = Some(score);
                best.clear();
            }
            if best_score == Some(score) {
                best.push(index);
            }
        }
        match best.as_slice() {
            [] => None,
            [only] => Some(*only),
            several => several.get(self.rng.random_range(0..several.len())).copied(),
        }
    }

    /// Hands a task out. `false`: it had to be skipped, the slot is still free.
    fn start(&mut self, number: u64, slot: &Polling) -> bool {
        let now = self.now;
        let Some(task) = self.woodpecker.tasks.get_mut(&number) else { return false };
        task.agent = Some(slot.agent);
        if !task.should_run() {
            self.finish(number, Outcome::Skipped);
            return false;
        }
        task.run += 1;
        task.state = TaskState::Running { agent: AgentId(slot.agent), since: now };
        let (run, takes, name, pipeline) = (task.run, task.spec.takes, task.spec.name.clone(), task.pipeline);
        self.woodpecker.running.insert(number);
        self.work_until_now(slot.agent);
        self.touch_work(slot.agent);
        if let Some(process) = self.processes.get_mut(&slot.process) {
            process.tasks.push(number);
        }
        let mut agent = String::new();
        if let Some(record) = self.woodpecker.agents.get_mut(&slot.agent) {
            record.one_more = false;
            agent.clone_from(&record.name);
        }
        self.schedule(takes, Due::TaskEnds { task: number, run });
        self.woodpecker.publish(pipeline, "running");
        self.tell(Event::TaskStarted { task: TaskId(number.to_string()), name, agent });
        true
    }

    /// A run has done its work, unless its agent died before.
    pub(in crate::world) fn task_ends(&mut self, number: u64, run: u32) {
        let Some(task) = self.woodpecker.tasks.get(&number).filter(|task| task.run == run) else { return };
        let outcome = if task.spec.fails { Outcome::Failed } else { Outcome::Succeeded };
        let holds = |process: &&mut Process| process.tasks.contains(&number);
        let Some(agent) = self.processes.values_mut().find(holds).map(|process| process.agent) else { return };
        self.work_until_now(agent);
        if let Some(process) = self.processes.values_mut().find(holds) {
            process.tasks.retain(|other| *other != number);
        }
        self.finish(number, outcome);
    }

    /// A run whose agent is dead is given up at the next tick.
    pub(in crate::world) fn task_expires(&mut self, number: u64, run: u32) {
        if self.woodpecker.tasks.get(&number).is_some_and(|task| task.run == run && task.state.is_running()) {
            self.woodpecker.expired.push(number);
            self.queue_changed();
        }
    }

    /// The server loses contact to the agent of these runs.
    pub(in crate::world) fn orphan_runs(&mut self, numbers: &[u64]) {
        for number in numbers {
            let Some(run) = self.woodpecker.tasks.get(number).map(|task| task.run) else { continue };
            let wait = EXPIRY + self.draw_up_to(EXPIRY_SPREAD);
            self.schedule(wait, Due::TaskExpires { task: *number, run });
        }
    }

    fn finish(&mut self, number: u64, outcome: Outcome) {
        let now = self.now;
        let server = &mut self.woodpecker;
        server.running.remove(&number);
        let Some(task) = server.tasks.get_mut(&number) else { return };
        let id = TaskId(number.to_string());
        task.state = TaskState::Done { outcome, at: now };
        let (name, pipeline, agent) = (task.spec.name.clone(), task.pipeline, task.agent);
        for other in server.pending.iter().chain(&server.waiting).chain(&server.running) {
            if let Some(other) = server.tasks.get_mut(other)
                && other.spec.needs.contains(&id)
            {
                other.dep_status.insert(id.0.clone(), outcome.word());
            }
        }
        server.publish(pipeline, outcome.word());
        if let Some(agent) = agent {
            self.touch_work(agent);
        }
        self.tell(Event::TaskDone { task: id, name, outcome });
        self.queue_changed();
    }
}

impl Task {
    /// `ShouldRun`: whether it is run or skipped, from how its dependencies ended.
    fn should_run(&self) -> bool {
        let on = |word: &str| self.spec.run_on.iter().any(|other| other == word);
        let on_success = self.spec.run_on.is_empty() || on("success");
        let succeeded = |status: &&str| *status == Outcome::Succeeded.word();
        match (on_success, on("failure")) {
            (true, true) => true,
            (true, false) => self.dep_status.values().all(succeeded),
            (false, true) => !self.dep_status.values().any(succeeded),
            (false, false) => false,
        }
    }
}
