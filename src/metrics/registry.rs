//! Every metric by name, kind, labels and meaning: the one place. The reference table of the docs, the dashboard and the
//! alerts are checked against it.

use std::fmt::Write as _;

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up; begins at 0 with the process.
    Counter,
    /// Durations in buckets, in seconds.
    Histogram,
    /// Always 1; its labels tell.
    Info,
}

impl Kind {
    /// Prometheus' word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Without what a kind appends (`_total`, `_bucket`, `_info`).
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its labels; their values come from closed lists.
    pub labels: &'static [&'static str],
    /// What it means, without a full stop.
    pub help: &'static str,
}

impl Metric {
    /// The name under which it is scraped; of a histogram its sum, count and buckets begin so.
    #[must_use]
    pub fn scraped_name(&self) -> String {
        match self.kind {
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
            Kind::Counter => format!("{}_total", self.name),
            Kind::Info => format!("{}_info", self.name),
        }
    }
}

macro_rules! metrics {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Metric =
                Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };
        )*

        /// Every metric in the order of the table.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    TASKS_WAITING = Gauge "picus_tasks_waiting" ["pool", "reason"] "Tasks of ours that wait, by the first pool that could take them and by what was decided for them";
    OLDEST_WAIT = Gauge "picus_oldest_wait_seconds" ["pool"] "How long the oldest of those tasks waits; 0 if none does";
    AGENTS = Gauge "picus_agents" ["pool", "state"] "Agents and instances of ours by what they are doing";
    SLOTS = Gauge "picus_slots" ["pool", "state"] "Slots of our agents by what they are doing";
    AGENTS_MIN = Gauge "picus_agents_min" ["pool"] "Instances kept also without work (`PICUS_MIN_AGENTS`)";
    AGENTS_MAX = Gauge "picus_agents_max" ["pool"] "Instances at most (`PICUS_MAX_AGENTS`)";
    ORPHANS = Gauge "picus_orphans" ["pool"] "Instances without their agent record, and the reverse";
    LAUNCHES = Counter "picus_launches" ["pool", "provider", "server_type", "location", "outcome"] "Launches by what came of the order: `ok`, or why not";
    STARTS = Counter "picus_starts" ["pool", "outcome"] "Starts of stopped instances by what came of the call";
    CREATE_DURATION = Histogram "picus_create_duration_seconds" ["pool"] "From the beginning of a launch until the provider has accepted it";
    FIRST_CONTACT = Histogram "picus_first_contact_seconds" ["pool"] "From the beginning of a launch or start until the agent was seen connected";
    BOOT_FAILURES = Counter "picus_boot_failures" ["pool"] "Instances that never connected within their boot timeout";
    RETIREMENTS = Counter "picus_retirements" ["pool", "reason"] "Agents and instances that were retired or stopped, by why";
    STEPS = Counter "picus_steps" ["pool", "operation", "outcome"] "Steps on the outside world by what came of them";
    OFFER_SOLD_OUT = Gauge "picus_offer_sold_out" ["provider", "server_type", "location"] "1 while this offer is left alone because it was sold out";
    BREAKER_OPEN = Gauge "picus_breaker_open" ["pool"] "1 while nothing is launched because launches or boots failed";
    FAILURES_IN_A_ROW = Gauge "picus_failures_in_a_row" ["pool"] "Launches and boots that failed since the last one that succeeded";
    PROVIDER_REFUSES = Gauge "picus_provider_refuses" ["provider"] "1 while an account launches nothing because of a quota or missing rights";
    LISTING_UNKNOWN = Gauge "picus_listing_unknown" ["provider"] "1 while the instances of an account are not known";
    PASSES = Counter "picus_passes" ["outcome"] "Passes of the loop: `done`, or `skipped` because Woodpecker could not be read";
    PASS_DURATION = Histogram "picus_pass_duration_seconds" [] "How long a pass takes, answers of the others included";
    LAST_GOOD_PASS = Gauge "picus_last_good_pass_timestamp_seconds" [] "When the last pass was done, in seconds since 1970; 0 before the first";
    WOODPECKER_CALLS = Counter "picus_woodpecker_calls" ["operation", "outcome"] "Calls of the Woodpecker server's API by what came of them";
    PROVIDER_CALLS = Counter "picus_provider_calls" ["provider", "operation", "outcome"] "Calls of the providers' APIs by what came of them";
    RATE_BUDGET = Gauge "picus_rate_budget_remaining" ["provider"] "Calls that the provider still accepts now, by its last answer";
    COST_PER_HOUR = Gauge "picus_cost_per_hour" ["pool"] "Price of an hour of all instances that are billed now, in the provider's currency; NaN where prices are not known";
    COST = Counter "picus_cost" ["pool"] "What instances have cost since the process began, by the provider's prices and billing";
    IDLE_COST = Counter "picus_idle_cost" ["pool"] "The part of it for time in which they idled";
    BUILD = Info "picus_build" ["version"] "The running release";
}

/// The table of the docs, in Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut table = "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for metric in ALL {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
        let (name, kind) = (metric.scraped_name(), metric.kind.word());
        // Writing to a string does not fail.
        let _ = writeln!(table, "| `{name}` | {kind} | {labels} | {} |", metric.help);
    }
    table
}
