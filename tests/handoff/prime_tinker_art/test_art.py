"""Groups of gymmesh in the hands of ART's own classes and its tokenizer."""

from __future__ import annotations

import os
from typing import Any

import pytest

# LiteLLM, which ART imports, would look for its prices in the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from art import TrajectoryGroup
from art.preprocessing.tokenize import tokenize_trajectory_groups

from gymmesh.model.v1 import tokens_pb2
from gymmesh_client import UserError
from gymmesh_trainers import Generation, RolloutGroup, SamplingParams, TokenBackend
from gymmesh_trainers.art import ArtGroups
from tests.handoff.prime_tinker_art.exact import Row, trains_each_once
from tests.handoff.prime_tinker_art.policies import Answers, group_of
from tests.handoff.trainers.families import FAMILIES, Family
from tests.handoff.trainers.test_append_only import Engine, Hut
from tests.unit.trainers.environments import place_of

QWEN = FAMILIES[0]
# ART puts a token that the conversation lacks in the place of each answer.
SENTINEL = "zq"


def rows_of(tokenizer: Any, groups: list[TrajectoryGroup], **rendering: Any) -> list[Row]:
    """The sequences that ART trains, by its own tokenizer, with their masks."""
    made = tokenize_trajectory_groups(
        tokenizer, groups, False, False, drop_zero_advantage_trajectories=False, **rendering
    )
    return [(one.token_ids, one.assistant_mask) for one in made]


@pytest.mark.parametrize("append_only", [True, False], ids=["append_only", "rewritten"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
async def test_art_trains_each_sampled_token_once_or_the_hook_refuses(
    family: Family, append_only: bool
) -> None:
    tokenizer = family.tokenizer(SENTINEL)
    engine = Engine(family, tokenizer)
    stops = [tokenizer.convert_tokens_to_ids(one) for one in family.stops]
    backend = TokenBackend(
        tokenizer, engine, stop_token_ids=stops, template=family.kwargs, think_tags=True
    )
    group = await group_of(Hut, backend, append_only=append_only)
    calls = list(zip(engine.prompts, engine.outputs, strict=True))
    rendering = {"chat_template_kwargs": family.kwargs}
    strict = ArtGroups(tokenizer, **rendering)
    try:
        groups = strict.of(group)
    except UserError as error:
        print("REFUSED", family.name, append_only, error)
    else:
        print("EXACT", family.name, append_only, strict.counts)
        assert trains_each_once(calls, rows_of(tokenizer, groups, **rendering))
    some = ArtGroups(tokenizer, "warn", **rendering)
    rows = rows_of(tokenizer, some.of(group), **rendering)
    print(some.counts, sum(sum(mask) for _, mask in rows))
