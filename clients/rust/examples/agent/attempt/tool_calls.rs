//! An attempt's tool calls.

use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream;
use gymmesh_client::dial::{answer, resource_client, within};
use gymmesh_client::proto::resource::v1::{CallToolRequest, call_tool_response};
use gymmesh_client::proto::responses::v1::{
    FunctionCall, FunctionCallOutput, Item, function_call_output, item,
};
use gymmesh_client::proto::rollout::v1::rollout_event::Event;
use gymmesh_client::proto::rollout::v1::{
    Boundary, CallTimings, ToolCallCompleted, ToolCallStarted,
};

use super::{Attempt, Step, failure, micros};

impl Attempt {
    /// Runs the tool calls of one answer, side by side where the session permits it; whether the
    /// episode is over.
    pub(super) async fn call_tools(&mut self, calls: Vec<FunctionCall>) -> Step<bool> {
        let Some(session) = &self.session else {
            return Ok(false);
        };
        let (channel, session_id) = (session.channel.clone(), session.opened.session_id.clone());
        let at_once = if session.opened.tools_in_order {
            1
        } else {
            calls.len().max(1)
        };
        let mut to_make = Vec::new();
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
            to_make.push(async move {
                let sent = Instant::now();
                let said = answer(limit, client.call_tool(within(limit, request))).await;
                (place, call_id, name, micros(sent), said)
            });
        }
        let mut waiting = stream::iter(to_make).buffer_unordered(at_once);
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
                reward: said.reward,
            }));
            outputs.push((place, output));
        }
        outputs.sort_by_key(|(place, _)| *place);
        self.items
            .extend(outputs.into_iter().map(|(_, output)| output));
        Ok(done)
    }
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
