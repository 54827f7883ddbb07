//! A row's sums and times.

use std::collections::BTreeSet;

use super::Rowed;
use crate::codec::keys;
use crate::json::{Json, Object, object_bytes};
use crate::proto::rollout::v1::rollout::Outcome;
use crate::proto::rollout::v1::{CallTimings, Rollout, ToolOutcome};
use crate::proto::row::v1::{RowMetadata, RowTimings, ToolOutcomeCount};

/// A row's metadata, and those members of the task's own metadata that are columns there.
pub(super) fn metadata(
    rollout: &Rollout,
    verified: bool,
    of_task: Option<&Json>,
) -> Rowed<(RowMetadata, Object)> {
    let calls = &rollout.model_calls;
    let learned = calls.iter().filter(|call| call.trainable);
    let spans = learned.flat_map(|call| call.tokens.iter().flat_map(|tokens| &tokens.weights));
    let versions: BTreeSet<u64> = spans.map(|span| span.version).collect();
    let outcomes = outcomes(rollout);
    let mut tools: Vec<String> = Vec::new();
    for one in &outcomes {
        if !tools.contains(&one.name) {
            tools.push(one.name.clone());
        }
    }
    let mut metadata = RowMetadata {
        steps_taken: calls.iter().filter(|call| call.actor.is_empty()).count() as u32,
        tools_used: tools,
        tool_outcomes: outcomes,
        verified,
        seed: rollout.started.as_ref().and_then(|started| started.seed),
        weights_versions: versions.into_iter().collect(),
        timings: Some(timings(rollout)),
        ..Default::default()
    };
    let Some(Json::Object(of_task)) = of_task else {
        return Ok((metadata, Object::new()));
    };
    let own = keys::<RowMetadata>();
    let (taken, rest): (Object, Object) = of_task
        .clone()
        .into_iter()
        .partition(|(key, _)| own.contains(key));
    if !rest.is_empty() {
        metadata.overlay_json = object_bytes(&rest);
    }
    Ok((metadata, taken))
}

/// How often each tool was answered in each way, in the order of the first answers.
fn outcomes(rollout: &Rollout) -> Vec<ToolOutcomeCount> {
    let mut counts: Vec<ToolOutcomeCount> = Vec::new();
    for call in &rollout.tool_calls {
        let answer = call.completed.clone().unwrap_or_default();
        // One of a later contract counts as UNSPECIFIED, as the contract has it.
        let outcome = ToolOutcome::try_from(answer.outcome)
            .unwrap_or_default()
            .into();
        let same = |one: &&mut ToolOutcomeCount| one.name == answer.name && one.outcome == outcome;
        match counts.iter_mut().find(same) {
            Some(count) => count.calls += 1,
            None => counts.push(ToolOutcomeCount {
                name: answer.name,
                outcome,
                calls: 1,
            }),
        }
    }
    counts
}

fn timings(rollout: &Rollout) -> RowTimings {
    let total = |timings: &Option<CallTimings>| timings.map_or(0, |timings| timings.total_us);
    let answers = rollout.tool_calls.iter().flat_map(|call| &call.completed);
    RowTimings {
        started_at: rollout.started_unix_nano as f64 / 1e9,
        duration_us: match &rollout.outcome {
            Some(Outcome::Completed(ended)) => ended.duration_us,
            Some(Outcome::Failed(ended)) => ended.duration_us,
            None => 0,
        },
        model_us: rollout
            .model_calls
            .iter()
            .map(|call| total(&call.timings))
            .fold(0, u64::saturating_add),
        tools_us: answers
            .map(|answer| total(&answer.timings))
            .fold(0, u64::saturating_add),
        verify_us: rollout
            .verified
            .as_ref()
            .map_or(0, |one| total(&one.timings)),
    }
}
