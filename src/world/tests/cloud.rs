//! Hetzner's API through the socket.

use reqwest::Method;
use serde_json::{Value, json};

use super::{NOON, create, hetzner, order, secs, world, world_with};
use crate::world::{Endpoint, Resource, Side, WorldOptions};

async fn refused(world: &crate::world::World, order: Value) -> (u16, String) {
    let answer = hetzner(world, Method::POST, "servers", Some(order)).await;
    (answer.status, answer.json()["error"]["code"].as_str().unwrap_or("").to_owned())
}

fn changed(field: &str, value: Value) -> Value {
    let mut order = order("s", "");
    order[field] = value;
    order
}

#[tokio::test]
async fn a_server_is_created_found_and_deleted() {
    let world = world().await;
    let mut order = order("s1", "");
    order["ssh_keys"] = json!(["admin"]);
    order["networks"] = json!([world.add_resource(Resource::Network, "private")]);
    order["public_net"] = json!({ "enable_ipv4": false, "enable_ipv6": true });
    let answer = hetzner(&world, Method::POST, "servers", Some(order)).await.json();
    assert_eq!(answer["root_password"], Value::Null, "there is a key");
    assert_eq!(answer["next_actions"][0]["command"], "start_server");
    let server = &answer["server"];
    assert_eq!(server["server_type"]["name"], "cx23");
    assert_eq!(server["location"]["name"], "nbg1");
    assert_eq!(server["image"]["architecture"], "x86");
    assert_eq!(server["public_net"]["ipv4"], Value::Null);
    assert!(server.get("datacenter").is_none(), "gone from today's API");
    let view = &world.servers()[0];
    assert_eq!((view.ipv4, view.ipv6), (false, true));
    assert_eq!(view.resources, [(Resource::SshKey, "admin".into()), (Resource::Network, "private".into())]);
    let id = server["id"].as_u64().unwrap();
    let path = format!("servers/{id}");
    for found in ["servers?name=s1", "servers?label_selector=picus%3D%3Dpicus,picus-pool", "servers"] {
        let answer = hetzner(&world, Method::GET, found, None).await.json();
        assert_eq!(answer["servers"][0]["id"], id, "{found}");
    }
    assert_eq!(hetzner(&world, Method::GET, &path, None).await.json()["server"]["name"], "s1");
    assert_eq!(hetzner(&world, Method::DELETE, &path, None).await.status, 200);
    assert_eq!(hetzner(&world, Method::DELETE, &path, None).await.status, 404);
    assert_eq!(hetzner(&world, Method::GET, &path, None).await.status, 404);
}

#[tokio::test]
async fn orders_are_refused_for_what_the_real_api_refuses() {
    let world = world_with(WorldOptions { server_limit: 1, ..WorldOptions::default() }).await;
    for (order, code) in [
        (changed("name", json!("a_b")), "invalid_input"),
        (changed("name", json!("-a")), "invalid_input"),
        (changed("name", json!("a".repeat(64))), "invalid_input"),
        (changed("server_type", json!("cx11")), "invalid_input"),
        (changed("server_type", json!("cx22")), "invalid_input"),
        (changed("location", json!("ash")), "invalid_input"),
        (changed("location", json!("moon")), "invalid_input"),
        (changed("image", json!("beos")), "invalid_input"),
        (changed("image", json!("105888141")), "invalid_input"),
        (changed("labels", json!({ "a": "linux/amd64" })), "invalid_input"),
        (changed("labels", json!({ "a": "*" })), "invalid_input"),
        (changed("labels", json!({ "": "b" })), "invalid_input"),
        (changed("user_data", json!("x".repeat(32 * 1024 + 1))), "invalid_input"),
        (changed("ssh_keys", json!(["nobody"])), "not_found"),
        (changed("networks", json!([1])), "not_found"),
        (changed("public_net", json!({ "enable_ipv4": false, "enable_ipv6": false })), "invalid_input"),
    ] {
        let text = order.to_string();
        assert_eq!(refused(&world, order).await.1, code, "{}", &text[..text.len().min(200)]);
    }
    create(&world, changed("user_data", json!("x".repeat(32 * 1024)))).await;
    assert_eq!(refused(&world, order("s", "")).await, (409, "uniqueness_error".into()));
    assert_eq!(refused(&world, order("t", "")).await, (403, "resource_limit_exceeded".into()));
    world.set_server_limit(9);
    world.sell_out("cx23", Some("nbg1"), secs(60));
    assert_eq!(refused(&world, order("t", "")).await, (412, "resource_unavailable".into()));
    world.advance(secs(60));
    create(&world, order("t", "")).await;
    assert_eq!(world.calls(Endpoint::CreateServer), 16 + 5);
}

#[tokio::test]
async fn a_full_placement_group_takes_no_more() {
    let world = world().await;
    let spread = |name: String| {
        let mut order = order(&name, "");
        order["placement_group"] = json!("spread");
        order
    };
    for number in 0..10 {
        create(&world, spread(format!("s{number}"))).await;
    }
    assert_eq!(refused(&world, spread("one-more".into())).await, (412, "placement_error".into()));
}

#[tokio::test]
async fn servers_come_in_pages() {
    let world = world().await;
    for number in 0..60 {
        create(&world, order(&format!("s{number}"), "")).await;
    }
    for (query, length, next) in [
        ("", 25, json!(2)),
        ("?per_page=50", 50, json!(2)),
        ("?per_page=500", 50, json!(2)),
        ("?per_page=50&page=2", 10, Value::Null),
        ("?per_page=20&page=3", 20, Value::Null),
        ("?per_page=20&page=4", 0, Value::Null),
    ] {
        let answer = hetzner(&world, Method::GET, &format!("servers{query}"), None).await.json();
        assert_eq!(answer["servers"].as_array().unwrap().len(), length, "{query}");
        assert_eq!(answer["meta"]["pagination"]["next_page"], next, "{query}");
        assert_eq!(answer["meta"]["pagination"]["total_entries"], 60);
    }
}

#[tokio::test]
async fn selectors_are_read_as_documented() {
    let world = world().await;
    create(&world, order("s1", "")).await;
    for (selector, found) in [
        ("picus", 1),
        ("!picus", 0),
        ("picus=picus", 1),
        ("picus==picus", 1),
        ("picus!=picus", 0),
        ("picus==other", 0),
        ("picus,picus-pool=default", 1),
        ("picus,picus-pool=arm64", 0),
        ("!other,picus", 1),
    ] {
        let path = format!("servers?label_selector={}", selector.replace('=', "%3D"));
        let answer = hetzner(&world, Method::GET, &path, None).await.json();
        assert_eq!(answer["servers"].as_array().unwrap().len(), found, "{selector}");
    }
    assert_eq!(hetzner(&world, Method::GET, "servers?label_selector=a%20in%20(b)", None).await.status, 422);
}

#[tokio::test]
async fn the_catalogue_tells_architecture_price_places_and_ends() {
    let world = world().await;
    world.deprecate("cpx32", Some("hel1"), secs(3600));
    let types = hetzner(&world, Method::GET, "server_types?per_page=50", None).await.json();
    let find = |name: &str| types["server_types"].as_array().unwrap().iter().find(|found| found["name"] == name);
    assert_eq!(find("cax11").unwrap()["architecture"], "arm");
    assert!(
        find("cx23").unwrap()["prices"][0]["price_hourly"]["gross"].as_str().unwrap().parse::<f64>().unwrap() > 0.0
    );
    assert!(find("cx11").is_none());
    assert!(find("cx22").unwrap()["deprecation"].is_object());
    assert_eq!(find("cx22").unwrap()["locations"][0]["available"], false);
    let places = find("cpx32").unwrap()["locations"].as_array().unwrap();
    let ending: Vec<_> = places.iter().filter(|place| !place["deprecation"].is_null()).collect();
    assert_eq!(ending.len(), 1);
    assert_eq!((&ending[0]["name"], &ending[0]["available"]), (&json!("hel1"), &json!(true)));
    let images = hetzner(&world, Method::GET, "images?name=docker-ce", None).await.json();
    assert_eq!(images["images"].as_array().unwrap().len(), 2, "one name, two images");
    let arm = hetzner(&world, Method::GET, "images?name=docker-ce&architecture=arm", None).await.json();
    assert_eq!(arm["images"][0]["architecture"], "arm");
    let id = arm["images"][0]["id"].as_u64().unwrap();
    assert_eq!(hetzner(&world, Method::GET, &format!("images/{id}"), None).await.json()["image"]["id"], id);
    for (list, name) in [
        ("locations", "nbg1"),
        ("ssh_keys", "admin"),
        ("networks", "ci"),
        ("firewalls", "ci"),
        ("placement_groups", "spread"),
    ] {
        let found = hetzner(&world, Method::GET, &format!("{list}?name={name}"), None).await.json();
        assert_eq!(found[list].as_array().unwrap().len(), 1, "{list}");
        let none = hetzner(&world, Method::GET, &format!("{list}?name=nothing"), None).await.json();
        assert_eq!(none[list], json!([]), "{list}");
    }
}

#[tokio::test]
async fn the_budget_of_calls_is_told_spent_and_refilled() {
    let world = world_with(WorldOptions { calls_an_hour: 3, ..WorldOptions::default() }).await;
    for left in ["2", "1", "0"] {
        let answer = hetzner(&world, Method::GET, "servers", None).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("ratelimit-limit"), "3");
        assert_eq!(answer.header("ratelimit-remaining"), left);
    }
    let refused = hetzner(&world, Method::GET, "servers", None).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    let reset: i64 = refused.header("ratelimit-reset").parse().unwrap();
    assert_eq!(reset, NOON + 1200);
    world.advance(secs(1200));
    assert_eq!(hetzner(&world, Method::GET, "servers", None).await.status, 200);
    assert_eq!(world.calls_to(Side::Hetzner), 5);
}

#[tokio::test]
async fn the_bill_counts_started_hours_of_all_servers_that_ever_were() {
    let world = world().await;
    let first = create(&world, order("s1", "")).await;
    create(&world, order("s2", "")).await;
    world.advance(secs(60));
    hetzner(&world, Method::DELETE, &format!("servers/{first}"), None).await;
    world.advance(secs(3600));
    let bill = world.bill();
    assert_eq!((bill.servers, bill.hours), (2, 1 + 2));
    let expected = world.hourly_price("cx23").unwrap() * 3.0;
    assert!((bill.cost - expected).abs() < 1e-9, "{bill:?}");
}

/// The strict models of the `hcloud` crate are a second opinion on the shapes.
#[cfg(feature = "hcloud")]
#[tokio::test]
async fn strict_models_of_the_real_api_read_the_answers() {
    use hcloud::models;
    use serde::de::DeserializeOwned;

    fn read<T: DeserializeOwned>(answer: &super::Answer) -> Result<T, serde_json::Error> {
        serde_json::from_str(&answer.text)
    }

    let world = world().await;
    let mut order = order("s", "");
    order["networks"] = json!([world.add_resource(Resource::Network, "private")]);
    order["firewalls"] = json!([{ "firewall": world.add_resource(Resource::Firewall, "closed") }]);
    order["placement_group"] = json!("spread");
    let created = hetzner(&world, Method::POST, "servers", Some(order)).await;
    read::<models::CreateServerResponse>(&created).unwrap();
    let get = async |path: &str| hetzner(&world, Method::GET, path, None).await;
    read::<models::ListServersResponse>(&get("servers").await).unwrap();
    let id = created.json()["server"]["id"].as_u64().unwrap();
    read::<models::GetServerResponse>(&get(&format!("servers/{id}")).await).unwrap();
    read::<models::ListServerTypesResponse>(&get("server_types?name=cx23").await).unwrap();
    read::<models::ListImagesResponse>(&get("images?name=docker-ce").await).unwrap();
    read::<models::ListLocationsResponse>(&get("locations").await).unwrap();
    read::<models::ListSshKeysResponse>(&get("ssh_keys").await).unwrap();
    read::<models::ListNetworksResponse>(&get("networks").await).unwrap();
    read::<models::ListFirewallsResponse>(&get("firewalls").await).unwrap();
    read::<models::ListPlacementGroupsResponse>(&get("placement_groups").await).unwrap();
    // Words that no documentation knows are there on purpose: they break strict readers.
    assert!(read::<models::ListServerTypesResponse>(&get("server_types").await).is_err());
    assert!(read::<models::ListImagesResponse>(&get("images").await).is_err());
    let deleted = hetzner(&world, Method::DELETE, &format!("servers/{id}"), None).await;
    read::<models::DeleteServerResponse>(&deleted).unwrap();
}
