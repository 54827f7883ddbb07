//! Collecting: many rollouts over the agents' Collect streams, with retries.

mod attempt;
mod live;
mod pool;
mod receipts;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt, iter, unfold};
use tokio::time::Instant;

pub use attempt::FailedAttempt;
pub use stream::StreamLimits;

use crate::dial::Channel;
use crate::errors::{MeshError, reason_of};
use crate::proto::agent::v1::{GetAgentResponse, RolloutOptions, RunRolloutRequest};
use crate::proto::rollout::v1::{Boundary, Rollout, Task};
use crate::tasks::repeat_seed;
use pool::Pool;
use receipts::Receipt;
use stream::Run;

const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How to collect.
#[derive(Clone, Debug)]
pub struct CollectOptions {
    /// The run's id. Rollout ids begin with it, so each run needs a different one.
    pub run_id: String,
    /// How often each task is run.
    pub repeats: u32,
    /// The most rollouts in flight.
    pub concurrency: usize,
    /// The deadline of an attempt.
    pub deadline: Duration,
    /// The most attempts of a rollout; starts that a full agent refused do not count.
    pub max_attempts: u32,
    /// How long a rollout is retried that is refused, or whose agent is unreachable.
    pub patience: Duration,
    /// The wait before the second attempt; it doubles with each attempt.
    pub backoff: Duration,
    /// The agents' options for the rollouts.
    pub rollout: Option<RolloutOptions>,
    /// Whether each attempt is a call of RunRollout instead of one of many on a Collect stream, so
    /// that gRPC balances each rollout separately. It costs more.
    pub call_per_rollout: bool,
    /// Limits of the streams.
    pub limits: StreamLimits,
}

impl CollectOptions {
    /// The usual options for a run.
    pub fn new(run_id: impl Into<String>) -> Self {
        Self {
            run_id: run_id.into(),
            repeats: 1,
            concurrency: 64,
            deadline: Duration::from_secs(600),
            max_attempts: 3,
            patience: Duration::from_secs(60),
            backoff: Duration::from_millis(500),
            rollout: None,
            call_per_rollout: false,
            limits: StreamLimits::default(),
        }
    }
}

/// One rollout's outcome.
#[derive(Clone, Debug)]
pub struct Collected {
    /// Its task, as the task file has it.
    pub task: Arc<Task>,
    /// Which repeat of the task, from 0.
    pub repeat_index: u32,
    /// The completed rollout, or the failure of its last attempt.
    pub outcome: Result<Rollout, Box<FailedAttempt>>,
}

/// The agents that a run is collected from.
#[derive(Clone, Debug)]
pub struct Agents {
    pool: Arc<Pool>,
}

impl Agents {
    /// Agents behind these channels, one instance or one balanced name each. To be called in a
    /// tokio runtime.
    pub fn new(channels: impl IntoIterator<Item = Channel>, limits: StreamLimits) -> Self {
        Self {
            pool: Arc::new(Pool::new(channels, limits)),
        }
    }

    /// The description of the agent, from the first one that answers within the limit.
    ///
    /// # Errors
    /// None answered.
    pub async fn about(&self, limit: Duration) -> Result<GetAgentResponse, MeshError> {
        self.pool.about(limit).await
    }

    /// Runs one attempt to its end. Dropping the call cancels the attempt. The outcome counts as
    /// stored when the call returns it.
    ///
    /// # Errors
    /// The attempt failed, or its stream broke the contract.
    pub async fn run(
        &self,
        request: RunRolloutRequest,
        repeat_index: u32,
        deadline: Duration,
    ) -> Result<Rollout, Box<FailedAttempt>> {
        let run = self.pool.run(request, repeat_index, deadline, false).await;
        run.outcome
    }

    /// Collects the rollouts of tasks, in the order in which they end. An outcome counts as stored
    /// once the next one is asked for: only then may its agent forget it. Dropping the stream
    /// cancels the rollouts in flight.
    pub fn collect<T>(
        &self,
        tasks: T,
        options: CollectOptions,
    ) -> impl Stream<Item = Collected> + use<T>
    where
        T: IntoIterator<Item = Task>,
        T::IntoIter: Send + 'static,
    {
        let agents = self.clone();
        let concurrency = options.concurrency.max(1);
        let repeats = options.repeats;
        let options = Arc::new(options);
        let jobs = tasks.into_iter().flat_map(move |task| {
            let task = Arc::new(task);
            (0..repeats).map(move |repeat| (task.clone(), repeat))
        });
        let ended = iter(jobs)
            .map(move |(task, repeat)| run_job(agents.clone(), task, repeat, options.clone()))
            .buffer_unordered(concurrency);
        unfold((Box::pin(ended), None), async |(mut ended, last)| {
            drop::<Option<Receipt>>(last);
            let (collected, receipt) = ended.next().await?;
            Some((collected, (ended, receipt)))
        })
    }
}

/// What to send for an attempt.
fn request_for(
    task: &Task,
    repeat_index: u32,
    attempt: u32,
    options: &CollectOptions,
) -> RunRolloutRequest {
    let mut task = task.clone();
    task.seed = task.seed.map(|seed| repeat_seed(seed, repeat_index));
    RunRolloutRequest {
        rollout_id: format!("{}/{}/{repeat_index}", options.run_id, task.task_id),
        task: Some(task),
        attempt,
        options: options.rollout.clone(),
        run_id: options.run_id.clone(),
    }
}

async fn run_job(
    agents: Agents,
    task: Arc<Task>,
    repeat_index: u32,
    options: Arc<CollectOptions>,
) -> (Collected, Option<Receipt>) {
    let mut retries = Retries::new(&options);
    let mut attempt = 1;
    loop {
        let request = request_for(&task, repeat_index, attempt, &options);
        let run = agents.pool.run(
            request,
            repeat_index,
            options.deadline,
            options.call_per_rollout,
        );
        let Run { outcome, receipt } = run.await;
        if let Err(failed) = &outcome
            && let Some(wait) = retries.wait(failed)
        {
            drop(receipt); // another attempt replaces it
            tokio::time::sleep(wait).await;
            attempt += u32::from(!is_refused_start(failed));
            continue;
        }
        let collected = Collected {
            task,
            repeat_index,
            outcome,
        };
        return (collected, receipt);
    }
}

/// Whether and when a rollout is tried again.
struct Retries {
    left: u32,
    refused_since: Option<Instant>,
    patience: Duration,
    backoff: Duration,
    times: u32,
}

impl Retries {
    fn new(options: &CollectOptions) -> Self {
        Self {
            left: options.max_attempts.max(1),
            refused_since: None,
            patience: options.patience,
            backoff: options.backoff,
            times: 0,
        }
    }

    /// How long to wait before the next attempt; None: there is none.
    fn wait(&mut self, failed: &FailedAttempt) -> Option<Duration> {
        if !failed.failure.retry_safe {
            return None;
        }
        let counted = counts(failed);
        if counted {
            self.left -= 1;
            self.refused_since = None;
        }
        let asked = failed.failure.status.as_ref().map(MeshError::from_rpc);
        let asked = asked
            .and_then(|error| error.retry_after)
            .unwrap_or_default();
        let doubled = self.backoff.saturating_mul(1 << self.times.min(7));
        let wait = doubled.max(asked).min(LONGEST_WAIT);
        self.times += 1;
        if counted {
            return (self.left > 0).then_some(wait);
        }
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        (since.elapsed().saturating_add(wait) < self.patience).then_some(wait)
    }
}

/// Whether the agent did not take the attempt: it is said again, by the same number.
fn is_refused_start(failed: &FailedAttempt) -> bool {
    let reason = failed.failure.status.as_ref().map(reason_of);
    failed.partial.started.is_none() && reason.as_deref() == Some("QUEUE_FULL")
}

/// Whether a failure is one of the rollout's attempts: what was refused for want of room, or
/// because the agent is away, was not tried.
fn counts(failed: &FailedAttempt) -> bool {
    let reason = failed
        .failure
        .status
        .as_ref()
        .map(reason_of)
        .unwrap_or_default();
    let refused = matches!(reason.as_str(), "QUEUE_FULL" | "SESSION_LIMIT");
    let away = matches!(
        reason.as_str(),
        "PEER_UNAVAILABLE" | "DRAINING" | "SERVICE_NOT_FOUND"
    );
    let at_agent = failed.failure.boundary == i32::from(Boundary::Agent);
    !(refused || (away && at_agent && failed.partial.started.is_none()))
}
