//! What the environment's own model calls consumed.

use prost::Message;

use super::put;
use crate::json::{Json, Object};
use crate::proto::errors::v1::ModelUsage;
use crate::proto::rollout::v1::{Failure, ModelCallUsage, Rollout};

/// What the environment's own model calls consumed, by model.
pub(super) fn put_model_usage(row: &mut Object, rollout: &Rollout, others: &[ModelCallUsage]) {
    let turns = rollout.turns.iter().flat_map(|turn| &turn.model_usage);
    let verdict = rollout
        .verified
        .iter()
        .filter_map(|verified| verified.verification.as_ref());
    let judging = verdict.flat_map(|verification| &verification.model_usage);
    let mut sums: Vec<ModelCallUsage> = Vec::new();
    for entry in turns.chain(judging).chain(others) {
        match sums.iter_mut().find(|sum| sum.model == entry.model) {
            None => sums.push(entry.clone()),
            Some(sum) => {
                sum.calls = sum.calls.wrapping_add(entry.calls);
                sum.input_tokens = sum.input_tokens.wrapping_add(entry.input_tokens);
                sum.output_tokens = sum.output_tokens.wrapping_add(entry.output_tokens);
            }
        }
    }
    let written = |sum: ModelCallUsage| {
        let mut out = Object::new();
        put(&mut out, "model", sum.model.as_str());
        put(&mut out, "calls", Json::int(sum.calls));
        put(&mut out, "input_tokens", Json::int(sum.input_tokens));
        put(&mut out, "output_tokens", Json::int(sum.output_tokens));
        Json::Object(out)
    };
    if !sums.is_empty() {
        put(
            row,
            "model_usage",
            Json::Array(sums.into_iter().map(written).collect()),
        );
    }
}

/// What a failed turn or verdict says that it consumed.
pub(super) fn usage_of(failure: &Failure) -> Vec<ModelCallUsage> {
    let details = failure.status.iter().flat_map(|status| &status.details);
    let mut said = details.filter(|one| one.type_url.ends_with("/gymmesh.errors.v1.ModelUsage"));
    let read = said
        .next()
        .and_then(|one| ModelUsage::decode(one.value.as_slice()).ok());
    read.map(|one| one.usage).unwrap_or_default()
}
