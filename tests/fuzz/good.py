"""Good requests of each method, for others to spoil."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import Message

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.run.v1 import run_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_responses import new_message
from tests.fuzz.stock import Shop, Stock
from tests.fuzz.values import Values

_KINDS: Final = tuple(
    f"gymmesh.{noun}.v1.{noun.title()}Service" for noun in ("agent", "model", "resource")
)
_ANSWERS: Final = ("4", "A", "{}", "[1]", "\\boxed{4}", "SELECT 1", "```json\n{}\n```", "yes")


class Good:
    """Makes good requests with what the callers of a mesh know, or of one environment."""

    def __init__(self, stock: Stock, shop: Shop | None = None) -> None:
        self._stock = stock
        self._shop = shop

    def requests(self, values: Values, kind: type[Message]) -> list[Message]:
        """One request of a type, or a stream of them; an empty one where nothing is known."""
        make = _MAKERS.get(kind.DESCRIPTOR.name)
        made = make(self, values) if make is not None else kind()
        return made if isinstance(made, list) else [made]

    def task(self, values: Values) -> rollout_pb2.Task:
        """One of the example tasks."""
        return values.one(self._stock.tasks if self._shop is None else self._shop.tasks)

    def session(self, values: Values) -> str:
        """A session that is open, most likely."""
        shop = self._shop or values.one(list(self._stock.shops.values()))
        return values.one(shop.sessions)

    def create_session(self, values: Values) -> Message:
        return resource_pb2.CreateSessionRequest(task=self.task(values), request_id=_id(values))

    def call_tool(self, values: Values) -> Message:
        request = resource_pb2.CallToolRequest(
            session_id=self.session(values), name="none", request_id=_id(values), arguments=b"{}"
        )
        if self._shop is not None and self._shop.tools:
            tool = values.one(self._shop.tools)
            request.name = tool.name
            request.arguments = _arguments(values, tool)
        return request

    def next_turn(self, values: Values) -> Message:
        return resource_pb2.NextTurnRequest(
            session_id=self.session(values), new_items=_transcript(values), request_id=_id(values)
        )

    def play_episode(self, values: Values) -> Message:
        # Nothing listens there, so that nothing is played.
        endpoint = resource_pb2.ModelEndpoint(
            base_url="http://127.0.0.1:9/v1", key=_id(values), model="policy"
        )
        return resource_pb2.PlayEpisodeRequest(session_id=self.session(values), endpoint=endpoint)

    def close_session(self, values: Values) -> Message:
        return resource_pb2.CloseSessionRequest(session_id=self.session(values))

    def verify(self, values: Values) -> Message:
        return verify_pb2.VerifyRequest(
            session_id=self.session(values) if values.chance(0.5) else "",
            task=self.task(values),
            transcript=_transcript(values),
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )

    def verify_group(self, values: Values) -> Any:
        members = [
            verify_pb2.GroupMember(
                rollout_id=_id(values),
                transcript=_transcript(values),
                stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
            )
            for _ in range(2)
        ]
        return verify_pb2.VerifyGroupRequest(task=self.task(values), members=members)

    def run_rollout(self, values: Values) -> Any:
        return agent_pb2.RunRolloutRequest(
            task=self.task(values), rollout_id=_id(values), attempt=1, run_id="fuzz"
        )

    def judge_group(self, values: Values) -> Message:
        return agent_pb2.JudgeGroupRequest(group=self.verify_group(values))

    def collect(self, values: Values) -> list[Message]:
        start = agent_pb2.CollectStart(request=self.run_rollout(values), timeout_ms=10_000)
        said = start.request
        ref = agent_pb2.AttemptRef(rollout_id=said.rollout_id, attempt=1)
        kinds: list[dict[str, Any]] = [
            {"starts": agent_pb2.CollectStarts(starts=[start])},
            {"cancels": agent_pb2.CollectCancels(attempts=[ref])},
            {"credit": agent_pb2.CollectCredit(events=10)},
            {"ack": agent_pb2.CollectAck(cursor=1)},
        ]
        hello = agent_pb2.CollectHello(stream_id=_id(values), credit=100, contract_version="1.0")
        chosen = [values.one(kinds) for _ in range(values.random.randrange(4))]
        made = [agent_pb2.CollectRequest(**one) for one in chosen]
        return [agent_pb2.CollectRequest(hello=hello), *made]

    def create_response(self, values: Values) -> Any:
        request = model_pb2.CreateResponseRequest(
            params=self.task(values).params, rollout_id=_id(values), request_id=_id(values)
        )
        if values.chance(0.5):
            request.conversation.id = _id(values)
            request.call_id = _id(values)
        if values.chance(0.3):
            request.params.input.extend(_transcript(values))
        return request

    def stream_response(self, values: Values) -> Message:
        return model_pb2.StreamResponseRequest(call=self.create_response(values))

    def register(self, values: Values) -> Message:
        number = values.random.randrange(200)
        instance = discovery_pb2.Instance(
            id=f"fuzz-{number}",
            service=values.one(_KINDS),
            name=f"fuzz{number % 5}",
            address=f"127.0.0.1:{20_000 + number}",
            contract_version="1.0",
            meta={"a": "b"},
            metrics_address="127.0.0.1:9",
        )
        return discovery_pb2.RegisterRequest(instance=instance, lease_s=3)

    def control(self, values: Values) -> Message:
        request = run_pb2.ControlRunRequest(run_id=values.text("run_id"))
        commands: list[dict[str, Any]] = [
            {"pause": run_pb2.PauseRun()},
            {"resume": run_pb2.ResumeRun()},
            {"tune": run_pb2.TuneRun(concurrency=3)},
            {"cancel_group": run_pb2.CancelGroup(task_id="none")},
        ]
        request.MergeFrom(run_pb2.ControlRunRequest(**values.one(commands)))
        return request


_MAKERS: Final[Mapping[str, Callable[[Good, Values], Any]]] = {
    "CreateSessionRequest": Good.create_session,
    "CallToolRequest": Good.call_tool,
    "NextTurnRequest": Good.next_turn,
    "PlayEpisodeRequest": Good.play_episode,
    "CloseSessionRequest": Good.close_session,
    "VerifyRequest": Good.verify,
    "VerifyGroupRequest": Good.verify_group,
    "RunRolloutRequest": Good.run_rollout,
    "JudgeGroupRequest": Good.judge_group,
    "CollectRequest": Good.collect,
    "CreateResponseRequest": Good.create_response,
    "StreamResponseRequest": Good.stream_response,
    "RegisterRequest": Good.register,
    "ControlRunRequest": Good.control,
}


def _id(values: Values) -> str:
    return f"fuzz-{values.random.getrandbits(64):016x}"


def _transcript(values: Values) -> Sequence[responses_pb2.Item]:
    """What a model may have said: a call of a tool with its output, and words."""
    call = responses_pb2.FunctionCall(call_id="call_1", name="calculator", arguments=b'{"a": 1}')
    output = responses_pb2.FunctionCallOutput(call_id="call_1", text=b"2")
    calling = [
        responses_pb2.Item(function_call=call),
        responses_pb2.Item(function_call_output=output),
    ]
    said = new_message("assistant", values.one(_ANSWERS))
    return [*(calling if values.chance(0.5) else []), said]


def _arguments(values: Values, tool: responses_pb2.FunctionTool) -> bytes:
    """Arguments after the tool's schema, one level deep."""
    schema = json.loads(tool.parameters_json or b"{}")
    of = {"integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    made: dict[str, Any] = {}
    for name, about in (schema.get("properties") or {}).items():
        kind = about.get("type", "string") if isinstance(about, dict) else "string"
        if isinstance(about, dict) and about.get("enum"):
            made[name] = values.one(about["enum"])
        else:
            made[name] = of.get(kind, values.text()) if isinstance(kind, str) else values.text()
    document = values.changed_json(made) if values.chance(0.5) else made
    return json.dumps(document).encode()
