//! A task: an entry of Woodpecker's queue (a workflow run), as the planner sees it.

use jiff::Timestamp;

use super::ids::{AgentId, TaskId};
use super::labels::Labels;

/// An entry of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The task's id; unrelated to any agent's id.
    pub id: TaskId,
    /// Name of the workflow; empty before Woodpecker 3.10.
    pub name: String,
    /// Labels as the server has them, internal ones (`woodpecker-ci.org/…`) included.
    pub labels: Labels,
    /// Ids of the tasks that must have ended before.
    pub dependencies: Vec<TaskId>,
    /// The agent it runs on, or ran on before it came back to the queue. `None` for 0.
    pub agent: Option<AgentId>,
    /// The pipeline it belongs to; 0 before 3.10.
    pub pipeline: i64,
    /// Number of the pipeline within its repository, for people; 0 before 3.10.
    pub pipeline_number: i64,
    /// At most so many of `concurrency_group` run at once. `None`: no limit.
    pub concurrency_limit: Option<u32>,
    /// The group that shares `concurrency_limit`. Empty: none.
    pub concurrency_group: String,
    /// When its pipeline was created. `None` before 3.16.
    pub created: Option<Timestamp>,
}

impl Task {
    /// Name of the repository, from the labels; empty if the task has none.
    #[must_use]
    pub fn repo(&self) -> &str {
        self.labels.get("repo").unwrap_or_default()
    }
}

/// What people know a task by: repository, number of the pipeline (0: the server does not tell), name of the workflow.
#[must_use]
pub fn title(repo: &str, pipeline: i64, name: &str) -> String {
    match pipeline {
        0 => format!("{repo} {name}"),
        number => format!("{repo} #{number} {name}"),
    }
}
