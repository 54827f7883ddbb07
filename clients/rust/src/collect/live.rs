//! What keeps a stream connected: it says what was asked for, and takes what comes.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::attempt::{broken_off, ended, unlawful};
use super::receipts::{Receipt, Unstored};
use super::stream::{Asked, Command, Key, Run, StreamLimits, key_of, unavailable};
use crate::dial::{CONTRACT_VERSION, Channel, agent_client, within};
use crate::errors::MeshError;
use crate::proto::agent::v1::collect_request::Message as Up;
use crate::proto::agent::v1::collect_response::Message as Down;
use crate::proto::agent::v1::{
    AttemptRef, CollectAck, CollectCancels, CollectCredit, CollectEvents, CollectHello,
    CollectRequest, CollectResponse, CollectStart, CollectStartRefused, CollectStarts,
    CollectWelcome,
};
use crate::proto::rollout::v1::RolloutEvent;
use crate::proto::rollout::v1::rollout_event::Event;

// A connection lives as long as it is needed; after a week it is made anew.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);
const CLOSE: Duration = Duration::from_secs(2);

fn violation(expected: &str) -> MeshError {
    let sentence = format!("the agent's side of Collect broke the contract: {expected} was due");
    MeshError::new(
        "CONTRACT_VIOLATED",
        sentence,
        &[("rule", "collect"), ("expected", expected)],
    )
}

/// After one of these, connecting again to this instance does not help.
fn is_final(error: &MeshError) -> bool {
    matches!(
        error.reason.as_str(),
        "NOT_OFFERED"
            | "CONTRACT_MISMATCH"
            | "CONTRACT_VIOLATED"
            | "DRAINING"
            | "CREDENTIAL_INVALID"
            | "NOT_PERMITTED"
            | "REQUIRED_FIELD_MISSING"
            | "FIELD_INVALID"
            | "CALLER_CANCELLED"
    )
}

type Link = mpsc::UnboundedSender<CollectRequest>;

pub(super) struct Live {
    pub channel: Channel,
    pub limits: StreamLimits,
    pub heard: mpsc::UnboundedReceiver<Command>,
    /// Where receipts report to.
    pub commands: mpsc::WeakUnboundedSender<Command>,
    pub capacity: Arc<AtomicU32>,
    pub stream_id: String,
    /// The agent's instance; empty: none has answered yet.
    pub instance: String,
    pub in_flight: HashMap<Key, Asked>,
    /// Attempts that nobody waits for any more, though they may run at the agent.
    pub abandoned: HashSet<Key>,
    /// The cursor of the last batch that came.
    pub received: u64,
    pub unstored: Unstored,
    /// The cursor that was last acknowledged on this connection.
    pub acknowledged: u64,
    /// Events that came since credit was last granted.
    pub owed: u64,
    pub progressed: bool,
    pub closing: bool,
}

impl Live {
    pub async fn run(mut self) {
        let error = self.serve().await;
        self.heard.close();
        while let Ok(command) = self.heard.try_recv() {
            self.obey(command, None);
        }
        for (_, asked) in self.in_flight.drain() {
            let _ = asked
                .done
                .send(broken_off(asked.fold, error.clone()).into());
        }
    }

    /// Connects, and again, for as long as that makes sense; returns why it ended.
    async fn serve(&mut self) -> MeshError {
        let limits = self.limits.clone();
        let mut failing_since = Instant::now();
        let mut wait = limits.backoff;
        loop {
            self.progressed = false;
            let error = match self.connect().await {
                Ok(()) => unavailable("the agent ended the stream"),
                Err(error) => error,
            };
            let now = Instant::now();
            if self.progressed {
                (failing_since, wait) = (now, limits.backoff);
            }
            let known = self.capacity.load(Ordering::Relaxed) > 0;
            let worth_it = known && !self.in_flight.is_empty() && !self.closing;
            if is_final(&error) || now - failing_since >= limits.reconnect || !worth_it {
                return error;
            }
            self.listen_for(wait).await;
            wait = (wait * 2).min(limits.backoff_cap);
        }
    }

    /// Waits, and takes commands meanwhile.
    async fn listen_for(&mut self, wait: Duration) {
        let mut over = pin!(sleep(wait));
        loop {
            tokio::select! {
                () = &mut over => return,
                command = self.heard.recv() => match command {
                    Some(command) => self.obey(command, None),
                    None => { self.closing = true; return; }
                },
            }
        }
    }

    /// One connection, from hello to its end.
    async fn connect(&mut self) -> Result<(), MeshError> {
        let (link, requests) = mpsc::unbounded_channel();
        say(
            &link,
            Up::Hello(CollectHello {
                stream_id: self.stream_id.clone(),
                last_cursor: self.received,
                credit: self.limits.credit,
                contract_version: CONTRACT_VERSION.to_owned(),
            }),
        );
        (self.owed, self.acknowledged) = (0, 0);
        let hello = self.limits.hello;
        let mut client = agent_client(self.channel.clone());
        let open = async {
            let requests = within(LONGEST, UnboundedReceiverStream::new(requests));
            let mut responses = client.collect(requests).await?.into_inner();
            let first = responses.message().await?;
            Ok::<_, tonic::Status>((responses, first))
        };
        let (responses, first) = match timeout(hello, open).await {
            Err(_) => return Err(unavailable("the agent did not answer hello")),
            Ok(opened) => opened?,
        };
        match first.and_then(|first| first.message) {
            Some(Down::Welcome(welcome)) => self.welcomed(&welcome, &link)?,
            _ => return Err(violation("welcome")),
        }
        self.converse(responses, link).await
    }

    fn welcomed(&mut self, welcome: &CollectWelcome, link: &Link) -> Result<(), MeshError> {
        let theirs = &welcome.contract_version;
        if !theirs.is_empty() && theirs.split('.').next() != CONTRACT_VERSION.split('.').next() {
            let sentence = format!("the agent speaks contract version {theirs:?}");
            let versions = [("ours", CONTRACT_VERSION), ("theirs", theirs.as_str())];
            return Err(MeshError::new("CONTRACT_MISMATCH", sentence, &versions));
        }
        self.capacity
            .store(welcome.capacity.max(1), Ordering::Relaxed);
        // Another instance than before knows nothing of what runs at that one, whatever it says: the
        // same attempt at both would share one session.
        let moved = !self.instance.is_empty() && self.instance != welcome.instance_id;
        self.instance.clone_from(&welcome.instance_id);
        if !welcome.resumed || moved {
            self.lose();
        }
        for asked in self.in_flight.values_mut() {
            asked.repeated = asked.fold.sequence();
        }
        // Starts and cancels may have been lost with the last connection.
        let again: Vec<Key> = self
            .in_flight
            .iter()
            .filter(|(_, asked)| !asked.fold.begun())
            .map(|(key, _)| key.clone())
            .collect();
        for key in again {
            self.start(&key, link);
        }
        if !self.abandoned.is_empty() {
            let attempts = self.abandoned.iter().map(ref_of).collect();
            say(link, Up::Cancels(CollectCancels { attempts }));
        }
        Ok(())
    }

    /// The agent knows nothing of what it was asked for.
    fn lose(&mut self) {
        self.received = 0;
        self.unstored = Unstored::default();
        self.abandoned.clear();
        for (_, asked) in self.in_flight.extract_if(|_, asked| asked.sent) {
            let error = unavailable("the agent lost the rollout");
            let _ = asked.done.send(broken_off(asked.fold, error).into());
        }
    }

    async fn converse(
        &mut self,
        mut responses: Streaming<CollectResponse>,
        link: Link,
    ) -> Result<(), MeshError> {
        let mut heard_at = Instant::now();
        loop {
            self.acknowledge(&link);
            if self.in_flight.is_empty() {
                heard_at = Instant::now();
            }
            let silent = sleep_until(heard_at + self.limits.silence);
            tokio::select! {
                response = responses.message() => {
                    heard_at = Instant::now();
                    match response?.map(|response| response.message) {
                        None => return Ok(()),
                        Some(message) => self.hear(message, &link)?,
                    }
                }
                command = self.heard.recv(), if !self.closing => match command {
                    Some(command) => {
                        self.obey(command, Some(&link));
                        // Few acknowledgements for many outcomes.
                        while let Ok(command) = self.heard.try_recv() {
                            self.obey(command, Some(&link));
                        }
                    }
                    None => {
                        self.closing = true;
                        break;
                    }
                },
                () = silent, if !self.in_flight.is_empty() => {
                    return Err(unavailable("the agent sent nothing for too long"));
                }
            }
        }
        // All is said: the agent ends its side once what was cancelled has ended.
        drop(link);
        let rest = async { while let Ok(Some(_)) = responses.message().await {} };
        let _ = timeout(CLOSE, rest).await;
        Ok(())
    }

    fn hear(&mut self, message: Option<Down>, link: &Link) -> Result<(), MeshError> {
        self.progressed = true;
        match message {
            Some(Down::Events(batch)) => self.take(batch, link),
            Some(Down::StartRefused(refusal)) => self.refused(&refusal),
            Some(Down::Load(_)) => {}
            _ => return Err(violation("events, start_refused or load")),
        }
        Ok(())
    }

    fn take(&mut self, batch: CollectEvents, link: &Link) {
        self.owed += batch.events.len() as u64;
        if batch.cursor > self.received {
            self.received = batch.cursor;
            self.unstored.came(batch.cursor);
            for event in batch.events {
                self.take_event(event, link);
            }
        }
        if 2 * self.owed >= self.limits.credit {
            say(link, Up::Credit(CollectCredit { events: self.owed }));
            self.owed = 0;
        }
    }

    fn take_event(&mut self, event: RolloutEvent, link: &Link) {
        let is_last = matches!(event.event, Some(Event::Completed(_) | Event::Failed(_)));
        let key = key_of(&event.rollout_id, event.attempt);
        let Some(asked) = self.in_flight.get_mut(&key) else {
            if is_last {
                self.abandoned.remove(&key);
            }
            return;
        };
        if event.sequence <= asked.repeated {
            return;
        }
        let problem = asked.fold.add(event).err();
        if problem.is_none() && !asked.fold.ended() {
            return;
        }
        let Some(asked) = self.in_flight.remove(&key) else {
            return;
        };
        let outcome = match problem {
            None => ended(asked.fold),
            Some(violation) => {
                if !is_last {
                    let attempts = vec![ref_of(&key)];
                    say(link, Up::Cancels(CollectCancels { attempts }));
                    self.abandoned.insert(key.clone());
                }
                Err(unlawful(asked.fold, &violation))
            }
        };
        let receipt = self.commands.upgrade().map(|commands| {
            self.unstored.hold(key.clone(), self.received);
            Receipt::new(key, commands)
        });
        let _ = asked.done.send(Run { outcome, receipt });
    }

    /// Acknowledges the batches whose outcomes are all stored.
    fn acknowledge(&mut self, link: &Link) {
        let cursor = self.unstored.cursor();
        if cursor > self.acknowledged {
            self.acknowledged = cursor;
            say(link, Up::Ack(CollectAck { cursor }));
        }
    }

    fn refused(&mut self, refusal: &CollectStartRefused) {
        let error = MeshError::from_rpc(&refusal.status.clone().unwrap_or_default());
        for one in &refusal.attempts {
            let key = key_of(&one.rollout_id, one.attempt);
            self.abandoned.remove(&key);
            if let Some(asked) = self.in_flight.remove(&key) {
                let _ = asked
                    .done
                    .send(broken_off(asked.fold, error.clone()).into());
            }
        }
    }

    fn obey(&mut self, command: Command, link: Option<&Link>) {
        match command {
            Command::Start(asked) => {
                let key = key_of(&asked.request.rollout_id, asked.request.attempt);
                if self.in_flight.contains_key(&key) {
                    let error = MeshError::new("ROLLOUT_EXISTS", "it is in flight already", &[]);
                    let _ = asked.done.send(broken_off(asked.fold, error).into());
                    return;
                }
                self.in_flight.insert(key.clone(), *asked);
                if let Some(link) = link {
                    self.start(&key, link);
                }
            }
            Command::Abandon(key) => {
                let Some(asked) = self.in_flight.remove(&key) else {
                    return;
                };
                if asked.sent {
                    if let Some(link) = link {
                        say(
                            link,
                            Up::Cancels(CollectCancels {
                                attempts: vec![ref_of(&key)],
                            }),
                        );
                    }
                    self.abandoned.insert(key);
                }
            }
            Command::Stored(key) => self.unstored.stored(&key),
        }
    }

    fn start(&mut self, key: &Key, link: &Link) {
        let Some(asked) = self.in_flight.get_mut(key) else {
            return;
        };
        asked.sent = true;
        let left = asked
            .due
            .saturating_duration_since(Instant::now())
            .as_millis();
        let start = CollectStart {
            request: Some(asked.request.clone()),
            timeout_ms: u64::try_from(left).unwrap_or(u64::MAX).max(1),
        };
        say(
            link,
            Up::Starts(CollectStarts {
                starts: vec![start],
            }),
        );
    }
}

fn ref_of(key: &Key) -> AttemptRef {
    AttemptRef {
        rollout_id: key.0.clone(),
        attempt: key.1,
    }
}

/// What cannot be said any more is said on the next connection.
fn say(link: &Link, message: Up) {
    let _ = link.send(CollectRequest {
        message: Some(message),
    });
}
