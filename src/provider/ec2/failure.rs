//! Why a call to EC2 failed. The codes are read here and nowhere else:
//! <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html>.

use aws_sdk_ec2::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use jiff::Timestamp;

use crate::provider::{PrepareError, ProviderError};

/// Longest text that is shown of an answer, in letters.
const LONGEST_TEXT: usize = 400;

/// A call that did not do what it was to do.
#[derive(Debug)]
pub(super) enum Failure {
    /// EC2 refused it.
    Refused {
        /// What its code means.
        meaning: Meaning,
        /// Operation, code and message.
        text: String,
    },
    /// No call before.
    RateLimited {
        /// When it may be tried again.
        until: Timestamp,
    },
    /// It may have been carried out.
    Unanswered(String),
    /// It was not sent: no credentials, no region, nobody there.
    NotSent(String),
}

/// What a code means to Picus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The offer can't be had now.
    SoldOut,
    /// No call for a while.
    Throttled,
    /// The account may launch no more.
    Quota,
    /// The credentials are not accepted, or lack a right.
    Unauthorised,
    /// The instance is in a state in which that can't be done.
    Locked,
    /// What the call names does not exist.
    NotFound,
    /// It would have been done, had it not been a question.
    WouldBeDone,
    /// EC2 itself is in trouble.
    Broken,
    /// Everything else: asking again does not help.
    Other,
}

impl Meaning {
    fn of(code: &str) -> Self {
        match code {
            "InsufficientInstanceCapacity"
            | "InsufficientHostCapacity"
            | "InsufficientReservedInstanceCapacity"
            | "InsufficientCapacityOnHost"
            | "InsufficientCapacity"
            | "InsufficientFreeAddressesInSubnet"
            | "Unsupported"
            | "UnfulfillableCapacity"
            | "SpotMaxPriceTooLow"
            | "MaxSpotInstanceCountExceeded" => Self::SoldOut,
            "RequestLimitExceeded" | "Throttling" | "ThrottlingException" | "RequestThrottled" => Self::Throttled,
            "InstanceLimitExceeded"
            | "VcpuLimitExceeded"
            | "VolumeLimitExceeded"
            | "MaxIOPSLimitExceeded"
            | "PendingVerification"
            | "OptInRequired"
            | "Blocked" => Self::Quota,
            "UnauthorizedOperation"
            | "AuthFailure"
            | "AccessDenied"
            | "AccessDeniedException"
            | "InvalidClientTokenId"
            | "UnrecognizedClientException"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "RequestExpired"
            | "MissingAuthenticationToken" => Self::Unauthorised,
            "IncorrectInstanceState" | "IncorrectState" => Self::Locked,
            "DryRunOperation" => Self::WouldBeDone,
            "InternalError" | "InternalFailure" | "Unavailable" | "ServiceUnavailable" => Self::Broken,
            _ if code.ends_with(".NotFound") || code.ends_with(".Malformed") || code.ends_with("NotFoundException") => {
                Self::NotFound
            }
            _ => Self::Other,
        }
    }
}

impl Failure {
    /// Fixed word for metrics.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Refused { meaning: Meaning::Throttled, .. } | Self::RateLimited { .. } => "rate_limited",
            Self::Refused { meaning: Meaning::Unauthorised, .. } => "unauthorised",
            Self::Refused { meaning: Meaning::NotFound, .. } => "not_found",
            Self::Refused { meaning: Meaning::Broken, .. } => "server_error",
            Self::Refused {
                meaning: Meaning::SoldOut | Meaning::Quota | Meaning::Locked | Meaning::WouldBeDone | Meaning::Other,
                ..
            } => "refused",
            Self::Unanswered(_) | Self::NotSent(_) => "no_answer",
        }
    }

    /// Reads the SDK's error.
    pub(super) fn of<E, R>(operation: &str, error: &SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
        R: std::fmt::Debug + Send + Sync + 'static,
    {
        let chain = || one_line(&format!("{operation}: {}", DisplayErrorContext(error)));
        match error {
            SdkError::ServiceError(service) => {
                let (code, message) = (service.err().code(), service.err().message());
                match code {
                    Some(code) => Self::Refused {
                        meaning: Meaning::of(code),
                        text: one_line(&format!("{operation}: {code}: {}", message.unwrap_or("no message"))),
                    },
                    // An answer without a code is none of EC2's.
                    None => Self::Unanswered(format!("{operation}: an answer that is no error of EC2's")),
                }
            }
            // Cut off, or too late: it may have arrived.
            SdkError::DispatchFailure(failure)
                if failure.is_io() || failure.is_timeout() || failure.as_other().is_some() =>
            {
                Self::Unanswered(chain())
            }
            SdkError::ConstructionFailure(_) | SdkError::DispatchFailure(_) => Self::NotSent(chain()),
            // Too late, unreadable, or something newer.
            _ => Self::Unanswered(chain()),
        }
    }
}

impl From<Failure> for ProviderError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { meaning, text } => match meaning {
                Meaning::SoldOut => Self::SoldOut(text),
                Meaning::Quota => Self::Quota(text),
                Meaning::Unauthorised => Self::Unauthorised(text),
                Meaning::Locked => Self::Locked(text),
                Meaning::Broken | Meaning::Throttled => Self::Unavailable(text),
                Meaning::NotFound | Meaning::WouldBeDone | Meaning::Other => Self::Rejected(text),
            },
            Failure::RateLimited { until } => Self::RateLimited { until },
            Failure::Unanswered(text) | Failure::NotSent(text) => Self::Unavailable(text),
        }
    }
}

impl From<Failure> for PrepareError {
    fn from(failure: Failure) -> Self {
        Self::Provider(failure.into())
    }
}

/// One line of at most so many letters.
fn one_line(text: &str) -> String {
    let mut line: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(LONGEST_TEXT).collect();
    if text.chars().count() > LONGEST_TEXT {
        line.push('…');
    }
    line
}
