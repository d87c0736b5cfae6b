//! What the program takes while there is nothing to do: memory, processor time, calls. The figures in ARCHITECTURE.md are
//! from here: `just at-rest`, which names the release build's program in `PROGRAM`.

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use std::fs;
use std::time::Duration;

use picus::world::{Side, WorldOptions, agent};
use rustix::param::clock_ticks_per_second;
use rustix::process::Signal;
use tokio::process::Command;

use super::{LONG, Running, picus, world_with};

/// So long it is watched. With the default settings that is 30 looks at the queue and five at the cloud.
const WATCHED: Duration = Duration::from_mins(5);
/// Megabytes, as people count memory.
const MEMORY: f64 = 25.0;
/// Seconds of processor time in an hour: a thousandth of one core would be 3.6.
const PROCESSOR_TIME: f64 = 7.2;
/// Calls to Hetzner in an hour.
const CALLS: f64 = 100.0;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes five minutes and wants the release build"]
#[expect(clippy::disallowed_methods, reason = "which program is measured is the caller's")]
async fn at_rest_the_program_is_hardly_there() {
    let world = world_with(WorldOptions::default()).await;
    for number in 0..20 {
        world.add_agent(agent(format!("of-others-{number}")).slots(2));
    }
    let mut program = picus(&world, &[]).set("PICUS_POLL_INTERVAL", "10s");
    // With the authorities that the machine trusts: they are most of what is kept.
    program.variables.retain(|name, _| !name.starts_with("SSL_"));
    let measured = std::env::var("PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_picus").to_owned());
    let running = program.start_as(Command::new(measured));
    running.says("watching").await;

    let start = processor_time(&running);
    let calls = || [Side::Hetzner, Side::Woodpecker].map(|side| world.calls_to(side));
    let before = calls();
    tokio::time::sleep(WATCHED).await;
    let [now, most] = ["VmRSS:", "VmHWM:"].map(|key| memory(&running, key));
    let hours = WATCHED.as_secs_f64() / 3600.0;
    let used = (processor_time(&running) - start) / hours;
    let after = calls();
    let made = |side: usize| f64::from(u32::try_from(after[side] - before[side]).expect("few")) / hours;

    println!("resident memory   {now:.1} MB, at most {most:.1} MB");
    println!("processor time    {start:.2} s for the start, {used:.1} s an hour");
    println!("calls an hour     {:.0} to Hetzner, {:.0} to Woodpecker", made(0), made(1));
    assert!(most < MEMORY && used < PROCESSOR_TIME && made(0) < CALLS);
    assert_eq!(running.ends_on(Signal::TERM, LONG).await.code, Some(0));
}

/// A file of the process in `/proc`.
fn of_process(running: &Running, file: &str) -> String {
    let id = running.child.id().expect("it still runs");
    fs::read_to_string(format!("/proc/{id}/{file}")).expect("Linux")
}

/// Megabytes, from a line such as `VmRSS:     9876 kB`.
fn memory(running: &Running, key: &str) -> f64 {
    let status = of_process(running, "status");
    let line = status.lines().find(|line| line.starts_with(key)).expect("a line");
    let kibibytes: f64 = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    kibibytes * 1024.0 / 1e6
}

/// Seconds in user and kernel mode since the start.
fn processor_time(running: &Running) -> f64 {
    let stat = of_process(running, "stat");
    // The name, in brackets, may hold spaces; behind it utime and stime are the 12th and 13th field.
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().expect("a number")).sum();
    ticks / f64::from(u32::try_from(clock_ticks_per_second()).expect("few"))
}
