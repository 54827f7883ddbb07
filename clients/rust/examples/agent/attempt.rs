//! One attempt, in the order that agent.proto gives: the session, `started`, the model with its tools
//! or turns until there is a stop reason, the verdict, `verified` and `completed`.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gymmesh_client::codec::{new_message, params_from_json, params_to_json};
use gymmesh_client::dial::{
    CONTRACT_VERSION, Channel, answer, model_client, resource_client, verify_client, within,
};
use gymmesh_client::errors::MeshError;
use gymmesh_client::json::{Json, Text};
use gymmesh_client::proto::agent::v1::{GetAgentResponse, RolloutOptions, RunRolloutRequest};
use gymmesh_client::proto::model::v1::{CreateResponseRequest, GetModelRequest, TokenCapture};
use gymmesh_client::proto::resource::v1::{
    CallToolRequest, CloseSessionRequest, CreateSessionRequest, CreateSessionResponse,
    GetEnvironmentResponse, NextTurnRequest, RewardRule, call_tool_response,
};
use gymmesh_client::proto::responses::v1::{
    FunctionCall, FunctionCallOutput, Item, Response, ResponseParams, function_call_output, item,
    tool,
};
use gymmesh_client::proto::rollout::v1::rollout_event::Event;
use gymmesh_client::proto::rollout::v1::{
    Boundary, CallTimings, Completed, Counts, Failed, Failure, ModelCallCompleted, RolloutEvent,
    Started, StopReason, Task, ToolCallCompleted, ToolCallStarted, TurnCompleted, Verification,
    VerificationStatus, Verified,
};
use gymmesh_client::proto::verify::v1::VerifyRequest;
use tokio::sync::oneshot;

use crate::peers::{MODEL, Peers, RESOURCE};

const CALL: Duration = Duration::from_secs(600);
// A call that took all the time that was left fails about when the deadline passes.
const OVERDUE: Duration = Duration::from_millis(100);
const CLOSE: Duration = Duration::from_secs(5);
const ROLE: &str = "policy";

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
    session: Option<Session>,
    last_call: String,
    /// The tokens of the conversation so far, as captured.
    tokens: Vec<u8>,
    /// The oldest and the newest weights that are known of.
    weights: Option<(u64, u64)>,
}

/// An open session; it is closed when this is dropped, beside whatever comes next.
struct Session {
    channel: Channel,
    about: GetEnvironmentResponse,
    opened: CreateSessionResponse,
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut client = resource_client(self.channel.clone());
        let request = CloseSessionRequest {
            session_id: self.opened.session_id.clone(),
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                answer(CLOSE, client.close_session(within(CLOSE, request))).await
            });
        }
    }
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

    async fn open(&mut self) -> Step<()> {
        let name = self.task.environment.clone();
        let at_resource = |error: MeshError| failure(&error, Boundary::Resource, &name, "");
        let instance = self
            .peers
            .find(RESOURCE, &name)
            .await
            .map_err(at_resource)?;
        let channel = self.peers.channel(&instance.address).map_err(at_resource)?;
        let about = self
            .peers
            .environment(&instance)
            .await
            .map_err(at_resource)?;
        let request = CreateSessionRequest {
            task: Some(self.task.clone()),
            seed: self.task.seed,
            request_id: self.name("session"),
            rollout_id: self.rollout_id.clone(),
            attempt: self.attempt,
        };
        let mut client = resource_client(channel.clone());
        let opened = answer(
            self.left(),
            client.create_session(within(self.left(), request)),
        )
        .await;
        let opened = opened.map_err(at_resource)?;
        self.params = params_in_force(&self.task, &self.options, &opened)?;
        self.session = Some(Session {
            channel,
            about,
            opened,
        });
        Ok(())
    }

    fn start(&mut self) {
        let session = self.session.as_ref().map(|session| session.opened.clone());
        let opened = session.clone().unwrap_or_default();
        let params = self.task.params.clone().unwrap_or_default();
        self.items = match &params.input_text {
            Some(text) => vec![new_message("user", text)],
            None => params.input,
        };
        self.items.extend(opened.items);
        (self.first, self.turned) = (self.items.len(), self.items.len());
        let started = Started {
            params: Some(self.params.clone()),
            items: self.items.clone(),
            environment: self.task.environment.clone(),
            environment_version: opened.environment_version,
            agent: self.about.name.clone(),
            agent_version: self.about.version.clone(),
            agent_instance_id: self.about.instance_id.clone(),
            resource_instance_id: opened.instance_id,
            session_id: opened.session_id,
            seed: session.map(|session| session.seed),
            contract_version: CONTRACT_VERSION.to_owned(),
            preamble_items: 0,
        };
        self.tell(Event::Started(started));
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

    /// The model's answer; None: the conversation is longer than its context.
    async fn call_model(&mut self) -> Step<Option<Response>> {
        let model = self
            .options
            .models
            .get(ROLE)
            .cloned()
            .unwrap_or_else(|| ROLE.to_owned());
        let call_id = format!("m{}", self.counts.model_calls + 1);
        let at_model = |error: MeshError| failure(&error, Boundary::Model, &model, &call_id);
        let instance = self.peers.find(MODEL, &model).await.map_err(at_model)?;
        let channel = self.peers.channel(&instance.address).map_err(at_model)?;
        let mut params = self.params.clone();
        params.input = self.items.clone();
        params.input_omitted = false;
        let request = CreateResponseRequest {
            params: Some(params),
            rollout_id: self.rollout_id.clone(),
            request_id: self.name(&call_id),
            capture: self.options.capture,
            call_id: call_id.clone(),
            seed: self.task.seed,
            conversation: None,
        };
        let sent = Instant::now();
        let mut client = model_client(channel);
        let said = match answer(
            self.left(),
            client.create_response(within(self.left(), request)),
        )
        .await
        {
            Ok(said) => said,
            Err(error) if error.reason == "MODEL_CONTEXT_EXCEEDED" => return Ok(None),
            Err(error) => return Err(at_model(error)),
        };
        let response = said.response.unwrap_or_default();
        if response.status.as_deref() == Some("failed") {
            let cause = response
                .error
                .as_ref()
                .and_then(|error| error.message.clone());
            let metadata = [("model", model.as_str())];
            let sentence = cause.unwrap_or_else(|| "the answer failed".to_owned());
            return Err(at_model(MeshError::new(
                "MODEL_ANSWER_INVALID",
                sentence,
                &metadata,
            )));
        }
        self.check_tokens(said.tokens.as_ref(), &call_id)
            .map_err(at_model)?;
        let usage = response.usage.clone().unwrap_or_default();
        self.counts.model_calls += 1;
        self.counts.input_tokens += usage.input_tokens.unwrap_or_default();
        self.counts.output_tokens += usage.output_tokens.unwrap_or_default();
        self.items.extend(response.output.iter().cloned());
        let spans = said.tokens.iter().flat_map(|tokens| &tokens.weights);
        let versions: Vec<u64> = spans.map(|span| span.version).collect();
        let parent_call_id = std::mem::replace(&mut self.last_call, call_id.clone());
        self.tell(Event::ModelCallCompleted(ModelCallCompleted {
            call_id: call_id.clone(),
            parent_call_id,
            model: model.clone(),
            trainable: true,
            response: Some(response.clone()),
            tokens: said.tokens,
            timings: Some(CallTimings {
                queue_us: said.queue_us,
                total_us: micros(sent),
                first_token_us: 0,
            }),
            ..Default::default()
        }));
        self.see_weights(&versions).map_err(at_model)?;
        Ok(Some(response))
    }

    /// Holds the rollout to `max_staleness`.
    fn see_weights(&mut self, versions: &[u64]) -> Result<(), MeshError> {
        for version in versions {
            let (oldest, newest) = self.weights.unwrap_or((*version, *version));
            self.weights = Some((oldest.min(*version), newest.max(*version)));
        }
        let (Some(limit), Some((oldest, current))) = (self.options.max_staleness, self.weights)
        else {
            return Ok(());
        };
        if current - oldest <= limit {
            return Ok(());
        }
        let sentence = format!("the oldest weights are {oldest}, and the current ones {current}");
        let metadata = [
            ("oldest", oldest.to_string()),
            ("current", current.to_string()),
            ("max_staleness", limit.to_string()),
        ];
        let metadata = metadata
            .each_ref()
            .map(|(key, value)| (*key, value.as_str()));
        Err(MeshError::new("WEIGHTS_STALE", sentence, &metadata))
    }

    /// Asks the model for its current weights, where that matters.
    async fn check_weights(&mut self) -> Step<()> {
        if self.options.max_staleness.is_none() || self.weights.is_none() {
            return Ok(());
        }
        let model = self
            .options
            .models
            .get(ROLE)
            .cloned()
            .unwrap_or_else(|| ROLE.to_owned());
        let at_model = |error: MeshError| failure(&error, Boundary::Model, &model, "");
        let instance = self.peers.find(MODEL, &model).await.map_err(at_model)?;
        let mut client = model_client(self.peers.channel(&instance.address).map_err(at_model)?);
        let about = answer(
            self.left(),
            client.get_model(within(self.left(), GetModelRequest {})),
        )
        .await;
        let current: Vec<u64> = about
            .map_err(at_model)?
            .weights_version
            .into_iter()
            .collect();
        self.see_weights(&current).map_err(at_model)
    }

    /// The exact-token law: a prompt begins with the tokens of the call before, or says it forks.
    fn check_tokens(
        &mut self,
        said: Option<&TokenCapture>,
        call_id: &str,
    ) -> Result<(), MeshError> {
        let Some(said) = said.filter(|said| !said.output_token_ids.is_empty()) else {
            return Ok(());
        };
        let kept = self
            .tokens
            .len()
            .min(said.prompt_prefix_tokens as usize * 4);
        let prompt = [&self.tokens[..kept], &said.prompt_token_ids].concat();
        let follows = prompt.starts_with(&self.tokens) || said.fork.is_some();
        if !follows && !self.options.allow_token_divergence {
            let sentence = "the prompt does not begin with the tokens of the call before it";
            return Err(MeshError::new(
                "TOKENS_DIVERGED",
                sentence,
                &[("call_id", call_id)],
            ));
        }
        self.tokens = [prompt.as_slice(), &said.output_token_ids].concat();
        Ok(())
    }

    /// Runs the tool calls of one answer side by side; whether the episode is over.
    async fn call_tools(&mut self, calls: Vec<FunctionCall>) -> Step<bool> {
        let Some(session) = &self.session else {
            return Ok(false);
        };
        let (channel, session_id) = (session.channel.clone(), session.opened.session_id.clone());
        let mut waiting = FuturesUnordered::new();
        for (place, call) in calls.into_iter().enumerate() {
            let (call_id, name) = (
                call.call_id.unwrap_or_default(),
                call.name.unwrap_or_default(),
            );
            self.tell(Event::ToolCallStarted(ToolCallStarted {
                call_id: call_id.clone(),
                name: name.clone(),
                model_call_id: self.last_call.clone(),
                actor: String::new(),
            }));
            let request = CallToolRequest {
                session_id: session_id.clone(),
                name: name.clone(),
                arguments: call.arguments.unwrap_or_default(),
                call_id: call_id.clone(),
                request_id: self.name(&format!("{}/{place}", self.last_call)),
            };
            let mut client = resource_client(channel.clone());
            let limit = self.left();
            waiting.push(async move {
                let sent = Instant::now();
                let said = answer(limit, client.call_tool(within(limit, request))).await;
                (place, call_id, name, micros(sent), said)
            });
        }
        let mut outputs = Vec::new();
        let mut done = false;
        while let Some((place, call_id, name, total_us, said)) = waiting.next().await {
            let said = said.map_err(|error| failure(&error, Boundary::Tool, &name, &call_id))?;
            let output = output_item(&call_id, said.output.clone());
            done |= said.done;
            self.counts.tool_calls += 1;
            self.tell(Event::ToolCallCompleted(ToolCallCompleted {
                call_id,
                name,
                model_call_id: self.last_call.clone(),
                actor: String::new(),
                output: Some(output.clone()),
                outcome: said.outcome,
                timings: Some(CallTimings {
                    total_us,
                    ..Default::default()
                }),
            }));
            outputs.push((place, output));
        }
        outputs.sort_by_key(|(place, _)| *place);
        self.items
            .extend(outputs.into_iter().map(|(_, output)| output));
        Ok(done)
    }

    /// Gives the environment its turn; whether the episode is over.
    async fn take_turn(&mut self) -> Step<bool> {
        let Some(session) = &self.session else {
            return Ok(false);
        };
        let turn = self.counts.turns + 1;
        let request = NextTurnRequest {
            session_id: session.opened.session_id.clone(),
            new_items: self.items[self.turned..].to_vec(),
            request_id: self.name(&format!("turn-{turn}")),
        };
        let mut client = resource_client(session.channel.clone());
        let said = answer(self.left(), client.next_turn(within(self.left(), request))).await;
        let environment = &self.task.environment;
        let said = said.map_err(|error| failure(&error, Boundary::Resource, environment, ""))?;
        self.counts.turns = turn;
        self.turn_rewards.extend(said.reward);
        self.items.extend(said.items.iter().cloned());
        self.turned = self.items.len();
        self.tell(Event::TurnCompleted(TurnCompleted {
            turn,
            model_call_id: self.last_call.clone(),
            items: said.items,
            reward: said.reward,
            done: said.done,
            model_usage: said.model_usage,
        }));
        Ok(said.done)
    }

    async fn judge(&mut self, stop_reason: StopReason) -> Step<Verification> {
        if self.options.skip_verification {
            return Ok(Verification {
                status: VerificationStatus::Skipped.into(),
                reason: "skip_verification was asked for".to_owned(),
                ..Default::default()
            });
        }
        let Some(session) = &self.session else {
            return Ok(Verification::default());
        };
        let request = VerifyRequest {
            session_id: session.opened.session_id.clone(),
            task: Some(self.task.clone()),
            transcript: self.items[self.first..].to_vec(),
            stop_reason: stop_reason.into(),
            rollout_id: self.rollout_id.clone(),
            attempt: self.attempt,
            turn_rewards: self.turn_rewards.clone(),
        };
        let environment = &self.task.environment;
        let at_verifier = |error: MeshError| failure(&error, Boundary::Verifier, environment, "");
        let mut client = verify_client(session.channel.clone());
        let said = answer(self.left(), client.verify(within(self.left(), request)))
            .await
            .map_err(at_verifier)?;
        let mut verdict = said.verification.unwrap_or_default();
        if session.about.reward_rule() == RewardRule::Sum
            && let Some(reward) = &mut verdict.reward
        {
            *reward += self.turn_rewards.iter().sum::<f64>();
        }
        let pending = verdict.status() == VerificationStatus::Pending;
        verdict.awaits_group = pending && session.about.judges_groups;
        check_verdict(&verdict).map_err(at_verifier)?;
        Ok(verdict)
    }
}

/// Refuses a verdict that contradicts itself: trouble is never a reward.
pub fn check_verdict(verdict: &Verification) -> Result<(), MeshError> {
    let verified = verdict.status() == VerificationStatus::Verified;
    let lawful = verdict.status() != VerificationStatus::Unspecified
        && verified == verdict.reward.is_some()
        && verdict.reward.is_none_or(f64::is_finite)
        && verdict
            .components
            .iter()
            .all(|part| part.value.is_finite() && part.weight.is_none_or(f64::is_finite));
    if lawful {
        return Ok(());
    }
    let sentence = "the verdict contradicts itself";
    Err(MeshError::new(
        "CONTRACT_VIOLATED",
        sentence,
        &[("rule", "verdict")],
    ))
}

/// Why an answer was cut short; None: it was not.
fn cut_short(response: &Response) -> Option<StopReason> {
    if response.status.as_deref() != Some("incomplete") {
        return None;
    }
    let details = response.incomplete_details.as_ref();
    Some(
        match details.and_then(|details| details.reason.as_deref()) {
            Some("max_output_tokens") => StopReason::MaxOutputTokens,
            Some("content_filter") => StopReason::ContentFilter,
            Some("aborted") => StopReason::Aborted,
            _ => StopReason::AgentRule,
        },
    )
}

fn output_item(call_id: &str, said: Option<call_tool_response::Output>) -> Item {
    use call_tool_response::Output::{Parts, Text};
    let output = match said {
        Some(Parts(parts)) => function_call_output::Output::Parts(parts),
        Some(Text(text)) => function_call_output::Output::Text(text),
        None => function_call_output::Output::Text(Vec::new()),
    };
    let output = FunctionCallOutput {
        call_id: Some(call_id.to_owned()),
        output: Some(output),
        ..Default::default()
    };
    Item {
        kind: Some(item::Kind::FunctionCallOutput(output)),
    }
}

/// The task's parameters without its input, with the overrides, and with the session's tools after
/// the task's own; a name that both have is the session's.
fn params_in_force(
    task: &Task,
    options: &RolloutOptions,
    session: &CreateSessionResponse,
) -> Step<ResponseParams> {
    let wrong = |why: String| {
        let error = MeshError::new("FIELD_INVALID", why, &[("field", "params")]);
        failure(&error, Boundary::Agent, "", "")
    };
    let mut params = task.params.clone().unwrap_or_default();
    params.input.clear();
    params.input_text = None;
    params.input_omitted = true;
    if !options.params_override_json.is_empty() {
        let read = Json::parse_field(&options.params_override_json);
        let Json::Object(overrides) = read.map_err(|error| wrong(error.to_string()))? else {
            return Err(wrong("params_override_json is no object".to_owned()));
        };
        let mut document = params_to_json(&params).map_err(|error| wrong(error.to_string()))?;
        if let Json::Object(document) = &mut document {
            document.extend(overrides);
            document.shift_remove(&Text::from("input"));
        }
        params = params_from_json(document).map_err(|error| wrong(error.to_string()))?;
    }
    let name_of = |one: &gymmesh_client::proto::responses::v1::Tool| match &one.kind {
        Some(tool::Kind::Function(function)) => function.name.clone(),
        _ => None,
    };
    let own: Vec<String> = session.tools.iter().filter_map(name_of).collect();
    params
        .tools
        .retain(|one| name_of(one).is_none_or(|name| !own.contains(&name)));
    params.tools.extend(session.tools.iter().cloned());
    params.tools_omitted &= params.tools.is_empty();
    Ok(params)
}
