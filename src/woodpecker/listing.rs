//! The whole list of agent records from pages of 50.
//!
//! The server numbers pages by offset, ordered by id. A record that is deleted while the pages are read moves all later
//! ones forward, and one of them slips through between two pages. So after the last page the earlier ones are read
//! again: if their ids are what they were, nothing moved. (Ids are never used twice, so they can't look unmoved by
//! accident; a record that is added comes last and moves nothing.)

use std::collections::BTreeSet;

use jiff::Timestamp;
use reqwest::Method;

use super::Agents;
use super::error::Error;
use super::http::Http;
use super::wire;

/// The server's own upper bound (`maxPageSize` in `server/router/middleware/session/pagination.go`).
const PAGE_SIZE: usize = 50;
/// 50,000 agents: no server has so many, so an answer without end is not one.
const MAX_PAGES: usize = 1000;
/// How often the list may move under our eyes before it counts as unknown.
const TRIES: usize = 3;
/// A page is 50 records of some hundred bytes, and custom labels.
const PAGE_LIMIT: usize = 8 * 1024 * 1024;

struct Page {
    agents: Vec<wire::Agent>,
    server_time: Option<Timestamp>,
}

impl Page {
    fn ids(&self) -> impl Iterator<Item = i64> {
        self.agents.iter().map(wire::Agent::id)
    }
}

/// Every agent record, or an error; never a part.
pub(super) async fn agents(http: &Http) -> Result<Agents, Error> {
    let limit = http.timeouts.listing();
    tokio::time::timeout(limit, whole_list(http))
        .await
        .unwrap_or_else(|_| Err(unavailable(http, format!("the list was not read within {limit:?}"))))
}

async fn whole_list(http: &Http) -> Result<Agents, Error> {
    for _ in 0..TRIES {
        let mut pages = read_pages(http).await?;
        if read_again(http, &mut pages).await? {
            // The newest answer's; the clock may not have been told on each.
            let server_time = pages.iter().filter_map(|page| page.server_time).max();
            let mut seen = BTreeSet::new();
            let mut agents: Vec<_> = pages.into_iter().flat_map(|page| page.agents).collect();
            agents.retain(|agent| seen.insert(agent.id()));
            return Ok(Agents { agents: agents.into_iter().map(Into::into).collect(), server_time });
        }
    }
    Err(unavailable(http, format!("the list changed while it was read, {TRIES} times in a row")))
}

/// All pages up to the first that is short.
async fn read_pages(http: &Http) -> Result<Vec<Page>, Error> {
    let mut pages = Vec::new();
    let mut seen = BTreeSet::new();
    while pages.len() < MAX_PAGES {
        let page = read_page(http, pages.len() + 1).await?;
        let short = page.agents.len() < PAGE_SIZE;
        let fresh = page.ids().filter(|id| seen.insert(*id)).count();
        pages.push(page);
        if short {
            return Ok(pages);
        }
        if fresh == 0 {
            return Err(unavailable(http, format!("page {} repeats the earlier ones", pages.len())));
        }
    }
    Err(unavailable(http, format!("the list does not end within {MAX_PAGES} pages")))
}

/// Reads all pages but the last again and keeps the newer records. `false`: they moved.
async fn read_again(http: &Http, pages: &mut [Page]) -> Result<bool, Error> {
    let earlier = pages.len().saturating_sub(1);
    for (index, page) in pages.iter_mut().take(earlier).enumerate() {
        let again = read_page(http, index + 1).await?;
        if !again.ids().eq(page.ids()) {
            return Ok(false);
        }
        *page = again;
    }
    Ok(true)
}

async fn read_page(http: &Http, number: usize) -> Result<Page, Error> {
    let path = format!("/api/agents?page={number}&perPage={PAGE_SIZE}");
    let answer = http.ask(&http.call(Method::GET, &path, PAGE_LIMIT)).await?;
    let agents: Option<Vec<wire::Agent>> = answer.json(http)?;
    Ok(Page { agents: agents.unwrap_or_default(), server_time: answer.date() })
}

fn unavailable(http: &Http, what: String) -> Error {
    http.call(Method::GET, "/api/agents", PAGE_LIMIT).unavailable(None, what)
}
