//! Lists of more than one page, also such that change while they are read.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use axum::http::HeaderMap;
use axum::response::Response;

use super::server::{Asked, failed, json, lines, serve};

/// The records of this page as the server would answer it.
fn page(ids: &[i64], asked: &Asked) -> Response {
    let number: usize =
        asked.line.strip_prefix("GET /api/agents?page=").unwrap().split_once('&').unwrap().0.parse().unwrap();
    assert!(asked.line.ends_with("&perPage=50"), "{}", asked.line);
    let records = ids.iter().skip((number - 1) * 50).take(50).fold(String::new(), |mut list, id| {
        let comma = if list.is_empty() { "" } else { "," };
        write!(list, r#"{comma}{{"id":{id},"created":1790000000,"name":"a{id}","token":"eyJhbGci"}}"#).unwrap();
        list
    });
    json(if records.is_empty() { "null".to_owned() } else { format!("[{records}]") })
}

/// The ids in the list of a server with these records, which `change` may change before each answer.
async fn listed(
    records: impl IntoIterator<Item = i64>,
    change: impl Fn(usize, &mut Vec<i64>) + Clone + Send + Sync + 'static,
) -> (Result<Vec<i64>, super::super::Error>, Vec<String>) {
    let state = Arc::new(Mutex::new((0, records.into_iter().collect::<Vec<_>>())));
    let (client, log) = serve(move |asked| {
        let (count, ids) = &mut *state.lock().unwrap();
        *count += 1;
        change(*count, ids);
        page(ids, asked)
    })
    .await;
    let ids = client.agents().await.map(|all| all.agents.iter().map(|agent| agent.id.0).collect());
    (ids, lines(&log))
}

#[tokio::test]
async fn every_page_is_read_until_one_is_short() {
    for (count, calls) in [(0, 1), (1, 1), (49, 1), (50, 3), (51, 3), (60, 3), (99, 3), (100, 5), (149, 5), (150, 7)] {
        let (ids, log) = listed(1..=count, |_, _| ()).await;
        assert_eq!(ids.unwrap(), (1..=count).collect::<Vec<_>>(), "{count}");
        assert_eq!(log.len(), calls, "{count}: {log:?}");
    }
}

#[tokio::test]
async fn no_record_is_missed_when_another_is_deleted_between_two_pages() {
    // Before each of the first three answers; record 51 slips through between pages 1 and 2.
    for before in 1..=3 {
        let change = move |count, ids: &mut Vec<i64>| {
            if count == before {
                ids.remove(0);
            }
        };
        let (ids, _) = listed(1..=60, change).await;
        let ids = ids.unwrap();
        assert!((2..=60).all(|id| ids.contains(&id)), "before answer {before}: {ids:?}");
    }
}

#[tokio::test]
async fn the_last_of_exactly_51_is_not_missed_when_the_list_shrinks_to_one_page() {
    let (ids, _) = listed(1..=51, |count, ids| ids.retain(|id| count < 2 || *id != 7)).await;
    assert_eq!(ids.unwrap(), (1..=51).filter(|id| *id != 7).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_record_added_while_pages_are_read_disturbs_nothing() {
    let (ids, log) = listed(1..=60, |count, ids| ids.push(100 + i64::try_from(count).unwrap())).await;
    let ids = ids.unwrap();
    assert!((1..=60).all(|id| ids.contains(&id)), "{ids:?}");
    assert_eq!(log.len(), 3);
}

#[tokio::test]
async fn a_list_that_never_stands_still_is_an_error() {
    let (ids, log) = listed(1..=200, |_, ids| {
        ids.remove(0);
    })
    .await;
    let error = failed(ids);
    assert!(
        error.to_string().ends_with("/api/agents: the list changed while it was read, 3 times in a row"),
        "{error}"
    );
    assert!(log.len() < 30, "{log:?}");
}

#[tokio::test]
async fn a_server_that_ignores_the_page_is_an_error_not_a_loop() {
    let ids: Vec<i64> = (1..=50).collect();
    let first = Asked {
        line: "GET /api/agents?page=1&perPage=50".to_owned(),
        headers: HeaderMap::default(),
        body: String::new(),
    };
    let (client, log) = serve(move |_| page(&ids, &first)).await;
    assert!(failed(client.agents().await).to_string().ends_with("page 2 repeats the earlier ones"));
    assert_eq!(log.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_page_that_fails_fails_the_list() {
    for failing in 1..=3 {
        let count = Arc::new(Mutex::new(0));
        let (client, _) = serve(move |asked| {
            *count.lock().unwrap() += 1;
            if *count.lock().unwrap() == failing {
                super::server::answer(500, "text/plain", "Error getting agent list. locked")
            } else {
                page(&(1..=60).collect::<Vec<_>>(), asked)
            }
        })
        .await;
        let error = failed(client.agents().await);
        assert!(error.to_string().contains("500 Internal Server Error (Error getting agent list. locked)"), "{error}");
    }
}

#[tokio::test]
async fn the_servers_clock_comes_with_the_list() {
    let (client, _) = serve(|_| {
        let mut response = json("null");
        response.headers_mut().insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        response
    })
    .await;
    let all = client.agents().await.unwrap();
    assert_eq!(all.server_time, Some("1994-11-06T08:49:37Z".parse().unwrap()));
    let (client, _) = serve(|_| {
        let mut response = json("null");
        response.headers_mut().insert("date", "yesterday".parse().unwrap());
        response
    })
    .await;
    assert_eq!(client.agents().await.unwrap().server_time, None);
}
