//! Metrics in Prometheus' form. [`registry`] has every name; here are the handles, which are cheap to clone.
//!
//! Gauges are set once a pass from the same data as the status page; counters and histograms where things happen.

pub mod registry;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use registry::Metric;

/// Values of a metric's labels, each with its name.
type Labels = Vec<(&'static str, String)>;

/// A gauge for each combination of label values.
#[derive(Debug, Clone)]
pub struct Gauges {
    metric: Metric,
    family: Family<Labels, Gauge<f64, AtomicU64>>,
}

impl Gauges {
    /// Sets the one with these label values, in the order of the registry.
    pub fn set(&self, values: &[&str], value: f64) {
        self.family.get_or_create(&labels(&self.metric, values)).set(value);
    }
}

/// A counter for each combination of label values.
#[derive(Debug, Clone)]
pub struct Counters {
    metric: Metric,
    family: Family<Labels, Counter<f64, AtomicU64>>,
}

impl Counters {
    /// Adds to the one with these label values. What is less than nothing adds nothing.
    pub fn add(&self, values: &[&str], by: f64) {
        self.family.get_or_create(&labels(&self.metric, values)).inc_by(by.max(0.0));
    }

    /// Adds one.
    pub fn one(&self, values: &[&str]) {
        self.add(values, 1.0);
    }

    /// What the one with these label values has come to.
    #[must_use]
    pub fn get(&self, values: &[&str]) -> f64 {
        self.family.get_or_create(&labels(&self.metric, values)).get()
    }
}

/// A histogram for each combination of label values.
#[derive(Debug, Clone)]
pub struct Durations {
    metric: Metric,
    family: Family<Labels, Histogram, Buckets>,
}

impl Durations {
    /// Notes a duration.
    pub fn observe(&self, values: &[&str], took: Duration) {
        self.family.get_or_create(&labels(&self.metric, values)).observe(took.as_secs_f64());
    }
}

/// Upper bounds of a histogram's buckets, in seconds.
#[derive(Debug, Clone, Copy)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// An answer comes within a second, or after a timeout.
const ANSWERS: Buckets = Buckets(&[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]);
/// An instance boots within minutes, or never.
const BOOTS: Buckets = Buckets(&[10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0]);

fn labels(metric: &Metric, values: &[&str]) -> Labels {
    debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
    metric.labels.iter().copied().zip(values.iter().map(|value| (*value).to_owned())).collect()
}

/// Counts the calls of one API.
#[derive(Debug, Clone)]
pub struct Calls {
    counters: Counters,
    /// For a provider's API its name; none for Woodpecker's.
    provider: Option<&'static str>,
    budget: Option<Gauges>,
}

impl Calls {
    /// A call came to `outcome`: `ok`, or the fixed word of its error.
    pub fn note(&self, operation: &str, outcome: &str) {
        match self.provider {
            Some(provider) => self.counters.one(&[provider, operation, outcome]),
            None => self.counters.one(&[operation, outcome]),
        }
    }

    /// So many calls are accepted for now.
    pub fn budget(&self, remaining: f64) {
        if let (Some(budget), Some(provider)) = (&self.budget, self.provider) {
            budget.set(&[provider], remaining);
        }
    }
}

impl Default for Calls {
    /// Counts for nobody.
    fn default() -> Self {
        let counters = Counters { metric: registry::WOODPECKER_CALLS, family: Family::default() };
        Self { counters, provider: None, budget: None }
    }
}

macro_rules! handles {
    ($($(#[$doc:meta])* $field:ident: $kind:ident = $constant:ident $(, $buckets:ident)?;)*) => {
        /// The handles, one a metric.
        #[derive(Debug, Clone)]
        pub struct Metrics {
            registry: Arc<Registry>,
            $(#[doc = concat!("[`registry::", stringify!($constant), "`]")] pub $field: $kind,)*
        }

        impl Default for Metrics {
            fn default() -> Self {
                let mut registry = Registry::default();
                $(
                    let family = handles!(@family $kind $(, $buckets)?);
                    registry.register(registry::$constant.name, registry::$constant.help, Family::clone(&family));
                    let $field = $kind { metric: registry::$constant, family };
                )*
                let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
                registry.register(registry::BUILD.name, registry::BUILD.help, Info::new(version));
                Self { registry: Arc::new(registry), $($field),* }
            }
        }

        #[cfg(test)]
        impl Metrics {
            /// Makes one series of a metric.
            fn touch(&self, metric: &Metric, values: &[&str]) {
                $(if *metric == registry::$constant {
                    let _ = self.$field.family.get_or_create(&labels(metric, values));
                })*
            }
        }
    };
    (@family Durations, $buckets:ident) => { Family::new_with_constructor($buckets) };
    (@family $kind:ident) => { Family::default() };
}

handles! {
    tasks_waiting: Gauges = TASKS_WAITING;
    oldest_wait: Gauges = OLDEST_WAIT;
    agents: Gauges = AGENTS;
    slots: Gauges = SLOTS;
    agents_min: Gauges = AGENTS_MIN;
    agents_max: Gauges = AGENTS_MAX;
    orphans: Gauges = ORPHANS;
    launches: Counters = LAUNCHES;
    starts: Counters = STARTS;
    create_duration: Durations = CREATE_DURATION, ANSWERS;
    first_contact: Durations = FIRST_CONTACT, BOOTS;
    boot_failures: Counters = BOOT_FAILURES;
    retirements: Counters = RETIREMENTS;
    steps: Counters = STEPS;
    offer_sold_out: Gauges = OFFER_SOLD_OUT;
    breaker_open: Gauges = BREAKER_OPEN;
    failures_in_a_row: Gauges = FAILURES_IN_A_ROW;
    provider_refuses: Gauges = PROVIDER_REFUSES;
    listing_unknown: Gauges = LISTING_UNKNOWN;
    passes: Counters = PASSES;
    pass_duration: Durations = PASS_DURATION, ANSWERS;
    last_good_pass: Gauges = LAST_GOOD_PASS;
    woodpecker_calls: Counters = WOODPECKER_CALLS;
    provider_calls: Counters = PROVIDER_CALLS;
    rate_budget: Gauges = RATE_BUDGET;
    cost_per_hour: Gauges = COST_PER_HOUR;
    cost: Counters = COST;
    idle_cost: Counters = IDLE_COST;
}

impl Metrics {
    /// Counts calls of Woodpecker's API.
    #[must_use]
    pub fn woodpecker_calls(&self) -> Calls {
        Calls { counters: self.woodpecker_calls.clone(), provider: None, budget: None }
    }

    /// Counts calls of a provider's API.
    #[must_use]
    pub fn provider_calls(&self, provider: &'static str) -> Calls {
        let budget = Some(self.rate_budget.clone());
        Calls { counters: self.provider_calls.clone(), provider: Some(provider), budget }
    }

    /// All of them as text, as they are scraped, in the form of `OpenMetrics`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::registry::Kind;
    use super::*;

    /// Names and kinds of what a text describes.
    fn described(text: &str) -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        lines.filter_map(|line| line.split_once(' ')).map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
    }

    #[test]
    fn each_metric_of_the_registry_has_a_handle_of_its_kind_and_the_reverse() {
        let metrics = Metrics::default();
        for metric in registry::ALL {
            let values = vec!["x"; metric.labels.len()];
            match metric.kind {
                Kind::Gauge | Kind::Counter | Kind::Histogram => metrics.touch(metric, &values),
                Kind::Info => {}
            }
        }
        let wanted: BTreeMap<String, String> =
            registry::ALL.iter().map(|metric| (metric.name.to_owned(), metric.kind.word().to_owned())).collect();
        assert_eq!(described(&metrics.text()), wanted);
    }

    #[test]
    fn names_are_prometheus_own_way() {
        for metric in registry::ALL {
            let name = metric.name;
            assert!(name.starts_with("picus_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert!(!name.ends_with("_total") && !name.ends_with("_info"), "{name}: the kind appends it");
            for other_unit in ["_ms", "_minutes", "_milliseconds", "_bytes"] {
                assert!(!name.ends_with(other_unit), "{name} is not in seconds");
            }
            assert!(metric.kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(!metric.help.ends_with('.'), "{name}");
        }
    }

    /// Names in a text that begin as metrics do.
    fn named(text: &str) -> std::collections::BTreeSet<String> {
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        let words = text.split(|letter| !is_part(letter));
        words.filter(|word| word.starts_with("picus_")).map(str::to_owned).collect()
    }

    fn is_known(name: &str) -> bool {
        registry::ALL.iter().any(|metric| match metric.kind {
            Kind::Histogram => {
                name.strip_prefix(metric.name).is_some_and(|end| ["_bucket", "_sum", "_count"].contains(&end))
            }
            Kind::Gauge | Kind::Counter | Kind::Info => name == metric.scraped_name(),
        })
    }

    #[test]
    fn alerts_and_dashboard_ask_for_metrics_that_there_are() {
        let rules = include_str!("../deploy/prometheus/rules.yaml");
        let dashboard = include_str!("../deploy/grafana/picus.json");
        assert!(serde_json::from_str::<serde_json::Value>(dashboard).is_ok());
        for (file, text) in [("rules.yaml", rules), ("picus.json", dashboard)] {
            let names = named(text);
            assert!(names.len() >= 8, "{file}: {names:?}");
            let unknown: Vec<_> = names.into_iter().filter(|name| !is_known(name)).collect();
            assert!(unknown.is_empty(), "{file} asks for {unknown:?}");
        }
    }

    #[test]
    fn each_metric_is_in_the_dashboard() {
        let dashboard = named(include_str!("../deploy/grafana/picus.json"));
        for metric in registry::ALL {
            let shown = dashboard.iter().any(|name| name.starts_with(metric.name));
            assert!(shown, "{} is shown nowhere", metric.name);
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a switch of the test, no setting of the program")]
    fn the_metrics_table_of_the_docs_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
        let page = std::fs::read_to_string(&path).expect("docs/metrics.md can be read");
        let (begin, end) = ("<!-- metrics: begin -->", "<!-- metrics: end -->");
        let (before, rest) = page.split_once(begin).expect("the marker before the table");
        let (table, after) = rest.split_once(end).expect("the marker after the table");
        let wanted = format!("\n{}", registry::markdown());
        if std::env::var("UPDATE_README").is_ok_and(|value| value == "1") {
            std::fs::write(&path, format!("{before}{begin}{wanted}{end}{after}"))
                .expect("docs/metrics.md can be written");
            return;
        }
        assert!(
            table == wanted,
            "the table in docs/metrics.md is not the one of src/metrics/registry.rs; refresh it with\n\n    \
             UPDATE_README=1 cargo test metrics_table\n"
        );
    }
}
