//! The exact tokens of a rollout's calls.

use std::collections::BTreeMap;

use super::{enum_name, put};
use crate::json::{Json, Object};
use crate::proto::model::v1::{ForkReason, TokenCapture};
use crate::proto::rollout::v1::ModelCallCompleted;

pub(super) struct CallTokens<'a> {
    /// None when it cannot be put together.
    prompt: Option<Vec<u8>>,
    output: &'a [u8],
    logprobs: &'a [u8],
}

pub(super) fn call_tokens<'a>(
    calls: &[(&'a ModelCallCompleted, &'a TokenCapture)],
) -> BTreeMap<&'a str, CallTokens<'a>> {
    let mut found: BTreeMap<&str, CallTokens<'_>> = BTreeMap::new();
    for (call, said) in calls {
        if said.output_token_ids.is_empty() && said.prompt_token_ids.is_empty() {
            continue;
        }
        let size = said.prompt_prefix_tokens as usize * 4;
        let prompt = if size == 0 {
            Some(said.prompt_token_ids.clone())
        } else {
            let parent = found
                .get(call.parent_call_id.as_str())
                .filter(|_| !call.detached);
            parent.and_then(|parent| {
                let before = [parent.prompt.as_ref()?.as_slice(), parent.output].concat();
                Some([before.get(..size)?, &said.prompt_token_ids].concat())
            })
        };
        let tokens = CallTokens {
            prompt,
            output: &said.output_token_ids,
            logprobs: &said.logprobs,
        };
        found.insert(&call.call_id, tokens);
    }
    found
}

/// Moves a call's tokens to the last item that the call wrote.
pub(super) fn put_tokens(
    item: &mut Json,
    tokens: &mut BTreeMap<&str, CallTokens<'_>>,
    call_id: &str,
) {
    let Json::Object(item) = item else {
        return;
    };
    let Some(said) = tokens.remove(call_id) else {
        return;
    };
    if let Some(prompt) = &said.prompt {
        put(item, "prompt_token_ids", token_ids(prompt));
    }
    put(item, "generation_token_ids", token_ids(said.output));
    put(item, "generation_log_probs", log_probs(said.logprobs));
}

fn token_ids(packed: &[u8]) -> Json {
    let ids = packed.as_chunks::<4>().0.iter();
    Json::Array(ids.map(|id| Json::int(i32::from_le_bytes(*id))).collect())
}

fn log_probs(packed: &[u8]) -> Json {
    let numbers = packed
        .as_chunks::<4>()
        .0
        .iter()
        .map(|one| f64::from(f32::from_le_bytes(*one)));
    let written = |one: f64| {
        if one.is_finite() {
            Json::real(one)
        } else {
            Json::Null
        }
    };
    Json::Array(numbers.map(written).collect())
}

/// What the metadata says of the weights that wrote what is to be learned from, and of the forks;
/// only what is. Other models have versions of their own.
pub(super) fn put_token_notes(out: &mut Object, captured: &[(&ModelCallCompleted, &TokenCapture)]) {
    let mut versions: Vec<u64> = Vec::new();
    let mut forks = Vec::new();
    for (call, said) in captured {
        if call.trainable {
            versions.extend(said.weights.iter().map(|span| span.version));
        }
        if let Some(fork) = &said.fork {
            let known = ForkReason::try_from(fork.reason).ok();
            let reason = enum_name(
                known.map(|one| one.as_str_name()),
                "FORK_REASON_",
                fork.reason,
            );
            let mut note = Object::new();
            put(&mut note, "call_id", call.call_id.as_str());
            put(&mut note, "reason", reason.as_str());
            put(&mut note, "common_tokens", Json::int(fork.common_tokens));
            forks.push(Json::Object(note));
        }
    }
    versions.sort_unstable();
    versions.dedup();
    if !versions.is_empty() {
        let versions = versions.into_iter().map(Json::int).collect();
        put(out, "weights_versions", Json::Array(versions));
    }
    if !forks.is_empty() {
        put(out, "token_forks", Json::Array(forks));
    }
}
