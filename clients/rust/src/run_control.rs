//! Run control: a collector's runs, seen and steered from outside.

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};

use crate::dial::{Channel, MAX_MESSAGE_BYTES, answer, within};
use crate::errors::MeshError;
use crate::proto::run::v1::control_run_request::Command;
use crate::proto::run::v1::run_service_client::RunServiceClient;
use crate::proto::run::v1::{
    ControlRunRequest, GetRunRequest, ListRunsRequest, Run, StreamGroupsRequest,
    StreamGroupsResponse,
};

const CALL: Duration = Duration::from_secs(30);

/// A client of a collector's RunService; it shows the collector's token on every call.
#[derive(Clone, Debug)]
pub struct RunControl {
    client: RunServiceClient<Channel>,
    bearer: MetadataValue<Ascii>,
}

impl RunControl {
    /// A client for a channel; `token` is the collector's.
    ///
    /// # Errors
    /// The token is not valid in a header.
    pub fn new(channel: Channel, token: &str) -> Result<Self, MeshError> {
        let unfit = |_| MeshError::new("CREDENTIAL_INVALID", "the token is not printable", &[]);
        let mut bearer: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(unfit)?;
        bearer.set_sensitive(true);
        let client = RunServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self { client, bearer })
    }

    fn request<T>(&self, limit: Duration, message: T) -> tonic::Request<T> {
        let mut request = within(limit, message);
        request
            .metadata_mut()
            .insert("authorization", self.bearer.clone());
        request
    }

    /// The collector's runs, newest first.
    ///
    /// # Errors
    /// The call failed.
    pub async fn runs(&self) -> Result<Vec<Run>, MeshError> {
        let mut runs = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = self.request(
                CALL,
                ListRunsRequest {
                    page_size: 0,
                    page_token,
                },
            );
            let page = answer(CALL, self.client.clone().list_runs(request)).await?;
            runs.extend(page.runs);
            if page.next_page_token.is_empty() {
                return Ok(runs);
            }
            page_token = page.next_page_token;
        }
    }

    /// One run.
    ///
    /// # Errors
    /// The call failed; RUN_NOT_FOUND.
    pub async fn run(&self, run_id: &str) -> Result<Run, MeshError> {
        let request = self.request(
            CALL,
            GetRunRequest {
                run_id: run_id.to_owned(),
            },
        );
        let found = answer(CALL, self.client.clone().get_run(request)).await?;
        Ok(found.run.unwrap_or_default())
    }

    /// Gives a run a command, such as `Command::Pause(PauseRun {})`; returns the run afterwards.
    ///
    /// # Errors
    /// The call failed; RUN_STATE.
    pub async fn control(&self, run_id: &str, command: Command) -> Result<Run, MeshError> {
        let message = ControlRunRequest {
            run_id: run_id.to_owned(),
            command: Some(command),
        };
        let request = self.request(CALL, message);
        let done = answer(CALL, self.client.clone().control_run(request)).await?;
        Ok(done.run.unwrap_or_default())
    }

    /// Finished groups as they complete, for at most `limit`; what was not acknowledged by
    /// `after_cursor` comes again on a new stream.
    ///
    /// # Errors
    /// The call failed.
    pub async fn groups(
        &self,
        request: StreamGroupsRequest,
        limit: Duration,
    ) -> Result<tonic::Streaming<StreamGroupsResponse>, MeshError> {
        let request = self.request(limit, request);
        answer(limit, self.client.clone().stream_groups(request)).await
    }
}
