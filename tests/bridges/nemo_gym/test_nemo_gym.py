"""NeMo Gym's own servers as environments: rewards equal to those of its own agents, and faults.

Its own agents play at `/run`, as its collection has them do, with the same scripted policy.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_model.config import ModelConfig
from gymmesh_resource import Task
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_runtime.errors import from_status
from tests.bridges.nemo_gym.conftest import WORDS, Gym, gym_servers
from tests.bridges.nemo_gym.policy import Plan, prompt

pytestmark = pytest.mark.asyncio(loop_scope="module")

EPISODES: Final = 100
TIMEOUT: Final = 600.0
AGENT: Final = "gymmesh.agent.v1.AgentService"
CITIES: Final = ("Paris", "Tokyo", "Seattle", "Nairobi", "Lima")
GET_WEATHER: Final = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
Row = dict[str, Any]
Events = Sequence[rollout_pb2.RolloutEvent]


def weather(number: int, *, tools: Sequence[Mapping[str, Any]] = ()) -> Row:
    """Right, without the tool, with the tool for another city, or after a call that was wrong."""
    city, other = CITIES[number % 5], CITIES[(number + 1) % 5]
    sentence = f"The weather in {city} is sunny and 72 F."
    plans: list[Plan] = [
        [[("get_weather", {"city": city})], [sentence]],
        [[sentence]],
        [[("get_weather", {"city": other})], [sentence]],
        [[("get_weather", {"town": city})], [("get_weather", {"city": city.upper()})], [sentence]],
    ]
    return {
        "responses_create_params": {
            "input": prompt(plans[number % 4]),
            "tools": list(tools),
        },
        "verifier_metadata": {"expected_city": city},
    }


def strings(number: int) -> Row:
    """An answer that is right, wrong, or not marked as one."""
    said = [f"Answer: {number}", "Answer: none", "It is " + str(number), ""][number % 4]
    return {
        "responses_create_params": {"input": prompt([[said]])},
        "expected_answer": str(number),
    }


def turns(number: int) -> Row:
    """A talk of one to four turns, with the right last word or not."""
    follow_ups = [f"And then, {place}?" for place in range(number % 4)]
    last = f"It is {number}." if number % 3 else "I forgot."
    plan = [[f"Step {place}."] for place in range(len(follow_ups))] + [[last]]
    return {
        "responses_create_params": {"input": prompt(plan)},
        "follow_ups": follow_ups,
        "expected_answer": f"is {number}.",
    }


def wordle(number: int) -> Row:
    """Games with several calls in an answer, of one to six guesses, won or lost."""
    target, first = WORDS[number % len(WORDS)], WORDS[(number // 2) % len(WORDS)]
    plans: list[Plan] = [
        [[("submit_guess", {"guess": first}), ("get_game_state", {})],
         [("submit_guess", {"guess": target})]],
        [[("submit_guess", {"guess": first}), ("submit_guess", {"guess": first})],
         [("check_word_validity", {"word": "zzzzz"}), ("submit_guess", {"guess": target})]],
        [[("submit_guess", {"guess": "zzzzz"})]] * 6,
        [[("submit_guess", {"guess": first})], ["I give up."]],
    ]  # fmt: skip
    names = ("submit_guess", "check_word_validity", "get_game_state")
    tools = [
        {"type": "function", "name": name, "description": "", "strict": False,
         "parameters": {"type": "object", "properties": {}}}
        for name in names
    ]  # fmt: skip
    return {
        "responses_create_params": {"input": prompt(plans[number % 4]), "tools": tools},
        "word_length": 5,
        "max_turns": 6,
        "custom_target": target,
    }


async def own_rewards(url: str, bodies: Sequence[Row]) -> list[float]:
    """What NeMo Gym's own agent or Environment Server answers to each body at `/run`."""
    at_once = asyncio.Semaphore(8)
    async with aiohttp.ClientSession() as http:

        async def run(body: Row) -> float:
            async with at_once, http.post(f"{url}/run", json=body) as reply:
                answer = await reply.json()
                assert reply.status == 200, answer
                return float((answer.get("result") or answer)["reward"])

        return list(await asyncio.gather(*map(run, bodies)))


class Bridge:
    """Our mesh with a NeMo Gym server as its environment."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    async def run(self, number: int, row: Row) -> Events:
        task = Task.of({"task_id": f"t{number}", "environment": "nemo", **row}).message
        request = agent_pb2.RunRolloutRequest(task=task, rollout_id=f"r{number}", attempt=1)
        stream = self._agent.RunRollout(request, timeout=TIMEOUT)
        return [response.event async for response in stream]

    async def rewards(self, rows: Sequence[Row]) -> list[float]:
        at_once = asyncio.Semaphore(8)

        async def run(number: int, row: Row) -> float:
            async with at_once:
                events = await self.run(number, row)
            assert events[-1].HasField("completed"), events[-1]
            (verified,) = [one.verified for one in events if one.HasField("verified")]
            return verified.verification.reward

        return list(await asyncio.gather(*(run(*one) for one in enumerate(rows))))


@asynccontextmanager
async def bridge(
    gym: Gym, server: str, *, plays: bool = False, timeout_s: float = 600.0, **options: Any
) -> AsyncIterator[Bridge]:
    player = {"program": "environment", "timeout_s": timeout_s}
    config = MeshConfig(
        models={
            "policy": ModelConfig(
                backend="responses", url=gym.policy_url, model="policy", max_retries=0
            )
        },
        environments={
            "nemo": EnvironmentConfig(
                use="nemo_gym",
                options={"url": gym.url(server), **options},
                tool_timeout_s=120,
                turn_timeout_s=120,
                verify_timeout_s=120,
            )
        },
        agents={
            "agent": AgentConfig(
                use="program" if plays else "tool_loop",
                max_steps=20,
                options=player if plays else {},
            )
        },
    )
    async with embedded(config) as mesh:
        yield Bridge(mesh.directory.peer(await mesh.directory.pick(AGENT, "agent")))


def mixed(rewards: Sequence[float]) -> None:
    """Not all alike: equal lists then say something."""
    assert len(rewards) == EPISODES
    assert len(set(rewards)) > 1


def failed(events: Events) -> tuple[str, str]:
    """Boundary and reason."""
    failure = events[-1].failed.failure
    name = rollout_pb2.Boundary.Name(failure.boundary).removeprefix("BOUNDARY_")
    return name, from_status(failure.status).reason_name


async def test_tools_by_a_post_each(gym: Gym) -> None:
    rows = [weather(number, tools=[GET_WEATHER]) for number in range(EPISODES)]
    own = await own_rewards(gym.url("own_agent"), rows)
    mixed(own)
    async with bridge(gym, "weather") as mesh:
        assert await mesh.rewards(rows) == own


async def test_tools_behind_mcp(gym: Gym) -> None:
    own = await own_rewards(
        gym.url("own_agent"), [weather(number, tools=[GET_WEATHER]) for number in range(EPISODES)]
    )
    async with bridge(gym, "weather") as mesh:
        events = await mesh.run(0, weather(0))
        (tool,) = events[0].started.params.tools
        assert tool.function.name == "get_weather"
        assert await mesh.rewards([weather(number) for number in range(EPISODES)]) == own


async def test_a_step_server_by_turns(gym: Gym) -> None:
    rows = [turns(number) for number in range(EPISODES)]
    own = await own_rewards(gym.url("own_turns"), rows)
    mixed(own)
    async with bridge(gym, "turns", protocol="steps") as mesh:
        assert await mesh.rewards(rows) == own


async def test_a_step_server_that_the_environment_plays(gym: Gym) -> None:
    rows = [wordle(number) for number in range(EPISODES)]
    own = await own_rewards(gym.url("own_wordle"), rows)
    mixed(own)
    async with bridge(gym, "wordle", plays=True, protocol="steps") as mesh:
        assert await mesh.rewards(rows) == own


async def test_tools_of_a_step_server_need_the_environment_to_play(gym: Gym) -> None:
    async with bridge(gym, "wordle", protocol="steps") as mesh:
        events = await mesh.run(0, wordle(0))
    assert failed(events)[1] == "TASK_INVALID"


async def test_rows_that_an_agent_server_runs(gym: Gym) -> None:
    rows = [weather(number, tools=[GET_WEATHER]) for number in range(EPISODES)]
    own = await own_rewards(gym.url("own_agent"), rows)
    async with bridge(gym, "agent", plays=True, protocol="run", model_server=gym.relay) as mesh:
        assert await mesh.rewards(rows) == own


async def test_episodes_that_an_environment_server_runs(gym: Gym) -> None:
    rows = [strings(number) for number in range(EPISODES)]
    bodies = [
        {
            "episode_id": {"rollout_id": f"own-{number}", "attempt": 0},
            "task": {
                "task_id": {"taskset": "strings", "task_id": f"t{number}"},
                "task_input": row,
            },
        }
        for number, row in enumerate(rows)
    ]
    own = await own_rewards(gym.url("own_episodes"), bodies)
    mixed(own)
    options: dict[str, Any] = {"protocol": "run", "model_server": gym.relay, "taskset": "strings"}
    async with bridge(gym, "episodes", plays=True, **options) as mesh:
        assert await mesh.rewards(rows) == own


async def test_a_limit_of_the_policy_ends_the_episode_and_it_is_judged(gym: Gym) -> None:
    calls: Plan = [[("get_weather", {"city": "Lima"})]] * 30
    row = weather(0, tools=[GET_WEATHER])
    row["responses_create_params"]["input"] = prompt(calls)
    async with bridge(gym, "agent", plays=True, protocol="run", model_server=gym.relay) as mesh:
        events = await mesh.run(0, row)
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_MAX_STEPS
    (verified,) = [one.verified for one in events if one.HasField("verified")]
    assert verified.verification.reward == 0.0


async def test_time_that_is_up_gives_no_verdict(gym: Gym) -> None:
    gym.policy.hold.clear()
    options: dict[str, Any] = {"protocol": "run", "model_server": gym.relay}
    try:
        async with bridge(gym, "agent", plays=True, timeout_s=10.0, **options) as mesh:
            events = await mesh.run(0, weather(0, tools=[GET_WEATHER]))
    finally:
        gym.policy.hold.set()
    assert failed(events)[1] in ("VERIFIER_FAULT", "PROGRAM_FAILED")


async def test_servers_that_die_fail_what_they_play(bridge_python: Path, tmp_path: Path) -> None:
    row = weather(0, tools=[GET_WEATHER])
    async with gym_servers(bridge_python, tmp_path) as gym:
        gym.policy.hold.clear()
        options: dict[str, Any] = {"protocol": "run", "model_server": gym.relay}
        async with bridge(gym, "agent", plays=True, **options) as mesh:
            running = asyncio.create_task(mesh.run(0, row))
            await asyncio.wait_for(gym.policy.asked.wait(), TIMEOUT)
            os.killpg(gym.process.pid, signal.SIGKILL)
            assert failed(await running) == ("RESOURCE", "ENVIRONMENT_FAULT")
        gym.policy.hold.set()
        for server, protocol in (("weather", "tools"), ("turns", "steps")):
            async with bridge(gym, server, protocol=protocol) as mesh:
                events = await mesh.run(0, row)
            assert failed(events) == ("RESOURCE", "ENVIRONMENT_FAULT")
            assert not any(event.HasField("verified") for event in events)
