//! An attempt's model calls: the answer, its tokens and its weights.

use std::time::Instant;

use gymmesh_client::dial::{answer, model_client, within};
use gymmesh_client::errors::MeshError;
use gymmesh_client::proto::model::v1::{CreateResponseRequest, GetModelRequest, TokenCapture};
use gymmesh_client::proto::responses::v1::Response;
use gymmesh_client::proto::rollout::v1::rollout_event::Event;
use gymmesh_client::proto::rollout::v1::{Boundary, CallTimings, ModelCallCompleted, StopReason};

use super::{Attempt, Step, failure, micros};
use crate::peers::MODEL;

const ROLE: &str = "policy";

impl Attempt {
    /// The model service that it calls.
    fn model_name(&self) -> String {
        let chosen = self.options.models.get(ROLE).cloned();
        chosen.unwrap_or_else(|| ROLE.to_owned())
    }

    /// The model's answer; None: the conversation is longer than its context.
    pub(super) async fn call_model(&mut self) -> Step<Option<Response>> {
        let model = self.model_name();
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
            capture: self.options.capture.clone(),
            call_id: call_id.clone(),
            seed: self.task.seed,
            ..Default::default()
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
            retries: said.retries,
            timings: Some(CallTimings {
                queue_us: said.queue_us,
                total_us: micros(sent),
                endpoint_us: said.endpoint_us,
                retry_us: said.retry_us,
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
    pub(super) async fn check_weights(&mut self) -> Step<()> {
        if self.options.max_staleness.is_none() || self.weights.is_none() {
            return Ok(());
        }
        let model = self.model_name();
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
}

/// Why an answer was cut short; None: it was not.
pub(super) fn cut_short(response: &Response) -> Option<StopReason> {
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
