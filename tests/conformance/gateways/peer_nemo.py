"""NeMo Gym's capture of external agents' calls; run by the Python of its own environment.

Its model server is before the suite's endpoint, with a file store of tokens and with prefixes that
are supplied to the engine. The rollout is built as Gym builds it for a trainer; the last call is
named as the one whose answer was verified.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from hosting import host
from nemo_gym.server_utils import ServerClient
from nemo_gym.token_id_capture import TokenCaptureStore, trajectories_for_rollout
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig
from serving import served

_ROLLOUT = "rollout-1"


class Rollout:
    """One rollout's capture."""

    key = "none"

    def __init__(self, url: str, folder: Path) -> None:
        self.url = f"{url}/ng-rollout/{_ROLLOUT}/training-token-capture"
        self._folder = folder

    async def finish(self) -> dict[str, Any]:
        """The entries of the store, and what is rebuilt of them unless it is masked."""
        entries = list(TokenCaptureStore(self._folder).read_entries(_ROLLOUT))
        built = trajectories_for_rollout(
            _ROLLOUT,
            [self._folder],
            explicit_terminal_call_id=entries[-1].model_call_id if entries else None,
        )
        output = (
            []
            if built is None or built["mask_sample"]
            else [
                one
                for one in built["rebuilt_response"]["output"]
                if one.get("generation_token_ids") is not None
            ]
        )
        delivered = [(one["prompt_token_ids"], one["generation_token_ids"]) for one in output]
        places = {one.model_call_id: place for place, one in enumerate(entries)}
        calls = [
            {
                "parent": places.get(one.parent_call_id),
                "is_trained": (one.prompt_token_ids, one.generation_token_ids) in delivered,
                "tokens": {
                    "prompt": one.prompt_token_ids,
                    "output": one.generation_token_ids,
                    "logprobs": one.generation_log_probs,
                },
            }
            for one in entries
        ]
        return {"calls": calls, "samples": [_sample(output)] if output else []}


def _sample(output: list[dict[str, Any]]) -> dict[str, Any]:
    """One sequence of a rebuilt response: each item goes on from the tokens before it."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for item in output:
        read = item["prompt_token_ids"][len(ids) :]
        wrote = item["generation_token_ids"]
        ids += [*read, *wrote]
        mask += [0] * len(read) + [1] * len(wrote)
        logprobs += [0.0] * len(read) + item["generation_log_probs"]
    return {"ids": ids, "mask": mask, "logprobs": logprobs}


@asynccontextmanager
async def opened(upstream: str, program: str) -> AsyncIterator[Rollout]:
    """A model server of its own for the rollout."""
    with tempfile.TemporaryDirectory() as folder:
        config = VLLMModelConfig(
            host="127.0.0.1",
            port=0,
            entrypoint="",
            name="policy_model",
            base_url=upstream,
            api_key="none",
            model="m",
            return_token_id_information=True,
            request_prompt_and_generation_token_ids=True,
            supply_prefix_token_ids=True,
            uses_reasoning_parser=True,
        )
        capture = {"token_id_capture": {"enabled": True, "all_agents": True, "dir": folder}}
        client = MagicMock(spec=ServerClient, global_config_dict=capture)
        model = VLLMModel(config=config, server_client=client)
        async with served(model.setup_webserver()) as url:
            yield Rollout(url, Path(folder))


if __name__ == "__main__":
    host("nemo-gym", opened)
