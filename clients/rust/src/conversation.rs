//! Conversations: what a model call saw and gave, found by following parents. Pure.

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

/// The conversation that leads to a call, without the items of `started`.
pub(crate) struct Thread<'a> {
    pub items: Vec<&'a Item>,
    /// Of each call whose answer has items: the place of the last one, and the call.
    pub answers: Vec<(usize, &'a ModelCallCompleted)>,
    /// Whether the items of `started` stand before it.
    pub whole: bool,
}

/// The conversation up to and including a model call, its tools' answers and its turns.
///
/// # Errors
/// There is no such call, or its parents go in a circle.
pub fn conversation<'a>(
    rollout: &'a Rollout,
    call_id: &str,
) -> Result<Vec<&'a Item>, NoConversation> {
    let thread = thread(rollout, call_id)?;
    let mut items = if thread.whole {
        first_items(rollout)
    } else {
        Vec::new()
    };
    items.extend(thread.items);
    Ok(items)
}

/// The end of the final transcript: the root agent's last model call, or the last call at all.
pub fn final_call(rollout: &Rollout) -> Option<&ModelCallCompleted> {
    let calls = &rollout.model_calls;
    calls
        .iter()
        .rev()
        .find(|call| call.actor.is_empty())
        .or(calls.last())
}

/// The final transcript: the conversation of the final call, else what the rollout began with.
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
    rollout
        .started
        .iter()
        .flat_map(|started| &started.items)
        .collect()
}

pub(crate) fn thread<'a>(
    rollout: &'a Rollout,
    call_id: &str,
) -> Result<Thread<'a>, NoConversation> {
    let (chain, whole) = chain(rollout, call_id)?;
    let mut outputs: HashMap<(&str, &str), Vec<&Item>> = HashMap::new();
    for answer in rollout
        .tool_calls
        .iter()
        .rev()
        .filter_map(|record| record.completed.as_ref())
    {
        if let Some(item) = &answer.output {
            let key = (answer.model_call_id.as_str(), answer.call_id.as_str());
            outputs.entry(key).or_default().push(item); // the first one last, to be popped
        }
    }
    let mut thread = Thread {
        items: Vec::new(),
        answers: Vec::new(),
        whole,
    };
    for call in chain {
        thread.items.extend(&call.context_items);
        let wrote = call.response.iter().flat_map(|response| &response.output);
        let before = thread.items.len();
        thread.items.extend(wrote.clone());
        if thread.items.len() > before {
            thread.answers.push((thread.items.len() - 1, call));
        }
        for item in wrote {
            if let Some(Kind::FunctionCall(function)) = &item.kind {
                let key = (
                    call.call_id.as_str(),
                    function.call_id.as_deref().unwrap_or_default(),
                );
                thread
                    .items
                    .extend(outputs.get_mut(&key).and_then(Vec::pop));
            }
        }
        let turns = rollout
            .turns
            .iter()
            .filter(|turn| turn.model_call_id == call.call_id);
        thread.items.extend(turns.flat_map(|turn| &turn.items));
    }
    Ok(thread)
}

/// The calls from the first to `call_id`; whether they begin at `started`.
fn chain<'a>(
    rollout: &'a Rollout,
    call_id: &str,
) -> Result<(Vec<&'a ModelCallCompleted>, bool), NoConversation> {
    let calls: HashMap<&str, &ModelCallCompleted> = rollout
        .model_calls
        .iter()
        .map(|call| (call.call_id.as_str(), call))
        .collect();
    let mut chain = Vec::new();
    let mut next = call_id;
    loop {
        let Some(call) = calls.get(next) else {
            return Err(NoConversation(format!(
                "the rollout has no model call {next:?}"
            )));
        };
        if chain.len() == calls.len() {
            return Err(NoConversation(format!(
                "the parents of {next:?} go in a circle"
            )));
        }
        chain.push(*call);
        if call.parent_call_id.is_empty() || call.detached {
            chain.reverse();
            return Ok((chain, !call.detached));
        }
        next = &call.parent_call_id;
    }
}
