//! The command line: `run` (the default), `plan`, `status`, `check`, `demo`. Exit codes: 0 done, 1 failed, 2 wrong settings.

mod check;
mod demo;
mod look;
mod status;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::app::{App, StartError, list_problems};
use crate::clock::Clock;
use crate::settings::{HttpSettings, Settings};
use crate::telemetry;

/// Autoscaler for Woodpecker CI agents. Settings are environment variables; the README has their table.
#[derive(Debug, Parser)]
#[command(name = "picus", version, about, arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Watch the queue and keep the agents that it needs (the default)
    Run,
    /// Look once, do nothing: what is decided for each task, agent and instance, and why
    Plan {
        /// Form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Ask a running Picus what it does and why
    Status {
        /// Its address; else that of `PICUS_HTTP_ADDR`, on this machine
        #[arg(long)]
        url: Option<Url>,
        /// Form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
        /// Only ask whether it is healthy; exit code 0 if it is
        #[arg(long, conflicts_with = "output")]
        healthz: bool,
        /// Only ask whether its first pass is done; exit code 0 if it is
        #[arg(long, conflicts_with_all = ["output", "healthz"])]
        readyz: bool,
    },
    /// Check settings, token, server, provider: one line each, and how to repair what fails
    Check {
        /// Ask nobody: only whether the settings are right
        #[arg(long)]
        offline: bool,
    },
    /// A small day of CI in under a minute, against a modelled Woodpecker and Hetzner Cloud; needs no settings
    Demo,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Runs the program. `variables` is the environment, read once by `main`.
#[must_use]
pub fn main(variables: Vec<(String, String)>) -> ExitCode {
    let command = Arguments::parse().command.unwrap_or(Command::Run);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(carry_out(command, variables)).unwrap_or_else(|code| code);
            // What is left is only waiting; nothing is owed to it.
            runtime.shutdown_background();
            code
        }
        Err(error) => fail(1, &format!("no runtime can be started: {error}")),
    }
}

/// The code to end with; the inner and the outer one mean the same.
async fn carry_out(command: Command, variables: Vec<(String, String)>) -> Result<ExitCode, ExitCode> {
    let shutdown = on_signal().map_err(|error| fail(1, &format!("signals can't be listened to: {error}")))?;
    let settings = |variables| Settings::from_vars(variables).map_err(|problems| fail(2, &list_problems(&problems)));
    Ok(match command {
        Command::Run => run(settings(variables)?, shutdown).await,
        Command::Plan { output } => look::look(settings(variables)?, output, &shutdown).await,
        Command::Status { url, output, healthz, readyz } => {
            let http = HttpSettings::from_vars(variables).map_err(|problems| fail(2, &list_problems(&problems)))?;
            let probe = if healthz { Some("/healthz") } else { readyz.then_some("/readyz") };
            status::status(http, url, output, probe).await
        }
        Command::Check { offline } => check::check(settings(variables)?, offline, &shutdown).await,
        Command::Demo => demo::demo(shutdown).await,
    })
}

async fn run(settings: Settings, shutdown: CancellationToken) -> ExitCode {
    telemetry::start(&settings.log);
    let outcome = match App::new(settings, Clock::System, rand::random()) {
        Ok(app) => app.run(shutdown).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed_start(&error),
    }
}

fn failed_start(error: &StartError) -> ExitCode {
    match error {
        StartError::Settings(_) => fail(2, &error.to_string()),
        StartError::Refused(_) => fail(1, &error.to_string()),
    }
}

/// Says on standard error why there is no answer. Where nobody can read it, the code tells.
fn fail(code: u8, message: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "picus: {message}");
    ExitCode::from(code)
}

/// Writes a line of the answer. If its reader has gone (`picus demo | head`), the rest is of no use to anybody.
fn say(line: &str) {
    match writeln!(std::io::stdout(), "{line}") {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            fail(1, &format!("the answer can't be written: {error}"));
            std::process::exit(1);
        }
    }
}

/// Cancelled by SIGINT or SIGTERM.
fn on_signal() -> std::io::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let shutdown = CancellationToken::new();
    let cancelled = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        cancelled.cancel();
    });
    Ok(shutdown)
}
