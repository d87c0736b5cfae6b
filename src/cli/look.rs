//! `picus plan`: one look, no action.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Output, fail, failed_start, say};
use crate::app::App;
use crate::clock::Clock;
use crate::model::action::Plan;
use crate::model::age;
use crate::model::decision::TaskDecision;
use crate::model::machine::{Fate, MachineDecision};
use crate::model::snapshot::{Listing, Snapshot};
use crate::model::task::{Task, title};
use crate::plan::STUCK_AFTER;
use crate::reconcile::Pass;
use crate::settings::Settings;

pub(super) async fn look(settings: Settings, output: Output, shutdown: &CancellationToken) -> ExitCode {
    let app = match App::new(settings, Clock::System, rand::random()) {
        Ok(app) => app,
        Err(error) => return failed_start(&error),
    };
    let market = app.reconciler.open_market();
    match shutdown.run_until_cancelled(market).await {
        None => return ExitCode::SUCCESS,
        Some(Err(problems)) => return fail(2, &crate::app::list_problems(&problems)),
        // What could not be asked shows in the decisions.
        Some(Ok(_)) => {}
    }
    match shutdown.run_until_cancelled(app.reconciler.look()).await {
        None => ExitCode::SUCCESS,
        Some(Pass::Skipped { why }) => fail(1, &why),
        Some(Pass::Done { snapshot, plan }) => {
            say(&match output {
                Output::Text => text(&snapshot, &plan),
                Output::Json => json(&snapshot, &plan),
            });
            ExitCode::SUCCESS
        }
    }
}

/// The plan for people.
fn text(snapshot: &Snapshot, plan: &Plan) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = writeln!(text, "Tasks that wait ({}):", plan.tasks.len());
    for (id, decision) in &plan.tasks {
        let task = task(snapshot, id);
        let _ = writeln!(
            text,
            "  {:<8} {:<40} {}",
            id,
            task.map_or_else(String::new, |task| title(task.repo(), task.pipeline_number, &task.name)),
            decision
        );
        if let (TaskDecision::Covered { by }, Some(created)) = (decision, task.and_then(|task| task.created))
            && age(snapshot.now, created) >= STUCK_AFTER
        {
            let _ = writeln!(text, "{:52}(not new: if it goes on waiting, look at the log of {by})", "");
        }
    }
    let _ = writeln!(text, "Our agents and instances ({}):", plan.machines.len());
    for machine in &plan.machines {
        let _ = writeln!(text, "  {}", machine_text(machine));
    }
    for (account, listing) in &snapshot.instances {
        if let Listing::Unknown { why } = listing {
            let _ = writeln!(text, "Instances of account {} are not known: {why}", account.0);
        }
    }
    let _ = writeln!(text, "Next steps ({}):", plan.steps.len());
    for step in &plan.steps {
        let _ = writeln!(text, "  {} [{}]: {}", step.action, step.pool, step.reason);
    }
    for notice in &plan.notices {
        let _ = writeln!(text, "Notice: {notice}");
    }
    text.truncate(text.trim_end().len());
    text
}

fn task<'a>(snapshot: &'a Snapshot, id: &crate::model::ids::TaskId) -> Option<&'a Task> {
    snapshot.queue.pending.iter().chain(&snapshot.queue.waiting).find(|task| task.id == *id)
}

fn machine_text(machine: &MachineDecision) -> String {
    let MachineDecision { pool, name, agent, instance, running, state, fate } = machine;
    let agent = agent.map_or_else(|| "no record".to_owned(), |agent| format!("agent {agent}"));
    let instance =
        instance.as_ref().map_or_else(|| "no instance".to_owned(), |instance| format!("instance {instance}"));
    let running = running.map_or_else(String::new, |running| format!(", {running} running"));
    let fate = match fate {
        Fate::Step { action, reason } => format!("{action}: {reason}"),
        Fate::Kept { why } => format!("left alone: {why}"),
    };
    format!("{name} [{pool}] {agent}, {instance}: {}{running}; {fate}", state.kind())
}

/// The plan for programs.
fn json(snapshot: &Snapshot, plan: &Plan) -> String {
    let tasks: Vec<serde_json::Value> = plan
        .tasks
        .iter()
        .map(|(id, decision)| {
            let task = task(snapshot, id);
            json!({
                "id": id,
                "name": task.map(|task| task.name.as_str()),
                "repo": task.map(Task::repo),
                "pipeline": task.map(|task| task.pipeline_number),
                "labels": task.map(|task| &task.labels),
                "decision": decision,
            })
        })
        .collect();
    let answer = json!({
        "now": snapshot.now,
        "installation": snapshot.installation,
        "paused": snapshot.queue.paused,
        "tasks": tasks,
        "machines": plan.machines,
        "steps": plan.steps,
        "notices": plan.notices,
        "pools": plan.totals,
    });
    format!("{answer:#}")
}
