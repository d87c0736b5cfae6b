//! The SDK's client. Credentials and region come from the SDK's own settings (environment, profile, web identity,
//! instance role; `AWS_ENDPOINT_URL` names another endpoint); every call has a timeout.
//!
//! The SDK tries a call twice; everything else is left to the loop. After throttling no call leaves for a while, longer
//! each time in a row.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{AppName, BehaviorVersion};
use aws_sdk_ec2::config::SharedHttpClient;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{self, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder, Connector};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tokio::sync::OnceCell;

use super::failure::{Failure, Meaning};
use crate::clock::Clock;
use crate::metrics::Calls;
use crate::model::later;

/// A call that takes longer is given up.
const CALL: Duration = Duration::from_secs(20);
/// A connection is there in less.
const CONNECT: Duration = Duration::from_secs(5);
/// First pause after throttling; doubles with each one in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// Longest of those pauses.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// The client and what it must not do yet.
#[derive(Debug)]
pub(super) struct Client {
    ec2: OnceCell<aws_sdk_ec2::Client>,
    clock: Clock,
    pub(super) calls: Calls,
    throttled: Mutex<Throttled>,
}

#[derive(Debug, Default)]
struct Throttled {
    /// In a row.
    times: u32,
    until: Option<Timestamp>,
}

impl Client {
    pub(super) fn new(clock: Clock) -> Self {
        Self { ec2: OnceCell::new(), clock, calls: Calls::default(), throttled: Mutex::default() }
    }

    /// A client for these settings, for tests.
    #[cfg(test)]
    pub(super) fn of(config: aws_sdk_ec2::Config, clock: Clock) -> Self {
        let client = aws_sdk_ec2::Client::from_conf(config);
        Self { ec2: OnceCell::new_with(Some(client)), clock, calls: Calls::default(), throttled: Mutex::default() }
    }

    /// The SDK's client.
    ///
    /// # Errors
    ///
    /// [`Failure::RateLimited`] while no call may leave.
    pub(super) async fn ec2(&self) -> Result<&aws_sdk_ec2::Client, Failure> {
        if let Some(until) = self.throttled().until.filter(|until| self.clock.now() < *until) {
            return Err(Failure::RateLimited { until });
        }
        Ok(self.ec2.get_or_init(connect).await)
    }

    /// The region that calls go to. `None`: the SDK's settings name none.
    pub(super) async fn region(&self) -> Option<String> {
        self.ec2.get_or_init(connect).await.config().region().map(ToString::to_string)
    }

    /// Reads what came of a call.
    pub(super) fn read<T, E, R>(&self, operation: &str, sent: Result<T, SdkError<E, R>>) -> Result<T, Failure>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
        R: std::fmt::Debug + Send + Sync + 'static,
    {
        match sent {
            Ok(answer) => {
                *self.throttled() = Throttled::default();
                self.calls.note(operation, "ok");
                Ok(answer)
            }
            Err(error) => {
                let failure = Failure::of(operation, &error);
                self.calls.note(operation, failure.kind());
                if let Failure::Refused { meaning: Meaning::Throttled, .. } = &failure {
                    let mut throttled = self.throttled();
                    let pause = FIRST_PAUSE.saturating_mul(1 << throttled.times.min(10)).min(LONGEST_PAUSE);
                    let until = later(self.clock.now(), pause);
                    *throttled = Throttled { times: throttled.times.saturating_add(1), until: Some(until) };
                    return Err(Failure::RateLimited { until });
                }
                Err(failure)
            }
        }
    }

    fn throttled(&self) -> std::sync::MutexGuard<'_, Throttled> {
        self.throttled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds credentials and region; sends nothing but what finding them takes.
async fn connect() -> aws_sdk_ec2::Client {
    let timeouts =
        TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(CALL).operation_timeout(CALL * 2);
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(http())
        .timeout_config(timeouts.build())
        .retry_config(RetryConfig::standard().with_max_attempts(2));
    if let Ok(name) = AppName::new(concat!("picus-", env!("CARGO_PKG_VERSION"))) {
        loader = loader.app_name(name);
    }
    aws_sdk_ec2::Client::new(&loader.load().await)
}

/// The same TLS stack as everywhere in Picus, and the proxy of the environment.
pub(super) fn http() -> SharedHttpClient {
    let tls = trusted();
    Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder()
            .proxy_config(ProxyConfig::from_env())
            .tls_provider(tls::Provider::Rustls(CryptoMode::Ring))
            .tls_context(tls.clone());
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(aws_sdk_ec2::config::RuntimeComponents::sleep_impl));
        connector.build()
    })
}

/// Whose certificates are believed: this machine's authorities if it has any, and those that browsers know, as everywhere in
/// Picus. The SDK knows the former alone, and an image need not have them.
fn trusted() -> TlsContext {
    let own = !rustls_native_certs::load_native_certs().certs.is_empty();
    let mut known = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        known.push_str("-----BEGIN CERTIFICATE-----\n");
        STANDARD.encode_string(certificate, &mut known);
        known.push_str("\n-----END CERTIFICATE-----\n");
    }
    let store = TrustStore::empty().with_native_roots(own).with_pem_certificate(known.into_bytes());
    TlsContext::builder().with_trust_store(store).build().unwrap_or_else(|error| {
        tracing::warn!("only this machine's certificate authorities are known: {error}");
        TlsContext::default()
    })
}
