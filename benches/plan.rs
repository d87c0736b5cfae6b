//! One plan for many pending tasks against a thousand agents.
//!
//! Aim: under 20 ms for 10,000 tasks, and ten times the tasks cost at most about ten times the time.

mod fleet;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fleet::snapshot;
use picus::model::memory::Memory;
use picus::plan::plan;

const AGENTS: usize = 1_000;

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    group.sample_size(20);
    let memory = Memory::default();
    for tasks in [1_000, 10_000, 100_000] {
        let snapshot = snapshot(tasks, AGENTS);
        group.throughput(Throughput::Elements(tasks as u64));
        group.bench_with_input(BenchmarkId::from_parameter(tasks), &snapshot, |bencher, snapshot| {
            bencher.iter(|| plan(black_box(snapshot), black_box(&memory)));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
