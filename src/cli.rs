//! The command line: `run` (the default), `plan`, `check`, `demo`. Exit codes: 0 done, 1 failed, 2 wrong settings.

mod check;
mod demo;
mod look;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tokio_util::sync::CancellationToken;

use crate::app::{App, StartError, list_problems};
use crate::clock::Clock;
use crate::settings::Settings;
use crate::telemetry;

/// Autoscaler for Woodpecker CI agents. Settings are environment variables; the README has their table.
#[derive(Debug, Parser)]
#[command(name = "picus", version, about, arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Command {
    /// Watch the queue and keep the agents that it needs (the default)
    Run,
    /// Look once, do nothing: what is decided for each task, agent and instance, and why
    Plan {
        /// Form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Check settings, token, server, provider: one line each, and how to repair what fails
    Check,
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
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(dispatch(arguments.command.unwrap_or(Command::Run), variables));
            // What is left is only waiting; nothing is owed to it.
            runtime.shutdown_background();
            code
        }
        Err(error) => fail(1, &format!("no runtime can be started: {error}")),
    }
}

async fn dispatch(command: Command, variables: Vec<(String, String)>) -> ExitCode {
    let shutdown = shutdown_on_signal();
    if let Command::Demo = command {
        return demo::demo(shutdown).await;
    }
    let settings = match Settings::from_vars(variables) {
        Ok(settings) => settings,
        Err(problems) => return fail(2, &list_problems(&problems)),
    };
    match command {
        Command::Run => {
            telemetry::start(&settings.log);
            run(settings, shutdown).await
        }
        Command::Plan { output } => look::look(settings, output, &shutdown).await,
        Command::Check => check::check(settings).await,
        Command::Demo => ExitCode::SUCCESS,
    }
}

async fn run(settings: Settings, shutdown: CancellationToken) -> ExitCode {
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
        StartError::Token(_) => fail(1, &error.to_string()),
    }
}

#[expect(clippy::print_stderr, reason = "the command line talks to people")]
fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("picus: {message}");
    ExitCode::from(code)
}

/// Cancelled by SIGINT or SIGTERM.
fn shutdown_on_signal() -> CancellationToken {
    let shutdown = CancellationToken::new();
    let cancelled = shutdown.clone();
    tokio::spawn(async move {
        use tokio::signal::unix::{SignalKind, signal};
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(mut terminate), Ok(mut interrupt)) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            (Err(_), _) | (_, Err(_)) => {
                let _ = tokio::signal::ctrl_c().await;
            }
        }
        cancelled.cancel();
    });
    shutdown
}
