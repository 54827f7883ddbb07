//! An attempt's turns of the environment.

use gymmesh_client::dial::{answer, resource_client, within};
use gymmesh_client::proto::resource::v1::NextTurnRequest;
use gymmesh_client::proto::rollout::v1::rollout_event::Event;
use gymmesh_client::proto::rollout::v1::{Boundary, TurnCompleted};

use super::{Attempt, Step, failure};

impl Attempt {
    /// Gives the environment its turn; whether the episode is over.
    pub(super) async fn take_turn(&mut self) -> Step<bool> {
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
}
