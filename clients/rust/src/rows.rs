//! Rollouts as rows of JSON lines, as gym-cli writes them. Pure.

use std::collections::BTreeMap;

use prost::Message;

use crate::codec::{CodecError, item_to_json, params_to_json, response::write_response, text_of};
use crate::conversation::{NoConversation, final_call, thread};
use crate::errors::error_info;
use crate::json::{Json, Object, Text};
use crate::proto::errors::v1::ModelUsage;
use crate::proto::model::v1::{ForkReason, TokenCapture};
use crate::proto::rollout::v1::rollout::Outcome;
use crate::proto::rollout::v1::{
    Boundary, Failure, ModelCallCompleted, ModelCallUsage, Rollout, Started, StopReason, Task,
    Verification, VerificationStatus,
};

const OWN_KEYS: [&str; 20] = [
    "responses_create_params",
    "first_items",
    "response",
    "reward",
    "task_id",
    "rollout_id",
    "run_id",
    "repeat_index",
    "attempt",
    "environment",
    "agent",
    "seed",
    "tags",
    "verification",
    "stop_reason",
    "stop_detail",
    "metadata",
    "model_usage",
    "failure",
    "task_extras",
];
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

/// What stands in several places of a row.
struct Reading<'a> {
    rollout: &'a Rollout,
    last: Option<&'a ModelCallCompleted>,
    started_at: f64,
}

impl<'a> Reading<'a> {
    fn of(rollout: &'a Rollout) -> Self {
        let started_at = rollout.started_unix_nano as f64 / 1e9;
        Self {
            rollout,
            last: final_call(rollout),
            started_at,
        }
    }

    /// The root agent's calls: the tokens are those of these.
    fn steps(&self) -> impl Iterator<Item = &'a ModelCallCompleted> {
        self.rollout
            .model_calls
            .iter()
            .filter(|call| call.actor.is_empty())
    }

    fn tokens(&self, count: impl Fn(&crate::proto::responses::v1::Usage) -> Option<i64>) -> i64 {
        let usages = self
            .steps()
            .filter_map(|call| call.response.as_ref()?.usage.as_ref());
        usages.filter_map(count).fold(0, i64::wrapping_add)
    }

    fn captured(&self) -> Vec<(&'a ModelCallCompleted, &'a TokenCapture)> {
        let calls = self.rollout.model_calls.iter();
        calls
            .filter_map(|call| Some((call, call.tokens.as_ref()?)))
            .collect()
    }
}

fn opening(task: &Task, reading: &Reading<'_>) -> Rowed<Object> {
    let started = reading.rollout.started.as_ref();
    let in_force = match started.and_then(|started| started.params.as_ref()) {
        Some(params) => into_object(params_to_json(params)?),
        None => Object::new(),
    };
    let asked = into_object(params_to_json(&task.params.clone().unwrap_or_default())?);
    let mut document = asked.clone();
    document.extend(in_force.clone());
    match get(&asked, "input") {
        Some(input) => put(&mut document, "input", input.clone()),
        None => drop(document.shift_remove(&Text::from("input"))),
    }
    let mut row = Object::new();
    put(&mut row, "responses_create_params", Json::Object(document));
    if let Some(started) = started.filter(|started| !begins_with_input(task, started)) {
        let items = started
            .items
            .iter()
            .map(item_to_json)
            .collect::<Result<_, _>>()?;
        put(&mut row, "first_items", Json::Array(items));
    }
    put(
        &mut row,
        "response",
        Json::Object(response(reading, &in_force)?),
    );
    Ok(row)
}

fn into_object(json: Json) -> Object {
    match json {
        Json::Object(object) => object,
        _ => Object::new(),
    }
}

fn begins_with_input(task: &Task, started: &Started) -> bool {
    let params = task.params.clone().unwrap_or_default();
    let Some(text) = &params.input_text else {
        return started.items == params.input;
    };
    let [item] = started.items.as_slice() else {
        return false;
    };
    let of_user = matches!(
        &item.kind,
        Some(crate::proto::responses::v1::item::Kind::Message(message))
            if message.role.as_deref() == Some("user")
    );
    of_user && text_of(item) == *text
}

/// The Responses object of the whole rollout.
fn response(reading: &Reading<'_>, in_force: &Object) -> Rowed<Object> {
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
    put(&mut out, "usage", usage(reading));
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

fn usage(reading: &Reading<'_>) -> Json {
    let input = reading.tokens(|usage| usage.input_tokens);
    let output = reading.tokens(|usage| usage.output_tokens);
    let details =
        |key: &str, count: i64| Json::Object(Object::from([(key.into(), Json::int(count))]));
    let cached = details("cached_tokens", reading.tokens(|usage| usage.cached_tokens));
    let reasoning = details(
        "reasoning_tokens",
        reading.tokens(|usage| usage.reasoning_tokens),
    );
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

/// The transcript, each model call's tokens with the last item that the call wrote.
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
    let tokens = call_tokens(&reading.captured());
    for (place, call) in thread.answers {
        if let (Some(said), Json::Object(item)) =
            (tokens.get(call.call_id.as_str()), &mut output[place])
        {
            if let Some(prompt) = &said.prompt {
                put(item, "prompt_token_ids", token_ids(prompt));
            }
            put(item, "generation_token_ids", token_ids(said.output));
            put(item, "generation_log_probs", log_probs(said.logprobs));
        }
    }
    Ok(output)
}

struct CallTokens<'a> {
    /// None when it cannot be put together.
    prompt: Option<Vec<u8>>,
    output: &'a [u8],
    logprobs: &'a [u8],
}

fn call_tokens<'a>(
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

fn no_verdict() -> Object {
    let mut out = Object::new();
    put(&mut out, "status", "SKIPPED");
    put(&mut out, "reward", Json::Null);
    put(&mut out, "reason", "the agent sent no verdict");
    put(&mut out, "evidence", Json::Object(Object::new()));
    out
}

/// A verdict as rows hold it under `verification`.
///
/// # Errors
/// Its evidence is no JSON.
fn verification_row(said: &Verification) -> Rowed<Object> {
    let known = VerificationStatus::try_from(said.status).ok();
    let status = enum_name(
        known.map(|one| one.as_str_name()),
        "VERIFICATION_STATUS_",
        said.status,
    );
    let components = said.components.iter().map(|part| {
        let mut out = Object::new();
        put(&mut out, "name", part.name.as_str());
        put(&mut out, "value", Json::real(part.value));
        if let Some(weight) = part.weight {
            put(&mut out, "weight", Json::real(weight));
        }
        Json::Object(out)
    });
    let stages = said.stages.iter().map(|stage| {
        let mut out = Object::new();
        put(&mut out, "name", stage.name.as_str());
        put(&mut out, "duration_us", Json::int(stage.duration_us));
        put(&mut out, "note", stage.note.as_str());
        Json::Object(out)
    });
    let mut out = Object::new();
    put(&mut out, "status", status.as_str());
    put(
        &mut out,
        "reward",
        said.reward.map_or(Json::Null, Json::real),
    );
    put(&mut out, "reason", said.reason.as_str());
    put(&mut out, "components", Json::Array(components.collect()));
    put(&mut out, "verifier", said.verifier.as_str());
    put(&mut out, "version", said.verifier_version.as_str());
    put(&mut out, "stages", Json::Array(stages.collect()));
    put(
        &mut out,
        "evidence",
        read_field(&said.evidence_json, "evidence_json")?,
    );
    Ok(out)
}

fn read_field(json: &[u8], name: &str) -> Rowed<Json> {
    if json.is_empty() {
        return Ok(Json::Object(Object::new()));
    }
    Json::parse_field(json).map_err(|error| RowError(format!("{name}: {error}")))
}

fn metadata(reading: &Reading<'_>, duration_us: u64, judged: bool) -> Object {
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

/// What the metadata says of the weights that wrote it, and of its forks; only what is.
fn put_token_notes(out: &mut Object, captured: &[(&ModelCallCompleted, &TokenCapture)]) {
    let mut versions: Vec<u64> = Vec::new();
    let mut forks = Vec::new();
    for (call, said) in captured {
        versions.extend(said.weights.iter().map(|span| span.version));
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

/// What the environment's own model calls consumed, by model.
fn put_model_usage(row: &mut Object, rollout: &Rollout, others: &[ModelCallUsage]) {
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
fn usage_of(failure: &Failure) -> Vec<ModelCallUsage> {
    let details = failure.status.iter().flat_map(|status| &status.details);
    let mut said = details.filter(|one| one.type_url.ends_with("/gymmesh.errors.v1.ModelUsage"));
    let read = said
        .next()
        .and_then(|one| ModelUsage::decode(one.value.as_slice()).ok());
    read.map(|one| one.usage).unwrap_or_default()
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

fn is_own(key: &Text) -> bool {
    key.as_str().is_some_and(|key| OWN_KEYS.contains(&key))
}

/// Adds the further keys of the task's row, and the verifier's evidence where no other key has the
/// name. A task's key of one of our own names is kept under `task_extras`.
fn with_extras(mut row: Object, task: &Task, evidence: Option<Json>) -> Rowed<Object> {
    let extras = into_object(read_field(&task.payload_json, "payload_json")?);
    let mut kept = Object::new();
    for (key, value) in extras {
        match value {
            value if !is_own(&key) => drop(row.insert(key, value)),
            Json::Object(mut theirs) if key.as_str() == Some("metadata") => {
                let ours = into_object(row.get(&key).cloned().unwrap_or(Json::Null));
                let both = theirs.iter().filter(|(name, _)| ours.contains_key(*name));
                let both: Object = both
                    .map(|(name, one)| (name.clone(), one.clone()))
                    .collect();
                if !both.is_empty() {
                    kept.insert(key.clone(), Json::Object(both));
                }
                theirs.extend(ours);
                row.insert(key, Json::Object(theirs));
            }
            value => drop(kept.insert(key, value)),
        }
    }
    if !kept.is_empty() {
        put(&mut row, "task_extras", Json::Object(kept));
    }
    if let Some(Json::Object(evidence)) = evidence {
        for (key, value) in evidence.into_iter().filter(|(key, _)| !is_own(key)) {
            row.entry(key).or_insert(value);
        }
    }
    Ok(row)
}
