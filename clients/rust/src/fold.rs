//! The fold: the events of one attempt into one Rollout, by the stream law of `rollout.proto`. Pure.

use std::collections::HashMap;
use std::fmt;

use crate::proto::responses::v1::item::Kind;
use crate::proto::rollout::v1::rollout::Outcome;
use crate::proto::rollout::v1::rollout_event::Event;
use crate::proto::rollout::v1::{
    Boundary, Rollout, RolloutEvent, SandboxEnded, StopReason, ToolCallCompleted, ToolCallRecord,
    VerificationStatus, Verified,
};

/// A rule of the stream law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The first event, and no other, is `started`.
    Started,
    /// The numbers are 1, 2, 3 and so on.
    Sequence,
    /// All events are of one rollout and attempt.
    Identity,
    /// Nothing follows `completed` or `failed`.
    AfterTerminal,
    /// The stream ends with one of these.
    Truncated,
    /// An event of an unknown kind is marked ignorable.
    UnknownEvent,
    /// One verdict comes before `completed`, and does not contradict itself.
    Unverified,
    /// The terminal event names a known stop reason or boundary, and counts its events.
    Terminal,
}

impl Rule {
    /// Its name, such as `after_terminal`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Sequence => "sequence",
            Self::Identity => "identity",
            Self::AfterTerminal => "after_terminal",
            Self::Truncated => "truncated",
            Self::UnknownEvent => "unknown_event",
            Self::Unverified => "unverified",
            Self::Terminal => "terminal",
        }
    }
}

/// A stream of events that breaks the stream law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamViolation {
    /// The rule that it breaks.
    pub rule: Rule,
    /// How.
    pub sentence: String,
}

impl fmt::Display for StreamViolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.rule.name(), self.sentence)
    }
}

impl std::error::Error for StreamViolation {}

fn broken<T>(rule: Rule, sentence: impl Into<String>) -> Result<T, StreamViolation> {
    Err(StreamViolation {
        rule,
        sentence: sentence.into(),
    })
}

/// Which rollout is folded; what its events do not say of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The rollout's id, which all events must have.
    pub rollout_id: String,
    /// The attempt, likewise.
    pub attempt: u32,
    /// The run.
    pub run_id: String,
    /// The task.
    pub task_id: String,
    /// Which repeat of it.
    pub repeat_index: u32,
}

/// Folds the events of one attempt, one at a time.
#[derive(Debug)]
pub struct Fold {
    rollout: Rollout,
    sequence: u64,
    ended: bool,
    /// A key for each of the rollout's tool calls.
    keys: Vec<ToolKey>,
    /// Tool calls that are not answered yet: their places.
    open: HashMap<ToolKey, Vec<usize>>,
}

/// The ids of a model call and of its function call.
type ToolKey = (String, String);

impl Fold {
    /// A fold that has seen nothing yet.
    pub fn new(identity: Identity) -> Self {
        let rollout = Rollout {
            run_id: identity.run_id,
            task_id: identity.task_id,
            repeat_index: identity.repeat_index,
            rollout_id: identity.rollout_id,
            attempt: identity.attempt,
            ..Default::default()
        };
        Self {
            rollout,
            sequence: 0,
            ended: false,
            keys: Vec::new(),
            open: HashMap::new(),
        }
    }

    /// Whether the terminal event has come.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Whether any event has come.
    pub fn begun(&self) -> bool {
        self.sequence > 0
    }

    /// How many events have come, which is the sequence of the last one.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// It breaks the law; nothing of it is taken.
    pub fn add(&mut self, event: RolloutEvent) -> Result<(), StreamViolation> {
        self.check_place(&event)?;
        let time = event.record_time_unix_nano;
        match event.event {
            Some(Event::Started(started)) => {
                self.rollout.started = Some(started);
                self.rollout.started_unix_nano = time;
            }
            Some(Event::OutputDelta(_)) => {}
            Some(Event::ModelCallCompleted(call)) => self.rollout.model_calls.push(call),
            Some(Event::ToolCallStarted(call)) => {
                let answer = ToolCallCompleted {
                    call_id: call.call_id,
                    name: call.name,
                    model_call_id: call.model_call_id,
                    actor: call.actor,
                    ..Default::default()
                };
                let key = key_of(&answer);
                self.open.entry(key).or_default().push(self.keys.len());
                self.add_tool(answer, time);
            }
            Some(Event::ToolCallCompleted(answer)) => self.take_answer(answer),
            Some(Event::TurnCompleted(turn)) => self.rollout.turns.push(turn),
            Some(Event::Verified(verified)) => self.take_verdict(verified)?,
            Some(Event::Annotation(note)) => self.rollout.annotations.push(note),
            Some(Event::MediaAdded(added)) => self.rollout.media.extend(added.media),
            Some(Event::SandboxOpened(opened)) => self.rollout.sandboxes.push(opened),
            Some(Event::SandboxEnded(ended)) => self.take_sandbox_end(&ended),
            Some(Event::ProgramEnded(ended)) => self.rollout.program = Some(ended),
            Some(Event::Completed(completed)) => {
                let reason = StopReason::try_from(completed.stop_reason).unwrap_or_default();
                if reason == StopReason::Unspecified {
                    return broken(Rule::Terminal, "`completed` gives no known stop reason");
                }
                if self.rollout.verified.is_none() {
                    return broken(Rule::Unverified, "got `completed` without `verified`");
                }
                self.end(completed.events, time)?;
                self.rollout.outcome = Some(Outcome::Completed(completed));
            }
            Some(Event::Failed(failed)) => {
                let named = failed
                    .failure
                    .as_ref()
                    .map_or(0, |failure| failure.boundary);
                if Boundary::try_from(named).unwrap_or_default() == Boundary::Unspecified {
                    return broken(Rule::Terminal, "`failed` names no known boundary");
                }
                self.end(failed.events, time)?;
                self.rollout.outcome = Some(Outcome::Failed(failed));
            }
            None if event.ignorable => {}
            None => return broken(Rule::UnknownEvent, "got an event of an unknown kind"),
        }
        self.sequence += 1;
        Ok(())
    }

    /// The whole rollout, once the stream has ended.
    ///
    /// # Errors
    /// There was no terminal event.
    pub fn finish(self) -> Result<Rollout, StreamViolation> {
        if !self.ended {
            let sentence = format!("the stream ended after {} events", self.sequence);
            return broken(Rule::Truncated, sentence);
        }
        Ok(self.into_rollout())
    }

    /// The rollout as far as it has come, for reports on one that broke off.
    pub fn into_rollout(mut self) -> Rollout {
        self.order_tools();
        self.rollout
    }

    fn check_place(&self, event: &RolloutEvent) -> Result<(), StreamViolation> {
        let due = self.sequence + 1;
        if self.ended {
            return broken(Rule::AfterTerminal, "an event arrived after the end");
        }
        if event.sequence != due {
            let sentence = format!("expected event {due}, got {}", event.sequence);
            return broken(Rule::Sequence, sentence);
        }
        if event.rollout_id != self.rollout.rollout_id || event.attempt != self.rollout.attempt {
            return broken(
                Rule::Identity,
                "got an event of a different rollout or attempt",
            );
        }
        if matches!(event.event, Some(Event::Started(_))) != (due == 1) {
            return broken(Rule::Started, "the first event, and no other, is `started`");
        }
        Ok(())
    }

    fn add_tool(&mut self, answer: ToolCallCompleted, started_unix_nano: u64) {
        self.keys.push(key_of(&answer));
        let record = ToolCallRecord {
            completed: Some(answer),
            started_unix_nano,
        };
        self.rollout.tool_calls.push(record);
    }

    fn take_answer(&mut self, answer: ToolCallCompleted) {
        let waiting = self
            .open
            .get_mut(&key_of(&answer))
            .filter(|places| !places.is_empty());
        match waiting {
            Some(places) => {
                let place = places.remove(0);
                self.rollout.tool_calls[place].completed = Some(answer);
            }
            None => self.add_tool(answer, 0),
        }
    }

    fn take_sandbox_end(&mut self, ended: &SandboxEnded) {
        for opened in &mut self.rollout.sandboxes {
            let is_meant = opened.sandbox.as_ref().is_some_and(|found| {
                found.sandbox_id == ended.sandbox_id && found.instance_id == ended.instance_id
            });
            if is_meant {
                opened.end.clone_from(&ended.end);
            }
        }
    }

    fn take_verdict(&mut self, verified: Verified) -> Result<(), StreamViolation> {
        if self.rollout.verified.is_some() {
            return broken(Rule::Unverified, "got a second verdict");
        }
        let said = verified.verification.clone().unwrap_or_default();
        let status = VerificationStatus::try_from(said.status).unwrap_or_default();
        if status == VerificationStatus::Unspecified {
            return broken(Rule::Unverified, "the verdict has no known status");
        }
        if (status == VerificationStatus::Verified) != said.reward.is_some() {
            return broken(Rule::Unverified, "a reward is set exactly when VERIFIED");
        }
        if said.reward.is_some_and(|reward| !reward.is_finite()) {
            return broken(Rule::Unverified, "the reward is not finite");
        }
        for part in &said.components {
            if !part.value.is_finite() || part.weight.is_some_and(|weight| !weight.is_finite()) {
                let sentence = format!("component {:?} is not finite", part.name);
                return broken(Rule::Unverified, sentence);
            }
        }
        self.rollout.verified = Some(verified);
        Ok(())
    }

    fn end(&mut self, events: u64, time: u64) -> Result<(), StreamViolation> {
        if events != self.sequence + 1 {
            return broken(
                Rule::Terminal,
                "the terminal event counts another number of events",
            );
        }
        self.ended = true;
        self.rollout.ended_unix_nano = time;
        Ok(())
    }

    /// Puts tool calls in the order of model calls and, within one, of its function calls.
    fn order_tools(&mut self) {
        let mut known: HashMap<ToolKey, Vec<(usize, usize)>> = HashMap::new();
        for (number, call) in self.rollout.model_calls.iter().enumerate() {
            let Some(response) = &call.response else {
                continue;
            };
            for (index, item) in response.output.iter().enumerate() {
                if let Some(Kind::FunctionCall(function)) = &item.kind {
                    let id = function.call_id.clone().unwrap_or_default();
                    known
                        .entry((call.call_id.clone(), id))
                        .or_default()
                        .push((number, index));
                }
            }
        }
        // A call that no answer holds (a custom agent's own) comes after the others, as it came.
        let last = (self.rollout.model_calls.len(), 0);
        let mut keyed = Vec::new();
        for (key, record) in self.keys.drain(..).zip(self.rollout.tool_calls.drain(..)) {
            let places = known.get_mut(&key).filter(|places| !places.is_empty());
            keyed.push((places.map_or(last, |places| places.remove(0)), record));
        }
        keyed.sort_by_key(|(place, _)| *place);
        self.rollout.tool_calls = keyed.into_iter().map(|(_, record)| record).collect();
        self.open.clear();
    }
}

fn key_of(answer: &ToolCallCompleted) -> ToolKey {
    (answer.model_call_id.clone(), answer.call_id.clone())
}

/// Folds a whole stream.
///
/// # Errors
/// It breaks the stream law.
pub fn fold(
    identity: Identity,
    events: impl IntoIterator<Item = RolloutEvent>,
) -> Result<Rollout, StreamViolation> {
    let mut state = Fold::new(identity);
    for event in events {
        state.add(event)?;
    }
    state.finish()
}
