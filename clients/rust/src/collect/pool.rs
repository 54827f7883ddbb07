//! Agent instances: a stream to each, attempts spread over them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::attempt::{Ended, broken_off, ended, fold_for, overdue, unlawful};
use super::stream::{CollectStream, Run, StreamLimits};
use crate::dial::{Channel, agent_client, answer, within};
use crate::errors::MeshError;
use crate::fold::Fold;
use crate::proto::agent::v1::{GetAgentRequest, GetAgentResponse, RunRolloutRequest};

const ASSUMED_CAPACITY: u32 = 1024;
// How long past its deadline an attempt is waited for before it is left.
const SLACK: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(365 * 86_400);
// For so long, an instance that failed is asked only when no other can be.
const AVOID: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Pool {
    instances: Vec<Instance>,
    limits: StreamLimits,
}

/// One agent instance.
#[derive(Debug)]
struct Instance {
    channel: Channel,
    about: OnceCell<GetAgentResponse>,
    stream: Mutex<Option<Arc<CollectStream>>>,
    in_flight: AtomicUsize,
    failed_at: Mutex<Option<Instant>>,
}

impl Instance {
    /// What to choose by: the attempts in flight for each place; far more while it is avoided.
    fn busyness(&self) -> f64 {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let capacity = stream.as_ref().map_or(0, |stream| stream.capacity());
        let places = if capacity == 0 {
            ASSUMED_CAPACITY
        } else {
            capacity
        };
        let failed_at = *self
            .failed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let avoided = failed_at.is_some_and(|at| at.elapsed() < AVOID);
        let busy = self.in_flight.load(Ordering::Relaxed) as f64 / f64::from(places);
        busy + if avoided { 1e6 } else { 0.0 }
    }

    fn avoid(&self) {
        let mut failed_at = self
            .failed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *failed_at = Some(Instant::now());
    }

    async fn about(&self, limit: Duration) -> Result<&GetAgentResponse, MeshError> {
        let ask = || async {
            let mut client = agent_client(self.channel.clone());
            answer(limit, client.get_agent(within(limit, GetAgentRequest {}))).await
        };
        self.about.get_or_try_init(ask).await
    }

    fn stream(&self, limits: &StreamLimits) -> Arc<CollectStream> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        match stream.as_ref().filter(|stream| !stream.broken()) {
            Some(stream) => stream.clone(),
            None => {
                let made = Arc::new(CollectStream::new(self.channel.clone(), limits.clone()));
                stream.insert(made).clone()
            }
        }
    }

    /// One attempt over a call of its own.
    async fn call(&self, request: RunRolloutRequest, mut fold: Fold, limit: Duration) -> Ended {
        let mut client = agent_client(self.channel.clone());
        let mut events = match client.run_rollout(within(limit, request)).await {
            Ok(response) => response.into_inner(),
            Err(status) => return broken_off(fold, status.into()),
        };
        loop {
            match events.message().await {
                Ok(None) if fold.ended() => return ended(fold),
                Ok(None) => {
                    let error = MeshError::new("PEER_UNAVAILABLE", "the stream broke off", &[]);
                    return broken_off(fold, error);
                }
                Ok(Some(response)) => {
                    if let Err(violation) = fold.add(response.event.unwrap_or_default()) {
                        return Err(unlawful(fold, &violation));
                    }
                }
                Err(status) => return broken_off(fold, status.into()),
            }
        }
    }
}

impl Pool {
    pub fn new(channels: impl IntoIterator<Item = Channel>, limits: StreamLimits) -> Self {
        let instance = |channel| Instance {
            channel,
            about: OnceCell::new(),
            stream: Mutex::new(None),
            in_flight: AtomicUsize::new(0),
            failed_at: Mutex::new(None),
        };
        Self {
            instances: channels.into_iter().map(instance).collect(),
            limits,
        }
    }

    pub async fn about(&self, limit: Duration) -> Result<GetAgentResponse, MeshError> {
        let mut last = no_agents();
        for instance in &self.instances {
            match instance.about(limit).await {
                Ok(about) => return Ok(about.clone()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub async fn run(
        &self,
        request: RunRolloutRequest,
        repeat_index: u32,
        deadline: Duration,
        call_per_rollout: bool,
    ) -> Run {
        let deadline = deadline.min(LONGEST); // no clock goes on for ever
        let task = request.task.as_ref();
        let agent = task.map(|task| task.agent.clone()).unwrap_or_default();
        let run = self.run_unnamed(request, repeat_index, deadline, call_per_rollout);
        let mut run = run.await;
        if let Err(failed) = &mut run.outcome
            && failed.partial.outcome.is_none()
        {
            failed.failure.component = agent; // the call's failure, not the rollout's own
        }
        run
    }

    async fn run_unnamed(
        &self,
        request: RunRolloutRequest,
        repeat_index: u32,
        deadline: Duration,
        call_per_rollout: bool,
    ) -> Run {
        let fold = fold_for(&request, repeat_index);
        let least_busy = self
            .instances
            .iter()
            .min_by(|one, other| one.busyness().total_cmp(&other.busyness()));
        let Some(instance) = least_busy else {
            return broken_off(fold, no_agents()).into();
        };
        let _place = Place::take(&instance.in_flight);
        let collects = match instance.about(self.limits.hello).await {
            Ok(about) => about.collect && !call_per_rollout,
            Err(error) => {
                instance.avoid();
                return broken_off(fold, error).into();
            }
        };
        let left_with = fold_for(&request, repeat_index);
        let run = async {
            if collects {
                instance
                    .stream(&self.limits)
                    .run(request, fold, deadline)
                    .await
            } else {
                instance.call(request, fold, deadline).await.into()
            }
        };
        let run = timeout(deadline.saturating_add(SLACK), run).await;
        let run = run.unwrap_or_else(|_| broken_off(left_with, overdue(deadline)).into());
        if let Err(failed) = &run.outcome
            && failed.partial.started.is_none()
        {
            instance.avoid();
        }
        run
    }
}

fn no_agents() -> MeshError {
    MeshError::new(
        "SERVICE_NOT_FOUND",
        "there is no agent to collect from",
        &[],
    )
}

/// Counts an attempt for as long as it is in flight.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
