//! The status page: what is shown of [`Status`] and how it is worded. Written whole on the server; the script only fetches the
//! changing part anew, and without it a reload does.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use jiff::Timestamp;

use super::plot::Plot;
use super::{Shared, access};
use crate::model::age;
use crate::model::task::title;
use crate::status::view::{MachineStatus, OtherAgent, PoolStatus, QueueStatus, Status, StepStatus, TaskStatus};

/// Rows of a table; the API has them all.
const MOST_ROWS: usize = 200;
/// Steps that are of interest at a glance.
const STEPS: usize = 20;

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    installation: &'a str,
    signed_in: bool,
    live: Live<'a>,
}

/// The part that changes.
#[derive(Template)]
#[template(path = "live.html")]
struct Live<'a> {
    mood: &'static str,
    headline: String,
    summary: String,
    seen: Option<Ago>,
    server: &'a str,
    queue: Option<&'a QueueStatus>,
    pools: Vec<Pool<'a>>,
    tasks: Vec<Task<'a>>,
    more_tasks: usize,
    machines: Vec<Machine<'a>>,
    more_machines: usize,
    others: &'a [OtherAgent],
    steps: Vec<Step<'a>>,
    notices: Vec<String>,
}

/// A page for those who may not see it.
#[derive(Template)]
#[template(path = "closed.html")]
struct Closed<'a> {
    form: bool,
    failed: bool,
    why: &'a str,
}

/// A time as people read it, and as it is.
struct Ago {
    text: String,
    exact: String,
}

struct Pool<'a> {
    shown: &'a PoolStatus,
    labels: String,
    offers: String,
    cost: Option<String>,
    spent: String,
    oldest: Option<String>,
    trouble: Option<String>,
    plot: Plot,
}

struct Task<'a> {
    shown: &'a TaskStatus,
    title: String,
    since: Option<Ago>,
}

struct Machine<'a> {
    shown: &'a MachineStatus,
    kind: String,
    since: Option<Ago>,
}

struct Step<'a> {
    step: &'a StepStatus,
    began: Ago,
}

pub(super) async fn page(State(shared): State<Shared>, headers: axum::http::HeaderMap) -> Response {
    let status = shared.board.latest();
    let installation = status.as_deref().map_or("", |status| &status.installation);
    let live = Live::of(&shared, status.as_deref());
    html(Page { installation, signed_in: access::has_cookie(&headers), live }.render())
}

pub(super) async fn live(State(shared): State<Shared>) -> Response {
    let status = shared.board.latest();
    html(Live::of(&shared, status.as_deref()).render())
}

/// For those who may not see it.
pub(super) fn closed(form: bool, failed: bool, why: &str) -> Response {
    html(Closed { form, failed, why }.render())
}

fn html(rendered: askama::Result<String>) -> Response {
    match rendered {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("the page can't be written: {error}\n")).into_response()
        }
    }
}

impl<'a> Live<'a> {
    fn of(shared: &Shared, status: Option<&'a Status>) -> Self {
        let Some(status) = status else {
            let why = shared.board.readiness().err().unwrap_or_default();
            return Self {
                mood: "warn",
                headline: "Starting".to_owned(),
                summary: why,
                seen: None,
                server: "",
                queue: None,
                pools: Vec::new(),
                tasks: Vec::new(),
                more_tasks: 0,
                machines: Vec::new(),
                more_machines: 0,
                others: &[],
                steps: Vec::new(),
                notices: Vec::new(),
            };
        };
        let now = status.pass.ended;
        let history = shared.board.history();
        let (mood, headline) = mood(status, shared.board.health().err());
        let pool = |pool: &'a PoolStatus| Pool {
            shown: pool,
            labels: pool
                .labels
                .iter()
                .flatten()
                .map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
                .join(", "),
            offers: offers(pool),
            cost: pool.cost_per_hour.map(|cost| format!("{cost:.3}")),
            spent: format!("{:.2}", pool.cost),
            oldest: pool.oldest_wait_seconds.map(words),
            trouble: pool.trouble.as_ref().map(|trouble| {
                format!(
                    "{} launches failed in a row, the next try is after {}: {}",
                    trouble.failures,
                    clock(trouble.until),
                    trouble.why
                )
            }),
            plot: Plot::of(history.of(&pool.name)),
        };
        let task = |task: &'a TaskStatus| Task {
            shown: task,
            title: title(&task.repo, task.pipeline, &task.name),
            since: task.since.map(|since| ago(now, since)),
        };
        let machine = |machine: &'a MachineStatus| Machine {
            shown: machine,
            kind: [machine.server_type.as_deref(), machine.location.as_deref()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", "),
            since: machine.since.map(|since| ago(now, since)),
        };
        let (busy, total) = status
            .pools
            .iter()
            .fold((0, 0), |(busy, total), pool| (busy + pool.slots.busy, total + pool.slots.busy + pool.slots.free));
        let cost: Option<f64> = status.pools.iter().map(|pool| pool.cost_per_hour).sum();
        let booting: u32 = status.pools.iter().map(|pool| pool.slots.booting).sum();
        let cost = cost.map_or_else(String::new, |cost| format!(", {cost:.3} an hour"));
        let tasks = if status.tasks.len() == 1 {
            "1 task waits".to_owned()
        } else {
            format!("{} tasks wait", status.tasks.len())
        };
        let booting = if booting > 0 { format!(", {booting} boot") } else { String::new() };
        Self {
            mood,
            headline,
            summary: format!("{tasks}, {busy} of {total} slots work{booting}{cost}"),
            seen: Some(ago(shared.board.now(), now)),
            server: &status.server,
            queue: Some(&status.queue),
            pools: status.pools.iter().map(pool).collect(),
            tasks: status.tasks.iter().take(MOST_ROWS).map(task).collect(),
            more_tasks: status.tasks.len().saturating_sub(MOST_ROWS),
            machines: status.machines.iter().take(MOST_ROWS).map(machine).collect(),
            more_machines: status.machines.len().saturating_sub(MOST_ROWS),
            others: &status.others,
            steps: status.steps.iter().take(STEPS).map(|step| Step { step, began: ago(now, step.began) }).collect(),
            notices: notices(status),
        }
    }
}

/// Whether it works, in a word and in a colour.
fn mood(status: &Status, unhealthy: Option<String>) -> (&'static str, String) {
    if let Some(why) = unhealthy {
        return ("bad", format!("Not working: {why}"));
    }
    if status.pass.outcome != "done" {
        return ("bad", format!("Nothing is decided: {}", status.pass.why.as_deref().unwrap_or("no answer")));
    }
    let trouble = status.pools.iter().any(|pool| pool.trouble.is_some() || pool.not_ready.is_some());
    let accounts = status.accounts.iter().any(|account| account.unknown.is_some() || account.refused.is_some());
    if trouble || accounts || !status.notices.is_empty() {
        return ("warn", "Working, but something needs a look".to_owned());
    }
    if status.queue.paused {
        return ("warn", "Working; the queue is paused".to_owned());
    }
    if status.dry_run {
        return ("warn", "Deciding only, nothing is done (PICUS_DRY_RUN)".to_owned());
    }
    ("good", "Working".to_owned())
}

fn notices(status: &Status) -> Vec<String> {
    let mut notices = status.notices.clone();
    for account in &status.accounts {
        let pools = account.pools.join(", ");
        notices.extend(account.unknown.as_ref().map(|why| format!("instances of {pools} are not known: {why}")));
        notices.extend(account.refused.as_ref().map(|why| format!("the provider of {pools} refuses launches: {why}")));
    }
    for offer in &status.sold_out {
        notices.push(format!(
            "{} in {} is sold out, tried again at {}",
            offer.server_type,
            offer.location,
            clock(offer.until)
        ));
    }
    notices
}

fn offers(pool: &PoolStatus) -> String {
    let offer = |offer: &crate::status::view::OfferStatus| format!("{} in {}", offer.server_type, offer.location);
    let shown: Vec<String> = pool.offers.iter().take(4).map(offer).collect();
    let rest = pool.offers.len().saturating_sub(shown.len());
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

fn ago(now: Timestamp, then: Timestamp) -> Ago {
    Ago { text: words(age(now, then).as_secs()), exact: clock(then) }
}

fn clock(at: Timestamp) -> String {
    format!("{at:.0}")
}

/// A duration as people say it.
fn words(seconds: u64) -> String {
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5_999 => format!("{} min", seconds / 60),
        6_000..=172_799 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} days", seconds / 86_400),
    }
}
