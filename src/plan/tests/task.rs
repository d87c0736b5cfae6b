//! Tasks and launches under way, with verbs.

use jiff::Timestamp;

use super::world::{Part, World, ago, labels, offer};
use crate::model::ids::{AgentId, PoolName, TaskId};
use crate::model::snapshot::Launching;
use crate::model::task::Task;

/// A pending task of repository `acme/app`.
pub fn task(id: &str) -> TaskBuilder {
    let labels = labels("repo=acme/app,org-id=3");
    let task = Task {
        id: TaskId::from(id),
        name: format!("w{id}"),
        labels,
        dependencies: Vec::new(),
        agent: None,
        pipeline: 1,
        pipeline_number: 1,
        concurrency_limit: None,
        concurrency_group: String::new(),
        created: Some(ago("1m")),
    };
    TaskBuilder { task, place: Place::Pending, stuck: None }
}

enum Place {
    Pending,
    Waiting,
    RunningOn(AgentId),
}

pub struct TaskBuilder {
    task: Task,
    place: Place,
    stuck: Option<Timestamp>,
}

impl TaskBuilder {
    pub fn labels(mut self, list: &str) -> Self {
        for (key, value) in labels(list).iter() {
            self.task.labels.set(key, value);
        }
        self
    }

    pub fn needs(mut self, ids: &[&str]) -> Self {
        self.task.dependencies = ids.iter().map(|id| TaskId::from(*id)).collect();
        self
    }

    /// The server has sorted it out of the pending ones.
    pub fn waiting(mut self) -> Self {
        self.place = Place::Waiting;
        self
    }

    pub fn running_on(mut self, agent: i64) -> Self {
        self.place = Place::RunningOn(AgentId(agent));
        self
    }

    pub fn group(mut self, group: &str, limit: u32) -> Self {
        group.clone_into(&mut self.task.concurrency_group);
        self.task.concurrency_limit = Some(limit);
        self
    }

    /// Of another pipeline, that was created so long ago.
    pub fn pipeline(mut self, pipeline: i64, created: &str) -> Self {
        self.task.pipeline = pipeline;
        self.task.created = Some(ago(created));
        self
    }

    /// A matching agent has been idle beside it for so long.
    pub fn passed_over_for(mut self, words: &str) -> Self {
        self.stuck = Some(ago(words));
        self
    }
}

impl Part for TaskBuilder {
    fn add(mut self, world: &mut World) {
        if let Some(since) = self.stuck {
            world.memory.passed_over.insert(self.task.id.clone(), since);
        }
        let queue = &mut world.snapshot.queue;
        match self.place {
            Place::Pending => queue.pending.push(self.task),
            Place::Waiting => queue.waiting.push(self.task),
            Place::RunningOn(agent) => {
                self.task.agent = Some(agent);
                queue.running.push(self.task);
            }
        }
    }
}

/// A launch of pool `p1` that is under way.
pub fn launching(short: &'static str) -> LaunchingBuilder {
    LaunchingBuilder { short, since: ago("30s") }
}

pub struct LaunchingBuilder {
    short: &'static str,
    since: Timestamp,
}

impl LaunchingBuilder {
    pub fn since(mut self, words: &str) -> Self {
        self.since = ago(words);
        self
    }
}

impl Part for LaunchingBuilder {
    fn add(self, world: &mut World) {
        let name = world.name("p1", self.short);
        world.snapshot.in_flight.launches.push(Launching {
            pool: PoolName::from("p1"),
            name,
            offer: offer("cx23").key,
            since: self.since,
            agent: None,
        });
    }
}
