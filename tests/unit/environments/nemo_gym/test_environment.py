"""The nemo_gym environment against a server that follows NeMo Gym's HTTP API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.nemo_gym import NemoGymEnvironment
from gymmesh_resource.registry import example_tasks
from gymmesh_responses import function_call_output, item_from_json, new_message, params_from_json
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.nemo_gym.nemo_server import COOKIE, Counter, NemoServer, serving
from tests.unit.resource.served import Served, served

OK = rollout_pb2.TOOL_OUTCOME_OK
ERROR = rollout_pb2.TOOL_OUTCOME_TOOL_ERROR
UNKNOWN = rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL
TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
    for name in ("increment_counter", "get_counter_value", "not_there", "break_down")
]


def row(*, tools: Any = TOOLS, **payload: Any) -> rollout_pb2.Task:
    params = {"input": [{"role": "user", "content": "count"}], "tools": tools}
    return rollout_pb2.Task(
        task_id="t",
        environment="e",
        params=params_from_json(params),
        payload_json=json.dumps(payload).encode(),
    )


def counting(**payload: Any) -> rollout_pb2.Task:
    return row(**({"initial_count": 3, "expected_count": 6} | payload))


def answered(text: str = "6") -> list[responses_pb2.Item]:
    return [new_message("assistant", text)]


@asynccontextmanager
async def bridged(server: NemoServer, **config: Any) -> AsyncIterator[Served]:
    options = config.pop("options", {})
    async with serving(server.app) as url:
        environment = NemoGymEnvironment(url=url, **options)
        async with served(environment, **config) as mesh:
            yield mesh


async def fails(awaited: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await awaited
    return caught.value


async def test_a_session_keeps_its_cookies_from_seed_to_verdict() -> None:
    server = Counter()
    async with bridged(server) as mesh:
        task = counting()
        session = (await mesh.create(task)).session_id
        first = await mesh.call(session, "increment_counter", {"count": 1})
        assert (first.outcome, json.loads(first.text)) == (OK, {"success": True})
        await mesh.call(session, "increment_counter", {"count": 2})
        value = await mesh.call(session, "get_counter_value")
        assert json.loads(value.text) == {"count": 6}
        verdict = await mesh.verify(session, task, answered())
    assert verdict.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    assert verdict.reward == 1.0
    assert len(set(server.sessions)) == 1


async def test_sessions_side_by_side_do_not_share_cookies() -> None:
    server = Counter()
    async with bridged(server) as mesh:
        task = counting()
        one, other = (await mesh.create(task)).session_id, (await mesh.create(task)).session_id
        await mesh.call(one, "increment_counter", {"count": 3})
        await mesh.call(other, "increment_counter", {"count": 100})
        right = await mesh.verify(one, task, answered())
        wrong = await mesh.verify(other, task, answered())
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert len(server.counters) == 2


async def test_the_seed_request_is_the_whole_row() -> None:
    server = Counter()
    async with bridged(server) as mesh:
        await mesh.create(counting(extra={"a": [1, 2.5, None]}))
    path, body = server.requests[0]
    assert path == "/seed_session"
    assert body["initial_count"] == 3
    assert body["extra"] == {"a": [1, 2.5, None]}
    assert body["responses_create_params"]["tools"] == TOOLS


async def test_keys_that_are_read_here_are_the_servers_too_but_not_a_made_up_id() -> None:
    server = Counter()
    async with bridged(server) as mesh:
        task = counting()
        task.task_id, task.seed = "mine", 5
        task.tags["kind"] = "k"
        await mesh.create(task)
        bare = counting()
        bare.task_id = f"t-{'0a' * 16}-2"
        await mesh.create(bare)
    (_, own), (_, made_up) = server.requests
    assert (own["task_id"], own["seed"], own["tags"]) == ("mine", 5, {"kind": "k"})
    assert not {"task_id", "seed", "tags"} & set(made_up)


async def test_an_http_error_of_a_tool_is_shown_to_the_model_as_the_server_wrote_it() -> None:
    class Breaking(Counter):
        def tools(self) -> dict[str, Any]:
            return super().tools() | {"break_down": self._break}

        def _break(self, session: str, body: Any) -> Any:
            raise ValueError("no such thing")

    async with bridged(Breaking()) as mesh:
        session = (await mesh.create(counting())).session_id
        bad = await mesh.call(session, "increment_counter", {"cuont": 1})
        missing = await mesh.call(session, "not_there")
        broken = await mesh.call(session, "break_down")
    assert (bad.outcome, missing.outcome, broken.outcome) == (ERROR, ERROR, ERROR)
    assert json.loads(bad.text)["detail"][0]["loc"] == ["body", "count"]
    assert json.loads(missing.text) == {"detail": "Not Found"}
    assert json.loads(broken.text) == "ValueError('no such thing')"


@pytest.mark.parametrize("name", ["verify", "seed_session", "../verify", "hack"])
async def test_only_the_rows_own_tools_can_be_called(name: str) -> None:
    server = Counter()
    async with bridged(server) as mesh:
        session = (await mesh.create(counting())).session_id
        before = len(server.requests)
        assert (await mesh.call(session, name)).outcome == UNKNOWN
    assert len(server.requests) == before


@pytest.mark.parametrize(
    "name",
    [
        "verify",
        "seed_session",
        "aggregate_metrics",
        "..",
        "x/../verify",
        "x?y",
        "%76erify",
        "/verify",
    ],
)
async def test_a_row_cannot_offer_an_endpoint_as_a_tool(name: str) -> None:
    tools = [{"type": "function", "name": name, "parameters": {}}]
    async with bridged(Counter()) as mesh:
        error = await fails(mesh.create(counting(tools=tools)))
    assert error.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert error.metadata["field"] == "responses_create_params.tools"


@pytest.mark.parametrize(
    ("task", "field"),
    [(row(expected_count=6), "initial_count"), (row(initial_count="x"), "initial_count")],
)
async def test_a_row_that_the_server_cannot_seed_is_invalid(
    task: rollout_pb2.Task, field: str
) -> None:
    async with bridged(Counter()) as mesh:
        error = await fails(mesh.create(task))
    assert error.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert error.metadata["field"] == field


async def test_a_row_that_the_server_cannot_judge_is_invalid() -> None:
    async with bridged(Counter()) as mesh:
        task = row(initial_count=3)
        session = (await mesh.create(task)).session_id
        error = await fails(mesh.verify(session, task, answered()))
    assert error.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert error.metadata["field"] == "expected_count"


class Judging(NemoServer):
    """Answers `/verify` as it is told."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__()
        self.status, self.body = status, body

    def tools(self) -> dict[str, Any]:
        return {}

    def _json(self, method: Any) -> Any:
        if method != self._verify:
            return super()._json(method)

        async def handle(request: web.Request) -> web.Response:
            return web.Response(status=self.status, text=self.body)

        return handle


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, '"KeyError()"'),
        (503, ""),
        (404, '{"detail": "Not Found"}'),
        (302, ""),
        (422, '{"detail": [{"loc": ["body", "response", "output", 0, "id"], "msg": "bad"}]}'),
        (422, "not json"),
        (422, '{"detail": []}'),
        (200, ""),
        (200, "not json"),
        (200, "[1.0]"),
        (200, "{}"),
        (200, '{"reward": null}'),
        (200, '{"reward": "1.0"}'),
        (200, '{"reward": true}'),
        (200, '{"reward": NaN}'),
        (200, '{"reward": 1e999}'),
        (200, '{"reward": 1.0, "mask_sample": true, "failure_kind": "judge_down"}'),
    ],
)
async def test_whatever_is_no_verdict_is_a_verifier_fault_and_no_reward(
    status: int, body: str
) -> None:
    async with bridged(Judging(status, body)) as mesh:
        task = row()
        session = (await mesh.create(task)).session_id
        error = await fails(mesh.verify(session, task, answered()))
    assert error.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
    assert "failed in verify" in error.message


async def test_what_the_verdict_says_besides_the_reward_is_evidence_and_components() -> None:
    body = {
        "reward": 0.5, "responses_create_params": {}, "response": {}, "expected": 1,
        "changed": 2, "accuracy": True, "overlap": 0.25, "note": "n",
        "reward_components": {"format": 0.5},
    }  # fmt: skip
    async with bridged(Judging(200, json.dumps(body))) as mesh:
        task = row(expected=1, changed=1)
        session = (await mesh.create(task)).session_id
        verdict = await mesh.verify(session, task, answered())
    assert verdict.reward == 0.5
    assert {part.name: part.value for part in verdict.components} == {
        "changed": 2.0, "accuracy": 1.0, "overlap": 0.25, "format": 0.5,
    }  # fmt: skip
    assert json.loads(verdict.evidence_json)["note"] == "n"
    assert not {"response", "expected", "reward"} & set(json.loads(verdict.evidence_json))


async def test_a_server_that_is_down_is_a_fault_of_the_environment_or_the_verifier() -> None:
    server = Counter()
    async with serving(server.app) as url:
        environment = NemoGymEnvironment(url=url)
        context = served(environment)
        mesh = await context.__aenter__()
        session = (await mesh.create(counting())).session_id
    try:
        tool = await fails(mesh.call(session, "get_counter_value"))
        verdict = await fails(mesh.verify(session, counting(), answered()))
        seed = await fails(mesh.create(counting()))
    finally:
        await context.__aexit__(None, None, None)
    assert tool.reason == seed.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert verdict.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
    assert url in tool.message


class Slow(Counter):
    """Never answers at the named path."""

    def __init__(self, slow: str) -> None:
        self.slow = slow
        super().__init__()

    def _json(self, method: Any) -> Any:
        inner = super()._json(method)

        async def handle(request: web.Request) -> web.Response:
            if request.path == self.slow:
                await asyncio.sleep(60)
            response: web.Response = await inner(request)
            return response

        return handle


async def test_a_tool_that_hangs_is_a_tool_timeout() -> None:
    async with bridged(Slow("/get_counter_value"), tool_timeout_s=0.2) as mesh:
        session = (await mesh.create(counting())).session_id
        error = await fails(mesh.call(session, "get_counter_value"))
    assert error.reason == errors_pb2.ERROR_REASON_TOOL_TIMEOUT


async def test_a_verdict_that_hangs_is_a_verifier_timeout() -> None:
    async with bridged(Slow("/verify"), verify_timeout_s=0.2) as mesh:
        session = (await mesh.create(counting())).session_id
        error = await fails(mesh.verify(session, counting(), answered()))
    assert error.reason == errors_pb2.ERROR_REASON_VERIFIER_TIMEOUT


async def test_a_seed_that_hangs_is_an_environment_fault() -> None:
    async with bridged(Slow("/seed_session"), turn_timeout_s=0.2) as mesh:
        error = await fails(mesh.create(counting()))
    assert error.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT


async def test_an_answer_without_end_is_cut_off_and_a_fault() -> None:
    class Endless(Counter):
        def _value(self, session: str, body: Any) -> Any:
            return {"text": "x" * 5000}

    async with bridged(Endless(), options={"max_answer_bytes": 1024}) as mesh:
        session = (await mesh.create(counting())).session_id
        error = await fails(mesh.call(session, "get_counter_value"))
    assert error.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert "more than 1024 bytes" in error.message


async def test_a_proxys_bad_gateway_is_no_answer_of_a_tool() -> None:
    class Gone(Counter):
        def _value(self, session: str, body: Any) -> Any:
            raise web.HTTPBadGateway

    async with bridged(Gone()) as mesh:
        session = (await mesh.create(counting())).session_id
        error = await fails(mesh.call(session, "get_counter_value"))
    assert error.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT


async def test_closing_tells_the_server_what_the_seed_answered() -> None:
    class Closing(Counter):
        def tools(self) -> dict[str, Any]:
            return super().tools() | {"end_session": lambda session, body: {}}

        def seed_session(self, session: str, body: Any) -> Any:
            return {"env_id": "e-17"}

    server = Closing()
    async with bridged(server, options={"close_path": "/end_session"}) as mesh:
        session = (await mesh.create(counting())).session_id
        await mesh.close(session)
    assert server.requests[-1] == ("/end_session", {"env_id": "e-17"})


async def test_a_cookie_that_the_server_takes_back_is_not_sent_again() -> None:
    seen: list[dict[str, str]] = []

    async def seed(request: web.Request) -> web.Response:
        response = web.json_response({})
        response.set_cookie("a", "1 2;é")
        response.set_cookie("b", "2")
        return response

    async def tool(request: web.Request) -> web.Response:
        seen.append(dict(request.cookies))
        response = web.json_response({})
        response.del_cookie("b")
        return response

    app = web.Application()
    app.router.add_post("/seed_session", seed)
    app.router.add_post("/get_counter_value", tool)
    async with serving(app) as url, served(NemoGymEnvironment(url=url)) as mesh:
        session = (await mesh.create(row())).session_id
        await mesh.call(session, "get_counter_value")
        await mesh.call(session, "get_counter_value")
    assert seen == [{"a": "1 2;é", "b": "2"}, {"a": "1 2;é"}]


async def test_bare_items_are_completed_to_what_the_server_requires() -> None:
    transcript = [
        item_from_json({"type": "reasoning", "summary": []}),
        item_from_json({"role": "assistant", "content": "as text"}),
        item_from_json({"type": "function_call", "call_id": "c", "name": "n", "arguments": "{"}),
        function_call_output("c", "out"),
        item_from_json(
            {
                "type": "function_call_output",
                "call_id": "d",
                "output": [{"type": "input_text", "text": "part"}],
            }
        ),
        new_message("user", "go on"),
        new_message("assistant", "done \ud800 é"),
    ]
    server = Counter()
    async with bridged(server) as mesh:
        session = (await mesh.create(counting(expected_count=3))).session_id
        verdict = await mesh.verify(session, counting(expected_count=3), transcript)
    assert verdict.reward == 1.0
    output = server.requests[-1][1]["response"]["output"]
    assert [item["type"] for item in output] == [
        "reasoning", "message", "function_call", "function_call_output", "function_call_output",
        "message", "message",
    ]  # fmt: skip
    assert output[1]["content"][0]["text"] == "as text"
    assert output[4]["output"] == "part"
    assert output[6]["content"][0]["text"] == "done \ud800 é"


async def test_the_row_goes_to_the_server_with_the_keys_that_are_read_here_too() -> None:
    server = Counter()
    of = counting(expected_count=3, usage={"input_tokens": 1})
    of.environment, of.agent, of.task_id, of.seed = "e", "tools", "row-7", 5
    of.tags["split"] = "train"
    async with bridged(server) as mesh:
        session = (await mesh.create(of)).session_id
        await mesh.verify(session, of, answered())
    bodies = [body for path, body in server.requests if "seed" in path or "verify" in path]
    assert len(bodies) == 2
    for body in bodies:
        assert (body["environment"], body["agent"]) == ("e", "tools")
        assert (body["task_id"], body["seed"], body["tags"]) == ("row-7", 5, {"split": "train"})
        assert body["usage"] == {"input_tokens": 1}


async def test_the_servers_own_values_of_keys_that_are_read_here_too() -> None:
    server = Counter()
    own = {"environment": {"patients": 3}, "agent": None, "expected_count": 3}
    of = counting(expected_count=9, nemo_gym=own)
    of.environment, of.agent = "e", "tools"
    async with bridged(server) as mesh:
        session = (await mesh.create(of)).session_id
        await mesh.verify(session, of, answered())
    for _, body in server.requests:
        assert body["environment"] == {"patients": 3}
        assert body["agent"] is None
        assert body["expected_count"] == 3
        assert "nemo_gym" not in body


async def test_own_values_that_are_no_object_are_refused() -> None:
    async with bridged(Counter()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(counting(expected_count=9, nemo_gym=[1]))
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert caught.value.metadata["field"] == "nemo_gym"


async def test_an_answer_that_was_cut_off_is_incomplete() -> None:
    from gymmesh_resource import Rollout, Task
    from gymmesh_resource.environments.nemo_gym.documents import verify_body

    rollout = Rollout(Task(row()), [], rollout_pb2.STOP_REASON_MAX_OUTPUT_TOKENS)
    response = verify_body(rollout, response_id="r", created_at=1.0)["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://a", "http://", "http://a?b=1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url is"):
        NemoGymEnvironment(url=url)


async def test_the_example_tasks_run() -> None:
    server = Counter()
    async with bridged(server) as mesh:
        tasks = example_tasks(mesh.service.environment, "e")
        assert len(tasks) >= 5
        for task in tasks:
            session = (await mesh.create(task)).session_id
            expected = json.loads(task.payload_json)
            missing = expected["expected_count"] - expected["initial_count"]
            await mesh.call(session, "increment_counter", {"count": missing})
            assert (await mesh.verify(session, task, answered())).reward == 1.0


def test_the_servers_cookie_is_signed() -> None:
    # The double would prove nothing if it took any cookie.
    from tests.unit.environments.nemo_gym import nemo_server

    signed = nemo_server._signed("s")
    assert COOKIE
    assert nemo_server._read(signed) == "s"
    assert nemo_server._read(signed[:-1] + "x") is None


@pytest.mark.parametrize(
    "access",
    [
        7,
        {"headers": {}},
        {"server_name": "desk", "headers": {"a": 1}},
        {"server_name": "desk", "headers": {}, "transport": "stdio"},
        {"server_name": "desk", "headers": {}, "url_path": "/nothing/there"},
    ],
)
async def test_tools_over_mcp_that_are_not_there_are_a_fault(access: Any) -> None:
    class Promising(Counter):
        def seed_session(self, session: str, body: Any) -> Any:
            return {"mcp": access}

    async with bridged(Promising()) as mesh:
        error = await fails(mesh.create(row(tools=[])))
        assert error.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
        # A row with tools of its own has them by a POST each.
        await mesh.create(counting())
