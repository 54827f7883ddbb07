//! What stands in several places of a row.

use crate::conversation::final_call;
use crate::proto::model::v1::TokenCapture;
use crate::proto::rollout::v1::{ModelCallCompleted, Rollout};

/// A rollout, and what of it is read more than once.
pub(super) struct Reading<'a> {
    pub(super) rollout: &'a Rollout,
    /// The root agent's last call of its final conversation.
    pub(super) last: Option<&'a ModelCallCompleted>,
    pub(super) started_at: f64,
}

impl<'a> Reading<'a> {
    pub(super) fn of(rollout: &'a Rollout) -> Self {
        let started_at = rollout.started_unix_nano as f64 / 1e9;
        Self {
            rollout,
            last: final_call(rollout),
            started_at,
        }
    }

    /// The root agent's calls: the response's usage is that of these.
    pub(super) fn steps(&self) -> impl Iterator<Item = &'a ModelCallCompleted> {
        self.rollout
            .model_calls
            .iter()
            .filter(|call| call.actor.is_empty())
    }

    pub(super) fn captured(&self) -> Vec<(&'a ModelCallCompleted, &'a TokenCapture)> {
        let calls = self.rollout.model_calls.iter();
        calls
            .filter_map(|call| Some((call, call.tokens.as_ref()?)))
            .collect()
    }
}
