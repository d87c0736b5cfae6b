//! Why the Woodpecker server did not do what it was asked, in words that a person can act on.
//!
//! The texts are made in `super::http` and hold neither the token nor anything of a successful answer.

use std::time::Duration;

/// A variant exists because somebody does something different for it. `call` is method and URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// 401: no waiting repairs it.
    #[error("{call}: 401 ({said}): the token in PICUS_WOODPECKER_TOKEN is not valid")]
    Unauthorised {
        /// Method and URL.
        call: String,
        /// What the server said.
        said: String,
    },
    /// 403: no waiting repairs it.
    #[error("{call}: 403 ({said}): the user of the token in PICUS_WOODPECKER_TOKEN is not an admin")]
    Forbidden {
        /// Method and URL.
        call: String,
        /// What the server said.
        said: String,
    },
    /// The server itself says that there is no such agent record.
    #[error("{call}: 404: there is no such agent")]
    NotFound {
        /// Method and URL.
        call: String,
    },
    /// 409: the agent runs a task, so its record stays.
    #[error("{call}: 409 ({said})")]
    Busy {
        /// Method and URL.
        call: String,
        /// What the server said.
        said: String,
    },
    /// 429, of a proxy: Woodpecker has no such limit.
    #[error("{call}: 429: too many calls{}", .retry_after.map(|wait| format!(", try again in {} s", wait.as_secs())).unwrap_or_default())]
    RateLimited {
        /// Method and URL.
        call: String,
        /// How long to wait. `None`: not told.
        retry_after: Option<Duration>,
    },
    /// No answer, or one that tells nothing: what was asked for is unknown.
    #[error("{call}: {what}{}", .advice.map(|advice| format!(": {advice}")).unwrap_or_default())]
    Unavailable {
        /// Method and URL.
        call: String,
        /// The status. `None`: it did not come to that.
        status: Option<u16>,
        /// What came instead of an answer.
        what: String,
        /// Which setting to look at, where one is probably wrong.
        advice: Option<&'static str>,
    },
}

impl Error {
    /// Fixed word for logs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unauthorised { .. } => "unauthorised",
            Self::Forbidden { .. } => "forbidden",
            Self::NotFound { .. } => "not_found",
            Self::Busy { .. } => "busy",
            Self::RateLimited { .. } => "rate_limited",
            Self::Unavailable { .. } => "unavailable",
        }
    }

    /// A setting is wrong, as far as one can tell: the token, or an address at which a login page answers. At the start
    /// that is a reason to stop; a server that is merely down is waited for.
    #[must_use]
    pub fn is_about_settings(&self) -> bool {
        match self {
            Self::Unauthorised { .. } | Self::Forbidden { .. } => true,
            Self::NotFound { .. } | Self::Busy { .. } | Self::RateLimited { .. } => false,
            Self::Unavailable { advice, .. } => advice.is_some(),
        }
    }
}
