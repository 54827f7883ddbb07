//! Rollouts as rows of JSON lines, as gym-cli writes them. Pure.

mod actors;
mod extras;
mod metadata;
mod model_usage;
mod params;
mod reading;
mod response;
mod tokens;
mod verdict;

use std::collections::BTreeMap;

use self::actors::put_actors;
use self::extras::with_extras;
use self::metadata::metadata;
use self::model_usage::{put_model_usage, usage_of};
use self::params::opening;
use self::reading::Reading;
use self::verdict::{final_state, no_verdict, verification_row};
use crate::codec::CodecError;
use crate::conversation::NoConversation;
use crate::errors::error_info;
use crate::json::{Json, Object, Text};
use crate::proto::rollout::v1::rollout::Outcome;
use crate::proto::rollout::v1::{Boundary, Failure, Rollout, StopReason, Task};

/// A rollout that cannot be written as a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError(String);

impl std::fmt::Display for RowError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for RowError {}

impl From<CodecError> for RowError {
    fn from(error: CodecError) -> Self {
        Self(error.to_string())
    }
}

impl From<NoConversation> for RowError {
    fn from(error: NoConversation) -> Self {
        Self(error.to_string())
    }
}

type Rowed<T> = Result<T, RowError>;

/// The row of a completed rollout. Its reward is null where there is no verdict, and never 0 for it.
///
/// # Errors
/// The rollout is not completed, or cannot be written as JSON.
pub fn completed_row(task: &Task, rollout: &Rollout) -> Rowed<Object> {
    let Some(Outcome::Completed(completed)) = &rollout.outcome else {
        return Err(RowError("only a completed rollout has a row".into()));
    };
    let reading = Reading::of(rollout);
    let said = rollout
        .verified
        .as_ref()
        .and_then(|verified| verified.verification.as_ref());
    let verdict = match said {
        Some(said) => verification_row(said)?,
        None => no_verdict(),
    };
    let reward = verdict
        .get(&Text::from("reward"))
        .cloned()
        .unwrap_or(Json::Null);
    let evidence = verdict.get(&Text::from("evidence")).cloned();
    let mut row = opening(task, &reading)?;
    put(&mut row, "reward", reward.clone());
    put_identity(&mut row, task, rollout);
    put(&mut row, "verification", Json::Object(verdict));
    let verified = rollout.verified.as_ref();
    if let Some(kept) = verified.and_then(|verified| verified.final_state.as_ref()) {
        put(&mut row, "final_state", Json::Object(final_state(kept)?));
    }
    put(&mut row, "stop_reason", stop_reason(completed.stop_reason));
    if !completed.stop_detail.is_empty() {
        put(&mut row, "stop_detail", completed.stop_detail.as_str());
    }
    let judged = reward != Json::Null;
    put(
        &mut row,
        "metadata",
        Json::Object(metadata(&reading, completed.duration_us, judged)),
    );
    put_model_usage(&mut row, rollout, &[]);
    put_actors(&mut row, &reading)?;
    with_extras(row, task, evidence)
}

/// The row of a failed rollout, with what was known of it before; it has no reward.
///
/// # Errors
/// What there is of it cannot be written as JSON.
pub fn failure_row(task: &Task, failure: &Failure, partial: &Rollout) -> Rowed<Object> {
    let reading = Reading::of(partial);
    let mut row = opening(task, &reading)?;
    put_identity(&mut row, task, partial);
    put(&mut row, "failure", Json::Object(failure_of(failure)));
    let duration_us = match &partial.outcome {
        Some(Outcome::Completed(ended)) => ended.duration_us,
        Some(Outcome::Failed(ended)) => ended.duration_us,
        None => 0,
    };
    put(
        &mut row,
        "metadata",
        Json::Object(metadata(&reading, duration_us, false)),
    );
    put_model_usage(&mut row, partial, &usage_of(failure));
    put_actors(&mut row, &reading)?;
    with_extras(row, task, None)
}

fn put(out: &mut Object, key: &str, value: impl Into<Json>) {
    out.insert(key.into(), value.into());
}

fn get<'a>(object: &'a Object, key: &str) -> Option<&'a Json> {
    object.get(&Text::from(key))
}

fn enum_name(full: Option<&str>, prefix: &str, number: i32) -> String {
    match full {
        Some(name) => name.trim_start_matches(prefix).to_owned(),
        None => number.to_string(), // of a later contract
    }
}

fn stop_reason(number: i32) -> Json {
    let known = StopReason::try_from(number).ok();
    enum_name(known.map(|one| one.as_str_name()), "STOP_REASON_", number)
        .as_str()
        .into()
}

fn into_object(json: Json) -> Object {
    match json {
        Json::Object(object) => object,
        _ => Object::new(),
    }
}

fn put_identity(row: &mut Object, task: &Task, rollout: &Rollout) {
    let started = rollout.started.clone().unwrap_or_default();
    let or = |said: &str, asked: &str| Json::from(if said.is_empty() { asked } else { said });
    put(row, "task_id", or(&rollout.task_id, &task.task_id));
    put(row, "rollout_id", rollout.rollout_id.as_str());
    put(row, "run_id", rollout.run_id.as_str());
    put(row, "repeat_index", Json::int(rollout.repeat_index));
    put(row, "attempt", Json::int(rollout.attempt));
    put(
        row,
        "environment",
        or(&started.environment, &task.environment),
    );
    put(row, "agent", or(&started.agent, &task.agent));
    if let Some(seed) = task.seed {
        put(row, "seed", Json::int(seed));
    }
    if !task.tags.is_empty() {
        put(row, "tags", texts(&task.tags));
    }
}

/// A map of texts, its keys in order.
fn texts<'a>(map: impl IntoIterator<Item = (&'a String, &'a String)>) -> Json {
    let ordered: BTreeMap<_, _> = map.into_iter().collect();
    let pairs = ordered
        .into_iter()
        .map(|(key, text)| (key.as_str().into(), text.as_str().into()));
    Json::Object(pairs.collect())
}

fn read_field(json: &[u8], name: &str) -> Rowed<Json> {
    if json.is_empty() {
        return Ok(Json::Object(Object::new()));
    }
    Json::parse_field(json).map_err(|error| RowError(format!("{name}: {error}")))
}

fn failure_of(failure: &Failure) -> Object {
    let said = failure.status.clone().unwrap_or_default();
    let info = error_info(&said).unwrap_or_default();
    let mut status = Object::new();
    put(&mut status, "code", Json::int(said.code));
    put(&mut status, "message", said.message.as_str());
    put(&mut status, "reason", info.reason.as_str());
    put(&mut status, "metadata", texts(&info.metadata));
    let known = Boundary::try_from(failure.boundary).ok();
    let boundary = enum_name(
        known.map(|one| one.as_str_name()),
        "BOUNDARY_",
        failure.boundary,
    );
    let mut out = Object::new();
    put(&mut out, "boundary", boundary.as_str());
    put(&mut out, "status", Json::Object(status));
    put(&mut out, "retry_safe", failure.retry_safe);
    put(&mut out, "component", failure.component.as_str());
    put(&mut out, "call_id", failure.call_id.as_str());
    out
}
