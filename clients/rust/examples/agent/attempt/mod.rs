//! One attempt, in the order that agent.proto gives: the session, `started`, the model with its tools
//! or turns until there is a stop reason, the verdict, `verified` and `completed`.

mod model_calls;
mod session;
mod tool_calls;
mod turns;
mod verdict;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gymmesh_client::errors::MeshError;
use gymmesh_client::proto::agent::v1::{GetAgentResponse, RolloutOptions, RunRolloutRequest};
use gymmesh_client::proto::responses::v1::{FunctionCall, Item, ResponseParams, item};
use gymmesh_client::proto::rollout::v1::rollout_event::Event;
use gymmesh_client::proto::rollout::v1::{
    Boundary, CallTimings, Completed, Counts, Failed, Failure, FinalState, RolloutEvent,
    StopReason, Task, Verified,
};
use tokio::sync::oneshot;

use self::model_calls::cut_short;
use self::session::Session;
pub use self::verdict::check_verdict;
use crate::peers::Peers;

const CALL: Duration = Duration::from_secs(600);
// A call that took all the time that was left fails about when the deadline passes.
const OVERDUE: Duration = Duration::from_millis(100);

/// Takes events as they happen.
pub type Sink = Box<dyn Fn(RolloutEvent) + Send + Sync>;
type Step<T> = Result<T, Box<Failure>>;

pub struct Attempt {
    peers: Arc<Peers>,
    about: Arc<GetAgentResponse>,
    task: Task,
    rollout_id: String,
    attempt: u32,
    options: RolloutOptions,
    emit: Sink,
    began: Instant,
    /// When its deadline passes; its calls get no more time than is left until then.
    ends: Option<Instant>,
    sequence: u64,
    counts: Counts,
    params: ResponseParams,
    /// The whole conversation.
    items: Vec<Item>,
    /// How many of them were there at the start.
    first: usize,
    /// How many of them the environment has seen.
    turned: usize,
    turn_rewards: Vec<f64>,
    final_state: Option<FinalState>,
    session: Option<Session>,
    last_call: String,
    /// The tokens of the conversation so far, as captured.
    tokens: Vec<u8>,
    /// The oldest and the newest weights that are known of.
    weights: Option<(u64, u64)>,
}

/// What belongs to which boundary, and whether it may be tried again.
fn failure(error: &MeshError, step: Boundary, component: &str, call_id: &str) -> Box<Failure> {
    Box::new(Failure {
        call_id: call_id.to_owned(),
        ..error.to_failure(step, component)
    })
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

impl Attempt {
    /// An attempt of a request that was found good.
    pub fn new(
        peers: Arc<Peers>,
        about: Arc<GetAgentResponse>,
        request: RunRolloutRequest,
        emit: Sink,
    ) -> Self {
        Self {
            peers,
            about,
            task: request.task.unwrap_or_default(),
            rollout_id: request.rollout_id,
            attempt: request.attempt.max(1),
            options: request.options.unwrap_or_default(),
            emit,
            began: Instant::now(),
            ends: None,
            sequence: 0,
            counts: Counts::default(),
            params: ResponseParams::default(),
            items: Vec::new(),
            first: 0,
            turned: 0,
            turn_rewards: Vec::new(),
            final_state: None,
            session: None,
            last_call: String::new(),
            tokens: Vec::new(),
            weights: None,
        }
    }

    /// Runs it; the last event says how it ended.
    pub async fn run(mut self, deadline: Option<Duration>, cancelled: oneshot::Receiver<()>) {
        let budget = self
            .options
            .max_wall_s
            .filter(|seconds| seconds.is_finite());
        let budget = budget.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        let least = [deadline, budget].into_iter().flatten().min();
        self.ends = least.and_then(|limit| Instant::now().checked_add(limit));
        let never = async |limit: Option<Duration>| match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        };
        let cancelled = async {
            if cancelled.await.is_err() {
                std::future::pending::<()>().await; // nobody can cancel it any more
            }
        };
        let ends = self.ends;
        let work = async {
            let ended = self.work().await;
            let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
            if ended.is_err() && left.is_some_and(|left| left < OVERDUE) {
                std::future::pending::<()>().await; // the deadline is the cause, and will be said
            }
            ended
        };
        let ended = tokio::select! {
            ended = work => ended,
            () = never(deadline) => {
                let error = MeshError::new("DEADLINE_PASSED", "the rollout's deadline passed", &[]);
                Err(failure(&error, Boundary::Deadline, "", ""))
            }
            () = never(budget) => {
                let metadata = [("budget", "max_wall_s")];
                let error = MeshError::new("BUDGET_SPENT", "max_wall_s is over", &metadata);
                Err(failure(&error, Boundary::Budget, "max_wall_s", ""))
            }
            () = cancelled => {
                let error = MeshError::new("CALLER_CANCELLED", "the collector cancelled it", &[]);
                Err(failure(&error, Boundary::Cancelled, "", ""))
            }
        };
        if let Err(cause) = ended {
            self.fail(*cause);
        }
    }

    /// The time that a call may take.
    fn left(&self) -> Duration {
        let left = self
            .ends
            .map_or(CALL, |ends| ends.saturating_duration_since(Instant::now()));
        left.clamp(Duration::from_millis(1), CALL)
    }

    async fn work(&mut self) -> Step<()> {
        self.open().await?;
        self.start();
        let stop_reason = self.converse().await?;
        self.check_weights().await?;
        let sent = Instant::now();
        let verification = self.judge(stop_reason).await?;
        let timings = CallTimings {
            total_us: micros(sent),
            ..Default::default()
        };
        let verified = Verified {
            verification: Some(verification),
            timings: Some(timings),
            final_state: self.final_state.take(),
        };
        self.tell(Event::Verified(verified));
        let completed = Completed {
            stop_reason: stop_reason.into(),
            counts: Some(self.counts),
            events: self.sequence + 1,
            duration_us: micros(self.began),
            ..Default::default()
        };
        self.tell(Event::Completed(completed));
        Ok(())
    }

    fn fail(&mut self, mut cause: Failure) {
        let says_no = self
            .session
            .as_ref()
            .is_some_and(|session| !session.about.retry_safe);
        cause.retry_safe &= !says_no;
        if self.sequence == 0 {
            self.start(); // the first event is always `started`
        }
        let failed = Failed {
            failure: Some(cause),
            counts: Some(self.counts),
            events: self.sequence + 1,
            duration_us: micros(self.began),
        };
        self.tell(Event::Failed(failed));
    }

    fn tell(&mut self, event: Event) {
        self.sequence += 1;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        (self.emit)(RolloutEvent {
            rollout_id: self.rollout_id.clone(),
            attempt: self.attempt,
            sequence: self.sequence,
            record_time_unix_nano: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            ignorable: false,
            event: Some(event),
        });
    }

    fn name(&self, part: &str) -> String {
        format!("{}/{}/{part}", self.rollout_id, self.attempt)
    }

    async fn converse(&mut self) -> Step<StopReason> {
        loop {
            if self
                .options
                .max_steps
                .is_some_and(|most| self.counts.model_calls >= most)
            {
                return Ok(StopReason::MaxSteps);
            }
            let most = self.options.max_total_output_tokens;
            if most.is_some_and(|most| self.counts.output_tokens >= most) {
                return Ok(StopReason::MaxOutputTokens);
            }
            let Some(response) = self.call_model().await? else {
                return Ok(StopReason::ContextLength);
            };
            if let Some(cut) = cut_short(&response) {
                return Ok(cut);
            }
            let calls: Vec<FunctionCall> = response
                .output
                .into_iter()
                .filter_map(|item| match item.kind {
                    Some(item::Kind::FunctionCall(call)) => Some(call),
                    _ => None,
                })
                .collect();
            let multi_turn = self
                .session
                .as_ref()
                .is_some_and(|one| one.opened.multi_turn);
            let done = if !calls.is_empty() {
                self.call_tools(calls).await?
            } else if multi_turn {
                self.take_turn().await?
            } else {
                return Ok(StopReason::ModelFinished);
            };
            if done {
                return Ok(StopReason::EnvironmentDone);
            }
        }
    }
}
