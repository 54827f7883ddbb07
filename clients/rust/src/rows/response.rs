//! The Responses object of a whole rollout.

use super::reading::Reading;
use super::tokens::{call_tokens, put_tokens};
use super::{Rowed, get, put};
use crate::codec::{item_to_json, response::write_response};
use crate::conversation::thread;
use crate::json::{Json, Object};
use crate::proto::responses::v1::Usage;
use crate::proto::rollout::v1::rollout::Outcome;
use crate::proto::rollout::v1::{ModelCallCompleted, Rollout, StopReason};

// What the API echoes of a request in every response, with its defaults as JSON.
const ECHOED: [(&str, &str); 18] = [
    ("background", "null"),
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("metadata", "null"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("prompt", "null"),
    ("reasoning", "null"),
    ("service_tier", "null"),
    ("temperature", "null"),
    ("text", "null"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_logprobs", "null"),
    ("top_p", "null"),
    ("truncation", "null"),
    ("user", "null"),
];

/// The Responses object of the whole rollout.
pub(super) fn response(reading: &Reading<'_>, in_force: &Object) -> Rowed<Object> {
    let head = match reading.last.and_then(|call| call.response.as_ref()) {
        Some(answer) => write_response(answer, false)?,
        None => Object::new(),
    };
    let said = |key: &str| get(&head, key).filter(|value| is_something(value)).cloned();
    let details = said("incomplete_details").or_else(|| cut_short(reading.rollout));
    let model = reading.last.map_or("", |call| call.model.as_str());
    let cut = details.is_some().then(|| Json::from("incomplete"));
    let mut out = Object::new();
    put(
        &mut out,
        "id",
        said("id").unwrap_or_else(|| reading.rollout.rollout_id.as_str().into()),
    );
    put(&mut out, "object", "response");
    put(&mut out, "created_at", Json::real(reading.started_at));
    put(
        &mut out,
        "model",
        said("model").unwrap_or_else(|| model.into()),
    );
    put(
        &mut out,
        "status",
        cut.or_else(|| said("status"))
            .unwrap_or_else(|| "completed".into()),
    );
    put(
        &mut out,
        "error",
        get(&head, "error").cloned().unwrap_or(Json::Null),
    );
    put(
        &mut out,
        "incomplete_details",
        details.unwrap_or(Json::Null),
    );
    put(&mut out, "output", Json::Array(output(reading)?));
    put(&mut out, "usage", usage(reading.steps()));
    for (key, default) in ECHOED {
        let value = get(in_force, key)
            .filter(|value| **value != Json::Null)
            .cloned();
        let default = || Json::parse(default.as_bytes()).unwrap_or(Json::Null);
        put(&mut out, key, value.unwrap_or_else(default));
    }
    Ok(out)
}

fn is_something(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => false,
        Json::Text(text) => !text.as_bytes().is_empty(),
        Json::Object(object) => !object.is_empty(),
        Json::Array(values) => !values.is_empty(),
        Json::Int(digits) => digits != "0",
        Json::Real(real) => real.0 != 0.0,
        Json::Bool(true) => true,
    }
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

/// The sum over calls.
pub(super) fn usage<'a>(calls: impl Iterator<Item = &'a ModelCallCompleted>) -> Json {
    let said = |call: &'a ModelCallCompleted| call.response.as_ref()?.usage.as_ref();
    let usages: Vec<&Usage> = calls.filter_map(said).collect();
    let sum = |count: fn(&Usage) -> Option<i64>| {
        let counts = usages.iter().filter_map(|usage| count(usage));
        counts.fold(0, i64::wrapping_add)
    };
    let input = sum(|usage| usage.input_tokens);
    let output = sum(|usage| usage.output_tokens);
    let details =
        |key: &str, count: i64| Json::Object(Object::from([(key.into(), Json::int(count))]));
    let cached = details("cached_tokens", sum(|usage| usage.cached_tokens));
    let reasoning = details("reasoning_tokens", sum(|usage| usage.reasoning_tokens));
    let mut out = Object::new();
    put(&mut out, "input_tokens", Json::int(input));
    put(&mut out, "input_tokens_details", cached);
    put(&mut out, "output_tokens", Json::int(output));
    put(&mut out, "output_tokens_details", reasoning);
    put(
        &mut out,
        "total_tokens",
        Json::int(i128::from(input) + i128::from(output)),
    );
    Json::Object(out)
}

/// The transcript. The calls that the root agent made and a trainer should learn from have their
/// tokens with the last item that they wrote, and no others: a reader trains all that it finds.
fn output(reading: &Reading<'_>) -> Rowed<Vec<Json>> {
    let Some(last) = reading.last else {
        return Ok(Vec::new());
    };
    let thread = thread(reading.rollout, &last.call_id)?;
    let mut output: Vec<Json> = thread
        .items
        .iter()
        .map(|item| item_to_json(item))
        .collect::<Result<_, _>>()?;
    let mut tokens = call_tokens(&reading.captured());
    for (place, call) in thread.answers {
        if call.trainable && call.actor.is_empty() {
            put_tokens(&mut output[place], &mut tokens, &call.call_id);
        }
    }
    Ok(output)
}
