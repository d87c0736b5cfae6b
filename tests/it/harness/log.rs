//! Collects what is logged on this thread.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The lines so far.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// Somebody else who listens. While there is only one, `tracing` asks whoever logs first from some place, and another
/// test, which has no log, would answer for all of them that nobody cares about that place.
static BYSTANDER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// Collects until the guard is dropped.
pub fn collect(level: LevelFilter) -> (Log, DefaultGuard) {
    LazyLock::force(&BYSTANDER);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_writer(log.clone()).with_ansi(false).finish();
    (log, tracing::subscriber::set_default(subscriber))
}

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic while writing").clone()).expect("text")
    }

    /// Lines that hold all of these.
    pub fn lines_with(&self, parts: &[&str]) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        lines.map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic while writing").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
