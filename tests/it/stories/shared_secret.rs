//! Agents that register themselves with the server's shared secret: their records are found by name.

use picus::model::ids::TaskId;
use picus::world::{AnswerFault, Endpoint, Fault, MachineFault, task};

use crate::harness::{Setup, hours, minutes, picus, seconds};

const SECRET: &str = "a-secret-that-all-agents-share";

fn shared() -> Setup {
    picus().shared_secret(SECRET)
}

#[tokio::test]
async fn records_are_made_by_the_agents_and_removed_at_retiring() {
    let p = shared().start().await;
    let tasks: Vec<TaskId> = (0..3).map(|_| p.world.push(task("build"))).collect();
    p.pass().await;
    assert_eq!((p.servers(), p.world.agents().len()), (2, 0), "no record before the agent has connected");
    p.until_done(&tasks.iter().collect::<Vec<_>>()).await;
    let names = |name: fn(&picus::world::AgentView) -> String| p.world.agents().iter().map(name).collect::<Vec<_>>();
    let servers: Vec<String> = p.world.servers().into_iter().map(|server| server.name).collect();
    assert_eq!(names(|agent| agent.name.clone()), servers);
    p.ends_clean().await;
    assert_eq!((p.launched(), p.world.calls(Endpoint::CreateAgent)), (2, 0));
}

#[tokio::test]
async fn the_leftover_of_two_records_with_one_name_is_removed_and_the_other_works_on() {
    let p = shared().start().await;
    let long = p.world.push(task("long").takes(minutes(30)));
    p.until_run(&[&long]).await;
    // What a new disk leaves: an older life's record of the same name that nobody uses any more.
    let name = p.world.servers()[0].name.clone();
    let leftover = p.world.add_record(&name);
    p.live(minutes(10)).await;
    assert!(p.world.agent(leftover).is_none(), "{}", p.situation());
    assert!(p.is_running(&long));
    p.ends_clean().await;
    assert_eq!(p.launched(), 1);
}

#[tokio::test]
async fn an_instance_that_never_registers_is_replaced() {
    let p = shared().start().await;
    p.world.fault(Fault::machine(MachineFault::NeverBoots).times(1));
    let build = p.world.push(task("build"));
    p.ends_clean().await;
    assert!(p.is_done(&build));
    assert_eq!(p.launched(), 2);
}

#[tokio::test]
async fn a_create_call_whose_answer_is_lost_leaves_one_instance() {
    for late in [0, 45, 170] {
        let p = shared().start().await;
        p.world.fault(Fault::on(Endpoint::CreateServer, AnswerFault::LostAnswer).times(1));
        p.world.fault(Fault::machine(MachineFault::ListedLate(seconds(late))).times(1));
        p.world.push(task("build"));
        p.ends_clean().await;
        assert_eq!(p.launched(), 1, "listed {late} s late");
    }
}

#[tokio::test]
async fn killed_during_any_call_it_goes_on_where_it_was() {
    for endpoint in [Endpoint::CreateServer, Endpoint::PatchAgent, Endpoint::DeleteAgent, Endpoint::DeleteServer] {
        let mut p = shared().start().await;
        let build = p.world.push(task("build"));
        assert!(p.killed_during(endpoint, minutes(30)).await, "{endpoint:?} was not called");
        p.ends_clean().await;
        assert!(p.is_done(&build), "{endpoint:?}");
        assert_eq!(p.launched(), 1, "{endpoint:?}");
    }
}

#[tokio::test]
async fn an_empty_list_of_agents_deletes_no_instance_that_was_connected_before() {
    let p = shared().min(1).set("BOOT_TIMEOUT", "2m").start().await;
    p.live(hours(1)).await;
    let empty = p.world.fault(Fault::on(Endpoint::Agents, AnswerFault::EmptyList).times(4));
    p.live(seconds(50)).await;
    p.world.mend(empty);
    p.live(minutes(10)).await;
    assert_eq!((p.launched(), p.servers()), (1, 1), "{}", p.situation());
}

#[tokio::test]
async fn an_instance_deleted_by_hand_takes_its_record_with_it() {
    let p = shared().start().await;
    let first = p.world.push(task("first"));
    p.until_done(&[&first]).await;
    let server = p.world.servers()[0].id.clone();
    assert!(p.world.delete_server_by_hand(&server));
    p.ends_clean().await;
}

#[tokio::test]
async fn one_instance_that_connects_ends_a_row_of_failures() {
    let p = shared().slots(1).max(3).start().await;
    p.world.fault(Fault::machine(MachineFault::NeverBoots).times(3));
    for _ in 0..5 {
        p.world.push(task("build").takes(minutes(10)));
    }
    p.live_until("one connects", |world| world.servers().iter().any(|server| server.connected)).await;
    p.live(seconds(30)).await;
    assert_eq!(p.servers(), 3, "one success, and the others are launched at once");
    p.ends_clean().await;
    assert_eq!(p.launched(), 6);
}

#[tokio::test]
async fn an_agent_that_never_worked_is_idle_from_its_first_contact() {
    let p = shared().world(|world| world.boot_time = minutes(8)).start().await;
    let build = p.world.push(task("taken by others").takes(hours(1)));
    p.pass().await;
    p.world.add_agent(picus::world::agent("office"));
    p.live_until("it connects", |world| world.servers().iter().any(|server| server.connected)).await;
    p.live(minutes(9)).await;
    assert_eq!(p.servers(), 1, "{}", p.situation());
    p.live(minutes(2)).await;
    assert_eq!(p.servers(), 0, "{}", p.situation());
    p.until_done(&[&build]).await;
    p.ends_clean().await;
}
