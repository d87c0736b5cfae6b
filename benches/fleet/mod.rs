//! A large installation at one instant, for the benchmarks.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use picus::model::agent::Agent;
use picus::model::ids::{AgentId, InstallationId, InstanceId, LaunchName, PoolName, ServerMark, TaskId};
use picus::model::instance::{Instance, InstanceState, OfferKey};
use picus::model::labels::Labels;
use picus::model::pool::{AccountId, Billing, Market, Offer, Pool, RetireTo};
use picus::model::snapshot::{InFlight, Listing, Queue, Snapshot};
use picus::model::task::Task;

const KINDS: usize = 50;

/// When it is seen.
pub fn now() -> Timestamp {
    "2026-12-01T12:00:00Z".parse().unwrap_or(Timestamp::UNIX_EPOCH)
}

fn server() -> ServerMark {
    ServerMark::from("bcdfghjk")
}

fn installation() -> InstallationId {
    InstallationId::from("picus")
}

fn offer() -> OfferKey {
    OfferKey { server_type: "cx23".to_owned(), location: "nbg1".to_owned() }
}

/// `amd64`, `arm64`, `gpu`
fn pools() -> Vec<Pool> {
    [("amd64", "linux/amd64", "type=picus"), ("arm64", "linux/arm64", ""), ("gpu", "linux/amd64", "!gpu=true")]
        .into_iter()
        .map(|(name, platform, labels)| Pool {
            name: PoolName::from(name),
            account: AccountId(0),
            filter_labels: labels.split_once('=').into_iter().collect(),
            backend: "docker".to_owned(),
            market: Market::Open {
                platform: platform.to_owned(),
                offers: vec![Offer { key: offer(), hourly_price: Some(0.006) }],
            },
            slots: 4,
            min: 1,
            max: 400,
            idle_timeout: Duration::from_mins(30),
            billing: Billing::ByPeriod(Duration::from_hours(1)),
            boot_timeout: Duration::from_mins(10),
            shared_secret: false,
            fixed: Vec::new(),
            retire: RetireTo::Delete,
            launch_settings: None,
        })
        .collect()
}

/// A pending task of one of 50 kinds, with the labels that a real server gives it.
fn task(number: usize) -> Task {
    let kind = number % KINDS;
    let repo = kind / 5;
    let (name, number_of_repo) = (format!("acme/app{repo}"), repo.to_string());
    let mut labels: Labels = [
        ("org-id", "3"),
        ("repo", &name),
        ("woodpecker-ci.org/branch", "main"),
        ("woodpecker-ci.org/commit-branch", "main"),
        ("woodpecker-ci.org/event", "push"),
        ("woodpecker-ci.org/forge-id", "gitea"),
        ("woodpecker-ci.org/org-id", "3"),
        ("woodpecker-ci.org/repo-forge-id", &number_of_repo),
        ("woodpecker-ci.org/repo-full-name", &name),
        ("woodpecker-ci.org/repo-id", &number_of_repo),
        ("woodpecker-ci.org/repo-name", "app"),
    ]
    .into_iter()
    .collect();
    match kind % 5 {
        0 => labels.set("type", "picus"),
        1 => labels.set("platform", "linux/arm64"),
        2 => labels.set("gpu", "true"),
        3 => labels.set("hostname", "build7"),
        _ => labels.set("platform", "linux/amd64"),
    }
    let grouped = number.is_multiple_of(20);
    Task {
        id: TaskId(number.to_string()),
        name: format!("w{}", number % 7),
        labels,
        dependencies: if number % 10 == 9 { vec![TaskId((number - 1).to_string())] } else { Vec::new() },
        agent: None,
        pipeline: i64::try_from(number / 10).unwrap_or(0),
        pipeline_number: 1,
        concurrency_limit: grouped.then_some(3),
        concurrency_group: if grouped { format!("{repo}/deploy") } else { String::new() },
        // The server's order is that of creation.
        created: now().checked_sub(Duration::from_secs(3 * 3600 - (number / 10) as u64)).ok(),
    }
}

/// Three hundred agents of ours and seven hundred of others; half of them busy.
fn agents(pools: &[Pool], queue: &mut Queue, count: usize) -> (Vec<Agent>, Vec<Instance>) {
    let (mut agents, mut instances) = (Vec::new(), Vec::new());
    for number in 0..count {
        let id = AgentId(i64::try_from(number).unwrap_or(0) + 1);
        let pool = &pools[number % pools.len()];
        let ours = number % 10 < 3;
        let name = LaunchName::new(&installation(), &pool.name, number as u64);
        let created = now().checked_sub(Duration::from_secs((number * 7 % 7200) as u64)).unwrap_or(now());
        let custom = if ours {
            pool.filter_labels.clone()
        } else {
            [("zone", ["eu", "us", "ap"][number % 3]), ("type", ["picus", "*", "own"][number % 3])]
                .into_iter()
                .collect()
        };
        agents.push(Agent {
            id,
            name: if ours { name.to_string() } else { format!("build{number}") },
            created,
            last_contact: now().checked_sub(Duration::from_secs(5)).ok(),
            last_work: now().checked_sub(Duration::from_secs((number % 600) as u64)).ok(),
            platform: ["linux/amd64", "linux/arm64"][number % 2].to_owned(),
            backend: "docker".to_owned(),
            capacity: 4,
            no_schedule: number.is_multiple_of(50),
            custom_labels: Some(custom),
            organisation: number.is_multiple_of(9).then_some(4),
        });
        for slot in 0..(number % 2) * 3 {
            let mut task = task(number);
            task.id = TaskId(format!("running-{number}-{slot}"));
            task.agent = Some(id);
            queue.running.push(task);
        }
        if ours {
            instances.push(Instance {
                id: InstanceId(number.to_string()),
                name,
                pool: pool.name.clone(),
                server: Some(server()),
                agent: Some(id),
                known_as: Vec::new(),
                draining: None,
                launch_settings: None,
                stopped_since: None,
                state: InstanceState::Running,
                created,
                offer: offer(),
            });
        }
    }
    (agents, instances)
}

/// So many tasks that wait and so many agents, of which three in ten are ours.
pub fn snapshot(tasks: usize, count: usize) -> Snapshot {
    let pools = pools();
    let mut queue = Queue { pending: (0..tasks).map(task).collect(), ..Queue::default() };
    let (agents, instances) = agents(&pools, &mut queue, count);
    Snapshot {
        now: now(),
        installation: installation(),
        server: server(),
        poll_interval: Duration::from_secs(10),
        pools,
        queue,
        agents,
        instances: BTreeMap::from([(AccountId(0), Listing::Known { listed: now(), instances })]),
        in_flight: InFlight::default(),
    }
}
