//! A simulation with seeds: the real loop lives hours of random work, faults, meddling and restarts against the modelled
//! world. Whatever happens, no job is killed, no maximum is passed, nobody else's agent is touched; once the faults
//! end every task of ours runs, and nothing is left behind beyond the minimum.
//!
//! | file | does |
//! |---|---|
//! | `setup.rs` | draws the settings and the world |
//! | `process.rs` | a Picus that can be killed between any two calls |
//! | `hands.rs` | what people do |
//! | `trouble.rs` | what goes wrong |
//! | `watch.rs` | what must hold at every moment |
//! | `life.rs` | a life from its first pass to its last |
//!
//! A failure names its seed: `SIMULATION_SEED=123 cargo test --test it simulation` lives that one again, and
//! `SIMULATION_SEED=1000..1200` lives so many others.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod hands;
mod life;
mod process;
mod setup;
mod trouble;
mod watch;

use std::ops::Range;

/// Lives these seeds one after the other; each that fails says why, and at the end which ones did.
fn live(seeds: Range<u64>) {
    let told = if seeds.end - seeds.start == 1 { usize::MAX } else { 120 };
    let fails = |seed: &u64| std::panic::catch_unwind(|| life::Life::new(*seed, told).live()).is_err();
    let failed: Vec<u64> = seeds.filter(fails).collect();
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}

#[test]
fn lives_end_with_every_task_done_and_nothing_left_first_part() {
    live(0..10);
}

#[test]
fn lives_end_with_every_task_done_and_nothing_left_second_part() {
    live(10..20);
}

#[test]
fn the_seeds_that_were_asked_for() {
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says so; no setting of Picus's")]
    let asked = std::env::var("SIMULATION_SEED").unwrap_or_default();
    let number = |text: &str| text.trim().parse::<u64>().expect("SIMULATION_SEED is 123 or 100..200");
    match asked.split_once("..") {
        _ if asked.is_empty() => {}
        Some((first, end)) => live(number(first)..number(end)),
        None => live(number(&asked)..number(&asked) + 1),
    }
}
