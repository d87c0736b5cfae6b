//! What can come of a call, and what it means to a caller. Hetzner's codes are read here and nowhere else.
//!
//! Codes: <https://docs.hetzner.cloud/reference/cloud#errors>.

use jiff::Timestamp;

use crate::provider::ProviderError;

/// Most of a message of Hetzner's that is shown.
const LONGEST_MESSAGE: usize = 200;

/// Why a call has no answer to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// Hetzner refused, with a code.
    Refused(Refusal),
    /// No call before `until`; this one was not carried out.
    RateLimited { until: Timestamp },
    /// It was not carried out: no connection, or something between us and Hetzner said no.
    NotDone(String),
    /// It was sent and may have been carried out: no answer in time, a cut connection, an answer that is none.
    Unanswered(String),
}

/// An answer with Hetzner's error form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// `GET /servers`
    pub(super) call: String,
    pub(super) status: u16,
    pub(super) code: String,
    /// For people; never looked at.
    pub(super) message: String,
    /// Fields of the request that were not accepted, where the answer names them.
    pub(super) fields: Vec<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { call, status, code, message, fields } = self;
        write!(f, "Hetzner refuses {call}: {code} (HTTP {status})")?;
        if !message.is_empty() {
            write!(f, ": {message:.LONGEST_MESSAGE$}")?;
        }
        if !fields.is_empty() {
            write!(f, " [{}]", fields.join(", "))?;
        }
        Ok(())
    }
}

/// What a code stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// The token.
    Unauthorised,
    /// The project's limits.
    Quota,
    /// Type and place.
    SoldOut,
    /// It does not exist.
    NotFound,
    /// The name is taken.
    NameTaken,
    /// Something else works on it.
    Locked,
    /// The request.
    InvalidInput,
    /// Hetzner; it was not carried out.
    Unavailable,
    /// Hetzner; it may have been carried out.
    Broken,
    /// Anything else that asking again does not repair.
    Other,
}

impl Refusal {
    pub(super) fn meaning(&self) -> Code {
        match self.code.as_str() {
            "unauthorized" | "forbidden" | "token_readonly" => Code::Unauthorised,
            "resource_limit_exceeded" => Code::Quota,
            "resource_unavailable" | "placement_error" => Code::SoldOut,
            "not_found" => Code::NotFound,
            "uniqueness_error" => Code::NameTaken,
            "conflict" | "locked" => Code::Locked,
            "invalid_input" => Code::InvalidInput,
            "maintenance" | "unavailable" => Code::Unavailable,
            _ if self.status >= 500 => Code::Broken,
            _ => Code::Other,
        }
    }

    /// For calls that change nothing, or that can be made again.
    pub(super) fn into_error(self) -> ProviderError {
        let text = self.to_string();
        match self.meaning() {
            Code::Unauthorised => {
                ProviderError::Unauthorised(format!("PICUS_HCLOUD_TOKEN must be valid and may read and write; {text}"))
            }
            Code::Quota => ProviderError::Quota(text),
            Code::SoldOut => ProviderError::SoldOut(text),
            Code::Locked => ProviderError::Locked(text),
            Code::NotFound | Code::NameTaken | Code::InvalidInput | Code::Other => ProviderError::Rejected(text),
            Code::Unavailable | Code::Broken => ProviderError::Unavailable(text),
        }
    }
}

impl From<Failure> for ProviderError {
    /// For calls that change nothing, or that can be made again: no answer is simply none.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refusal) => refusal.into_error(),
            Failure::RateLimited { until } => Self::RateLimited { until },
            Failure::NotDone(text) | Failure::Unanswered(text) => Self::Unavailable(text),
        }
    }
}
