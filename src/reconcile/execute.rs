//! The only place that changes the outside world. Each step is safe to repeat and stands alone.
//!
//! Launching: register the agent, create the instance; if that fails, delete the record. Retiring: see the record
//! cordoned, see no running task, delete the record (the server refuses while a task runs), then the instance. A crash
//! between any two calls leaves what the next pass recognises: a record without instance, or an instance without record.
//!
//! Whatever is unclear counts as busy: the step ends, and a later pass tries again.

use std::time::Duration;

use secrecy::SecretString;
use tracing::Instrument;

use super::observe::DELETION_PAUSE;
use super::{Account, Reconciler, State};
use crate::bootstrap;
use crate::model::action::{Action, Proof, Step};
use crate::model::agent::Agent;
use crate::model::ids::{AgentId, InstanceId, LaunchName, ServerMark};
use crate::model::instance::OfferKey;
use crate::model::memory::{Cordon, REFUSAL_PAUSE, Refusal, SOLD_OUT_PAUSE};
use crate::model::reason::Reason;
use crate::model::snapshot::Launching;
use crate::model::{age, later};
use crate::plan::SEEN_LATELY;
use crate::provider::{Launch, ProviderError};
use crate::settings::PoolSettings;
use crate::woodpecker;

/// A step is given up after this; every call in it has its own, shorter timeout.
const STEP_TIMEOUT: Duration = Duration::from_secs(90);

/// A console is waited for no longer: the instance that never connected is billed.
const CONSOLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a step did not reach its end.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Woodpecker(#[from] woodpecker::Error),
    #[error("{0}")]
    Provider(#[from] ProviderError),
    #[error(transparent)]
    Image(#[from] bootstrap::image::NoImage),
    /// The world is not as the plan saw it: the next pass decides anew.
    #[error("{0}")]
    Changed(&'static str),
    /// Another launch has just been told that this one can't be had.
    #[error("another launch was refused")]
    Overtaken,
    #[error("given up after {} s", STEP_TIMEOUT.as_secs())]
    TimedOut,
}

impl Failure {
    /// Fixed word for metrics.
    fn kind(&self) -> &'static str {
        match self {
            Self::Woodpecker(error) => error.kind(),
            Self::Provider(error) => error.kind(),
            Self::Image(_) => "no_image",
            Self::Changed(_) => "changed",
            Self::Overtaken => "overtaken",
            Self::TimedOut => "timed_out",
        }
    }
}

impl Reconciler {
    /// Begins a step beside the loop.
    pub(super) fn begin(&self, step: &Step) {
        let Some(pool) = self.0.settings.pools.iter().position(|pool| pool.name == step.pool) else { return };
        self.state().mark(step, self.0.clock.now());
        let reconciler = self.clone();
        let step = step.clone();
        let number = self.0.board.began(&step);
        let span = tracing::info_span!("step", pool = %step.pool, kind = step.action.kind());
        let work = async move {
            let pool = &reconciler.0.settings.pools[pool];
            let permits = reconciler.0.providers.get(pool.account.0).map(|account| account.permits.clone());
            let _permit = match permits {
                Some(permits) => permits.acquire_owned().await.ok(),
                None => None,
            };
            let carried_out = reconciler.carry_out(pool, &step.action);
            reconciler.tell_console(pool, &step).await;
            let outcome = tokio::time::timeout(STEP_TIMEOUT, carried_out).await.unwrap_or(Err(Failure::TimedOut));
            let failed = outcome.as_ref().err().map(|failure| (failure.kind(), failure.to_string()));
            reconciler.0.board.ended(number, &step, failed.as_ref().map(|(kind, why)| (*kind, why.as_str())));
            reconciler.finish(pool, &step, outcome);
        };
        self.0.operations.spawn(work.instrument(span));
    }

    /// Before an instance that never connected goes, the last lines of its console are told: they often say why.
    async fn tell_console(&self, pool: &PoolSettings, step: &Step) {
        let (
            Reason::NeverConnected { .. },
            Action::Stop { instance, .. }
            | Action::DeleteInstance { instance, .. }
            | Action::Retire { instance: Some(instance), .. },
        ) = (&step.reason, &step.action)
        else {
            return;
        };
        let Ok(at) = self.account(pool) else { return };
        match tokio::time::timeout(CONSOLE_TIMEOUT, at.provider.console(instance)).await {
            Ok(Ok(Some(tail))) => {
                tracing::error!(%instance, "it never connected; its console ends with:\n  | {}", tail.replace('\n', "\n  | "));
                if let Some(trouble) = self.state().memory.troubles.get_mut(&pool.name) {
                    let last = tail.lines().last().unwrap_or_default();
                    trouble.why = format!("{}; its console ends with `{last}`", trouble.why);
                }
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%instance, "its console can't be read: {error}"),
            Err(_) => tracing::debug!(%instance, "its console can't be read in time"),
        }
    }

    async fn carry_out(&self, pool: &PoolSettings, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Launch { name, offer } => self.launch(pool, name, offer).await,
            Action::Start { instance, name, offer: _ } => self.start(pool, instance, name).await,
            Action::Cordon { agent, name: _, noted_on } => self.cordon(pool, *agent, noted_on.as_ref()).await,
            Action::Uncordon { agent, name: _, noted_on } => self.uncordon(pool, *agent, noted_on.as_ref()).await,
            Action::Stop { agent, name: _, instance, proof } => self.stop(pool, *agent, instance, *proof).await,
            Action::Retire { agent, name: _, instance, proof } => {
                self.retire(pool, *agent, instance.as_ref(), *proof).await
            }
            Action::DeleteInstance { instance, name, agent } => {
                self.delete_instance(pool, instance, name, *agent).await
            }
        }
    }

    async fn launch(&self, pool: &PoolSettings, name: &LaunchName, offer: &OfferKey) -> Result<(), Failure> {
        if self.state().memory.cannot_be_had(pool.account, offer, self.0.clock.now()) {
            return Err(Failure::Overtaken);
        }
        let (agent, secret): (Option<AgentId>, SecretString) = if let Some(secret) = &pool.agent.shared_secret {
            (None, secret.clone())
        } else {
            let registered = self.0.woodpecker.register(name.as_str()).await?;
            self.state().registered(name, registered.id);
            (Some(registered.id), registered.token)
        };
        let created = self.create(pool, name, offer, agent, &secret).await;
        match (&created, agent) {
            // It may come up all the same; a record without an instance is cleared once that is certain.
            (Ok(()) | Err(Failure::Provider(ProviderError::Unclear(_))), _) | (Err(_), None) => {}
            (Err(_), Some(agent)) => {
                if let Err(error) = self.delete_record(agent).await {
                    tracing::warn!(agent = %agent, "the record of a failed launch stays for now: {error}");
                }
            }
        }
        created
    }

    async fn create(
        &self,
        pool: &PoolSettings,
        name: &LaunchName,
        offer: &OfferKey,
        agent: Option<AgentId>,
        secret: &SecretString,
    ) -> Result<(), Failure> {
        let account = self.account(pool)?;
        let image = match &pool.agent.image {
            Some(image) => image.clone(),
            // Asked each time: the server may have been upgraded since the start.
            None => bootstrap::image::of_server(&self.0.woodpecker.version().await?)?,
        };
        let user_data = bootstrap::user_data(&pool.agent, &image, name, secret);
        let installation = &self.0.settings.installation;
        let server = &ServerMark::of(&self.0.settings.woodpecker.server);
        let launch = Launch { installation, server, pool, name, agent, offer, user_data: &user_data };
        account.provider.launch(&launch).await?;
        Ok(())
    }

    async fn start(&self, pool: &PoolSettings, instance: &InstanceId, name: &str) -> Result<(), Failure> {
        let at = self.account(pool)?;
        at.provider.start(instance).await?;
        let mut state = self.state();
        state.memory.started.insert(instance.clone(), self.0.clock.now());
        // If it does not connect, that is one more failure.
        if let Some(trouble) = state.memory.troubles.get_mut(&pool.name) {
            trouble.counted.remove(&LaunchName::renamed(name));
        }
        Ok(())
    }

    async fn stop(
        &self,
        pool: &PoolSettings,
        agent: Option<AgentId>,
        instance: &InstanceId,
        proof: Proof,
    ) -> Result<(), Failure> {
        if let Some(agent) = agent {
            self.prove(agent, proof).await?;
        }
        self.account(pool)?.provider.stop(instance).await?;
        self.state().memory.started.remove(instance);
        Ok(())
    }

    /// Notes a drain on its instance, or that there is none any more. Without it the cordon is only known to this process.
    async fn note_drain(&self, pool: &PoolSettings, noted_on: Option<&InstanceId>, agent: Option<AgentId>) {
        let Some(instance) = noted_on else { return };
        let noted = match self.account(pool) {
            Ok(at) => at.provider.note_drain(instance, agent).await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        if let Err(error) = noted {
            tracing::warn!(%instance, "its drain could not be noted on it, so it is not known after a restart: {error}");
        }
    }

    fn account(&self, pool: &PoolSettings) -> Result<&Account, Failure> {
        self.0.providers.get(pool.account.0).ok_or(Failure::Changed("its provider account is not configured"))
    }

    async fn cordon(&self, pool: &PoolSettings, agent: AgentId, noted_on: Option<&InstanceId>) -> Result<(), Failure> {
        let before = self.0.woodpecker.agent(agent).await?;
        if before.no_schedule {
            // Since the look at it, and not by this process: the cordon must not become one that it may undo.
            return Err(Failure::Changed("somebody else has cordoned it"));
        }
        self.note_drain(pool, noted_on, Some(agent)).await;
        // Said before it is done: if the answer is lost, the cordon is still known as ours.
        let since = self.0.clock.now();
        self.state().memory.cordons.insert(agent, Cordon { since, ours: true });
        self.0.woodpecker.set_no_schedule(agent, &before.name, true).await?;
        if !self.0.woodpecker.agent(agent).await?.no_schedule {
            return Err(Failure::Changed("the server did not keep the cordon"));
        }
        let since = self.0.clock.now();
        self.state().memory.cordons.insert(agent, Cordon { since, ours: true });
        Ok(())
    }

    async fn uncordon(
        &self,
        pool: &PoolSettings,
        agent: AgentId,
        noted_on: Option<&InstanceId>,
    ) -> Result<(), Failure> {
        let before = self.0.woodpecker.agent(agent).await?;
        // It is remembered as ours until it is seen undone: a heartbeat that read the record before may write the flag back.
        self.0.woodpecker.set_no_schedule(agent, &before.name, false).await?;
        if self.0.woodpecker.agent(agent).await?.no_schedule {
            return Err(Failure::Changed("the server kept the cordon"));
        }
        // From here on a cordon is somebody else's.
        self.state().memory.cordons.remove(&agent);
        self.note_drain(pool, noted_on, None).await;
        Ok(())
    }

    async fn retire(
        &self,
        pool: &PoolSettings,
        agent: AgentId,
        instance: Option<&InstanceId>,
        proof: Proof,
    ) -> Result<(), Failure> {
        if self.prove(agent, proof).await? {
            self.delete_record(agent).await?;
        }
        let Some(instance) = instance else { return Ok(()) };
        self.state().memory.record_deleted.insert(instance.clone());
        self.remove(pool, instance).await
    }

    /// Looks once more that an agent may end. `false`: its record is gone, so nothing can run on it.
    async fn prove(&self, agent: AgentId, proof: Proof) -> Result<bool, Failure> {
        let record = match self.0.woodpecker.agent(agent).await {
            Err(woodpecker::Error::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
            Ok(record) => record,
        };
        match proof {
            Proof::Cordoned if !record.no_schedule => return Err(Failure::Changed("it is not cordoned any more")),
            Proof::NeverHeardOf if record.last_contact.is_some() => {
                return Err(Failure::Changed("it was heard of meanwhile"));
            }
            Proof::Silent if self.heard_of_lately(&record) => {
                return Err(Failure::Changed("it was heard of meanwhile"));
            }
            Proof::Cordoned | Proof::NeverHeardOf | Proof::Silent => {}
        }
        if !self.0.woodpecker.agent_tasks(agent).await?.is_empty() {
            return Err(Failure::Changed("it was given a task meanwhile"));
        }
        Ok(true)
    }

    fn heard_of_lately(&self, record: &Agent) -> bool {
        let last_contact = record.last_contact.map(|last_contact| self.state().agents.by_our_clock(last_contact));
        last_contact.is_some_and(|last_contact| age(self.0.clock.now(), last_contact) < SEEN_LATELY)
    }

    async fn delete_instance(
        &self,
        pool: &PoolSettings,
        instance: &InstanceId,
        name: &LaunchName,
        agent: Option<AgentId>,
    ) -> Result<(), Failure> {
        if let Some(agent) = agent {
            match self.0.woodpecker.agent(agent).await {
                Ok(record) if !record.no_schedule || self.heard_of_lately(&record) => {
                    return Err(Failure::Changed("its record is there after all"));
                }
                Ok(_) if !self.0.woodpecker.agent_tasks(agent).await?.is_empty() => {
                    return Err(Failure::Changed("it has a task"));
                }
                Ok(_) | Err(woodpecker::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        } else {
            let agents = self.0.woodpecker.agents().await?.agents;
            if agents.iter().any(|agent| agent.name == name.as_str()) {
                return Err(Failure::Changed("its record is there after all"));
            }
        }
        self.remove(pool, instance).await
    }

    async fn delete_record(&self, agent: AgentId) -> Result<(), woodpecker::Error> {
        self.0.woodpecker.delete_agent(agent).await?;
        self.state().agents.deleted(agent);
        Ok(())
    }

    async fn remove(&self, pool: &PoolSettings, instance: &InstanceId) -> Result<(), Failure> {
        let deleted = self.account(pool)?.provider.delete(instance).await;
        let mut state = self.state();
        state.resting.insert(instance.clone(), later(self.0.clock.now(), DELETION_PAUSE));
        deleted?;
        state.listings.deleted(pool.account, instance);
        Ok(())
    }

    /// Notes what came of a step and frees what it held.
    fn finish(&self, pool: &PoolSettings, step: &Step, outcome: Result<(), Failure>) {
        let now = self.0.clock.now();
        let mut state = self.state();
        state.unmark(
            step,
            matches!(outcome, Ok(()) | Err(Failure::Provider(ProviderError::Unclear(_)) | Failure::TimedOut)),
        );
        match step.action {
            Action::Launch { .. }
            | Action::Start { .. }
            | Action::Stop { .. }
            | Action::Retire { .. }
            | Action::DeleteInstance { .. } => {
                state.listings.expire(pool.account);
            }
            Action::Cordon { .. } | Action::Uncordon { .. } => {}
        }
        let error = match outcome {
            Ok(()) => {
                tracing::debug!("done: {}", step.action);
                state.said.done(&step.action);
                drop(state);
                self.wake();
                return;
            }
            Err(error) => error,
        };
        let told = match (&step.action, &error) {
            (Action::Launch { name, offer }, Failure::Provider(error)) => {
                launch_refused(&mut state, pool, name, offer, error, now)
            }
            (
                Action::Launch { name, .. },
                Failure::Woodpecker(_) | Failure::Image(_) | Failure::Changed(_) | Failure::TimedOut,
            ) => {
                state.memory.launch_failed(&pool.name, name, error.to_string(), now);
                Told::Now
            }
            (Action::Launch { .. }, Failure::Overtaken) => Told::Before,
            (Action::Start { name, offer, .. }, Failure::Provider(error)) => {
                launch_refused(&mut state, pool, &LaunchName::renamed(name), offer, error, now)
            }
            (
                Action::Start { .. }
                | Action::Stop { .. }
                | Action::Cordon { .. }
                | Action::Uncordon { .. }
                | Action::Retire { .. }
                | Action::DeleteInstance { .. },
                Failure::Woodpecker(_)
                | Failure::Provider(_)
                | Failure::Image(_)
                | Failure::Changed(_)
                | Failure::Overtaken
                | Failure::TimedOut,
            ) => {
                if state.said.failed(&step.action, &error.to_string(), now) {
                    Told::Now
                } else {
                    Told::Before
                }
            }
        };
        drop(state);
        match told {
            Told::Before => {}
            Told::Now => tracing::warn!("not done: {} ({}): {error}", step.action, step.reason),
            Told::NextCandidate => {
                tracing::warn!("not done: {}: {error}; the next candidate is tried", step.action);
                self.wake();
            }
        }
    }
}

/// What is said of a step that failed.
enum Told {
    /// The same was said a moment ago.
    Before,
    Now,
    /// And another candidate may be had at once.
    NextCandidate,
}

/// Notes why a launch was refused.
fn launch_refused(
    state: &mut State,
    pool: &PoolSettings,
    name: &LaunchName,
    offer: &OfferKey,
    error: &ProviderError,
    now: jiff::Timestamp,
) -> Told {
    let said = state.memory.cannot_be_had(pool.account, offer, now);
    let why = error.to_string();
    let told = match error {
        ProviderError::SoldOut(_) => {
            state.memory.sold_out.insert((pool.account, offer.clone()), later(now, SOLD_OUT_PAUSE));
            Told::NextCandidate
        }
        ProviderError::Quota(_) | ProviderError::Unauthorised(_) => {
            state.memory.refusals.insert(pool.account, Refusal { why, until: later(now, REFUSAL_PAUSE) });
            Told::Now
        }
        ProviderError::RateLimited { until } => {
            state.memory.refusals.insert(pool.account, Refusal { why, until: *until });
            Told::Now
        }
        // Counted if no listing ever shows it.
        ProviderError::Unclear(_) => Told::Now,
        ProviderError::Locked(_) | ProviderError::Rejected(_) | ProviderError::Unavailable(_) => {
            state.memory.launch_failed(&pool.name, name, why, now);
            Told::Now
        }
    };
    if said { Told::Before } else { told }
}

impl State {
    /// A step is about to begin: it counts as what it is going to be.
    fn mark(&mut self, step: &Step, now: jiff::Timestamp) {
        match &step.action {
            Action::Launch { name, offer } => {
                self.operating.insert(name.clone());
                self.in_flight.launches.push(Launching {
                    pool: step.pool.clone(),
                    name: name.clone(),
                    offer: offer.clone(),
                    since: now,
                    agent: None,
                });
            }
            Action::Start { instance, .. } => {
                self.in_flight.instances.insert(instance.clone());
                self.in_flight.started.insert(instance.clone());
            }
            Action::Stop { agent, instance, .. } => {
                self.in_flight.agents.extend(*agent);
                self.in_flight.instances.insert(instance.clone());
            }
            Action::Cordon { agent, .. } => {
                self.in_flight.agents.insert(*agent);
            }
            Action::Uncordon { agent, .. } => {
                self.in_flight.agents.insert(*agent);
                self.in_flight.undone.insert(*agent);
            }
            Action::Retire { agent, instance, .. } => {
                self.in_flight.agents.insert(*agent);
                self.in_flight.instances.extend(instance.clone());
            }
            Action::DeleteInstance { instance, .. } => {
                self.in_flight.instances.insert(instance.clone());
            }
        }
    }

    /// A step has ended. A launch goes on counting if its instance may be there.
    fn unmark(&mut self, step: &Step, may_be_there: bool) {
        match &step.action {
            Action::Launch { name, .. } => {
                self.operating.remove(name);
                if !may_be_there {
                    self.in_flight.launches.retain(|launch| launch.name != *name);
                }
            }
            Action::Start { instance, .. } => {
                self.in_flight.instances.remove(instance);
                self.in_flight.started.remove(instance);
            }
            Action::Stop { agent, instance, .. } => {
                self.in_flight.instances.remove(instance);
                if let Some(agent) = agent {
                    self.in_flight.agents.remove(agent);
                }
            }
            Action::Cordon { agent, .. } | Action::Uncordon { agent, .. } => {
                self.in_flight.agents.remove(agent);
                self.in_flight.undone.remove(agent);
            }
            Action::Retire { agent, instance, .. } => {
                self.in_flight.agents.remove(agent);
                if let Some(instance) = instance {
                    self.in_flight.instances.remove(instance);
                }
            }
            Action::DeleteInstance { instance, .. } => {
                self.in_flight.instances.remove(instance);
            }
        }
    }

    fn registered(&mut self, name: &LaunchName, agent: AgentId) {
        self.agents.made(agent);
        if let Some(launch) = self.in_flight.launches.iter_mut().find(|launch| launch.name == *name) {
            launch.agent = Some(agent);
        }
        // However long the next look takes: when that one finds it connected, that is its first contact.
        self.memory.unconnected.insert(agent, None);
    }
}
