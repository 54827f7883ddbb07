//! The agent service: what it is, single attempts, and groups.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use gymmesh_client::dial::{answer, verify_client, within};
use gymmesh_client::errors::MeshError;
use gymmesh_client::json::Json;
use gymmesh_client::proto::agent::v1::agent_service_server::AgentService;
use gymmesh_client::proto::agent::v1::{
    CollectRequest, CollectResponse, GetAgentRequest, GetAgentResponse, JudgeGroupRequest,
    JudgeGroupResponse, RunRolloutRequest, RunRolloutResponse,
};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::attempt::{Attempt, Sink, check_verdict};
use crate::collecting::Streams;
use crate::peers::{Peers, RESOURCE};

pub const NAME: &str = "gymmesh.agent.v1.AgentService";
// Kept back of a deadline, so that the last events arrive.
const MARGIN: Duration = Duration::from_millis(150);
const GROUP: Duration = Duration::from_secs(600);
const LONGEST_NAME: usize = 512;

/// An attempt: the rollout's id and the attempt's number.
pub type Key = (String, u32);

/// What all calls share.
pub struct Shared {
    pub peers: Arc<Peers>,
    pub about: Arc<GetAgentResponse>,
    pub places: Arc<Semaphore>,
    pub draining: watch::Sender<bool>,
    running: Mutex<HashSet<Key>>,
}

/// An attempt is known for as long as this lives.
pub struct Running {
    shared: Arc<Shared>,
    key: Key,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self
            .shared
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.key);
    }
}

impl Shared {
    pub fn new(peers: Arc<Peers>, about: GetAgentResponse) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(about.capacity as usize));
        let (draining, running) = (watch::Sender::new(false), Mutex::default());
        Arc::new(Self {
            peers,
            about: Arc::new(about),
            places,
            draining,
            running,
        })
    }

    pub fn is_idle(&self) -> bool {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    /// Takes a request, or says what is wrong with it.
    pub fn accept(
        self: &Arc<Self>,
        request: &RunRolloutRequest,
        method: &str,
    ) -> Result<Running, MeshError> {
        if *self.draining.borrow() {
            return Err(MeshError::new("DRAINING", "the agent is going down", &[]));
        }
        let missing = |field: &str| {
            let metadata = [("field", field), ("method", method)];
            MeshError::new(
                "REQUIRED_FIELD_MISSING",
                format!("{field} is not set"),
                &metadata,
            )
        };
        let task = request.task.as_ref().ok_or_else(|| missing("task"))?;
        for (field, value) in [
            ("rollout_id", &request.rollout_id),
            ("task.environment", &task.environment),
        ] {
            if value.is_empty() {
                return Err(missing(field));
            }
        }
        for (field, value) in [
            ("rollout_id", &request.rollout_id),
            ("run_id", &request.run_id),
            ("task.environment", &task.environment),
            ("task.agent", &task.agent),
        ] {
            if value.chars().count() > LONGEST_NAME || value.chars().any(char::is_control) {
                let metadata = [("field", field), ("method", method)];
                return Err(MeshError::new(
                    "FIELD_INVALID",
                    format!("{field} is not a name"),
                    &metadata,
                ));
            }
        }
        if !task.agent.is_empty() && task.agent != self.about.name {
            let sentence = format!("this agent is {:?}", self.about.name);
            let metadata = [("service", NAME), ("name", task.agent.as_str())];
            return Err(MeshError::new("SERVICE_NOT_FOUND", sentence, &metadata));
        }
        let options = request.options.clone().unwrap_or_default();
        let overrides = &options.params_override_json;
        if !overrides.is_empty() && !matches!(Json::parse_field(overrides), Ok(Json::Object(_))) {
            let metadata = [
                ("field", "options.params_override_json"),
                ("method", method),
            ];
            return Err(MeshError::new(
                "FIELD_INVALID",
                "it is no JSON object",
                &metadata,
            ));
        }
        let key = (request.rollout_id.clone(), request.attempt.max(1));
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if !running.insert(key.clone()) {
            let attempt = key.1.to_string();
            let metadata = [
                ("rollout_id", key.0.as_str()),
                ("attempt", attempt.as_str()),
            ];
            return Err(MeshError::new(
                "ROLLOUT_EXISTS",
                "it is running here already",
                &metadata,
            ));
        }
        Ok(Running {
            shared: self.clone(),
            key,
        })
    }

    pub fn attempt(&self, request: RunRolloutRequest, emit: Sink) -> Attempt {
        Attempt::new(self.peers.clone(), self.about.clone(), request, emit)
    }
}

/// Gives the errors that tonic makes by itself a reason of the contract.
pub fn with_reason(response: http::Response<Body>) -> http::Response<Body> {
    let Some(status) = Status::from_header_map(response.headers()) else {
        return response;
    };
    let said = status.message();
    let reason = match status.code() {
        Code::Ok => return response,
        _ if !status.details().is_empty() => return response,
        Code::Internal if said.starts_with("failed to decode") => "FIELD_INVALID",
        Code::OutOfRange | Code::ResourceExhausted => "MESSAGE_TOO_LARGE",
        Code::Unimplemented => "NOT_OFFERED",
        _ => return response,
    };
    MeshError::new(reason, said, &[]).to_status().into_http()
}

/// What is left of a call's time, by its `grpc-timeout`.
fn time_left<T>(request: &Request<T>) -> Option<Duration> {
    let said = request.metadata().get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = said.split_at_checked(said.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count.saturating_mul(3600)),
        "M" => Duration::from_secs(count.saturating_mul(60)),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// The events of an attempt, which is stopped when nobody reads them any more.
pub struct Events {
    events: mpsc::UnboundedReceiver<RunRolloutResponse>,
    attempt: JoinHandle<()>,
    _cancel: oneshot::Sender<()>,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.attempt.abort();
    }
}

impl Stream for Events {
    type Item = Result<RunRolloutResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context).map(|event| event.map(Ok))
    }
}

pub struct Agent {
    shared: Arc<Shared>,
    streams: Arc<Streams>,
}

impl Agent {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            streams: Streams::new(shared.clone()),
            shared,
        }
    }
}

#[tonic::async_trait]
impl AgentService for Agent {
    type RunRolloutStream = Events;
    type CollectStream = ReceiverStream<Result<CollectResponse, Status>>;

    async fn run_rollout(
        &self,
        request: Request<RunRolloutRequest>,
    ) -> Result<Response<Events>, Status> {
        let left = time_left(&request);
        let deadline = left.map(|left| left.saturating_sub(MARGIN.max(left / 20)));
        let request = request.into_inner();
        let method = format!("{NAME}/RunRollout");
        let running = self
            .shared
            .accept(&request, &method)
            .map_err(|error| error.to_status())?;
        let (send, events) = mpsc::unbounded_channel();
        let emit: Sink = Box::new(move |event| {
            let _ = send.send(RunRolloutResponse { event: Some(event) });
        });
        let attempt = self.shared.attempt(request, emit);
        let (cancel, cancelled) = oneshot::channel();
        let attempt = tokio::spawn(async move {
            attempt.run(deadline, cancelled).await;
            drop(running);
        });
        Ok(Response::new(Events {
            events,
            attempt,
            _cancel: cancel,
        }))
    }

    async fn collect(
        &self,
        request: Request<Streaming<CollectRequest>>,
    ) -> Result<Response<Self::CollectStream>, Status> {
        let (send, responses) = mpsc::channel(16);
        let streams = self.streams.clone();
        tokio::spawn(async move { streams.serve(request.into_inner(), send).await });
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    async fn judge_group(
        &self,
        request: Request<JudgeGroupRequest>,
    ) -> Result<Response<JudgeGroupResponse>, Status> {
        let limit = time_left(&request).unwrap_or(GROUP);
        let judged = self.judge(request.into_inner(), limit).await;
        judged.map(Response::new).map_err(|error| error.to_status())
    }

    async fn get_agent(
        &self,
        _: Request<GetAgentRequest>,
    ) -> Result<Response<GetAgentResponse>, Status> {
        Ok(Response::new((*self.shared.about).clone()))
    }
}

impl Agent {
    async fn judge(
        &self,
        request: JudgeGroupRequest,
        limit: Duration,
    ) -> Result<JudgeGroupResponse, MeshError> {
        let method = format!("{NAME}/JudgeGroup");
        let missing = |field: &str| {
            let metadata = [("field", field), ("method", method.as_str())];
            MeshError::new(
                "REQUIRED_FIELD_MISSING",
                format!("{field} is not set"),
                &metadata,
            )
        };
        let group = request.group.ok_or_else(|| missing("group"))?;
        let task = group.task.as_ref().ok_or_else(|| missing("group.task"))?;
        if group.members.is_empty() {
            return Err(missing("group.members"));
        }
        if task.environment.is_empty() {
            return Err(missing("group.task.environment"));
        }
        let instance = self.shared.peers.find(RESOURCE, &task.environment).await?;
        let mut client = verify_client(self.shared.peers.channel(&instance.address)?);
        let members: Vec<String> = group
            .members
            .iter()
            .map(|one| one.rollout_id.clone())
            .collect();
        let said = answer(limit, client.verify_group(within(limit, group))).await?;
        let judged: Vec<&String> = said.verdicts.iter().map(|one| &one.rollout_id).collect();
        if judged != members.iter().collect::<Vec<_>>() {
            let sentence = "the verdicts are not those of the members, in order";
            return Err(MeshError::new(
                "CONTRACT_VIOLATED",
                sentence,
                &[("rule", "group")],
            ));
        }
        for verdict in &said.verdicts {
            check_verdict(&verdict.verification.clone().unwrap_or_default())?;
        }
        Ok(JudgeGroupResponse {
            verdicts: said.verdicts,
        })
    }
}
