//! `picus check`: one line for each thing that a start needs, and how to repair what fails.

use std::process::ExitCode;
use std::time::Duration;

use crate::app::{App, StartError};
use crate::bootstrap;
use crate::clock::Clock;
use crate::model::age;
use crate::provider::PrepareError;
use crate::settings::Settings;
use crate::woodpecker;

/// A difference of clocks that is worth a word.
const CLOCKS_DIFFER: Duration = Duration::from_secs(5);

/// Prints what was found as it is found.
#[derive(Default)]
struct Findings {
    failed: bool,
}

impl Findings {
    #[expect(clippy::print_stdout, reason = "the answer of the command")]
    fn say(word: &str, what: &str, text: &str) {
        println!("{word:<5} {what}: {text}");
    }

    fn ok(what: &str, text: &str) {
        Self::say("ok", what, text);
    }

    fn warn(what: &str, text: &str) {
        Self::say("warn", what, text);
    }

    fn fail(&mut self, what: &str, text: &str) {
        self.failed = true;
        Self::say("FAIL", what, text);
    }
}

pub(super) async fn check(settings: Settings) -> ExitCode {
    let mut findings = Findings::default();
    Findings::ok("settings", &summary(&settings));
    for warning in &settings.warnings {
        Findings::warn("settings", warning);
    }
    let clock = Clock::System;
    match App::new(settings, clock.clone(), rand::random()) {
        Ok(app) => {
            check_woodpecker(&app, &clock, &mut findings).await;
            check_providers(&app, &mut findings).await;
        }
        Err(StartError::Settings(problems)) => {
            for problem in problems {
                findings.fail("settings", &problem.to_string());
            }
        }
        Err(StartError::Token(why)) => findings.fail("woodpecker", &why),
    }
    if findings.failed { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn summary(settings: &Settings) -> String {
    let pools: Vec<String> = settings
        .pools
        .iter()
        .map(|pool| format!("{} ({} to {} instances of {} slots)", pool.name, pool.min, pool.max, pool.agent.slots))
        .collect();
    format!("installation {}, pools: {}", settings.installation, pools.join(", "))
}

async fn check_woodpecker(app: &App, clock: &Clock, findings: &mut Findings) {
    match app.woodpecker.version().await {
        Ok(version) => {
            Findings::ok("server", &format!("{} runs Woodpecker {version}", app.settings.woodpecker.server));
            check_images(app, &version, findings);
        }
        Err(error) => findings.fail("server", &format!("{error}; look at PICUS_WOODPECKER_SERVER")),
    }
    match app.woodpecker.user().await {
        Ok(user) if user.admin => Findings::ok("token", &format!("of {}, an admin", user.login)),
        Ok(user) => findings.fail(
            "token",
            &format!("PICUS_WOODPECKER_TOKEN is of {}, who is no admin: take the token of an admin", user.login),
        ),
        Err(error) => findings.fail("token", &error.to_string()),
    }
    match app.woodpecker.queue().await {
        Ok(queue) => {
            let (pending, running) = (queue.pending.len() + queue.waiting.len(), queue.running.len());
            let paused = if queue.paused { ", paused: nothing is handed out" } else { "" };
            Findings::ok("queue", &format!("{pending} tasks wait, {running} run{paused}"));
        }
        Err(error) => findings.fail("queue", &error.to_string()),
    }
    match app.woodpecker.agents().await {
        Ok(woodpecker::Agents { agents, server_time }) => {
            Findings::ok("agents", &format!("{} records", agents.len()));
            let now = clock.now();
            if let Some(server_time) = server_time {
                let apart = age(now, server_time).max(age(server_time, now));
                if apart > CLOCKS_DIFFER {
                    let text = format!("the server's differs by {} s; it is corrected for", apart.as_secs());
                    Findings::warn("clock", &text);
                }
            }
        }
        Err(error) => findings.fail("agents", &error.to_string()),
    }
    match app.woodpecker.events().await {
        Ok(_) => Findings::ok("events", "the stream is there: a new task is seen at once"),
        Err(error) => Findings::warn("events", &format!("the queue is only polled: {error}")),
    }
}

fn check_images(app: &App, version: &str, findings: &mut Findings) {
    for pool in &app.settings.pools {
        let what = format!("agent image [{}]", pool.name);
        match (&pool.agent.image, bootstrap::image::of_server(version)) {
            (Some(image), _) => Findings::ok(&what, image),
            (None, Ok(image)) => Findings::ok(&what, &format!("{image}, the server's version")),
            (None, Err(error)) => findings.fail(&what, &error.to_string()),
        }
    }
}

async fn check_providers(app: &App, findings: &mut Findings) {
    for (index, provider) in app.providers.iter().enumerate() {
        let what = format!("provider {}", index + 1);
        match provider.list(&app.settings.installation).await {
            Ok(instances) => {
                Findings::ok(
                    &what,
                    &format!("{} instances of installation {}", instances.len(), app.settings.installation),
                );
                let configured = |pool| app.settings.pools.iter().any(|known| known.name == pool);
                for stray in instances.iter().filter(|instance| !configured(instance.pool.clone())) {
                    let text = format!(
                        "instance {} belongs to pool {}, which is not configured: it is billed and left alone",
                        stray.name, stray.pool
                    );
                    Findings::warn(&what, &text);
                }
            }
            Err(error) => findings.fail(&what, &error.to_string()),
        }
    }
    for pool in &app.settings.pools {
        let Some(provider) = app.providers.get(pool.account.0) else { continue };
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
                Findings::ok(&what, &format!("{}, launched as {}", prepared.platform, offers.join(", ")));
            }
            Err(PrepareError::Settings(problems)) => {
                for problem in problems {
                    findings.fail(&what, &problem.to_string());
                }
            }
            Err(PrepareError::Provider(error)) => findings.fail(&what, &error.to_string()),
        }
    }
}
