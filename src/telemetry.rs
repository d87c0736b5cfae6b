//! Logs: one line an event, on standard error, for people or as JSON.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use crate::clock::Clock;
use crate::settings::{LogFormat, LogSettings};

/// Begins to log. A second call changes nothing.
pub fn start(settings: &LogSettings) {
    let filter = EnvFilter::try_new(&settings.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        // A log that nobody reads any more is no reason to end; saying so there would.
        .log_internal_errors(false);
    // Fails only if logging was begun before.
    let _ = match settings.format {
        LogFormat::Text => lines.with_ansi(false).finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
}

/// Begins to tell, by `clock`, what Picus decides and does: `say` is given `08:05:11  picus: launch demo-amd64-…: 1 task
/// waits`. What the start and the end of the program say is left out.
pub fn start_demo(clock: Clock, say: fn(&str)) {
    let filter = EnvFilter::new("picus=info,picus::app=warn");
    // Fails only if logging was begun before.
    let _ = tracing_subscriber::registry().with(filter).with(DemoLines { clock, say }).try_init();
}

struct DemoLines {
    clock: Clock,
    say: fn(&str),
}

impl<S: Subscriber> Layer<S> for DemoLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        let now = self.clock.now();
        // The demo has one day; its date says nothing.
        let text = message.0.replace(&now.strftime("%Y-%m-%dT").to_string(), "");
        (self.say)(&format!("{}  picus: {text}", now.strftime("%H:%M:%S")));
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
