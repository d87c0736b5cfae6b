//! Asks the providers what can be ordered: once at the start, then every hour, beside the loop.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::Reconciler;
use crate::model::ids::PoolName;
use crate::model::later;
use crate::model::pool::Market;
use crate::provider::{PrepareError, Prepared, ProviderError};
use crate::settings::{PoolSettings, Problem};

/// Prices and deprecations change rarely; a few calls an hour.
const REFRESH: Duration = Duration::from_hours(1);
/// A provider that could not be asked is asked again after this.
const RETRY: Duration = Duration::from_secs(30);

/// What each pool can order.
#[derive(Default)]
pub(super) struct Stalls(BTreeMap<PoolName, Stall>);

struct Stall {
    market: Market,
    /// When it is asked again. `None`: it is being asked.
    again: Option<Timestamp>,
}

impl Stalls {
    pub(super) fn of(&self, pool: &PoolName) -> Market {
        match self.0.get(pool) {
            Some(stall) => stall.market.clone(),
            None => Market::NotReady { why: "the provider has not been asked yet".to_owned() },
        }
    }
}

impl Reconciler {
    /// Asks for every pool at the same time, and waits.
    ///
    /// # Errors
    ///
    /// Every problem with the settings that a provider found. A provider that can't be asked is no error: its pools
    /// wait, and are asked for again.
    pub async fn open_market(&self) -> Result<Vec<(PoolName, Result<Prepared, ProviderError>)>, Vec<Problem>> {
        let asked = self.0.settings.pools.iter().map(|pool| async move { (pool, self.ask(pool).await) });
        let mut problems = Vec::new();
        let mut found = Vec::new();
        for (pool, answer) in futures_util::future::join_all(asked).await {
            match answer {
                Ok(prepared) => found.push((pool.name.clone(), Ok(prepared))),
                Err(PrepareError::Settings(new)) => problems.extend(new),
                Err(PrepareError::Provider(error)) => found.push((pool.name.clone(), Err(error))),
            }
        }
        let mut distinct: Vec<Problem> = Vec::new();
        for problem in problems {
            if !distinct.contains(&problem) {
                distinct.push(problem);
            }
        }
        if distinct.is_empty() { Ok(found) } else { Err(distinct) }
    }

    /// Asks again, beside the loop, for the pools whose time has come.
    pub(super) fn refresh_market(&self) {
        let now = self.0.clock.now();
        for (index, pool) in self.0.settings.pools.iter().enumerate() {
            let mut state = self.state();
            let before = state.market.of(&pool.name);
            let due = match state.market.0.get_mut(&pool.name) {
                Some(Stall { again: Some(again), .. }) if now < *again => false,
                Some(Stall { again: None, .. }) => false,
                Some(stall) => {
                    stall.again = None;
                    true
                }
                None => {
                    let market = state.market.of(&pool.name);
                    state.market.0.insert(pool.name.clone(), Stall { market, again: None });
                    true
                }
            };
            drop(state);
            if due {
                let reconciler = self.clone();
                tokio::spawn(async move {
                    let Some(pool) = reconciler.0.settings.pools.get(index) else { return };
                    match reconciler.ask(pool).await {
                        Ok(_) => reconciler.wake(),
                        // The same is not said twice.
                        Err(error) if before == (Market::NotReady { why: error.to_string() }) => {}
                        Err(error) => tracing::warn!(pool = %pool.name, "what can be ordered is not known: {error}"),
                    }
                });
            }
        }
    }

    async fn ask(&self, pool: &PoolSettings) -> Result<Prepared, PrepareError> {
        let answer = match self.0.providers.get(pool.account.0) {
            Some(account) => account.provider.prepare(pool).await,
            None => Err(PrepareError::Settings(Vec::new())),
        };
        let now = self.0.clock.now();
        let mut state = self.state();
        let before = state.market.of(&pool.name);
        let (market, again) = match (&answer, before) {
            (Ok(prepared), _) => {
                let Prepared { platform, offers, warnings: _, findings: _ } = prepared;
                (Market::Open { platform: platform.clone(), offers: offers.clone() }, REFRESH)
            }
            // What was good an hour ago is better than nothing.
            (Err(_), open @ Market::Open { .. }) => (open, REFRESH),
            (Err(error), Market::NotReady { .. }) => (Market::NotReady { why: error.to_string() }, RETRY),
        };
        state.market.0.insert(pool.name.clone(), Stall { market, again: Some(later(now, again)) });
        answer
    }
}
