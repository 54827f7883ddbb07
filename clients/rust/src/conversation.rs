//! Conversations: the input and answer of a model call, found by following parents. Pure.

use std::collections::HashMap;
use std::fmt;

use crate::proto::responses::v1::Item;
use crate::proto::responses::v1::item::Kind;
use crate::proto::rollout::v1::{ModelCallCompleted, Rollout};

/// Calls that do not form a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoConversation(String);

impl fmt::Display for NoConversation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for NoConversation {}

/// The conversation up to and including a model call, its tools' answers and its turns.
///
/// # Errors
/// The call does not exist, or its parents form a circle.
pub fn conversation<'a>(
    rollout: &'a Rollout,
    call_id: &str,
) -> Result<Vec<&'a Item>, NoConversation> {
    let conversations = Conversations::of(rollout);
    let chain = conversations.chain(call_id)?;
    let mut items = match chain.first() {
        Some(first) if first.detached => Vec::new(),
        _ => first_items(rollout),
    };
    items.extend(chain.into_iter().flat_map(|call| conversations.part(call)));
    Ok(items)
}

/// The end of the final transcript: the root agent's last model call, or the last call at all.
pub fn final_call(rollout: &Rollout) -> Option<&ModelCallCompleted> {
    let calls = &rollout.model_calls;
    let root = calls.iter().rev().find(|call| call.actor.is_empty());
    root.or(calls.last())
}

/// The final transcript: the conversation of the final call, else the first items of the rollout.
///
/// # Errors
/// Parents go in a circle.
pub fn transcript(rollout: &Rollout) -> Result<Vec<&Item>, NoConversation> {
    match final_call(rollout) {
        Some(call) => conversation(rollout, &call.call_id),
        None => Ok(first_items(rollout)),
    }
}

fn first_items(rollout: &Rollout) -> Vec<&Item> {
    let started = rollout.started.iter();
    started.flat_map(|started| &started.items).collect()
}

/// The model calls of a rollout and what belongs to each, looked up by call.
pub(crate) struct Conversations<'a> {
    calls: HashMap<&'a str, &'a ModelCallCompleted>,
    /// What tools answered, by model call and function call.
    outputs: HashMap<(&'a str, &'a str), Vec<&'a Item>>,
    turns: HashMap<&'a str, Vec<&'a Item>>,
}

impl<'a> Conversations<'a> {
    pub fn of(rollout: &'a Rollout) -> Self {
        let calls = rollout.model_calls.iter();
        let mut outputs: HashMap<_, Vec<_>> = HashMap::new();
        let answers = rollout.tool_calls.iter().flat_map(|call| &call.completed);
        for answer in answers {
            let key = (answer.model_call_id.as_str(), answer.call_id.as_str());
            outputs.entry(key).or_default().extend(&answer.output);
        }
        let mut turns: HashMap<_, Vec<_>> = HashMap::new();
        for turn in &rollout.turns {
            let items = turns.entry(turn.model_call_id.as_str()).or_default();
            items.extend(&turn.items);
        }
        Self {
            calls: calls.map(|call| (call.call_id.as_str(), call)).collect(),
            outputs,
            turns,
        }
    }

    /// The calls from the first to `call_id`.
    pub fn chain(&self, call_id: &str) -> Result<Vec<&'a ModelCallCompleted>, NoConversation> {
        let mut chain = Vec::new();
        let mut next = call_id;
        loop {
            let Some(call) = self.calls.get(next) else {
                let sentence = format!("the rollout has no model call {next:?}");
                return Err(NoConversation(sentence));
            };
            if chain.len() == self.calls.len() {
                let sentence = format!("the parents of {next:?} go in a circle");
                return Err(NoConversation(sentence));
            }
            chain.push(*call);
            if call.parent_call_id.is_empty() || call.detached {
                chain.reverse();
                return Ok(chain);
            }
            next = &call.parent_call_id;
        }
    }

    /// What a call adds to its conversation: its context, its answer, its tools' answers in the
    /// order of its function calls, its turns.
    pub fn part(&self, call: &'a ModelCallCompleted) -> Vec<&'a Item> {
        let wrote = answer_of(call);
        let mut items: Vec<&Item> = call.context_items.iter().chain(wrote).collect();
        // Two calls of one id, which only a custom agent can bring about: in order.
        let mut used: HashMap<&str, usize> = HashMap::new();
        for item in wrote {
            if let Some(Kind::FunctionCall(function)) = &item.kind {
                let id = function.call_id.as_deref().unwrap_or_default();
                let place = used.entry(id).or_default();
                let answers = self.outputs.get(&(call.call_id.as_str(), id));
                items.extend(answers.and_then(|answers| answers.get(*place)));
                *place += 1;
            }
        }
        items.extend(self.turns.get(call.call_id.as_str()).into_iter().flatten());
        items
    }
}

/// The items of a call's answer.
pub(crate) fn answer_of(call: &ModelCallCompleted) -> &[Item] {
    call.response
        .as_ref()
        .map_or(&[], |response| &response.output)
}
