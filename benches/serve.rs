//! What is shown of a large installation: 5,000 tasks that wait, 500 agents.
//!
//! Aim: status, metrics and page are there within 50 ms, and what a pass does for them costs less than its plan.

#![expect(clippy::expect_used, clippy::panic, reason = "a benchmark that can't run ends")]

mod fleet;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use picus::clock::Clock;
use picus::metrics::Metrics;
use picus::model::memory::Memory;
use picus::plan::plan;
use picus::server::Server;
use picus::settings::{HttpSettings, Settings};
use picus::status::Board;
use tokio_util::sync::CancellationToken;

const TASKS: usize = 5_000;
const AGENTS: usize = 500;

fn settings() -> Settings {
    let variables = [
        ("PICUS_WOODPECKER_SERVER", "https://ci.example.org"),
        ("PICUS_WOODPECKER_TOKEN", "token"),
        ("PICUS_PROVIDER_TYPE", "hcloud"),
        ("PICUS_HCLOUD_TOKEN", "0000000000000000000000000000000000000000000000000000000000000000"),
        ("PICUS_AGENT_WOODPECKER_SERVER", "ci.example.org:9000"),
        ("PICUS_POOLS", "amd64,arm64,gpu"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Settings::from_vars(variables).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn bench(criterion: &mut Criterion) {
    let snapshot = fleet::snapshot(TASKS, AGENTS);
    let memory = Memory::default();
    let decided = plan(&snapshot, &memory);
    let board = Board::new(&settings(), Clock::manual(fleet::now()), Metrics::default());

    let mut group = criterion.benchmark_group("serve");
    group.sample_size(20);
    group.bench_function("the plan itself", |bencher| bencher.iter(|| plan(black_box(&snapshot), black_box(&memory))));
    group.bench_function("what a pass leaves", |bencher| {
        bencher.iter(|| board.decided(black_box(&snapshot), black_box(&decided), black_box(&memory)));
    });

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let ended = CancellationToken::new();
    let address = runtime.block_on(async {
        let http = HttpSettings { address: None, token: None };
        let free = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(free, &http, Arc::clone(&board)).await.expect("a free port");
        let address = server.address().expect("an address");
        tokio::spawn(server.serve(ended.clone()));
        address
    });
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    for path in ["/api/v1/status", "/api/v1/decisions", "/metrics", "/"] {
        let url = format!("http://{address}{path}");
        group.bench_function(format!("GET {path}"), |bencher| {
            bencher.iter(|| {
                runtime.block_on(async {
                    let answer = client.get(&url).send().await.and_then(reqwest::Response::error_for_status);
                    answer.expect("an answer").bytes().await.expect("a body").len()
                })
            });
        });
    }
    group.finish();
    ended.cancel();
}

criterion_group!(benches, bench);
criterion_main!(benches);
