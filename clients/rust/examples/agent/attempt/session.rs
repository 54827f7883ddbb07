//! How an attempt begins: its session, the parameters in force, and `started`.

use std::time::Duration;

use gymmesh_client::codec::{self, new_message};
use gymmesh_client::dial::{CONTRACT_VERSION, Channel, answer, resource_client, within};
use gymmesh_client::errors::MeshError;
use gymmesh_client::json::{Json, Text};
use gymmesh_client::proto::agent::v1::RolloutOptions;
use gymmesh_client::proto::resource::v1::{
    CloseSessionRequest, CreateSessionRequest, CreateSessionResponse, GetEnvironmentResponse,
};
use gymmesh_client::proto::responses::v1::{ResponseParams, Tool, tool};
use gymmesh_client::proto::rollout::v1::rollout_event::Event;
use gymmesh_client::proto::rollout::v1::{Boundary, Started, Task};

use super::{Attempt, Step, failure};
use crate::peers::RESOURCE;

const CLOSE: Duration = Duration::from_secs(5);

/// An open session; it is closed when this is dropped, beside whatever comes next.
pub(super) struct Session {
    pub(super) channel: Channel,
    pub(super) about: GetEnvironmentResponse,
    pub(super) opened: CreateSessionResponse,
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

impl Attempt {
    pub(super) async fn open(&mut self) -> Step<()> {
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
            agent: self.about.name.clone(),
            agent_instance_id: self.about.instance_id.clone(),
            ..CreateSessionRequest::default()
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

    pub(super) fn start(&mut self) {
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
            ..Default::default()
        };
        self.tell(Event::Started(started));
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
            return Err(wrong("params_override_json is not an object".to_owned()));
        };
        let mut document = codec::write(&params).map_err(|error| wrong(error.to_string()))?;
        if let Json::Object(document) = &mut document {
            document.extend(overrides);
            document.shift_remove(&Text::from("input"));
        }
        params = codec::read(document).map_err(|error| wrong(error.to_string()))?;
    }
    let name_of = |one: &Tool| match &one.kind {
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
