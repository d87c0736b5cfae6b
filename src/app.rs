//! Wires settings, clients and loop, and decides whether a start is one.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio_util::sync::CancellationToken;

use crate::bootstrap;
use crate::clock::Clock;
use crate::provider::Provider;
use crate::reconcile::Reconciler;
use crate::settings::{AccountSettings, LaunchSettings, Problem, Settings};
use crate::woodpecker::{self, Client};

/// Hetzner's limit for user data, in bytes: <https://docs.hetzner.cloud/reference/cloud#servers-create-a-server>.
const HETZNER_USER_DATA_LIMIT: usize = 32 * 1024;

/// Why a start is none.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings are wrong; nothing but changing them helps.
    #[error("{}", list_problems(.0))]
    Settings(Vec<Problem>),
    /// The server does not accept the token.
    #[error("{0}")]
    Token(String),
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
        let mut problems = Vec::new();
        for pool in &settings.pools {
            let limit = match &pool.launch {
                LaunchSettings::Hetzner(_) => HETZNER_USER_DATA_LIMIT,
            };
            problems.extend(bootstrap::check_size(pool, &settings.installation, limit).err());
        }
        let mut providers = Vec::new();
        for account in &settings.accounts {
            match provider(account, &clock) {
                Ok(provider) => providers.push(provider),
                Err(problem) => problems.push(problem),
            }
        }
        let woodpecker = match Client::new(&settings.woodpecker) {
            Ok(woodpecker) if problems.is_empty() => woodpecker,
            Ok(_) => return Err(StartError::Settings(problems)),
            Err(problem) => {
                problems.push(problem);
                return Err(StartError::Settings(problems));
            }
        };
        let reconciler =
            Reconciler::new(settings.clone(), woodpecker.clone(), providers.clone(), clock.clone(), first_name);
        Ok(Self { reconciler, woodpecker, providers, settings, clock })
    }

    /// Makes sure that the server accepts us and that the providers know what the settings name. A server that is
    /// down is waited for; a provider that is down is not, its pools wait.
    ///
    /// # Errors
    ///
    /// What no waiting repairs. `Ok(false)`: `shutdown` came first.
    pub async fn ready(&self, shutdown: &CancellationToken) -> Result<bool, StartError> {
        let Some(accepted) = shutdown.run_until_cancelled(self.wait_for_server()).await else { return Ok(false) };
        accepted?;
        let Some(market) = shutdown.run_until_cancelled(self.reconciler.open_market()).await else { return Ok(false) };
        let market = market.map_err(StartError::Settings)?;
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
        if self.ready(&shutdown).await? {
            tracing::info!(
                installation = %self.settings.installation,
                pools = self.settings.pools.len(),
                dry_run = self.settings.dry_run,
                "watching {}", self.settings.woodpecker.server
            );
            self.reconciler.run(shutdown).await;
        }
        tracing::info!("ended; instances stay");
        Ok(())
    }

    async fn wait_for_server(&self) -> Result<(), StartError> {
        let mut pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(30))
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            let error = match self.ask_server().await {
                Ok(outcome) => return outcome,
                Err(error) => error,
            };
            tracing::warn!("waiting for the Woodpecker server: {error}");
            self.reconciler.unanswered();
            self.clock.sleep(pauses.next().unwrap_or(Duration::from_secs(30))).await;
        }
    }

    /// The inner result is an answer, the outer one says that there was none.
    async fn ask_server(&self) -> Result<Result<(), StartError>, woodpecker::Error> {
        let user = match self.woodpecker.user().await {
            Ok(user) => user,
            Err(error @ (woodpecker::Error::Unauthorised { .. } | woodpecker::Error::Forbidden { .. })) => {
                return Ok(Err(StartError::Token(error.to_string())));
            }
            Err(error) => return Err(error),
        };
        if !user.admin {
            let why = format!(
                "PICUS_WOODPECKER_TOKEN: it is a token of {}, who is not an admin of the server; agents can only be \
                 managed with an admin's",
                user.login
            );
            return Ok(Err(StartError::Token(why)));
        }
        let version = self.woodpecker.version().await?;
        let needs_image = self.settings.pools.iter().any(|pool| pool.agent.image.is_none());
        if let (true, Err(error)) = (needs_image, bootstrap::image::of_server(&version)) {
            let variable = "PICUS_AGENT_IMAGE".to_owned();
            let problem = Problem { variable, had: None, message: error.to_string() };
            return Ok(Err(StartError::Settings(vec![problem])));
        }
        tracing::info!(version, user = user.login, "the Woodpecker server answers");
        Ok(Ok(()))
    }
}

fn provider(account: &AccountSettings, clock: &Clock) -> Result<Arc<dyn Provider>, Problem> {
    match account {
        #[cfg(feature = "hcloud")]
        AccountSettings::Hetzner { token, endpoint } => {
            let hetzner = crate::provider::hetzner::Hetzner::new(token.clone(), endpoint.clone(), clock.clone());
            let hetzner = hetzner.map_err(|error| Problem {
                variable: "PICUS_HCLOUD_ENDPOINT".to_owned(),
                had: Some(endpoint.to_string()),
                message: format!("no client can be made for it: {error}"),
            })?;
            Ok(Arc::new(hetzner))
        }
        #[cfg(not(feature = "hcloud"))]
        AccountSettings::Hetzner { .. } => {
            let _ = clock;
            Err(Problem {
                variable: "PICUS_PROVIDER_TYPE".to_owned(),
                had: Some("hcloud".to_owned()),
                message: "this build has no Hetzner provider".to_owned(),
            })
        }
    }
}
