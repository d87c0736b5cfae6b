//! `picus status`: what a running Picus does and why, for a terminal. Asks its API, as anybody could.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::{Output, fail, say};
use crate::model::task::title;
use crate::settings::HttpSettings;
use crate::status::view::{MachineStatus, PoolStatus, Status, TaskStatus};

/// An answer comes in milliseconds, or not.
const PATIENCE: Duration = Duration::from_secs(5);
/// Steps that are of interest at a glance.
const STEPS: usize = 10;

pub(super) async fn status(http: HttpSettings, url: Option<Url>, output: Output, probe: Option<&str>) -> ExitCode {
    let base = match (url, http.address) {
        (Some(url), _) => url.as_str().trim_end_matches('/').to_owned(),
        (None, Some(address)) => format!("http://{}", local(address)),
        (None, None) => return fail(2, "PICUS_HTTP_ADDR is `off`: nothing can be asked"),
    };
    let path = probe.unwrap_or("/api/v1/status");
    let (code, body) = match ask(&format!("{base}{path}"), http.token.as_ref()).await {
        Ok(answer) => answer,
        Err(why) => {
            return fail(1, &format!("{base} can't be asked: {why}; does Picus run there (--url, PICUS_HTTP_ADDR)?"));
        }
    };
    if probe.is_some() {
        say(body.trim());
        return if code == 200 { ExitCode::SUCCESS } else { ExitCode::from(1) };
    }
    match code {
        200 => {}
        401 => return fail(1, "it takes the token of PICUS_HTTP_TOKEN, which must be the same here as there"),
        _ => return fail(1, &format!("{base} answers {code}: {}", body.trim().chars().take(300).collect::<String>())),
    }
    match (output, serde_json::from_str::<Status>(&body)) {
        (Output::Json, _) => say(body.trim()),
        (Output::Text, Ok(status)) => say(&text(&status)),
        (Output::Text, Err(error)) => {
            return fail(1, &format!("{base} answers something else than this release reads: {error}"));
        }
    }
    ExitCode::SUCCESS
}

/// Where on this machine something is that listens at `address`.
fn local(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        // An address of all families listens for both, and a container may have no IPv6.
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

async fn ask(url: &str, token: Option<&SecretString>) -> Result<(u16, String), String> {
    let client = reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none());
    // Without TLS the system's certificates need not be read, and this machine is not asked through a proxy.
    let client = if url.starts_with("http:") { client.tls_built_in_root_certs(false).no_proxy() } else { client };
    let client = client.build().map_err(|error| error.to_string())?;
    let mut request = client.get(url);
    if let Some(token) = token {
        request = request.bearer_auth(token.expose_secret());
    }
    let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
    let code = answer.status().as_u16();
    Ok((code, answer.text().await.map_err(|error| error.without_url().to_string())?))
}

fn text(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let Status { installation, server, pass, queue, .. } = status;
    let _ = writeln!(text, "Picus {} of {installation} at {server}, seen {:.0}", status.picus, pass.ended);
    if let Some(why) = &pass.why {
        let _ = writeln!(text, "Nothing is decided: {why}");
    }
    if status.dry_run {
        let _ = writeln!(text, "Deciding only, nothing is done (PICUS_DRY_RUN)");
    }
    let paused = if queue.paused { "; it is paused" } else { "" };
    let _ =
        writeln!(text, "Queue: {} wait ({} not ours), {} run{paused}", queue.waiting, queue.not_ours, queue.running);
    for pool in &status.pools {
        let _ = writeln!(text, "{}", pool_text(pool));
    }
    let _ = writeln!(text, "Tasks of ours that wait ({}):", status.tasks.len());
    for task in &status.tasks {
        let _ = writeln!(text, "  {}", task_text(task));
    }
    let _ = writeln!(text, "Our agents and instances ({}):", status.machines.len());
    for machine in &status.machines {
        let _ = writeln!(text, "  {}", machine_text(machine));
    }
    let _ = writeln!(text, "Last steps:");
    for step in status.steps.iter().take(STEPS) {
        let error = step.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        let _ =
            writeln!(text, "  {:.0} {} [{}]: {}; {}{error}", step.began, step.what, step.pool, step.why, step.outcome);
    }
    for notice in &status.notices {
        let _ = writeln!(text, "Notice: {notice}");
    }
    text.truncate(text.trim_end().len());
    text
}

fn pool_text(pool: &PoolStatus) -> String {
    let slots = pool.slots;
    let cost =
        pool.cost_per_hour.map_or_else(String::new, |cost| format!("; {cost:.3} an hour, {:.2} so far", pool.cost));
    let trouble = match (&pool.not_ready, &pool.trouble) {
        (Some(why), _) => format!("; not ready: {why}"),
        (None, Some(trouble)) => format!("; trouble: {}, tried again after {:.0}", trouble.why, trouble.until),
        (None, None) => String::new(),
    };
    format!(
        "Pool {} ({}): {} of {} tasks could start; slots: {} busy, {} free, {} booting; {} instances ({} to {}){cost}{trouble}",
        pool.name,
        pool.provider,
        pool.demand,
        pool.waiting,
        slots.busy,
        slots.free,
        slots.booting,
        pool.instances,
        pool.min,
        pool.max
    )
}

fn task_text(task: &TaskStatus) -> String {
    format!("{:<8} {} [{}]: {}", task.id, title(&task.repo, task.pipeline, &task.name), task.pool, task.why)
}

fn machine_text(machine: &MachineStatus) -> String {
    let running = machine
        .running
        .filter(|running| *running > 0)
        .map_or_else(String::new, |running| format!(", {running} running"));
    let action = machine.action.as_ref().map_or_else(String::new, |action| format!("{action}: "));
    format!("{} [{}]: {}{running}; {action}{}", machine.name, machine.pool, machine.state, machine.why)
}
