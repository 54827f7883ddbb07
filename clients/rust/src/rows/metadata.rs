//! Counts and times of a rollout.

use super::put;
use super::reading::Reading;
use super::tokens::put_token_notes;
use crate::json::{Json, Object};

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
    out
}
