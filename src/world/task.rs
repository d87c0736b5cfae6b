//! Tasks as a test or the demo puts them into the queue, and what can be seen of them.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::ids::{AgentId, TaskId};
use crate::model::labels::Labels;

/// A task to push; see [`task`].
#[derive(Debug, Clone)]
pub struct TaskSpec {
    pub(super) name: String,
    pub(super) repo: String,
    pub(super) organisation: i64,
    pub(super) labels: Labels,
    pub(super) takes: Duration,
    pub(super) needs: Vec<TaskId>,
    pub(super) beside: Option<TaskId>,
    pub(super) run_on: Vec<String>,
    pub(super) group: String,
    pub(super) limit: u32,
    pub(super) fails: bool,
}

/// A task of `acme/app` (organisation 3) that takes a minute, in a pipeline of its own.
#[must_use]
pub fn task(name: impl Into<String>) -> TaskSpec {
    TaskSpec {
        name: name.into(),
        repo: "acme/app".to_owned(),
        organisation: 3,
        labels: Labels::default(),
        takes: Duration::from_mins(1),
        needs: Vec::new(),
        beside: None,
        run_on: Vec::new(),
        group: String::new(),
        limit: 0,
        fails: false,
    }
}

impl TaskSpec {
    /// Asks for a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.set(key, value);
        self
    }

    /// Belongs to this repository, `owner/name`.
    #[must_use]
    pub fn repo(mut self, repo: impl Into<String>) -> Self {
        self.repo = repo.into();
        self
    }

    /// The repository belongs to this organisation.
    #[must_use]
    pub fn organisation(mut self, id: i64) -> Self {
        self.organisation = id;
        self
    }

    /// Works so long once it is started.
    #[must_use]
    pub fn takes(mut self, time: Duration) -> Self {
        self.takes = time;
        self
    }

    /// Starts only after `other`, in the same pipeline.
    #[must_use]
    pub fn needs(mut self, other: &TaskId) -> Self {
        self.needs.push(other.clone());
        self
    }

    /// Belongs to the pipeline of `other`.
    #[must_use]
    pub fn beside(mut self, other: &TaskId) -> Self {
        self.beside = Some(other.clone());
        self
    }

    /// At most `limit` tasks of this group run at once.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>, limit: u32) -> Self {
        self.group = group.into();
        self.limit = limit;
        self
    }

    /// Ends as failed: what needs it is skipped, unless it runs on failure.
    #[must_use]
    pub fn fails(mut self) -> Self {
        self.fails = true;
        self
    }

    /// Runs whether what it needs failed or not.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.run_on = vec!["success".to_owned(), "failure".to_owned()];
        self
    }

    /// Runs only if what it needs failed.
    #[must_use]
    pub fn on_failure(mut self) -> Self {
        self.run_on = vec!["failure".to_owned()];
        self
    }
}

/// Where a task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// In the queue's list of pending tasks.
    Pending,
    /// In its list of tasks that wait for others.
    Waiting,
    /// Given to an agent (that may be dead without the server knowing).
    Running {
        /// The agent's record.
        agent: AgentId,
        /// Since when.
        since: Timestamp,
    },
    /// Not in the queue any more.
    Done {
        /// How it ended.
        outcome: Outcome,
        /// When.
        at: Timestamp,
    },
}

impl TaskState {
    /// It ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }

    /// It is with an agent.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did its work.
    Succeeded,
    /// It did its work and failed.
    Failed,
    /// What it needs ended so that it must not run.
    Skipped,
}

impl Outcome {
    /// The server's word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "success",
            Self::Failed => "failure",
            Self::Skipped => "skipped",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}
