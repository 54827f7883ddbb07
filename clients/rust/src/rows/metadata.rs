//! Counts and times of a rollout.

use super::reading::Reading;
use super::tokens::put_token_notes;
use super::{enum_name, put};
use crate::json::{Json, Object};
use crate::proto::rollout::v1::{ModelCallCompleted, ToolCallCompleted, ToolOutcome};

pub(super) fn metadata(reading: &Reading<'_>, duration_us: u64, judged: bool) -> Object {
    let rollout = reading.rollout;
    let answers = || {
        rollout
            .tool_calls
            .iter()
            .filter_map(|record| record.completed.as_ref())
    };
    let mut used: Vec<&str> = Vec::new();
    for answer in answers() {
        if !used.contains(&answer.name.as_str()) {
            used.push(&answer.name);
        }
    }
    let mut out = Object::new();
    put(
        &mut out,
        "steps_taken",
        Json::int(reading.steps().count() as i128),
    );
    put(
        &mut out,
        "tools_used",
        Json::Array(used.into_iter().map(Json::from).collect()),
    );
    put(&mut out, "tool_outcomes", tool_outcomes(answers()));
    put(&mut out, "verified", judged);
    if let Some(seed) = rollout.started.as_ref().and_then(|started| started.seed) {
        put(&mut out, "seed", Json::int(seed));
    }
    put_token_notes(&mut out, &reading.captured());
    let models = rollout
        .model_calls
        .iter()
        .filter_map(|call| call.timings.as_ref());
    let tools = answers().filter_map(|answer| answer.timings.as_ref());
    let verdict = rollout
        .verified
        .iter()
        .filter_map(|verified| verified.timings.as_ref());
    let mut timings = Object::new();
    put(&mut timings, "started_at", Json::real(reading.started_at));
    put(&mut timings, "duration_us", Json::int(duration_us));
    put(
        &mut timings,
        "model_us",
        Json::int(models.map(|one| i128::from(one.total_us)).sum::<i128>()),
    );
    put(
        &mut timings,
        "tools_us",
        Json::int(tools.map(|one| i128::from(one.total_us)).sum::<i128>()),
    );
    let verify_us = verdict.map(|one| i128::from(one.total_us)).sum::<i128>();
    put(&mut timings, "verify_us", Json::int(verify_us));
    put(&mut out, "timings", Json::Object(timings));
    let timed: Vec<Json> = rollout.model_calls.iter().filter_map(timed_call).collect();
    if !timed.is_empty() {
        put(&mut out, "model_calls", Json::Array(timed));
    }
    out
}

/// Where a model call's time went, in microseconds, and how often it was sent again, by reason;
/// `None` where the call does not say.
fn timed_call(call: &ModelCallCompleted) -> Option<Json> {
    let timings = call.timings.unwrap_or_default();
    if timings.endpoint_us == 0 && call.retries.is_empty() {
        return None;
    }
    let mut retries = Object::new();
    for one in &call.retries {
        put(&mut retries, &one.reason, Json::int(one.count));
    }
    let mut out = Object::new();
    put(&mut out, "call_id", call.call_id.as_str());
    put(&mut out, "total_us", Json::int(timings.total_us));
    put(&mut out, "queue_us", Json::int(timings.queue_us));
    put(&mut out, "endpoint_us", Json::int(timings.endpoint_us));
    put(&mut out, "retry_us", Json::int(timings.retry_us));
    put(&mut out, "retries", Json::Object(retries));
    Some(Json::Object(out))
}

/// How the tool calls of each name were answered, in the order of the first ones. An outcome of a
/// later contract counts as UNSPECIFIED, as the contract has it.
fn tool_outcomes<'a>(answers: impl Iterator<Item = &'a ToolCallCompleted>) -> Json {
    let mut counts: Vec<(&str, ToolOutcome, i128)> = Vec::new();
    for answer in answers {
        let outcome = ToolOutcome::try_from(answer.outcome).unwrap_or_default();
        let known = counts
            .iter_mut()
            .find(|(name, counted, _)| *name == answer.name && *counted == outcome);
        match known {
            Some((_, _, calls)) => *calls += 1,
            None => counts.push((&answer.name, outcome, 1)),
        }
    }
    let written = |(name, outcome, calls): (&str, ToolOutcome, i128)| {
        let outcome = enum_name(Some(outcome.as_str_name()), "TOOL_OUTCOME_", 0);
        let mut out = Object::new();
        put(&mut out, "name", name);
        put(&mut out, "outcome", outcome.as_str());
        put(&mut out, "calls", Json::int(calls));
        Json::Object(out)
    };
    Json::Array(counts.into_iter().map(written).collect())
}
