//! The program as a process: the built binary with an environment of its own, against the modelled world on loopback.
//!
//! Here: how it is started, listened to and ended. Everything that it writes is searched for the world's secrets.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod check;
mod demo;
#[cfg(feature = "aws")]
mod ec2;
mod ending;
mod killed;
mod logs;
mod look;
mod measured;
mod start;
mod status;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use picus::clock::Clock;
use picus::world::{Endpoint, World, WorldOptions};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Longer than anything takes, on a machine that is busy with other things.
const LONG: Duration = Duration::from_mins(1);
/// What is waited for is looked at so often.
const GLANCE: Duration = Duration::from_millis(20);

/// A world whose time is this machine's, as the program's is.
async fn world() -> World {
    world_with(WorldOptions { boot_time: Duration::from_secs(1), ..WorldOptions::default() }).await
}

async fn world_with(options: WorldOptions) -> World {
    World::start(Clock::System, options).await.expect("free ports")
}

/// The program, not started yet.
#[derive(Clone)]
struct Program {
    arguments: Vec<&'static str>,
    variables: BTreeMap<String, String>,
    secrets: Vec<String>,
}

/// The program with the settings of a user who has these two servers.
fn picus(world: &World, arguments: &[&'static str]) -> Program {
    let program = bare(arguments)
        .set("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str())
        .set("PICUS_WOODPECKER_TOKEN", world.admin_token())
        .set("PICUS_PROVIDER_TYPE", "hcloud")
        .set("PICUS_HCLOUD_TOKEN", world.hetzner_token())
        .set("PICUS_HCLOUD_ENDPOINT", world.hetzner_url().as_str())
        .set("PICUS_HCLOUD_SSH_KEYS", "admin")
        .set("PICUS_AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000")
        .set("PICUS_POLL_INTERVAL", "1s");
    let secrets = [world.admin_token(), world.user_token(), world.hetzner_token()].map(str::to_owned).to_vec();
    Program { secrets, ..program }
}

/// The program without any setting. Its environment is empty but for where no certificate is: neither a home, nor a
/// path, nor anything that a machine may have set is needed.
fn bare(arguments: &[&'static str]) -> Program {
    let program = Program { arguments: arguments.to_vec(), variables: BTreeMap::new(), secrets: Vec::new() };
    program
        .set("SSL_CERT_FILE", "/nonexistent")
        .set("SSL_CERT_DIR", "/nonexistent")
        // Many run at once: none may need a port that another has.
        .set("PICUS_HTTP_ADDR", "off")
}

impl Program {
    fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    fn start(self) -> Running {
        self.start_as(Command::new(env!("CARGO_BIN_EXE_picus")))
    }

    fn start_as(self, mut command: Command) -> Running {
        let mut child = command
            .args(&self.arguments)
            .env_clear()
            .envs(&self.variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the built program");
        let (out, err) = (Text::default(), Text::default());
        let reading = [
            tokio::spawn(read(child.stdout.take().expect("a pipe"), out.clone())),
            tokio::spawn(read(child.stderr.take().expect("a pipe"), err.clone())),
        ];
        Running { child, out, err, reading, secrets: self.secrets }
    }

    /// Runs it to its own end.
    async fn output(self) -> Ended {
        self.start().ended(LONG).await
    }
}

/// What was written so far.
type Text = Arc<Mutex<String>>;

async fn read(from: impl AsyncRead + Unpin, text: Text) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut text = text.lock().expect("no reader panics");
        text.push_str(&line);
        text.push('\n');
    }
}

/// The program at work.
struct Running {
    child: Child,
    out: Text,
    err: Text,
    reading: [JoinHandle<()>; 2],
    secrets: Vec<String>,
}

impl Running {
    /// What it wrote so far, to both.
    fn text(&self) -> String {
        [&self.out, &self.err].map(|text| text.lock().expect("no reader panics").clone()).concat()
    }

    /// Waits until it has written this.
    async fn says(&self, what: &str) {
        eventually(&format!("the program says {what:?}"), || self.text().contains(what), || self.text()).await;
    }

    /// Waits until it has looked at the queue three more times: whatever it was going to do, it has begun.
    async fn looks(&self, world: &World) {
        self.says("watching").await;
        let before = world.calls(Endpoint::Queue);
        eventually("some passes", || world.calls(Endpoint::Queue) >= before + 3, || self.text()).await;
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(id.expect("it still runs"), signal).expect("a process of our own");
    }

    /// Sends a signal and waits for the end, which has to come in time.
    async fn ends_on(self, signal: Signal, within: Duration) -> Ended {
        self.signal(signal);
        self.ended(within).await
    }

    async fn kill(mut self) {
        self.child.kill().await.expect("a process of our own");
    }

    async fn ended(mut self, within: Duration) -> Ended {
        let began = Instant::now();
        let Ok(status) = timeout(within, self.child.wait()).await else {
            panic!("it did not end within {within:?}; it said\n{}", self.text());
        };
        let took = began.elapsed();
        for reading in &mut self.reading {
            timeout(LONG, reading).await.expect("its pipes close with it").expect("no reader panics");
        }
        let [out, err] = [&self.out, &self.err].map(|text| text.lock().expect("no reader panics").clone());
        for secret in &self.secrets {
            assert!(!out.contains(secret) && !err.contains(secret), "a secret was written:\n{out}\n{err}");
        }
        assert!(!err.contains("panicked"), "{err}");
        Ended { code: status.expect("a child of our own").code(), out, err, took }
    }
}

/// What came of a run.
#[derive(Debug)]
struct Ended {
    /// `None`: a signal ended it.
    code: Option<i32>,
    out: String,
    err: String,
    took: Duration,
}

/// Waits until `holds`; else fails and shows `state`.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool, state: impl Fn() -> String) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "in vain: {what}\n{}", state());
        tokio::time::sleep(GLANCE).await;
    }
}
