//! What a row holds of actors beside the root agent.
//!
//! A conversation of an actor has `items` from where it begins to speak, in the form of
//! `response.output`, and apart from them in `first_items` what it had read before.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::reading::Reading;
use super::response::usage;
use super::tokens::{CallTokens, call_tokens, put_tokens};
use super::{Rowed, put};
use crate::codec::item_to_json;
use crate::conversation::thread;
use crate::json::{Json, Object};
use crate::proto::responses::v1::Item;
use crate::proto::rollout::v1::{ModelCallCompleted, Rollout};

type Tokens<'a> = BTreeMap<&'a str, CallTokens<'a>>;

/// Puts each actor, in the order of their names, where there are any.
pub(super) fn put_actors(row: &mut Object, reading: &Reading<'_>) -> Rowed<()> {
    let rollout = reading.rollout;
    let mut calls: BTreeMap<&str, Vec<&ModelCallCompleted>> = BTreeMap::new();
    for call in &rollout.model_calls {
        if !call.actor.is_empty() {
            calls.entry(&call.actor).or_default().push(call);
        }
    }
    if calls.is_empty() {
        return Ok(());
    }
    let mut tokens = call_tokens(&reading.captured());
    let actors: Rowed<_> = calls
        .into_iter()
        .map(|(name, calls)| Ok(Json::Object(actor(rollout, name, &calls, &mut tokens)?)))
        .collect();
    put(row, "actors", Json::Array(actors?));
    Ok(())
}

/// One actor; its reward is the component of the verdict that is called like it. Where a trainer
/// should learn from some of its calls, these alone have tokens.
fn actor(
    rollout: &Rollout,
    name: &str,
    calls: &[&ModelCallCompleted],
    tokens: &mut Tokens<'_>,
) -> Rowed<Object> {
    let own: HashMap<&str, &ModelCallCompleted> = calls
        .iter()
        .map(|call| (call.call_id.as_str(), *call))
        .collect();
    let went_on: HashSet<&str> = calls
        .iter()
        .filter(|call| !call.detached)
        .map(|call| call.parent_call_id.as_str())
        .collect();
    let trainable = calls.iter().any(|call| call.trainable);
    for call in calls.iter().filter(|call| trainable && !call.trainable) {
        tokens.remove(call.call_id.as_str());
    }
    let conversations: Rowed<_> = calls
        .iter()
        .filter(|call| !went_on.contains(call.call_id.as_str()))
        .map(|call| Ok(Json::Object(conversation(rollout, &own, call, tokens)?)))
        .collect();
    let models: BTreeSet<&str> = calls.iter().map(|call| call.model.as_str()).collect();
    let verdict = rollout
        .verified
        .iter()
        .filter_map(|verified| verified.verification.as_ref());
    let parts = verdict.flat_map(|verification| &verification.components);
    let reward = parts.rev().find(|part| part.name == name);
    let mut out = Object::new();
    put(&mut out, "name", name);
    let models = models.into_iter().map(Json::from).collect();
    put(&mut out, "models", Json::Array(models));
    put(&mut out, "model_calls", Json::int(calls.len() as i128));
    put(&mut out, "trainable", trainable);
    if let Some(part) = reward {
        put(&mut out, "reward", Json::real(part.value));
    }
    put(&mut out, "usage", usage(calls.iter().copied()));
    put(&mut out, "conversations", Json::Array(conversations?));
    Ok(out)
}

/// The conversation of an actor that ends with a call.
fn conversation(
    rollout: &Rollout,
    own: &HashMap<&str, &ModelCallCompleted>,
    last: &ModelCallCompleted,
    tokens: &mut Tokens<'_>,
) -> Rowed<Object> {
    let told = thread(rollout, &last.call_id)?;
    let mut first = last;
    while let Some(before) = own
        .get(first.parent_call_id.as_str())
        .filter(|_| !first.detached)
    {
        first = before;
    }
    let mut out = Object::new();
    let mut begins = 0;
    if !first.detached && !first.parent_call_id.is_empty() {
        begins = thread(rollout, &first.parent_call_id)?.items.len();
        put(&mut out, "after", first.parent_call_id.as_str());
    }
    let (read, spoken) = told.items.split_at(begins);
    let started = rollout.started.iter().filter(|_| told.whole);
    let first_items = started.flat_map(|started| &started.items);
    let read = json_of(first_items.chain(read.iter().copied()))?;
    if !read.is_empty() {
        put(&mut out, "first_items", Json::Array(read));
    }
    let mut items = json_of(spoken.iter().copied())?;
    for (place, call) in told.answers {
        if let Some(place) = place.checked_sub(begins) {
            put_tokens(&mut items[place], tokens, &call.call_id);
        }
    }
    put(&mut out, "items", Json::Array(items));
    Ok(out)
}

fn json_of<'a>(items: impl Iterator<Item = &'a Item>) -> Rowed<Vec<Json>> {
    Ok(items.map(item_to_json).collect::<Result<_, _>>()?)
}
