//! A plan as text: a line for each step, task and machine.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;

use crate::model::action::{Action, Notice, Plan, Proof};
use crate::model::decision::{Hold, TaskDecision, Wait};
use crate::model::labels::Mismatch;
use crate::model::machine::{Fate, Keep};
use crate::model::reason::Reason;

/// `short` gives names of ours a short form; launches are called `new1`, `new2`, … in the order of the steps.
pub fn plan(plan: &Plan, short: &BTreeMap<String, String>) -> String {
    let mut names = Names(short.clone());
    for step in &plan.steps {
        if let Action::Launch { name, .. } = &step.action {
            let number = names.0.values().filter(|name| name.starts_with("new")).count() + 1;
            names.0.insert(name.to_string(), format!("new{number}"));
        }
    }
    let mut text = String::new();
    for step in &plan.steps {
        let action = action(&step.action, &names);
        let _ = writeln!(text, "{action}: {}", reason(&step.reason));
    }
    if plan.steps.is_empty() {
        text.push_str("no steps\n");
    }
    for (task, decision) in &plan.tasks {
        let _ = writeln!(text, "task {task}: {}", self::decision(decision, &names));
    }
    for machine in &plan.machines {
        let state = format!("{:?}", machine.state).to_lowercase();
        let fate = match &machine.fate {
            Fate::Step { action, .. } => (*action).to_owned(),
            Fate::Kept { why } => keep(why),
        };
        let _ = writeln!(text, "{} is {state}: {fate}", names.of(&machine.name));
    }
    for notice in &plan.notices {
        let _ = match notice {
            Notice::StuckTask { task, agent } => writeln!(text, "notice: {} does not take {task}", names.of(agent)),
            Notice::NoSuchInstance { instance, .. } => writeln!(text, "notice: there is no {instance}"),
            Notice::NoRecord { instance, .. } => writeln!(text, "notice: {instance} has no record"),
            Notice::OtherServersInstance { name } => {
                writeln!(text, "notice: {} is of another server", names.of(name.as_str()))
            }
            Notice::StrayInstance { name, pool } => {
                writeln!(text, "notice: stray {} of pool {pool}", names.of(name.as_str()))
            }
        };
    }
    text
}

struct Names(BTreeMap<String, String>);

impl Names {
    fn of<'n>(&'n self, name: &'n str) -> &'n str {
        self.0.get(name).map_or(name, String::as_str)
    }
}

fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}

fn action(action: &Action, names: &Names) -> String {
    match action {
        Action::Uncordon { name, .. } => format!("uncordon {}", names.of(name)),
        Action::Start { name, .. } => format!("start {}", names.of(name)),
        Action::Stop { name, proof, .. } => format!("stop {}{}", names.of(name), self::proof(*proof)),
        Action::Launch { name, offer } => format!("launch {} {offer}", names.of(name.as_str())),
        Action::Cordon { name, .. } => format!("cordon {}", names.of(name)),
        Action::Retire { name, instance, proof, .. } => {
            let what = if instance.is_some() { "retire" } else { "delete record of" };
            format!("{what} {}{}", names.of(name), self::proof(*proof))
        }
        Action::DeleteInstance { name, .. } => format!("delete instance {}", names.of(name.as_str())),
    }
}

fn proof(proof: Proof) -> &'static str {
    match proof {
        Proof::Cordoned => "",
        Proof::NeverHeardOf => " (never heard of)",
        Proof::Silent => " (silent)",
    }
}

fn reason(reason: &Reason) -> String {
    match reason {
        Reason::TasksWait { tasks } => format!("tasks: {tasks}"),
        Reason::BelowMinimum { min } => format!("below the minimum of {min}"),
        Reason::Idle { since } => format!("idle since {}", clock(*since)),
        Reason::PeriodEnds { ends } => format!("period ends {}", clock(*ends)),
        Reason::PaidAgain { until } => format!("paid again, until {}", clock(*until)),
        Reason::MakesRoom => "makes room".to_owned(),
        Reason::NeverConnected { launched } => format!("never connected, launched {}", clock(*launched)),
        Reason::ContactLost { last_contact } => format!("lost since {}", clock(*last_contact)),
        Reason::Stopped => "stopped".to_owned(),
        Reason::SettingsChanged => "settings changed".to_owned(),
        Reason::StoppedFor { since } => format!("stopped since {}", clock(*since)),
        Reason::RecordGone => "record gone".to_owned(),
        Reason::InstanceGone => "instance gone".to_owned(),
    }
}

fn decision(decision: &TaskDecision, names: &Names) -> String {
    match decision {
        TaskDecision::Covered { by } => format!("covered by {}", names.of(by)),
        TaskDecision::Starting { by, pool } => format!("starts {} ({pool})", names.of(by)),
        TaskDecision::Booting { by, pool } => format!("boots {} ({pool})", names.of(by)),
        TaskDecision::Uncordoned { by, pool } => format!("uncordons {} ({pool})", names.of(by)),
        TaskDecision::Held { why } => {
            let why: Vec<String> = why.iter().map(|(pool, why)| format!("{pool} {}", hold(why))).collect();
            format!("held: {}", why.join("; "))
        }
        TaskDecision::NotReady { why } => match why {
            Wait::Paused => "paused".to_owned(),
            Wait::Dependencies { on } => {
                format!("needs {}", on.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
            Wait::Concurrency { group, limit } => format!("group {group} has its {limit}"),
        },
        TaskDecision::NotOurs { why } => {
            let why: Vec<String> = why.iter().map(|(pool, why)| format!("{pool} {}", mismatch(why))).collect();
            format!("not ours: {}", why.join("; "))
        }
        TaskDecision::Stuck { since, agent } => format!("stuck since {} at {}", clock(*since), names.of(agent)),
    }
}

fn hold(hold: &Hold) -> String {
    match hold {
        Hold::AtMaximum { max } => format!("has its maximum of {max}"),
        Hold::NothingToStart { machines } => format!("has nothing to start of {machines}"),
        Hold::SoldOut { until } => format!("sold out until {}", clock(*until)),
        Hold::Refused { why, until } => format!("refused ({why}) until {}", clock(*until)),
        Hold::Trouble { failures, until, .. } => format!("failed {failures} times, until {}", clock(*until)),
        Hold::ListingUnknown { why } => format!("listing unknown ({why})"),
        Hold::NotReady { why } => format!("not ready ({why})"),
    }
}

fn mismatch(mismatch: &Mismatch) -> String {
    match mismatch {
        Mismatch::Required { key, value } => format!("requires {key}={value}"),
        Mismatch::Missing { key, .. } => format!("lacks {key}"),
        Mismatch::Differs { key, has, .. } => format!("has {key}={has}"),
        Mismatch::Unlabelled => "nothing to match".to_owned(),
    }
}

fn keep(keep: &Keep) -> String {
    match keep {
        Keep::Busy => "kept".to_owned(),
        Keep::Boots { until } => format!("kept, boots until {}", clock(*until)),
        Keep::IdleUntil { until } => format!("kept until {}", clock(*until)),
        Keep::PaidUntil { until } => format!("kept, paid until {}", clock(*until)),
        Keep::Needed => "kept, needed".to_owned(),
        Keep::Minimum => "kept, minimum".to_owned(),
        Keep::Settling { until } => format!("kept, settles until {}", clock(*until)),
        Keep::MayWork { until } => format!("kept, may work until {}", clock(*until)),
        Keep::Named => "kept, named by a task".to_owned(),
        Keep::CordonedByOthers => "kept, cordoned by others".to_owned(),
        Keep::ListingUnknown => "kept, listing unknown".to_owned(),
        Keep::InstanceNotListed => "kept, instance not listed".to_owned(),
        Keep::MissingLately { until } => format!("kept, missing; looked again at {}", clock(*until)),
        Keep::InFlight => "kept, under way".to_owned(),
        Keep::Deleting => "kept, goes away".to_owned(),
        Keep::Stopping => "kept, stops".to_owned(),
        Keep::Stopped => "kept, stopped".to_owned(),
        Keep::NoRecord => "kept, no record".to_owned(),
        Keep::LostLately { until } => format!("kept, lost; given up at {}", clock(*until)),
    }
}
