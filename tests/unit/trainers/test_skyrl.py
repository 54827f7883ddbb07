"""SkyRL's generator: every sample, failed rollouts, rewards of turns; called as SkyRL calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_trainers.skyrl import GymmeshGenerator
from gymmesh_trainers.testing import RolloutFailed
from tests.unit.trainers.char_model import EOS, CharTokenizer
from tests.unit.trainers.environments import place_of, rows


@dataclass(frozen=True)
class TrajectoryID:
    """SkyRL's."""

    instance_id: str
    repetition_id: int


ROOT = Path(__file__).parents[3]


class Client:
    """SkyRL's InferenceEngineClient: it answers by the prompt's text; None: it breaks."""

    def __init__(self, answer: Callable[[str], str | None], stop: str = "stop") -> None:
        self.asked: list[dict[str, Any]] = []
        self._answer, self._stop = answer, stop

    async def generate(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(batch)
        said = self._answer(CharTokenizer().decode(batch["prompt_token_ids"][0]))
        if said is None:
            raise RuntimeError("the engine is gone")
        ids = [*CharTokenizer().encode(said), EOS]
        return {
            "response_ids": [ids],
            "stop_reasons": [self._stop],
            "response_logprobs": [[-0.25] * len(ids)],
        }


def batch(count: int, repeats: int = 1, **extra: Any) -> dict[str, Any]:
    """Prompts of Sums, each several times, as SkyRL's trainer makes them."""
    places = [place for place in range(count) for _ in range(repeats)]
    tasks = rows(count)
    return {
        "prompts": [[{"role": "user", "content": tasks[place]["prompt"]}] for place in places],
        "env_extras": [{"answer": tasks[place]["answer"], **extra} for place in places],
        "sampling_params": {"max_tokens": 512},
        "trajectory_ids": [
            TrajectoryID(f"u{place}", number % repeats) for number, place in enumerate(places)
        ],
    }


async def generated(
    client: Client,
    given: dict[str, Any],
    environment: str = "Sums",
    agent: str = "",
    **options: Any,
) -> dict[str, Any]:
    options = {"max_attempts": 1, **options}
    place = place_of(environment, agent)
    async with GymmeshGenerator(place, CharTokenizer(), client, **options) as generator:
        return await generator.generate(given)


async def test_step_wise_training_gets_every_sample_of_a_rollout() -> None:
    client = Client(lambda prompt: "sure")
    found = await generated(client, batch(2), "Debated", "Rewriting", step_wise=True)
    assert [one.instance_id for one in found["trajectory_ids"]] == ["u0", "u0", "u1", "u1"]
    assert found["is_last_step"] == [False, True, False, True]
    assert found["rewards"] == [1.0] * 4
    answer = [*CharTokenizer().encode("sure"), EOS]
    for place in (0, 2):
        both = found["response_ids"][place], found["response_ids"][place + 1]
        masks = found["loss_masks"][place], found["loss_masks"][place + 1]
        trained = [
            token
            for ids, mask in zip(both, masks, strict=True)
            for token, on in zip(ids, mask, strict=True)
            if on
        ]
        assert trained == answer * 3  # each of the three calls, once
    assert found["rollout_metrics"]["gymmesh/tokens_sampled"] == 2 * 3 * len(answer)
    assert found["rollout_metrics"]["gymmesh/tokens_lost"] == 0


async def test_without_it_a_rollout_that_would_lose_tokens_is_refused() -> None:
    client = Client(lambda prompt: "sure")
    with pytest.raises(UserError, match=r"SkyRL can't represent 10 of its 15 sampled tokens"):
        await generated(client, batch(1), "Debated", "Rewriting")


async def test_or_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(lambda prompt: "sure")
    found = await generated(client, batch(1), "Debated", "Rewriting", lost="warn")
    assert "SkyRL can't represent 10 of its 15 sampled tokens (67%)" in caplog.text
    assert found["rollout_metrics"]["gymmesh/tokens_lost"] == 10
    assert len(found["response_ids"]) == 1


@pytest.mark.parametrize("step_wise", [False, True])
async def test_a_failed_rollout_trains_nothing_and_has_the_mean_of_its_group(
    step_wise: bool,
) -> None:
    left = ["1", "2", None]  # of the first task: right, wrong, failed

    def answer(prompt: str) -> str | None:
        return left.pop(0) if "0 + 1" in prompt else "2"

    found = await generated(Client(answer), batch(2, 3), step_wise=step_wise, concurrency=1)
    assert found["rewards"] == [1.0, 0.0, 0.5, 1.0, 1.0, 1.0]
    assert [sum(mask) for mask in found["loss_masks"]] == [2, 2, 0, 2, 2, 2]
    assert found["response_ids"][2] == [EOS]
    assert found["stop_reasons"][2] == "error"
    assert all(found["rollout_logprobs"])
    assert found["rollout_metrics"]["gymmesh/failed"] == 1
    if step_wise:
        assert found["is_last_step"] == [True] * 6


async def test_a_batch_in_which_all_failed_has_nothing_to_train() -> None:
    with pytest.raises(RolloutFailed, match="MODEL"):
        await generated(Client(lambda prompt: None), batch(1, 2))


async def test_rewards_of_turns_stand_at_their_tokens() -> None:
    client = Client(lambda prompt: "2" if "And then" in prompt else "1")
    found = await generated(client, batch(1), "Paid", turn_rewards=True)
    [rewards], [mask] = found["rewards"], found["loss_masks"]
    ends = [place for place, on in enumerate(mask) if on and not [*mask, 0][place + 1]]
    assert [place for place, value in enumerate(rewards) if value] == ends
    assert [rewards[place] for place in ends] == [0.5, 0.5]
    assert sum(rewards) == 1.0  # the verdict's, not more
    assert (await generated(client, batch(1), "Paid"))["rewards"] == [1.0]


async def test_truncation_limits_and_seeds_reach_both_sides() -> None:
    client = Client(lambda prompt: "1", stop="length")
    found = await generated(client, batch(1, 2, seed=7), backend={"max_tokens": 1_000})
    assert found["stop_reasons"] == ["length"] * 2
    asked = [one["sampling_params"] for one in client.asked]
    assert [one["max_tokens"] for one in asked] == [512, 512]
    assert asked[0]["seed"] != asked[1]["seed"]  # one for each repeat


async def test_an_image_is_refused() -> None:
    given = batch(1)
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    given["prompts"][0] = [{"role": "user", "content": [image]}]
    client = Client(lambda prompt: "1")
    with pytest.raises(UserError, match="has an image or a file, but the hook for SkyRL"):
        await generated(client, given)


@pytest.mark.parametrize("kind", ["image", "image_url", "video"])
async def test_an_image_of_a_dataset_is_refused_and_not_masked(kind: str) -> None:
    """Beside rollouts with a reward it would be a failed one: a row that trains nothing."""
    given = batch(2)
    given["prompts"][1][0]["content"] = [{"type": kind, kind: "x.png"}]
    with pytest.raises(UserError, match="has an image or a file, but the hook for SkyRL passes"):
        await generated(Client(lambda prompt: "1"), given)


class RoutingClient(Client):
    """One that gives routed experts, as vLLM does: of each token but the last."""

    async def generate(self, batch: dict[str, Any]) -> dict[str, Any]:
        made = await super().generate(batch)
        tokens = [*batch["prompt_token_ids"][0], *made["response_ids"][0]]
        made["rollout_expert_indices"] = [[[[one % 100, 1]] for one in tokens[:-1]]]
        return made


async def test_routed_experts_are_handed_over_for_each_token_but_the_last(tmp_path: Path) -> None:
    client = RoutingClient(lambda prompt: "1")
    settings: dict[str, Any] = {"side_data": ["routed_experts"], "side_data_path": tmp_path}
    found = await generated(client, batch(2), **settings)
    assert len(found["rollout_expert_indices"]) == 2
    for prompt, response, experts in zip(
        found["prompt_token_ids"],
        found["response_ids"],
        found["rollout_expert_indices"],
        strict=True,
    ):
        assert experts == [[[one % 100, 1]] for one in [*prompt, *response][:-1]]


async def test_an_engine_that_gives_no_routed_experts_fails_the_rollouts(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"side_data": ["routed_experts"], "side_data_path": tmp_path}
    with pytest.raises(RolloutFailed, match="has no routed_experts"):
        await generated(Client(lambda prompt: "1"), batch(1), **settings)


async def test_side_data_needs_a_folder() -> None:
    with pytest.raises(UserError, match="side_data_path: is required"):
        await generated(Client(lambda prompt: "1"), batch(1), side_data=["routed_experts"])


def test_the_page_shows_a_generator_as_skyrl_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "how-to" / "trainers.md").read_text(encoding="utf-8")
    shown = page.partition("```python\n# SkyRL\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(shown, "trainers.md", "exec"), names)  # noqa: S102
    config = SimpleNamespace(generator=SimpleNamespace(step_wise_trajectories=True))
    client = Client(lambda prompt: "1")
    made = names["get_generator"](None, config, CharTokenizer(), client)
    assert isinstance(made, GymmeshGenerator)
