//! Logs: one line an event, on standard error, for people or as JSON.

use std::fmt;

use tracing::Event;
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::clock::Clock;
use crate::settings::{LogFormat, LogSettings};

/// Begins to log. A second call changes nothing.
pub fn start(settings: &LogSettings) {
    let filter = EnvFilter::try_new(&settings.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // Fails only if logging was begun before.
    let _ = match settings.format {
        LogFormat::Text => lines.with_ansi(false).finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
}

/// Begins to tell, on standard output and by the demo's clock, what Picus does.
pub fn start_demo(clock: Clock) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("picus=info"))
        .with_writer(std::io::stdout)
        .event_format(DemoLine(clock));
    // Fails only if logging was begun before.
    let _ = lines.finish().try_init();
}

/// `08:05:11  picus: launch demo-amd64-…: 1 task waits`
struct DemoLine(Clock);

impl<S, N> FormatEvent<S, N> for DemoLine
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        writeln!(writer, "{}  picus: {}", self.0.now().strftime("%H:%M:%S"), message.0)
    }
}

/// The text of an event without its fields, which the text says in words.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
