//! How one attempt ends.

use std::time::Duration;

use tonic::Code;

use crate::errors::MeshError;
use crate::fold::{Fold, Identity, Rule, StreamViolation};
use crate::proto::agent::v1::RunRolloutRequest;
use crate::proto::rollout::v1::rollout::Outcome;
use crate::proto::rollout::v1::{Boundary, Failure, Rollout};
use crate::rows::RowError;

/// A failed attempt, with everything before the failure; it has no reward.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedAttempt {
    /// The one cause.
    pub failure: Failure,
    /// What there is of the rollout.
    pub partial: Rollout,
}

impl FailedAttempt {
    /// The failure of a rollout that cannot be written as a row: it is the agent's fault, and only
    /// its identity is kept.
    pub fn unwritable(rollout: &Rollout, error: &RowError) -> Box<Self> {
        let bare = Rollout {
            run_id: rollout.run_id.clone(),
            task_id: rollout.task_id.clone(),
            repeat_index: rollout.repeat_index,
            rollout_id: rollout.rollout_id.clone(),
            attempt: rollout.attempt,
            ..Default::default()
        };
        let sentence = format!("the agent's rollout cannot be written as a row: {error}");
        let error = MeshError::new("CONTRACT_VIOLATED", sentence, &[("rule", "row")]);
        failed(bare, error, false)
    }
}

pub(super) type Ended = Result<Rollout, Box<FailedAttempt>>;

pub(super) fn fold_for(request: &RunRolloutRequest, repeat_index: u32) -> Fold {
    Fold::new(Identity {
        rollout_id: request.rollout_id.clone(),
        attempt: request.attempt.max(1),
        run_id: request.run_id.clone(),
        task_id: request
            .task
            .as_ref()
            .map(|task| task.task_id.clone())
            .unwrap_or_default(),
        repeat_index,
    })
}

/// The outcome of a fold whose terminal event has come.
pub(super) fn ended(fold: Fold) -> Ended {
    match fold.finish() {
        Ok(rollout) => match &rollout.outcome {
            Some(Outcome::Failed(failed)) => {
                let failure = failed.failure.clone().unwrap_or_default();
                Err(Box::new(FailedAttempt {
                    failure,
                    partial: rollout,
                }))
            }
            _ => Ok(rollout),
        },
        Err(violation) => Err(failed(Rollout::default(), violated(&violation), true)),
    }
}

/// An attempt that the call, and not its rollout, ended.
pub(super) fn broken_off(fold: Fold, error: MeshError) -> Ended {
    if fold.ended() {
        return ended(fold); // the outcome came; how the call closed after it is of no account
    }
    let passing = matches!(
        error.code,
        Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Cancelled
            | Code::Unknown
    );
    let again = match error.reason.as_str() {
        "MESSAGE_TOO_LARGE" => false, // it would be as large again
        "ROLLOUT_EXISTS" => true,     // the next attempt has a number of its own
        _ => passing,
    };
    let safe = fold.begun() || again;
    Err(failed(fold.into_rollout(), error, safe))
}

/// An attempt whose events break the stream law, which is never data.
pub(super) fn unlawful(fold: Fold, violation: &StreamViolation) -> Box<FailedAttempt> {
    let truncated = violation.rule == Rule::Truncated;
    failed(fold.into_rollout(), violated(violation), truncated)
}

pub(super) fn overdue(limit: Duration) -> MeshError {
    let sentence = format!("the rollout did not end within {} s", limit.as_secs_f64());
    let method = "gymmesh.agent.v1.AgentService/Collect";
    MeshError::new("DEADLINE_PASSED", sentence, &[("method", method)])
}

pub(super) fn failed(partial: Rollout, error: MeshError, retry_safe: bool) -> Box<FailedAttempt> {
    let overdue = error.code == Code::DeadlineExceeded;
    let failure = Failure {
        boundary: if overdue {
            Boundary::Deadline
        } else {
            Boundary::Agent
        }
        .into(),
        status: Some(error.to_rpc()),
        retry_safe: retry_safe && !overdue,
        ..Default::default()
    };
    Box::new(FailedAttempt { failure, partial })
}

fn violated(violation: &StreamViolation) -> MeshError {
    let sentence = format!("the agent's stream broke the stream law: {violation}");
    MeshError::new(
        "CONTRACT_VIOLATED",
        sentence,
        &[("rule", violation.rule.name())],
    )
}
