//! How an attempt is judged.

use gymmesh_client::dial::{answer, verify_client, within};
use gymmesh_client::errors::MeshError;
use gymmesh_client::proto::resource::v1::RewardRule;
use gymmesh_client::proto::rollout::v1::{Boundary, StopReason, Verification, VerificationStatus};
use gymmesh_client::proto::verify::v1::VerifyRequest;

use super::{Attempt, Step, failure};

impl Attempt {
    pub(super) async fn judge(&mut self, stop_reason: StopReason) -> Step<Verification> {
        if self.options.skip_verification {
            return Ok(Verification {
                status: VerificationStatus::Skipped.into(),
                reason: "skip_verification was asked for".to_owned(),
                ..Default::default()
            });
        }
        let Some(session) = &self.session else {
            return Ok(Verification::default());
        };
        let request = VerifyRequest {
            session_id: session.opened.session_id.clone(),
            task: Some(self.task.clone()),
            transcript: self.items[self.first..].to_vec(),
            stop_reason: stop_reason.into(),
            rollout_id: self.rollout_id.clone(),
            attempt: self.attempt,
            turn_rewards: self.turn_rewards.clone(),
            ..Default::default()
        };
        let environment = &self.task.environment;
        let at_verifier = |error: MeshError| failure(&error, Boundary::Verifier, environment, "");
        let mut client = verify_client(session.channel.clone());
        let said = answer(self.left(), client.verify(within(self.left(), request)))
            .await
            .map_err(at_verifier)?;
        let mut verdict = said.verification.unwrap_or_default();
        if session.about.reward_rule() == RewardRule::Sum
            && let Some(reward) = &mut verdict.reward
        {
            *reward += self.turn_rewards.iter().sum::<f64>();
        }
        let pending = verdict.status() == VerificationStatus::Pending;
        verdict.awaits_group = pending && session.about.judges_groups;
        check_verdict(&verdict).map_err(at_verifier)?;
        self.final_state = said.final_state;
        Ok(verdict)
    }
}

/// Refuses a verdict that contradicts itself: trouble is never a reward.
pub fn check_verdict(verdict: &Verification) -> Result<(), MeshError> {
    let verified = verdict.status() == VerificationStatus::Verified;
    let lawful = verdict.status() != VerificationStatus::Unspecified
        && verified == verdict.reward.is_some()
        && verdict.reward.is_none_or(f64::is_finite)
        && verdict
            .components
            .iter()
            .all(|part| part.value.is_finite() && part.weight.is_none_or(f64::is_finite));
    if lawful {
        return Ok(());
    }
    let sentence = "the verdict contradicts itself";
    Err(MeshError::new(
        "CONTRACT_VIOLATED",
        sentence,
        &[("rule", "verdict")],
    ))
}
