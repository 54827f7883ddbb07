//! An agent that does as a test says, over real gRPC on loopback.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::Stream;
use gymmesh_client::dial::{Channel, dial_address};
use gymmesh_client::errors::MeshError;
use gymmesh_client::proto::agent::v1::agent_service_server::{AgentService, AgentServiceServer};
use gymmesh_client::proto::agent::v1::collect_request::Message as Up;
use gymmesh_client::proto::agent::v1::collect_response::Message as Down;
use gymmesh_client::proto::agent::v1::{
    AttemptRef, CollectEvents, CollectRequest, CollectResponse, CollectStartRefused,
    CollectWelcome, GetAgentRequest, GetAgentResponse, JudgeGroupRequest, JudgeGroupResponse,
    RunRolloutRequest, RunRolloutResponse,
};
use gymmesh_client::proto::rollout::v1::rollout_event::Event;
use gymmesh_client::proto::rollout::v1::{
    Boundary, Completed, Failed, RolloutEvent, Started, StopReason, Verification,
    VerificationStatus, Verified,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

/// What becomes of an attempt.
#[derive(Clone)]
pub enum Fate {
    Completes,
    Fails(MeshError),
    IsRefused(MeshError),
    SkipsAnEvent,
    NeverEnds,
}

/// What the agent does.
pub struct Script {
    pub collects: bool,
    /// After so many events, a connection breaks; one for each connection.
    pub cuts: Vec<usize>,
    /// The stream is lost with the first connection.
    pub forgets: bool,
    /// Each connection is to another instance, none of which knows of the others' attempts.
    pub moves: bool,
    pub fate: fn(&RunRolloutRequest) -> Fate,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            collects: true,
            cuts: Vec::new(),
            forgets: false,
            moves: false,
            fate: |_| Fate::Completes,
        }
    }
}

/// What the agent was asked for.
#[derive(Default)]
pub struct Seen {
    pub starts: Vec<RunRolloutRequest>,
    pub refused: Vec<RunRolloutRequest>,
    pub timeouts_ms: Vec<u64>,
    pub cancels: Vec<AttemptRef>,
    pub hellos: Vec<(String, u64)>,
    pub acknowledged: u64,
}

pub struct FakeAgent {
    script: Script,
    pub seen: Mutex<Seen>,
    /// The events of the stream, whatever its connections do.
    kept: Mutex<Vec<RolloutEvent>>,
}

/// Serves a script; the channel to it, and what it saw.
pub async fn serve(script: Script) -> (Channel, Arc<FakeAgent>) {
    let agent = Arc::new(FakeAgent {
        script,
        seen: Mutex::default(),
        kept: Mutex::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let service = AgentServiceServer::new(Served(agent.clone()));
    let server = Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (dial_address(&address).expect("an address"), agent)
}

fn events_of(request: &RunRolloutRequest, fate: &Fate) -> Vec<RolloutEvent> {
    let verification = Verification {
        status: VerificationStatus::Verified.into(),
        reward: Some(1.0),
        ..Default::default()
    };
    let verified = Event::Verified(Verified {
        verification: Some(verification),
        ..Default::default()
    });
    let completed = |events| {
        Event::Completed(Completed {
            stop_reason: StopReason::ModelFinished.into(),
            events,
            ..Default::default()
        })
    };
    let started = Event::Started(Started::default());
    let events = match fate {
        Fate::Completes => vec![(1, started), (2, verified), (3, completed(3))],
        Fate::SkipsAnEvent => vec![(1, started), (3, verified), (4, completed(4))],
        Fate::Fails(error) => {
            let failure = Some(error.to_failure(Boundary::Tool, "hammer"));
            vec![
                (1, started),
                (
                    2,
                    Event::Failed(Failed {
                        failure,
                        events: 2,
                        ..Default::default()
                    }),
                ),
            ]
        }
        Fate::NeverEnds => vec![(1, started)],
        Fate::IsRefused(_) => Vec::new(),
    };
    let event = |(sequence, event)| RolloutEvent {
        rollout_id: request.rollout_id.clone(),
        attempt: request.attempt,
        sequence,
        event: Some(event),
        ..Default::default()
    };
    events.into_iter().map(event).collect()
}

type Reply = mpsc::Sender<Result<CollectResponse, Status>>;

async fn say(reply: &Reply, message: Down) {
    let _ = reply
        .send(Ok(CollectResponse {
            message: Some(message),
        }))
        .await;
}

impl FakeAgent {
    async fn converse(&self, mut requests: Streaming<CollectRequest>, reply: Reply) {
        let Ok(Some(CollectRequest {
            message: Some(Up::Hello(hello)),
        })) = requests.message().await
        else {
            return;
        };
        let connection = {
            let mut seen = self.seen.lock().expect("no test failed");
            seen.hellos.push((hello.stream_id, hello.last_cursor));
            seen.hellos.len()
        };
        let lost = self.script.forgets && connection > 1;
        if lost || self.script.moves {
            self.kept.lock().expect("no test failed").clear();
        }
        let welcome = CollectWelcome {
            resumed: !lost,
            capacity: 8,
            instance_id: match self.script.moves {
                true => format!("fake-{connection}"),
                false => "fake".into(),
            },
            contract_version: "1.7".into(),
            ..Default::default()
        };
        say(&reply, Down::Welcome(welcome)).await;
        let mut sent = if lost { 0 } else { hello.last_cursor as usize };
        let mut left = self
            .script
            .cuts
            .get(connection - 1)
            .copied()
            .unwrap_or(usize::MAX);
        loop {
            let next = self.kept.lock().expect("no test failed").get(sent).cloned();
            if let Some(event) = next {
                if left == 0 {
                    let _ = reply.send(Err(Status::unavailable("cut"))).await;
                    return;
                }
                (left, sent) = (left - 1, sent + 1);
                let batch = CollectEvents {
                    cursor: sent as u64,
                    events: vec![event],
                };
                say(&reply, Down::Events(batch)).await;
                continue;
            }
            let Ok(Some(request)) = requests.message().await else {
                return;
            };
            self.hear(request, &reply).await;
        }
    }

    async fn hear(&self, request: CollectRequest, reply: &Reply) {
        match request.message {
            Some(Up::Starts(starts)) => {
                for start in starts.starts {
                    let request = start.request.expect("a request");
                    let fate = (self.script.fate)(&request);
                    if let Fate::IsRefused(error) = &fate {
                        let attempts = vec![AttemptRef {
                            rollout_id: request.rollout_id.clone(),
                            attempt: request.attempt,
                        }];
                        let refused = CollectStartRefused {
                            attempts,
                            status: Some(error.to_rpc()),
                        };
                        say(reply, Down::StartRefused(refused)).await;
                        self.seen
                            .lock()
                            .expect("no test failed")
                            .refused
                            .push(request);
                        continue;
                    }
                    let mut seen = self.seen.lock().expect("no test failed");
                    let anew = self.script.forgets || self.script.moves;
                    let again = seen.starts.contains(&request) && !anew;
                    if !again {
                        self.kept
                            .lock()
                            .expect("no test failed")
                            .extend(events_of(&request, &fate));
                    }
                    seen.timeouts_ms.push(start.timeout_ms);
                    seen.starts.push(request);
                }
            }
            Some(Up::Cancels(cancels)) => {
                self.seen
                    .lock()
                    .expect("no test failed")
                    .cancels
                    .extend(cancels.attempts);
            }
            Some(Up::Ack(ack)) => {
                self.seen.lock().expect("no test failed").acknowledged = ack.cursor;
            }
            _ => {}
        }
    }

    /// How many attempts each rollout had.
    pub fn attempts(&self) -> HashMap<String, u32> {
        let seen = self.seen.lock().expect("no test failed");
        let mut attempts = HashMap::new();
        for start in &seen.starts {
            let most = attempts.entry(start.rollout_id.clone()).or_insert(0);
            *most = start.attempt.max(*most);
        }
        attempts
    }
}

/// The agent as it is served.
struct Served(Arc<FakeAgent>);

#[tonic::async_trait]
impl AgentService for Served {
    type RunRolloutStream =
        Pin<Box<dyn Stream<Item = Result<RunRolloutResponse, Status>> + Send + 'static>>;
    type CollectStream = ReceiverStream<Result<CollectResponse, Status>>;

    async fn run_rollout(
        &self,
        request: Request<RunRolloutRequest>,
    ) -> Result<Response<Self::RunRolloutStream>, Status> {
        let request = request.into_inner();
        let events = events_of(&request, &(self.0.script.fate)(&request));
        self.0
            .seen
            .lock()
            .expect("no test failed")
            .starts
            .push(request);
        let responses = events
            .into_iter()
            .map(|event| Ok(RunRolloutResponse { event: Some(event) }));
        Ok(Response::new(Box::pin(tokio_stream::iter(
            responses.collect::<Vec<_>>(),
        ))))
    }

    async fn collect(
        &self,
        request: Request<Streaming<CollectRequest>>,
    ) -> Result<Response<Self::CollectStream>, Status> {
        let (reply, responses) = mpsc::channel(64);
        let requests = request.into_inner();
        let agent = self.0.clone();
        tokio::spawn(async move { agent.converse(requests, reply).await });
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    async fn judge_group(
        &self,
        _: Request<JudgeGroupRequest>,
    ) -> Result<Response<JudgeGroupResponse>, Status> {
        Err(MeshError::new("NOT_OFFERED", "no", &[]).to_status())
    }

    async fn get_agent(
        &self,
        _: Request<GetAgentRequest>,
    ) -> Result<Response<GetAgentResponse>, Status> {
        let collect = self.0.script.collects;
        Ok(Response::new(GetAgentResponse {
            name: "fake".into(),
            collect,
            ..Default::default()
        }))
    }
}
