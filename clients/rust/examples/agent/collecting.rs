//! Collect: many attempts over one stream, which outlives its connections.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gymmesh_client::dial::CONTRACT_VERSION;
use gymmesh_client::errors::MeshError;
use gymmesh_client::proto::agent::v1::collect_request::Message as Up;
use gymmesh_client::proto::agent::v1::collect_response::Message as Down;
use gymmesh_client::proto::agent::v1::{
    AttemptRef, CollectEvents, CollectHello, CollectLoad, CollectRequest, CollectResponse,
    CollectStart, CollectStartRefused, CollectWelcome,
};
use gymmesh_client::proto::rollout::v1::RolloutEvent;
use gymmesh_client::proto::rollout::v1::rollout_event::Event;
use prost::Message;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::{Status, Streaming};

use crate::attempt::Sink;
use crate::service::{Key, NAME, Shared};

const WINDOW_S: u32 = 30;
const LOAD: Duration = Duration::from_secs(5);
const MOST_WAITING: usize = 4096;
// What comes after a collector's cursor has larger ones.
const LAST_CURSOR: u64 = u64::MAX / 2;
const BATCH_EVENTS: usize = 512;
const BATCH_BYTES: usize = 4 * 1024 * 1024;

type Reply = mpsc::Sender<Result<CollectResponse, Status>>;

/// All collectors' streams.
pub struct Streams {
    shared: Arc<Shared>,
    streams: Mutex<HashMap<String, Arc<Stream>>>,
}

/// What one collector asked for and what came of it, whatever its connections do.
#[derive(Default)]
struct Stream {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Which of its connections is the last.
    connection: u64,
    /// The cursor before the first event that is kept; a cursor is the place of an event among all.
    first: u64,
    kept: VecDeque<RolloutEvent>,
    sent: u64,
    credit: u64,
    refusals: VecDeque<CollectStartRefused>,
    running: HashMap<Key, Option<oneshot::Sender<()>>>,
    waiting: HashSet<Key>,
    /// Attempts that have ended and are not acknowledged, with the cursor of their last event.
    ended: VecDeque<(u64, Key)>,
    told: Option<CollectLoad>,
}

impl State {
    fn load(&self, capacity: u32) -> CollectLoad {
        let waiting = self.waiting.len() as u32;
        let running = (self.running.len() as u32).saturating_sub(waiting);
        CollectLoad {
            running,
            waiting,
            target: capacity,
        }
    }

    /// The next events that there is credit for.
    fn batch(&mut self) -> Option<CollectEvents> {
        let from = (self.sent - self.first) as usize;
        let most = BATCH_EVENTS.min(usize::try_from(self.credit).unwrap_or(usize::MAX));
        let mut bytes = 0;
        let fits = |event: &&RolloutEvent| {
            let alone = bytes == 0;
            bytes += event.encoded_len();
            alone || bytes <= BATCH_BYTES
        };
        let events: Vec<RolloutEvent> = self
            .kept
            .iter()
            .skip(from)
            .take(most)
            .take_while(fits)
            .cloned()
            .collect();
        if events.is_empty() {
            return None;
        }
        self.sent += events.len() as u64;
        self.credit -= events.len() as u64;
        Some(CollectEvents {
            cursor: self.sent,
            events,
        })
    }

    fn forget(&mut self, cursor: u64) {
        while self.first < cursor.min(self.sent) && self.kept.pop_front().is_some() {
            self.first += 1;
        }
        while self
            .ended
            .front()
            .is_some_and(|(last, _)| *last <= self.first)
        {
            self.ended.pop_front();
        }
    }

    fn knows(&self, key: &Key) -> bool {
        self.running.contains_key(key) || self.ended.iter().any(|(_, one)| one == key)
    }
}

impl Stream {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, event: RolloutEvent) {
        let mut state = self.lock();
        let ends = matches!(event.event, Some(Event::Completed(_) | Event::Failed(_)));
        let key = (event.rollout_id.clone(), event.attempt);
        state.kept.push_back(event);
        if ends {
            let cursor = state.first + state.kept.len() as u64;
            state.ended.push_back((cursor, key));
        }
        drop(state);
        self.changed.notify_one();
    }

    fn refuse(&self, key: &Key, error: &MeshError) {
        let attempts = vec![AttemptRef {
            rollout_id: key.0.clone(),
            attempt: key.1,
        }];
        let refusal = CollectStartRefused {
            attempts,
            status: Some(error.to_rpc()),
        };
        self.lock().refusals.push_back(refusal);
        self.changed.notify_one();
    }
}

fn down(message: Down) -> Result<CollectResponse, Status> {
    Ok(CollectResponse {
        message: Some(message),
    })
}

impl Streams {
    pub fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            streams: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection of a collector.
    pub async fn serve(self: Arc<Self>, mut requests: Streaming<CollectRequest>, reply: Reply) {
        let hello = match hello(requests.message().await) {
            Ok(hello) => hello,
            Err(error) => return drop(reply.send(Err(error.to_status())).await),
        };
        let (stream, mine, resumed) = self.open(&hello);
        let welcome = CollectWelcome {
            resumed,
            resume_window_s: WINDOW_S,
            capacity: self.shared.about.capacity,
            instance_id: self.shared.about.instance_id.clone(),
            contract_version: CONTRACT_VERSION.to_owned(),
        };
        if reply.send(down(Down::Welcome(welcome))).await.is_ok()
            && let Err(error) = self.converse(&stream, mine, requests, &reply).await
        {
            let _ = reply.send(Err(error.to_status())).await;
        }
        tokio::spawn(async move {
            sleep(Duration::from_secs(WINDOW_S.into())).await;
            self.abandon(&hello.stream_id, &stream, mine);
        });
    }

    /// Opens or resumes a stream: it, which of its connections this is, and whether it goes on.
    fn open(&self, hello: &CollectHello) -> (Arc<Stream>, u64, bool) {
        let mut streams = self.lock();
        let last = hello.last_cursor;
        let known = streams.get(&hello.stream_id).filter(|stream| {
            let state = stream.lock();
            (state.first..=state.first + state.kept.len() as u64).contains(&last)
        });
        let (stream, resumed) = match known {
            Some(stream) => (stream.clone(), true),
            None => {
                let lost = streams.remove(&hello.stream_id);
                if let Some(lost) = lost {
                    end(&lost);
                }
                let stream = Arc::new(Stream::default());
                // One cursor is left out: who did not hear that the stream is lost must not find it.
                let first = if last == 0 {
                    0
                } else {
                    last.min(LAST_CURSOR) + 1
                };
                stream.lock().first = first;
                streams.insert(hello.stream_id.clone(), stream.clone());
                (stream, last == 0)
            }
        };
        let mut state = stream.lock();
        state.connection += 1;
        state.sent = if resumed { last } else { state.first };
        state.credit = hello.credit;
        state.told = None;
        let mine = state.connection;
        drop(state);
        stream.changed.notify_waiters(); // an earlier connection learns that it is over
        stream.changed.notify_one();
        (stream, mine, resumed)
    }

    async fn converse(
        &self,
        stream: &Arc<Stream>,
        mine: u64,
        mut requests: Streaming<CollectRequest>,
        reply: &Reply,
    ) -> Result<(), MeshError> {
        let mut said_all = false;
        let mut draining = self.shared.draining.subscribe();
        let mut load_due = Instant::now() + LOAD;
        loop {
            let changed = stream.changed.notified();
            while let Some(message) = self.next(stream, mine, &mut load_due)? {
                if reply.send(down(message)).await.is_err() {
                    return Ok(()); // the collector is away
                }
            }
            let idle = stream.lock().running.is_empty();
            if said_all && idle {
                return Ok(());
            }
            let drains = *draining.borrow();
            if drains && idle {
                return Err(MeshError::new("DRAINING", "the agent is going down", &[]));
            }
            tokio::select! {
                () = changed => {}
                _ = draining.wait_for(|drains| *drains), if !drains => {}
                () = reply.closed() => return Ok(()),
                () = sleep_until(load_due) => {
                    stream.lock().told = None;
                    load_due = Instant::now() + LOAD;
                }
                request = requests.message(), if !said_all => match request {
                    Ok(None) => said_all = true,
                    Ok(Some(request)) if stream.lock().connection == mine => {
                        self.obey(stream, request)?;
                    }
                    Ok(Some(_)) => {}
                    Err(_) => return Ok(()), // the connection broke; the stream can be resumed
                },
            }
        }
    }

    /// What is to be sent next, if anything is.
    fn next(
        &self,
        stream: &Stream,
        mine: u64,
        load_due: &mut Instant,
    ) -> Result<Option<Down>, MeshError> {
        let mut state = stream.lock();
        if state.connection != mine {
            let sentence = "another connection took the stream over";
            return Err(MeshError::new("CALLER_CANCELLED", sentence, &[]));
        }
        if let Some(refusal) = state.refusals.pop_front() {
            return Ok(Some(Down::StartRefused(refusal)));
        }
        if let Some(batch) = state.batch() {
            return Ok(Some(Down::Events(batch)));
        }
        let load = state.load(self.shared.about.capacity);
        if state.told == Some(load) || (state.told.is_none() && state.running.is_empty()) {
            return Ok(None);
        }
        state.told = Some(load);
        *load_due = Instant::now() + LOAD;
        Ok(Some(Down::Load(load)))
    }

    fn obey(&self, stream: &Arc<Stream>, request: CollectRequest) -> Result<(), MeshError> {
        match request.message {
            Some(Up::Starts(starts)) => {
                for start in starts.starts {
                    self.start(stream, start);
                }
            }
            Some(Up::Cancels(cancels)) => {
                for one in cancels.attempts {
                    cancel(stream, &(one.rollout_id, one.attempt.max(1)));
                }
            }
            Some(Up::Credit(credit)) => {
                let mut state = stream.lock();
                state.credit = state.credit.saturating_add(credit.events);
            }
            Some(Up::Ack(ack)) => stream.lock().forget(ack.cursor),
            Some(Up::Hello(_)) => return Err(invalid("hello", "hello is said once, and first")),
            None => return Err(invalid("message", "got a message of an unknown kind")),
        }
        Ok(())
    }

    fn start(&self, stream: &Arc<Stream>, start: CollectStart) {
        let request = start.request.unwrap_or_default();
        let key = (request.rollout_id.clone(), request.attempt.max(1));
        if stream.lock().knows(&key) {
            return;
        }
        if stream.lock().waiting.len() >= MOST_WAITING {
            let error = MeshError::new(
                "QUEUE_FULL",
                "too many attempts wait",
                &[("queue", "collect")],
            );
            return stream.refuse(&key, &error);
        }
        let running = match self.shared.accept(&request, &format!("{NAME}/Collect")) {
            Ok(running) => running,
            Err(error) => return stream.refuse(&key, &error),
        };
        let (cancel, mut cancelled) = oneshot::channel();
        let mut state = stream.lock();
        state.running.insert(key.clone(), Some(cancel));
        state.waiting.insert(key.clone());
        drop(state);
        let due = (start.timeout_ms > 0)
            .then(|| Instant::now() + Duration::from_millis(start.timeout_ms.min(1 << 40)));
        let sink = stream.clone();
        let emit: Sink = Box::new(move |event| sink.add(event));
        let attempt = self.shared.attempt(request, emit);
        let (places, stream) = (self.shared.places.clone(), stream.clone());
        tokio::spawn(async move {
            let over = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let place = tokio::select! {
                place = places.acquire_owned() => Some(place),
                () = over => None, // it runs, and fails at once
                _ = &mut cancelled => {
                    let error = MeshError::new("CALLER_CANCELLED", "it was cancelled as it waited", &[]);
                    drop(running);
                    leave(&stream, &key);
                    return stream.refuse(&key, &error);
                }
            };
            stream.lock().waiting.remove(&key);
            stream.changed.notify_one();
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            attempt.run(left, cancelled).await;
            drop((place, running));
            leave(&stream, &key);
        });
    }

    /// Ends what an abandoned stream runs, once nobody can resume it any more.
    fn abandon(&self, stream_id: &str, stream: &Arc<Stream>, connection: u64) {
        if stream.lock().connection != connection {
            return;
        }
        let mut streams = self.lock();
        if streams
            .get(stream_id)
            .is_some_and(|known| Arc::ptr_eq(known, stream))
        {
            streams.remove(stream_id);
        }
        drop(streams);
        end(stream);
    }
}

fn end(stream: &Stream) {
    let mut state = stream.lock();
    state.connection += 1;
    for cancel in state.running.values_mut().filter_map(Option::take) {
        let _ = cancel.send(());
    }
    drop(state);
    stream.changed.notify_waiters();
    stream.changed.notify_one();
}

fn leave(stream: &Stream, key: &Key) {
    let mut state = stream.lock();
    state.running.remove(key);
    state.waiting.remove(key);
    drop(state);
    stream.changed.notify_one();
}

fn cancel(stream: &Stream, key: &Key) {
    if let Some(cancel) = stream.lock().running.get_mut(key).and_then(Option::take) {
        let _ = cancel.send(());
    }
}

fn invalid(field: &str, sentence: &str) -> MeshError {
    let method = format!("{NAME}/Collect");
    MeshError::new(
        "FIELD_INVALID",
        sentence,
        &[("field", field), ("method", &method)],
    )
}

fn hello(first: Result<Option<CollectRequest>, Status>) -> Result<CollectHello, MeshError> {
    let method = format!("{NAME}/Collect");
    let missing = || {
        let metadata = [("field", "hello"), ("method", method.as_str())];
        MeshError::new(
            "REQUIRED_FIELD_MISSING",
            "the first message must be hello",
            &metadata,
        )
    };
    let Some(Up::Hello(hello)) = first?.and_then(|first| first.message) else {
        return Err(missing());
    };
    if hello.stream_id.is_empty() || hello.credit == 0 {
        return Err(missing());
    }
    let theirs = &hello.contract_version;
    if !theirs.is_empty() && theirs.split('.').next() != CONTRACT_VERSION.split('.').next() {
        let versions = [("ours", CONTRACT_VERSION), ("theirs", theirs.as_str())];
        let sentence = format!("the collector speaks contract version {theirs:?}");
        return Err(MeshError::new("CONTRACT_MISMATCH", sentence, &versions));
    }
    Ok(hello)
}
