//! `picus check`: one line for each thing that a start needs, and how to repair what fails. Whatever fails, the rest that
//! does not depend on it is checked too. Changes nothing.

use std::process::ExitCode;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::say;
use crate::app::App;
use crate::bootstrap;
use crate::clock::Clock;
use crate::model::age;
use crate::provider::{Granted, PrepareError, Provider, ProviderError, Right};
use crate::settings::{AccountSettings, PoolSettings, Problem, Settings};
use crate::woodpecker::{self, Agents};

/// A difference of clocks that is worth a word.
const CLOCKS_DIFFER: Duration = Duration::from_secs(5);

/// Prints what was found as it is found, and counts what fails.
#[derive(Default)]
struct Findings {
    failed: u32,
}

impl Findings {
    fn line(word: &str, what: &str, text: &str) {
        say(&format!("{word:<4}  {what:<12}  {text}"));
    }

    fn ok(what: &str, text: &str) {
        Self::line("ok", what, text);
    }

    fn warn(what: &str, text: &str) {
        Self::line("warn", what, text);
    }

    fn skip(what: &str, because: &str) {
        Self::line("-", what, &format!("not checked, because {because}"));
    }

    fn fail(&mut self, what: &str, text: &str) {
        self.failed += 1;
        Self::line("FAIL", what, text);
    }
}

pub(super) async fn check(settings: Settings, offline: bool, shutdown: &CancellationToken) -> ExitCode {
    let mut findings = Findings::default();
    let whole = shutdown.run_until_cancelled(check_everything(settings, offline, &mut findings)).await.is_some();
    let conclusion = match (findings.failed, whole) {
        (0, true) => "All is well.",
        (0, false) => "Interrupted; the rest was not checked.",
        (1, _) => "1 thing has to be repaired.",
        (_, _) => &format!("{} things have to be repaired.", findings.failed),
    };
    say("");
    say(conclusion);
    if findings.failed > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

async fn check_everything(settings: Settings, offline: bool, findings: &mut Findings) {
    for warning in &settings.warnings {
        Findings::warn("settings", warning);
    }
    let summary = summary(&settings);
    let (app, problems) = App::assemble(settings, Clock::System, rand::random());
    if problems.is_empty() {
        Findings::ok("settings", &summary);
    }
    for problem in &problems {
        findings.fail("settings", &problem.to_string());
    }
    if offline {
        return Findings::skip("the rest", "nobody is asked");
    }
    let Some(app) = app else { return Findings::skip("the rest", "there is no way to ask without these") };
    check_server(&app, findings).await;
    for (index, provider) in app.providers.iter().enumerate() {
        check_account(&app, index, provider.as_ref(), findings).await;
    }
}

fn summary(settings: &Settings) -> String {
    let pool = |pool: &PoolSettings| {
        let slots = if pool.agent.slots == 1 { "1 slot" } else { &format!("{} slots", pool.agent.slots) };
        format!("pool {}: {} to {} instances, {slots} each", pool.name, pool.min, pool.max)
    };
    let pools: Vec<String> = settings.pools.iter().map(pool).collect();
    format!("installation {}; {}", settings.installation, pools.join("; "))
}

async fn check_server(app: &App, findings: &mut Findings) {
    match app.woodpecker.version().await {
        Ok(version) => {
            Findings::ok("server", &format!("{} runs Woodpecker {version}", app.settings.woodpecker.server));
            check_images(app, &version, findings);
        }
        Err(error) => {
            let advice = if error.is_about_settings() { "" } else { " (PICUS_WOODPECKER_SERVER names it)" };
            findings.fail("server", &format!("{error}{advice}"));
            return Findings::skip("token, queue", "the server has to answer first");
        }
    }
    match app.woodpecker.user().await {
        Ok(user) if user.admin => Findings::ok("token", &format!("of {}, who is an admin", user.login)),
        Ok(user) => {
            findings.fail(
                "token",
                &format!(
                    "PICUS_WOODPECKER_TOKEN is of {}, who is not an admin: take an admin's, or make {} one",
                    user.login, user.login
                ),
            );
            return Findings::skip("queue, agents", "it takes an admin's token");
        }
        Err(error) => {
            let advice = match &error {
                woodpecker::Error::Unauthorised { .. } => {
                    "; copy it anew from the page CLI & API of an admin's settings"
                }
                woodpecker::Error::Forbidden { .. }
                | woodpecker::Error::NotFound { .. }
                | woodpecker::Error::Busy { .. }
                | woodpecker::Error::RateLimited { .. }
                | woodpecker::Error::Unavailable { .. } => "",
            };
            findings.fail("token", &format!("{error}{advice}"));
            return Findings::skip("queue, agents", "it takes an accepted token");
        }
    }
    check_queue(app, findings).await;
}

/// What an admin's token opens.
async fn check_queue(app: &App, findings: &mut Findings) {
    match app.woodpecker.queue().await {
        Ok(queue) => {
            let (waiting, running) = (queue.pending.len() + queue.waiting.len(), queue.running.len());
            Findings::ok("queue", &format!("tasks that wait: {waiting}, that run: {running}"));
            if queue.paused {
                Findings::warn("queue", "it is paused: nothing is handed out until an admin resumes it");
            }
        }
        Err(error) => findings.fail("queue", &error.to_string()),
    }
    match app.woodpecker.agents().await {
        Ok(Agents { agents, server_time }) => {
            Findings::ok("agents", &format!("records: {}", agents.len()));
            let now = Clock::System.now();
            let apart = server_time.map_or(Duration::ZERO, |theirs| age(now, theirs).max(age(theirs, now)));
            if apart > CLOCKS_DIFFER {
                let text =
                    format!("the server's differs from this machine's by {} s; it is corrected for", apart.as_secs());
                Findings::warn("clock", &text);
            }
        }
        Err(error) => findings.fail("agents", &error.to_string()),
    }
    match app.woodpecker.events().await {
        Ok(_) => Findings::ok("events", "the stream is there: a new task is seen at once"),
        Err(error) => Findings::warn("events", &format!("{error}; so the queue is only polled")),
    }
}

fn check_images(app: &App, version: &str, findings: &mut Findings) {
    for pool in &app.settings.pools {
        let what = format!("pool {}", pool.name);
        match (&pool.agent.image, bootstrap::image::of_server(version)) {
            (Some(image), _) => Findings::ok(&what, &format!("agents run {image}")),
            (None, Ok(image)) => Findings::ok(&what, &format!("agents run {image}, as the server's version")),
            (None, Err(error)) => findings.fail(&what, &error.to_string()),
        }
    }
}

/// A provider account and the pools that launch there.
async fn check_account(app: &App, index: usize, provider: &dyn Provider, findings: &mut Findings) {
    let Some(configured) = app.settings.accounts.get(index) else { return };
    let kind = configured.provider();
    let account = if app.providers.len() > 1 { format!("{kind} {}", index + 1) } else { kind.to_owned() };
    let pools: Vec<&PoolSettings> = app.settings.pools.iter().filter(|pool| pool.account.0 == index).collect();
    match provider.list(&app.settings.installation).await {
        Ok(instances) => {
            let accepted = match configured {
                AccountSettings::Hetzner { .. } => {
                    "the token is accepted (that it may also write, only a launch can tell)"
                }
                AccountSettings::Aws => "the credentials are accepted",
            };
            let text = format!("{accepted}; instances of {}: {}", app.settings.installation, instances.len());
            Findings::ok(&account, &text);
            let is_known = |name| app.settings.pools.iter().any(|pool| pool.name == name);
            for stray in instances.iter().filter(|instance| !is_known(instance.pool.clone())) {
                let text = format!(
                    "instance {} belongs to pool {}, which is not configured, so it is billed and left alone: configure the \
                     pool, or delete the instance",
                    stray.name, stray.pool
                );
                Findings::warn(&account, &text);
            }
        }
        Err(error) => {
            findings.fail(&account, &provider_trouble(&error));
            for pool in pools {
                Findings::skip(&format!("pool {}", pool.name), &format!("{account} has to answer first"));
            }
            return;
        }
    }
    let mut told: Vec<Problem> = Vec::new();
    for pool in pools {
        check_pool(app, pool, provider, &mut told, findings).await;
    }
}

/// What a pool's launch settings name. `told`: problems of settings that pools share are said once.
async fn check_pool(
    app: &App,
    pool: &PoolSettings,
    provider: &dyn Provider,
    told: &mut Vec<Problem>,
    findings: &mut Findings,
) {
    let what = format!("pool {}", pool.name);
    match provider.prepare(pool).await {
        Ok(prepared) => {
            for finding in &prepared.findings {
                Findings::ok(&what, finding);
            }
            for warning in &prepared.warnings {
                Findings::warn(&what, warning);
            }
            let offers: Vec<String> = prepared.offers.iter().map(|offer| offer.key.to_string()).collect();
            let does = if pool.launch.fixed().is_empty() {
                format!("launches {} instances, tried in this order: {}", prepared.platform, offers.join(", "))
            } else {
                format!("starts and stops {} machines: {}", prepared.platform, pool.launch.fixed().len())
            };
            Findings::ok(&what, &does);
            check_rights(app, pool, provider, findings).await;
        }
        Err(PrepareError::Settings(problems)) => {
            for problem in problems {
                if !told.contains(&problem) {
                    findings.fail(&what, &problem.to_string());
                    told.push(problem);
                }
            }
        }
        Err(PrepareError::Provider(error)) => findings.fail(&what, &provider_trouble(&error)),
    }
}

/// What the credentials may do, where that can be asked without doing it.
async fn check_rights(app: &App, pool: &PoolSettings, provider: &dyn Provider, findings: &mut Findings) {
    let what = format!("pool {}", pool.name);
    match provider.rights(pool, &app.settings.installation).await {
        Ok(rights) => {
            let granted: Vec<&str> =
                rights.iter().filter(|right| right.granted == Granted::Yes).map(|right| right.action).collect();
            if !granted.is_empty() {
                Findings::ok(&what, &format!("the credentials may {}", granted.join(", ")));
            }
            for Right { action, granted } in &rights {
                match granted {
                    Granted::Yes => {}
                    Granted::No(why) => findings.fail(&what, &format!("the credentials may not {action}: {why}")),
                    Granted::Unknown(why) => {
                        Findings::warn(&what, &format!("whether the credentials may {action} is not known: {why}"));
                    }
                }
            }
        }
        Err(error) => findings.fail(&what, &provider_trouble(&error)),
    }
}

/// What to look at when a provider does not answer; the other errors say it themselves.
fn provider_trouble(error: &ProviderError) -> String {
    match error {
        ProviderError::Unavailable(_) | ProviderError::Unclear(_) => {
            format!("{error}; is the API reachable from here (PICUS_HCLOUD_ENDPOINT or AWS_ENDPOINT_URL, HTTPS_PROXY)?")
        }
        ProviderError::SoldOut(_)
        | ProviderError::Quota(_)
        | ProviderError::Unauthorised(_)
        | ProviderError::RateLimited { .. }
        | ProviderError::Locked(_)
        | ProviderError::Rejected(_) => error.to_string(),
    }
}
