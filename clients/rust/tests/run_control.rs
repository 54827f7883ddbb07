//! Run control, over real gRPC on loopback.

use std::time::Duration;

use gymmesh_client::dial::dial_address;
use gymmesh_client::errors::MeshError;
use gymmesh_client::proto::run::v1::control_run_request::Command;
use gymmesh_client::proto::run::v1::run_service_server::{RunService, RunServiceServer};
use gymmesh_client::proto::run::v1::{
    AcknowledgeGroupsRequest, AcknowledgeGroupsResponse, CancelRun, ControlRunRequest,
    ControlRunResponse, DrainRun, GetRunRequest, GetRunResponse, ListRunsRequest, ListRunsResponse,
    PauseRun, ResumeRun, Run, RunState, StreamGroupsRequest, StreamGroupsResponse, TuneRun,
};
use gymmesh_client::run_control::RunControl;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

struct Runs;

fn check<T>(request: Request<T>) -> Result<T, Status> {
    let metadata = request.metadata();
    if metadata
        .get("authorization")
        .is_none_or(|said| said != "Bearer secret")
    {
        return Err(MeshError::new("CREDENTIAL_INVALID", "who?", &[]).to_status());
    }
    assert!(
        metadata.contains_key("grpc-timeout"),
        "a call without a deadline"
    );
    Ok(request.into_inner())
}

fn run(run_id: &str, state: RunState, concurrency: u32) -> Option<Run> {
    let state = state.into();
    Some(Run {
        run_id: run_id.to_owned(),
        state,
        concurrency,
        ..Default::default()
    })
}

#[tonic::async_trait]
impl RunService for Runs {
    type StreamGroupsStream =
        tokio_stream::Iter<std::vec::IntoIter<Result<StreamGroupsResponse, Status>>>;

    async fn list_runs(
        &self,
        request: Request<ListRunsRequest>,
    ) -> Result<Response<ListRunsResponse>, Status> {
        let page = check(request)?.page_token;
        let (run_id, next) = if page.is_empty() {
            ("r2", "1")
        } else {
            ("r1", "")
        };
        let runs = run(run_id, RunState::Running, 8).into_iter().collect();
        Ok(Response::new(ListRunsResponse {
            runs,
            next_page_token: next.to_owned(),
        }))
    }

    async fn get_run(
        &self,
        request: Request<GetRunRequest>,
    ) -> Result<Response<GetRunResponse>, Status> {
        let run_id = check(request)?.run_id;
        let metadata = [("run_id", run_id.as_str())];
        Err(MeshError::new("RUN_NOT_FOUND", "no such run", &metadata).to_status())
    }

    async fn control_run(
        &self,
        request: Request<ControlRunRequest>,
    ) -> Result<Response<ControlRunResponse>, Status> {
        let request = check(request)?;
        let (state, concurrency) = match request.command {
            Some(Command::Pause(_)) => (RunState::Paused, 8),
            Some(Command::Drain(_)) => (RunState::Draining, 8),
            Some(Command::Cancel(_)) => (RunState::Stopped, 8),
            Some(Command::Tune(tune)) => (RunState::Running, tune.concurrency.unwrap_or(8)),
            _ => (RunState::Running, 8),
        };
        Ok(Response::new(ControlRunResponse {
            run: run(&request.run_id, state, concurrency),
        }))
    }

    async fn stream_groups(
        &self,
        request: Request<StreamGroupsRequest>,
    ) -> Result<Response<Self::StreamGroupsStream>, Status> {
        let after = check(request)?.after_cursor;
        let group = StreamGroupsResponse {
            cursor: after + 1,
            ..Default::default()
        };
        Ok(Response::new(tokio_stream::iter(vec![Ok(group)])))
    }

    async fn acknowledge_groups(
        &self,
        request: Request<AcknowledgeGroupsRequest>,
    ) -> Result<Response<AcknowledgeGroupsResponse>, Status> {
        check(request)?;
        Ok(Response::new(AcknowledgeGroupsResponse::default()))
    }
}

async fn control(token: &str) -> RunControl {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = Server::builder().add_service(RunServiceServer::new(Runs));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    RunControl::new(dial_address(&address).expect("an address"), token).expect("a token")
}

#[tokio::test]
async fn commands_are_shown_the_token() {
    let control = control("secret").await;
    let runs = control.runs().await.expect("both pages");
    assert_eq!(
        runs.iter()
            .map(|run| run.run_id.as_str())
            .collect::<Vec<_>>(),
        ["r2", "r1"]
    );
    for (command, state, concurrency) in [
        (Command::Pause(PauseRun {}), RunState::Paused, 8),
        (Command::Resume(ResumeRun {}), RunState::Running, 8),
        (Command::Drain(DrainRun {}), RunState::Draining, 8),
        (Command::Cancel(CancelRun {}), RunState::Stopped, 8),
        (
            Command::Tune(TuneRun {
                concurrency: Some(3),
            }),
            RunState::Running,
            3,
        ),
    ] {
        let run = control.control("r1", command).await.expect("a run");
        assert_eq!((run.state(), run.concurrency), (state, concurrency));
    }
    let request = StreamGroupsRequest {
        run_id: "r1".into(),
        after_cursor: 4,
        ..Default::default()
    };
    let mut groups = control
        .groups(request, Duration::from_secs(30))
        .await
        .expect("groups");
    assert_eq!(
        groups
            .message()
            .await
            .expect("a group")
            .expect("a group")
            .cursor,
        5
    );
}

#[tokio::test]
async fn errors_have_their_reasons() {
    let missing = control("secret")
        .await
        .run("r9")
        .await
        .expect_err("no such run");
    assert_eq!(missing.reason, "RUN_NOT_FOUND");
    assert_eq!(missing.metadata["run_id"], "r9");
    let stranger = control("guess")
        .await
        .runs()
        .await
        .expect_err("another token");
    assert_eq!(stranger.reason, "CREDENTIAL_INVALID");
    let channel = dial_address("127.0.0.1:1").expect("an address");
    assert!(RunControl::new(channel, "line\nbreak").is_err());
}
