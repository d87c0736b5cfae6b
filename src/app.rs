//! Wires settings, clients and loop, and decides whether a start is one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio_util::sync::CancellationToken;

use crate::bootstrap;
use crate::clock::Clock;
use crate::metrics::{Calls, Metrics};
use crate::model::ids::{InstallationId, PoolName};
#[cfg(feature = "aws")]
use crate::provider::ec2;
use crate::provider::{Prepared, Provider, ProviderError};
use crate::reconcile::Reconciler;
use crate::server::Server;
use crate::settings::{AccountSettings, LaunchSettings, PoolSettings, Problem, Settings};
use crate::status::Board;
use crate::woodpecker::{self, Client};

/// Hetzner's limit for user data, in bytes: <https://docs.hetzner.cloud/reference/cloud#servers-create-a-server>.
const HETZNER_USER_DATA_LIMIT: usize = 32 * 1024;

/// Why a start is none.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings are wrong; nothing but changing them helps.
    #[error("{}", list_problems(.0))]
    Settings(Vec<Problem>),
    /// What answers does not let us in, and no waiting repairs it: a token that is not valid or not an admin's, a login
    /// page at the server's address.
    #[error("{0}")]
    Refused(String),
}

/// All problems of a start as one message.
#[must_use]
pub fn list_problems(problems: &[Problem]) -> String {
    let mut text = match problems.len() {
        1 => "1 problem with the settings:".to_owned(),
        count => format!("{count} problems with the settings:"),
    };
    for problem in problems {
        text.push_str("\n  - ");
        text.push_str(&problem.to_string());
    }
    text
}

/// The parts of a running Picus.
pub struct App {
    /// The loop.
    pub reconciler: Reconciler,
    /// The server's API.
    pub woodpecker: Client,
    /// The provider accounts, in the order of the settings.
    pub providers: Vec<Arc<dyn Provider>>,
    /// What is shown of it.
    pub board: Arc<Board>,
    /// What was configured.
    pub settings: Settings,
    clock: Clock,
}

impl App {
    /// Builds every part; talks to nobody.
    ///
    /// # Errors
    ///
    /// [`StartError::Settings`]: a CA file that can't be read, user data that is too long.
    pub fn new(settings: Settings, clock: Clock, first_name: u64) -> Result<Self, StartError> {
        match Self::assemble(settings, clock, first_name) {
            (Some(app), problems) if problems.is_empty() => Ok(app),
            (_, problems) => Err(StartError::Settings(problems)),
        }
    }

    /// The parts, if they can be built, and every problem; with one, a start would be none.
    #[must_use]
    pub fn assemble(settings: Settings, clock: Clock, first_name: u64) -> (Option<Self>, Vec<Problem>) {
        let mut problems = Vec::new();
        for pool in &settings.pools {
            problems.extend(check_user_data(pool, &settings.installation).err());
        }
        let metrics = Metrics::default();
        let mut providers = Vec::new();
        for (index, account) in settings.accounts.iter().enumerate() {
            let pools = settings.pools.iter().filter(|pool| pool.account.0 == index);
            match provider(account, pools, &clock, metrics.provider_calls(account.provider())) {
                Ok(provider) => providers.push(provider),
                Err(problem) => problems.push(problem),
            }
        }
        let woodpecker = Client::new(&settings.woodpecker).map_err(|problem| problems.push(problem)).ok();
        let woodpecker = woodpecker.map(|client| client.counted(metrics.woodpecker_calls()));
        let complete = providers.len() == settings.accounts.len();
        let app = woodpecker.filter(|_| complete).map(|woodpecker| {
            let board = Board::new(&settings, clock.clone(), metrics);
            let reconciler = Reconciler::new(
                settings.clone(),
                woodpecker.clone(),
                providers.clone(),
                Arc::clone(&board),
                clock.clone(),
                first_name,
            );
            Self { reconciler, woodpecker, providers, board, settings, clock }
        });
        (app, problems)
    }

    /// Makes sure that both sides accept us and that the providers know what the settings name. A server that is down is
    /// waited for; a provider that is down is not, its pools wait.
    ///
    /// # Errors
    ///
    /// What no waiting repairs. `Ok(false)`: `shutdown` came first.
    pub async fn ready(&self, shutdown: &CancellationToken) -> Result<bool, StartError> {
        let Some(accepted) = shutdown.run_until_cancelled(self.wait_for_server()).await else { return Ok(false) };
        accepted?;
        let Some(market) = shutdown.run_until_cancelled(self.reconciler.open_market()).await else { return Ok(false) };
        let market = market.map_err(StartError::Settings)?;
        refused(&market)?;
        for (pool, prepared) in market {
            match prepared {
                Ok(prepared) => {
                    for warning in &prepared.warnings {
                        tracing::warn!(%pool, "{warning}");
                    }
                    tracing::info!(%pool, platform = prepared.platform, offers = prepared.offers.len(), "pool is ready");
                }
                Err(why) => tracing::warn!(%pool, "the provider can't be asked yet, so the pool waits: {why}"),
            }
        }
        Ok(true)
    }

    /// Runs the loop until `shutdown`.
    ///
    /// # Errors
    ///
    /// As [`App::ready`].
    pub async fn run(&self, shutdown: CancellationToken) -> Result<(), StartError> {
        for warning in &self.settings.warnings {
            tracing::warn!("{warning}");
        }
        // Also where a start is none, nothing goes on answering.
        let closing = shutdown.child_token();
        let _closed = closing.clone().drop_guard();
        let served = self.listen().await?.map(|server| tokio::spawn(server.serve(closing)));
        if self.ready(&shutdown).await? {
            tracing::info!(
                installation = %self.settings.installation,
                pools = self.settings.pools.len(),
                dry_run = self.settings.dry_run,
                "watching {}", self.settings.woodpecker.server
            );
            self.reconciler.run(shutdown).await;
        }
        if let Some(served) = served {
            // It ends by itself, in moments.
            let _ = served.await;
        }
        tracing::info!("ended; instances stay");
        Ok(())
    }

    /// Listens where the settings say. `None`: nowhere.
    async fn listen(&self) -> Result<Option<Server>, StartError> {
        let http = &self.settings.http;
        let Some(address) = http.address else { return Ok(None) };
        let server = Server::bind(address, http, Arc::clone(&self.board)).await;
        let server = server.map_err(|error| {
            let variable = "PICUS_HTTP_ADDR".to_owned();
            let message = format!(
                "can't be listened at: {error}; take another address or port, or `off` for no health checks, metrics and \
                 status page"
            );
            StartError::Settings(vec![Problem { variable, had: Some(address.to_string()), message }])
        })?;
        let address = server.address().unwrap_or(address);
        tracing::info!("status page, health and metrics at http://{address}/");
        if http.token.is_none() && !address.ip().is_loopback() {
            tracing::info!(
                "beyond this machine only health and metrics are shown, because PICUS_HTTP_TOKEN is not set"
            );
        }
        Ok(Some(server))
    }

    async fn wait_for_server(&self) -> Result<(), StartError> {
        let mut pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(30))
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            let asked = async { Ok((self.woodpecker.user().await?, self.woodpecker.version().await?)) };
            let error: woodpecker::Error = match asked.await {
                Ok((user, version)) => return self.accept(&user, &version),
                Err(error) => error,
            };
            if error.is_about_settings() {
                return Err(StartError::Refused(error.to_string()));
            }
            tracing::warn!("waiting for the Woodpecker server: {error}");
            self.reconciler.unanswered();
            self.clock.sleep(pauses.next().unwrap_or(Duration::from_secs(30))).await;
        }
    }

    /// Whether agents can be managed with this user's token, and launched for this version.
    fn accept(&self, user: &woodpecker::User, version: &str) -> Result<(), StartError> {
        if !user.admin {
            return Err(StartError::Refused(format!(
                "PICUS_WOODPECKER_TOKEN is a token of {}, who is not an admin of the server; only with an admin's token can \
                 agents be managed",
                user.login
            )));
        }
        let needs_image = self.settings.pools.iter().any(|pool| pool.agent.image.is_none());
        if let (true, Err(error)) = (needs_image, bootstrap::image::of_server(version)) {
            let variable = "PICUS_AGENT_IMAGE".to_owned();
            return Err(StartError::Settings(vec![Problem { variable, had: None, message: error.to_string() }]));
        }
        tracing::info!(version, user = user.login, "the Woodpecker server answers");
        Ok(())
    }
}

/// Providers that do not accept their token; the pools with the same answer are named together.
fn refused(market: &[(PoolName, Result<Prepared, ProviderError>)]) -> Result<(), StartError> {
    let mut refused: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (pool, prepared) in market {
        if let Err(ProviderError::Unauthorised(why)) = prepared {
            refused.entry(why).or_default().push(&pool.0);
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = refused.iter().map(|(why, pools)| format!("pool {}: {why}", pools.join(", "))).collect();
    Err(StartError::Refused(lines.join("\n  ")))
}

/// Whether the user data of a pool's instances is not too long for its provider.
fn check_user_data(pool: &PoolSettings, installation: &InstallationId) -> Result<(), Problem> {
    let sent_as_it_is: fn(&str) -> usize = str::len;
    match &pool.launch {
        LaunchSettings::Hetzner(_) => bootstrap::check_size(pool, installation, HETZNER_USER_DATA_LIMIT, sent_as_it_is),
        #[cfg(feature = "aws")]
        LaunchSettings::Ec2(_) => {
            let compressed = |user_data: &str| ec2::shortest(user_data).len();
            bootstrap::check_size(pool, installation, ec2::LARGEST_USER_DATA, compressed)
        }
        #[cfg(not(feature = "aws"))]
        LaunchSettings::Ec2(_) => Ok(()),
        LaunchSettings::Fixed(_) => Ok(()),
    }
}

#[cfg_attr(
    not(feature = "aws"),
    expect(unused_variables, clippy::needless_pass_by_value, reason = "only EC2 must know its pools")
)]
fn provider<'a>(
    account: &AccountSettings,
    pools: impl Iterator<Item = &'a PoolSettings>,
    clock: &Clock,
    calls: Calls,
) -> Result<Arc<dyn Provider>, Problem> {
    match account {
        #[cfg(feature = "hcloud")]
        AccountSettings::Hetzner { token, endpoint } => {
            let hetzner = crate::provider::hetzner::Hetzner::new(token.clone(), endpoint.clone(), clock.clone());
            let hetzner = hetzner.map_err(|error| Problem {
                variable: "PICUS_HCLOUD_ENDPOINT".to_owned(),
                had: Some(endpoint.to_string()),
                message: format!("no client can be made for it: {error}"),
            })?;
            Ok(Arc::new(hetzner.counted(calls)))
        }
        #[cfg(not(feature = "hcloud"))]
        AccountSettings::Hetzner { .. } => Err(not_built("hcloud", clock, &calls)),
        #[cfg(feature = "aws")]
        AccountSettings::Aws => Ok(Arc::new(ec2::Ec2::new(pools, clock.clone()).counted(calls))),
        #[cfg(not(feature = "aws"))]
        AccountSettings::Aws => Err(not_built("aws", clock, &calls)),
    }
}

#[cfg(not(all(feature = "hcloud", feature = "aws")))]
fn not_built(feature: &str, _clock: &Clock, _calls: &Calls) -> Problem {
    Problem {
        variable: "PICUS_PROVIDER_TYPE".to_owned(),
        had: Some(feature.to_owned()),
        message: format!("is not in this build: build Picus with the cargo feature `{feature}`"),
    }
}
