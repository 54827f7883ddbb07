//! Rollouts as rows, as `gymmesh/row/v1/row.proto` says: what `gym-cli` writes. Fields of the same
//! name and type are copied; the others are made here, each as its comment in the contract says.
//! Pure.

// A column that is made elsewhere must not break these initializers, which name all others.
#![allow(clippy::needless_update)]

mod metadata;
mod response;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind as Type, ReflectMessage};

use self::metadata::metadata;
use self::response::{response, sum, usage};
use crate::codec::{CodecError, dynamic, keys, parsed, read_object, text_of, typed, write};
use crate::conversation::{Conversations, NoConversation, answer_of, final_call};
use crate::errors::error_info;
use crate::json::{Json, Object, Text, object_bytes};
use crate::proto::errors::v1::ModelUsage;
use crate::proto::responses::v1::item::Kind;
use crate::proto::responses::v1::{Item, ResponseParams};
use crate::proto::rollout::v1::rollout::Outcome;
use crate::proto::rollout::v1::{
    Failure, ModelCallCompleted, ModelCallUsage, Rollout, Task, Verification, VerificationStatus,
};
use crate::proto::row::v1::{Actor, ModelCall, Row, RowFailure, RowStatus, ToolCall, Turn};

/// How far above 0 a log probability may be.
const LOGPROB_ROUNDING: f64 = 1e-3;

/// A rollout that cannot be written as a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError(String);

impl fmt::Display for RowError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// The row of a completed rollout. Without a verdict it has no reward, and never 0.
///
/// # Errors
/// The rollout is not completed, or cannot be written as JSON.
pub fn completed_row(task: &Task, rollout: &Rollout) -> Rowed<Row> {
    let Some(Outcome::Completed(completed)) = &rollout.outcome else {
        return Err(RowError("only a completed rollout has a row".into()));
    };
    let verified = rollout.verified.clone().unwrap_or_default();
    let sources = [
        dynamic(&verified),
        dynamic(completed),
        dynamic(rollout),
        dynamic(task),
    ];
    let mut row: Row = copied(&sources);
    let verification = row.verification.get_or_insert_with(|| Verification {
        status: VerificationStatus::Skipped.into(),
        reason: "the agent sent no verdict".to_owned(),
        ..Default::default()
    });
    row.reward = verification.reward;
    with_rest(row, task, rollout, None)
}

/// The row of a failed rollout, with everything before the failure; it has no reward.
///
/// # Errors
/// What there is of it cannot be written as JSON.
pub fn failure_row(task: &Task, failure: &Failure, partial: &Rollout) -> Rowed<Row> {
    let mut row: Row = copied(&[dynamic(partial), dynamic(task)]);
    row.failure = Some(failure_of(failure));
    with_rest(row, task, partial, Some(failure))
}

/// A row as its line, without the newline.
///
/// # Errors
/// A field holds what JSON cannot.
pub fn write_row(row: &Row) -> Result<Vec<u8>, RowError> {
    Ok(write(row)?.to_bytes())
}

/// A message of the fields that its sources have by the same name and type; of several, the first in
/// which it is set.
fn copied<M: Message + Name + Default>(sources: &[DynamicMessage]) -> M {
    let mut made = dynamic(&M::default());
    for field in made.descriptor().fields() {
        let set = sources.iter().find_map(|source| {
            let same = source.descriptor().get_field_by_name(field.name())?;
            let fits = is_same(&field, &same) && source.has_field(&same);
            fits.then(|| source.get_field(&same).into_owned())
        });
        if let Some(value) = set {
            made.set_field(&field, value);
        }
    }
    typed(&made)
}

fn is_same(one: &FieldDescriptor, other: &FieldDescriptor) -> bool {
    match (one.kind(), other.kind()) {
        // Each map has a type of entry of its own.
        (Type::Message(mine), Type::Message(theirs)) if one.is_map() && other.is_map() => {
            mine.map_entry_value_field().kind() == theirs.map_entry_value_field().kind()
        }
        (mine, theirs) => mine == theirs && one.is_list() == other.is_list(),
    }
}

/// All that a row has whether the rollout completed or failed.
fn with_rest(
    mut row: Row,
    task: &Task,
    rollout: &Rollout,
    failure: Option<&Failure>,
) -> Rowed<Row> {
    let started = rollout.started.as_ref();
    let in_force = params_of(started.and_then(|started| started.params.as_ref()))?;
    if let Some(started) = started {
        let or =
            |said: &String, asked: &String| [said, asked][usize::from(said.is_empty())].clone();
        row.environment = or(&started.environment, &task.environment);
        row.agent = or(&started.agent, &task.agent);
        if let Some(program) = &started.program {
            row.program_name.clone_from(&program.name);
            row.program_version.clone_from(&program.version);
        }
        if !begins_with_input(task, &started.items) {
            row.first_items.clone_from(&started.items);
        }
    }
    row.responses_create_params_json = object_bytes(&params_written(task, &in_force)?);
    row.model_usage = usage_by_model(rollout, failure);
    row.actors = actors(rollout, row.verification.as_ref());
    let answers = rollout.tool_calls.iter();
    let answers = answers.map(|call| call.completed.clone().unwrap_or_default());
    row.tool_calls = answers
        .map(|one| copied::<ToolCall>(&[dynamic(&one)]))
        .collect();
    let turns = rollout.turns.iter();
    row.turns = turns.map(|turn| copied::<Turn>(&[dynamic(turn)])).collect();
    let (calls, output) = calls(rollout, failure.is_some())?;
    row.calls = calls;
    let mut whole = response(rollout, &in_force)?;
    whole.output = output;
    if failure.is_some() {
        "failed".clone_into(&mut whole.status);
    }
    row.response = Some(whole);
    put_extras(&mut row, task, rollout)?;
    Ok(row)
}

fn params_of(params: Option<&ResponseParams>) -> Rowed<Object> {
    match params.map(write).transpose()? {
        Some(Json::Object(params)) => Ok(params),
        _ => Ok(Object::new()),
    }
}

/// The task's parameters, replaced by those in force, but for `input`.
fn params_written(task: &Task, in_force: &Object) -> Rowed<Object> {
    let mut params = params_of(task.params.as_ref())?;
    let input = params.shift_remove(&Text::from("input"));
    params.extend(in_force.clone());
    params.shift_remove(&Text::from("input"));
    params.extend(input.map(|input| ("input".into(), input)));
    Ok(params)
}

fn begins_with_input(task: &Task, items: &[Item]) -> bool {
    let params = task.params.clone().unwrap_or_default();
    let Some(text) = params.input_text else {
        return params.input == items;
    };
    match items {
        [one] => {
            let is_user = matches!(&one.kind, Some(Kind::Message(message))
                if message.role.as_deref() == Some("user"));
            is_user && text_of(one) == text
        }
        _ => false,
    }
}

/// The model calls, and the items of the final conversation, in which those of it have their places.
fn calls(rollout: &Rollout, failed: bool) -> Rowed<(Vec<ModelCall>, Vec<Item>)> {
    let conversations = Conversations::of(rollout);
    let chain = match final_call(rollout).map(|last| conversations.chain(&last.call_id)) {
        // A rollout may fail for that, and its row has the calls all the same.
        Some(Err(_)) if failed => Vec::new(),
        chain => chain.transpose()?.unwrap_or_default(),
    };
    let mut output: Vec<Item> = Vec::new();
    // By the call itself: a custom agent may give two calls one id.
    let mut places: BTreeMap<*const ModelCallCompleted, usize> = BTreeMap::new();
    for call in chain {
        places.insert(call, output.len());
        output.extend(conversations.part(call).into_iter().cloned());
    }
    let one = |call: &ModelCallCompleted| -> Rowed<ModelCall> {
        check_tokens(call)?;
        let answer = call.response.clone().unwrap_or_default();
        let mut made: ModelCall = copied(&[dynamic(call), dynamic(&answer)]);
        let part = conversations.part(call);
        made.item_count = part.len() as u32;
        made.context_count = call.context_items.len() as u32;
        made.answer_count = answer_of(call).len() as u32;
        match places.get(&std::ptr::from_ref(call)) {
            Some(place) => made.first_item = Some(*place as u32),
            None => made.items = part.into_iter().cloned().collect(),
        }
        Ok(made)
    };
    let made = rollout.model_calls.iter().map(one);
    Ok((made.collect::<Rowed<_>>()?, output))
}

/// Refuses log probabilities that no reader of rows takes: too many, too few, or positive.
fn check_tokens(call: &ModelCallCompleted) -> Rowed<()> {
    let Some(tokens) = &call.tokens else {
        return Ok(());
    };
    let (sampled, known) = (tokens.output_token_ids.len(), tokens.logprobs.len());
    let problem = if known > 0 && known != sampled {
        format!("there are {sampled} bytes of token ids and {known} of log probabilities")
    } else {
        let (numbers, _) = tokens.logprobs.as_chunks::<4>();
        let mut numbers = numbers.iter().map(|four| f32::from_le_bytes(*four));
        match numbers.find(|one| f64::from(*one) > LOGPROB_ROUNDING && one.is_finite()) {
            None => return Ok(()),
            Some(one) => format!("the log probability {one} is positive"),
        }
    };
    Err(RowError(format!("call {}: {problem}", call.call_id)))
}

/// What the environment's own model calls consumed, those of a failed turn or verdict included.
fn usage_by_model(rollout: &Rollout, failure: Option<&Failure>) -> Vec<ModelCallUsage> {
    let turns = rollout.turns.iter().flat_map(|turn| &turn.model_usage);
    let verdict = rollout.verified.iter().flat_map(|one| &one.verification);
    let judging = verdict.flat_map(|verdict| &verdict.model_usage);
    let status = failure.and_then(|failure| failure.status.as_ref());
    let details = status.iter().flat_map(|status| &status.details);
    let failing = details
        .filter(|detail| detail.type_url.ends_with("/gymmesh.errors.v1.ModelUsage"))
        .filter_map(|detail| ModelUsage::decode(detail.value.as_slice()).ok())
        .flat_map(|found| found.usage);
    let all: Vec<ModelCallUsage> = turns.chain(judging).cloned().chain(failing).collect();
    let mut models: Vec<&String> = Vec::new();
    for one in &all {
        if !models.contains(&&one.model) {
            models.push(&one.model);
        }
    }
    let summed = |model: &String| {
        let of_model = || all.iter().filter(|one| one.model == *model);
        ModelCallUsage {
            model: model.clone(),
            calls: of_model().map(|one| one.calls).fold(0, u32::saturating_add),
            input_tokens: sum(of_model().map(|one| one.input_tokens)),
            output_tokens: sum(of_model().map(|one| one.output_tokens)),
        }
    };
    models.into_iter().map(summed).collect()
}

fn actors(rollout: &Rollout, verdict: Option<&Verification>) -> Vec<Actor> {
    let mut calls: BTreeMap<&str, Vec<&ModelCallCompleted>> = BTreeMap::new();
    for call in rollout
        .model_calls
        .iter()
        .filter(|call| !call.actor.is_empty())
    {
        calls.entry(&call.actor).or_default().push(call);
    }
    let made = |(name, calls): (&str, Vec<&ModelCallCompleted>)| {
        let components = verdict.iter().flat_map(|verdict| &verdict.components);
        let models: BTreeSet<&String> = calls.iter().map(|call| &call.model).collect();
        Actor {
            name: name.to_owned(),
            models: models.into_iter().cloned().collect(),
            model_calls: calls.len() as u32,
            trainable: calls.iter().any(|call| call.trainable),
            reward: components
                .rev()
                .find(|one| one.name == name)
                .map(|one| one.value),
            usage: Some(usage(calls)),
            ..Default::default()
        }
    };
    calls.into_iter().map(made).collect()
}

fn failure_of(failure: &Failure) -> RowFailure {
    let status = failure.status.clone().unwrap_or_default();
    let info = error_info(&status).unwrap_or_default();
    RowFailure {
        boundary: failure.boundary,
        status: Some(RowStatus {
            code: status.code,
            message: status.message,
            reason: info.reason,
            metadata: info.metadata,
            ..Default::default()
        }),
        retry_safe: failure.retry_safe,
        component: failure.component.clone(),
        call_id: failure.call_id.clone(),
        ..Default::default()
    }
}

/// The row's metadata, and what the task and the verdict's evidence say besides.
fn put_extras(row: &mut Row, task: &Task, rollout: &Rollout) -> Rowed<()> {
    let own = keys::<Row>();
    let given = read_object(&task.payload_json, "payload_json")?;
    let (mut extras, mut others): (Object, Object) =
        given.into_iter().partition(|(key, _)| own.contains(key));
    let of_task = extras.get(&Text::from("metadata"));
    let (metadata, taken) = metadata(rollout, row.reward.is_some(), of_task)?;
    if let Some(Json::Object(_)) = of_task {
        extras.shift_remove(&Text::from("metadata"));
    }
    if !taken.is_empty() {
        extras.insert("metadata".into(), Json::Object(taken));
    }
    row.metadata = Some(metadata);
    if let Json::Object(evidence) = evidence(row)? {
        for (key, value) in evidence {
            if !own.contains(&key) {
                others.entry(key).or_insert(value);
            }
        }
    }
    let bytes = |object: Object| match object.is_empty() {
        true => Vec::new(),
        false => object_bytes(&object),
    };
    row.task_extras_json = bytes(extras);
    row.overlay_json = bytes(others);
    Ok(())
}

/// What the verdict rests on; null where it says nothing of it.
fn evidence(row: &Row) -> Rowed<Json> {
    let given = row.verification.as_ref().map(|one| &one.evidence_json);
    match given {
        Some(given) if !given.is_empty() => Ok(parsed(given, "evidence_json")?),
        _ => Ok(Json::Null),
    }
}
