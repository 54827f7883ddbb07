//! A rollout as one response, but for its items.

use super::Rowed;
use crate::codec::write;
use crate::conversation::final_call;
use crate::json::{Json, Object, Text, object_bytes};
use crate::proto::responses::v1::{Response, Usage};
use crate::proto::rollout::v1::rollout::Outcome;
use crate::proto::rollout::v1::{ModelCallCompleted, Rollout, StopReason};
use crate::proto::row::v1::{RowResponse, UsageSum};

/// What the API echoes of a request in every response, where its default is null.
const ECHOED: [&str; 15] = [
    "background",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "previous_response_id",
    "prompt",
    "reasoning",
    "service_tier",
    "temperature",
    "text",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// The response of a rollout; `in_force`: its parameters.
pub(super) fn response(rollout: &Rollout, in_force: &Object) -> Rowed<RowResponse> {
    let last = final_call(rollout);
    let said = head(last.and_then(|call| call.response.as_ref()))?;
    let text = |key: &str| match said.get(key).and_then(Json::as_str) {
        Some("") | None => None,
        Some(text) => Some(text.to_owned()),
    };
    let error = said.get("error").filter(|error| **error != Json::Null);
    let told = said.get("incomplete_details").cloned();
    let mut details = told.unwrap_or(Json::Null);
    if is_empty(&details) {
        details = cut_short(rollout).unwrap_or(details);
    }
    let model = last.map(|call| call.model.clone()).unwrap_or_default();
    let status = match is_empty(&details) {
        true => text("status").unwrap_or_else(|| "completed".to_owned()),
        false => "incomplete".to_owned(),
    };
    let steps = rollout.model_calls.iter();
    Ok(RowResponse {
        id: text("id").unwrap_or_else(|| rollout.rollout_id.clone()),
        object: "response".to_owned(),
        created_at: rollout.started_unix_nano as f64 / 1e9,
        model: text("model").unwrap_or(model),
        status,
        error_json: error.map(Json::to_bytes),
        incomplete_details_json: (details != Json::Null).then(|| details.to_bytes()),
        usage: Some(usage(steps.filter(|call| call.actor.is_empty()))),
        overlay_json: object_bytes(&echoed(in_force)),
        ..Default::default()
    })
}

/// The sum over calls.
pub(super) fn usage<'a>(calls: impl IntoIterator<Item = &'a ModelCallCompleted>) -> UsageSum {
    let answers = calls.into_iter().flat_map(|call| &call.response);
    let used: Vec<&Usage> = answers.flat_map(|answer| &answer.usage).collect();
    let input_tokens = sum(used.iter().filter_map(|one| one.input_tokens));
    let output_tokens = sum(used.iter().filter_map(|one| one.output_tokens));
    UsageSum {
        input_tokens,
        cached_tokens: sum(used.iter().filter_map(|one| one.cached_tokens)),
        output_tokens,
        reasoning_tokens: sum(used.iter().filter_map(|one| one.reasoning_tokens)),
        total_tokens: sum([input_tokens, output_tokens]),
        ..Default::default()
    }
}

/// The sum, or the `i64` nearest to it.
pub(super) fn sum(numbers: impl IntoIterator<Item = i64>) -> i64 {
    let total: i128 = numbers.into_iter().map(i128::from).sum();
    let (least, most) = (i64::MIN.into(), i64::MAX.into());
    total.clamp(least, most) as i64
}

/// An answer as JSON, without its items and its usage.
fn head(answer: Option<&Response>) -> Rowed<Json> {
    let Some(answer) = answer else {
        return Ok(Json::Null);
    };
    Ok(write(&Response {
        id: answer.id.clone(),
        model: answer.model.clone(),
        status: answer.status.clone(),
        output_omitted: true,
        incomplete_details: answer.incomplete_details.clone(),
        error: answer.error.clone(),
        overlay_json: answer.overlay_json.clone(),
        ..Default::default()
    })?)
}

fn cut_short(rollout: &Rollout) -> Option<Json> {
    let Some(Outcome::Completed(completed)) = &rollout.outcome else {
        return None;
    };
    let reason = match completed.stop_reason() {
        StopReason::MaxOutputTokens => "max_output_tokens",
        StopReason::ContentFilter => "content_filter",
        _ => return None,
    };
    Some(Json::Object(Object::from([(
        "reason".into(),
        reason.into(),
    )])))
}

/// A null stands for the default, which the API then echoes.
fn echoed(in_force: &Object) -> Object {
    let usual = ECHOED.map(|key| (key, Json::Null)).into_iter();
    let usual = usual.chain([
        ("parallel_tool_calls", Json::Bool(true)),
        ("tool_choice", Json::from("auto")),
        ("tools", Json::Array(Vec::new())),
    ]);
    let echo = |(key, usual): (&str, Json)| {
        let key = Text::from(key);
        let given = in_force.get(&key).filter(|given| **given != Json::Null);
        (key, given.cloned().unwrap_or(usual))
    };
    usual.map(echo).collect()
}

/// Null, false, zero, an empty text, list or object.
fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => true,
        Json::Bool(true) => false,
        Json::Int(_) | Json::Real(_) => value.as_f64() == Some(0.0),
        Json::Text(text) => text.as_bytes().is_empty(),
        Json::Array(values) => values.is_empty(),
        Json::Object(object) => object.is_empty(),
    }
}
