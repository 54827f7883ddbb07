//! The stream to one agent instance, over any number of connections.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::attempt::{Ended, broken_off};
use super::live::Live;
use super::receipts::{Receipt, Unstored};
use crate::dial::{Channel, MAX_MESSAGE_BYTES};
use crate::errors::MeshError;
use crate::fold::Fold;
use crate::proto::agent::v1::RunRolloutRequest;

// A start stands in a message of its own, beside what the message adds to it.
const MAX_START_BYTES: usize = MAX_MESSAGE_BYTES - 1024;

/// Bounds of a stream to an agent.
#[derive(Clone, Debug)]
pub struct StreamLimits {
    /// The most events on their way from the agent.
    pub credit: u64,
    /// Within which an agent must answer hello.
    pub hello: Duration,
    /// Without a message for so long, while attempts are in flight, a connection is taken for dead.
    pub silence: Duration,
    /// After which a lost agent is given up, and all in flight with it.
    pub reconnect: Duration,
    /// The first wait before connecting again; it doubles up to `backoff_cap`.
    pub backoff: Duration,
    /// The longest of these waits.
    pub backoff_cap: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            credit: 8192,
            hello: Duration::from_secs(10),
            silence: Duration::from_secs(45),
            reconnect: Duration::from_secs(30),
            backoff: Duration::from_millis(100),
            backoff_cap: Duration::from_secs(2),
        }
    }
}

pub(super) type Key = (String, u32);

pub(super) fn key_of(rollout_id: &str, attempt: u32) -> Key {
    (rollout_id.to_owned(), attempt.max(1))
}

/// An attempt that was asked for.
pub(super) struct Asked {
    pub request: RunRolloutRequest,
    pub due: Instant,
    pub fold: Fold,
    pub done: oneshot::Sender<Run>,
    /// Whether the agent may have heard of it.
    pub sent: bool,
    /// Events up to this sequence may come again, and are dropped.
    pub repeated: u64,
}

/// How an attempt ended.
#[derive(Debug)]
pub(super) struct Run {
    pub outcome: Ended,
    /// To be dropped once the outcome is stored; None: the agent waits for nothing.
    pub receipt: Option<Receipt>,
}

impl From<Ended> for Run {
    fn from(outcome: Ended) -> Self {
        Self {
            outcome,
            receipt: None,
        }
    }
}

pub(super) enum Command {
    Start(Box<Asked>),
    Abandon(Key),
    Stored(Key),
}

/// Runs attempts at one agent instance. A connection that breaks is made anew, and the stream goes
/// on after the last event that came.
#[derive(Debug)]
pub(super) struct CollectStream {
    commands: mpsc::UnboundedSender<Command>,
    capacity: Arc<AtomicU32>,
}

impl CollectStream {
    pub fn new(channel: Channel, limits: StreamLimits) -> Self {
        let (commands, heard) = mpsc::unbounded_channel();
        let capacity = Arc::new(AtomicU32::new(0));
        let live = Live {
            channel,
            limits,
            heard,
            commands: commands.downgrade(),
            capacity: capacity.clone(),
            stream_id: stream_id(),
            instance: String::new(),
            in_flight: HashMap::new(),
            abandoned: HashSet::new(),
            received: 0,
            unstored: Unstored::default(),
            acknowledged: 0,
            owed: 0,
            progressed: false,
            closing: false,
        };
        tokio::spawn(live.run());
        Self { commands, capacity }
    }

    /// Whether it takes no more attempts.
    pub fn broken(&self) -> bool {
        self.commands.is_closed()
    }

    /// The most attempts that the agent runs side by side for it; 0: not known yet.
    pub fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Runs one attempt. Dropping the call cancels it.
    pub async fn run(&self, request: RunRolloutRequest, fold: Fold, deadline: Duration) -> Run {
        // Others share the stream's messages: what no agent takes must not break it for them.
        let size = request.encoded_len();
        if size > MAX_START_BYTES {
            return broken_off(fold, too_large(size)).into();
        }
        let key = key_of(&request.rollout_id, request.attempt);
        let due = Instant::now() + deadline;
        let (done, outcome) = oneshot::channel();
        let asked = Box::new(Asked {
            request,
            due,
            fold,
            done,
            sent: false,
            repeated: 0,
        });
        if let Err(mpsc::error::SendError(Command::Start(asked))) =
            self.commands.send(Command::Start(asked))
        {
            return broken_off(asked.fold, unavailable("the agent's stream is over")).into();
        }
        let mut guard = Abandoner {
            commands: &self.commands,
            key: Some(key),
        };
        let outcome = outcome.await;
        guard.key = None;
        outcome.unwrap_or_else(|_| {
            let fold = Fold::new(crate::fold::Identity::default());
            broken_off(fold, unavailable("the agent's stream is over")).into()
        })
    }
}

struct Abandoner<'a> {
    commands: &'a mpsc::UnboundedSender<Command>,
    key: Option<Key>,
}

impl Drop for Abandoner<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let _ = self.commands.send(Command::Abandon(key));
        }
    }
}

/// Hard to guess, as a client that knows it can take the stream over.
fn stream_id() -> String {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn too_large(size: usize) -> MeshError {
    let limits = [
        ("limit_bytes", &*MAX_START_BYTES.to_string()),
        ("size_bytes", &*size.to_string()),
    ];
    let sentence = format!("the task has {size} bytes, and no message is as large");
    MeshError::new("MESSAGE_TOO_LARGE", sentence, &limits)
}

pub(super) fn unavailable(sentence: &str) -> MeshError {
    MeshError::new("PEER_UNAVAILABLE", sentence, &[])
}
