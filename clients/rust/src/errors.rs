//! Errors by their reasons, as `errors/v1/errors.proto` lists them.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use prost::Message;
use prost_reflect::EnumValueDescriptor;
use tonic::Code;
use tonic_types::pb::{ErrorInfo, RetryInfo};

use crate::codec::POOL;
use crate::dial::causes;
use crate::proto::errors::v1::ReasonRule as Rule;
use crate::proto::rollout::v1::{Boundary, Failure};
use crate::proto::rpc::Status;

/// The domain of every ErrorInfo of the mesh.
pub const DOMAIN: &str = "gymmesh";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// The rule of a reason, from the contract's descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonRule {
    /// The reason, such as `QUEUE_FULL`.
    pub reason: String,
    /// Its number in the enum.
    pub number: i32,
    /// The status code that it comes with, as a number.
    pub code: i32,
    /// Whether the same thing may succeed when it is tried again, in a fresh session.
    pub retry_safe: bool,
    /// The boundary of a rollout that fails with it; 0: the step decides.
    pub boundary: i32,
}

static RULES: LazyLock<Vec<ReasonRule>> = LazyLock::new(|| {
    let reasons = POOL.get_enum_by_name("gymmesh.errors.v1.ErrorReason");
    let option = POOL.get_extension_by_name("gymmesh.errors.v1.rule");
    let (reasons, option) = reasons.zip(option).expect("the committed descriptors");
    let rule = |value: EnumValueDescriptor| {
        let options = value.options();
        let said = options.get_extension(&option);
        let said = said.as_message().expect("a rule is a message");
        let said: Rule = said.transcode_to().expect("a message's own bytes");
        ReasonRule {
            reason: value.name().trim_start_matches("ERROR_REASON_").to_owned(),
            number: value.number(),
            code: said.code,
            retry_safe: said.retry_safe,
            boundary: said.boundary,
        }
    };
    let named = reasons.values().filter(|value| value.number() != 0);
    named.map(rule).collect()
});

/// All rules, in the order of the contract.
pub fn rules() -> &'static [ReasonRule] {
    &RULES
}

/// The rule of a reason; None for one that this version does not know.
pub fn rule_of(reason: &str) -> Option<&'static ReasonRule> {
    RULES.iter().find(|rule| rule.reason == reason)
}

/// A call, a start or a rollout that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshError {
    /// The reason, without prefix; one of a later contract comes as it is.
    pub reason: String,
    /// The status code.
    pub code: Code,
    /// A sentence for people.
    pub message: String,
    /// Whether a new attempt may succeed.
    pub retry_safe: bool,
    /// The boundary that the reason names; None: the step decides.
    pub boundary: Option<Boundary>,
    /// What the reason concerns.
    pub metadata: HashMap<String, String>,
    /// When to try again, where that was said.
    pub retry_after: Option<Duration>,
    /// All details of the status, ErrorInfo included.
    pub details: Vec<prost_types::Any>,
}

impl MeshError {
    /// An error of our own, by the rule of its reason.
    pub fn new(reason: &str, message: impl Into<String>, metadata: &[(&str, &str)]) -> Self {
        let rule = rule_of(reason);
        let code = rule.map_or(Code::Unknown, |rule| Code::from(rule.code));
        let facts = metadata.iter();
        let metadata = facts.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Self::from_rpc(&Status {
            code: code.into(),
            message: message.into(),
            details: vec![info_detail(reason, metadata.collect())],
        })
    }

    /// Reads a `google.rpc.Status`; one without a reason is read by its code.
    pub fn from_rpc(status: &Status) -> Self {
        let code = Code::from(status.code);
        let info = error_info(status);
        let reason = match &info {
            Some(info) => info.reason.clone(),
            None => reason_of_code(code, &status.message).to_owned(),
        };
        let rule = rule_of(&reason);
        let boundary = rule.and_then(|rule| Boundary::try_from(rule.boundary).ok());
        Self {
            code,
            message: status.message.clone(),
            retry_safe: rule.map_or_else(|| may_pass(code), |rule| rule.retry_safe),
            boundary: boundary.filter(|one| *one != Boundary::Unspecified),
            metadata: info.map(|info| info.metadata).unwrap_or_default(),
            retry_after: retry_after(status),
            details: status.details.clone(),
            reason,
        }
    }

    /// It as a `google.rpc.Status`, such as a Failure holds.
    pub fn to_rpc(&self) -> Status {
        let mut details = self.details.clone();
        if error_info_of(&details).is_none() {
            details.insert(0, info_detail(&self.reason, self.metadata.clone()));
        }
        Status {
            code: self.code.into(),
            message: self.message.clone(),
            details,
        }
    }

    /// It as a server answers it.
    pub fn to_status(&self) -> tonic::Status {
        let details = self.to_rpc().encode_to_vec();
        tonic::Status::with_details(self.code, self.message.clone(), details.into())
    }

    /// A rollout's failure with this cause. `step`: the boundary of the step that met it, unless the
    /// reason has its own.
    pub fn to_failure(&self, step: Boundary, component: &str) -> Failure {
        Failure {
            boundary: self.boundary.unwrap_or(step).into(),
            status: Some(self.to_rpc()),
            retry_safe: self.retry_safe,
            component: component.to_owned(),
            call_id: String::new(),
        }
    }
}

impl From<tonic::Status> for MeshError {
    fn from(status: tonic::Status) -> Self {
        let mut said = Status::decode(status.details()).unwrap_or_default();
        if error_info(&said).is_none() {
            said.details.clear();
        }
        let cause = std::error::Error::source(&status);
        said.code = match (cause, status.code()) {
            // tonic does not tell a connection that broke from the rest.
            (Some(_), tonic::Code::Unknown) => tonic::Code::Unavailable.into(),
            (_, code) => code.into(),
        };
        // What this side met has its causes below it: the address, the certificate.
        said.message = match cause {
            Some(cause) => causes(cause),
            None => status.message().to_owned(),
        };
        Self::from_rpc(&said)
    }
}

impl fmt::Display for MeshError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.reason, self.message)
    }
}

impl std::error::Error for MeshError {}

/// The reason in a status; empty where it has none.
pub fn reason_of(status: &Status) -> String {
    error_info(status)
        .map(|info| info.reason)
        .unwrap_or_default()
}

pub(crate) fn error_info(status: &Status) -> Option<ErrorInfo> {
    error_info_of(&status.details)
}

fn error_info_of(details: &[prost_types::Any]) -> Option<ErrorInfo> {
    let of_kind = |detail: &&prost_types::Any| detail.type_url.ends_with("/google.rpc.ErrorInfo");
    let read = |detail: &prost_types::Any| ErrorInfo::decode(detail.value.as_slice()).ok();
    details
        .iter()
        .filter(of_kind)
        .filter_map(read)
        .find(|info| info.domain == DOMAIN)
}

fn info_detail(reason: &str, metadata: HashMap<String, String>) -> prost_types::Any {
    let info = ErrorInfo {
        reason: reason.to_owned(),
        domain: DOMAIN.to_owned(),
        metadata,
    };
    prost_types::Any {
        type_url: ERROR_INFO.into(),
        value: info.encode_to_vec(),
    }
}

fn retry_after(status: &Status) -> Option<Duration> {
    let detail = status
        .details
        .iter()
        .find(|one| one.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(detail.value.as_slice())
        .ok()?
        .retry_delay?;
    Duration::try_from(delay).ok()
}

/// Whether something may succeed when tried again that failed with a reason of a later contract.
fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Internal
            | Code::Unknown
            | Code::Cancelled
    )
}

/// The reason that a status without one counts as; see TRANSPORT.md.
fn reason_of_code(code: Code, message: &str) -> &'static str {
    match code {
        Code::Unavailable | Code::Cancelled => "PEER_UNAVAILABLE",
        Code::DeadlineExceeded => "DEADLINE_PASSED",
        Code::Unimplemented => "NOT_OFFERED",
        Code::Unauthenticated => "CREDENTIAL_INVALID",
        Code::PermissionDenied => "NOT_PERMITTED",
        Code::InvalidArgument => "FIELD_INVALID",
        // tonic says OUT_OF_RANGE where others say RESOURCE_EXHAUSTED.
        Code::ResourceExhausted | Code::OutOfRange if is_about_size(message) => "MESSAGE_TOO_LARGE",
        Code::ResourceExhausted => "QUEUE_FULL",
        _ => "INTERNAL_FAULT",
    }
}

fn is_about_size(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    [
        "larger than",
        "message length",
        "too large",
        "exceeds",
        "message size",
    ]
    .iter()
    .any(|words| message.contains(words))
}
