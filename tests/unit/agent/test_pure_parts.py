"""Answers, parameters, verdicts, weights and the clock: the small pure parts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.environment.verification import add_turn_rewards, check_verification
from gymmesh_agent.loop import function_calls
from gymmesh_agent.model.answer import read_answer, token_counts, with_call_ids
from gymmesh_agent.model.client import fill_params, sampling_seed
from gymmesh_agent.model.tokens import WeightsAge
from gymmesh_agent.plan import RolloutClock, merge_params, read_override, task_items, with_tools
from gymmesh_responses import params_from_json, params_to_dict, response_to_dict
from gymmesh_runtime.errors import MeshError
from tests.unit.agent.servicers import answer, call, calls, reward, says, tool

Reason = errors_pb2.ErrorReason
SUM = resource_pb2.REWARD_RULE_SUM


# ---- answers ----------------------------------------------------------------------------------
@given(ids=st.lists(st.sampled_from(["a", "b", "", None, 5, "c1-f1"]), max_size=5))
def test_every_call_gets_an_id_of_its_own_and_nothing_received_changes(ids: list[object]) -> None:
    response = calls(*({"name": "t", "arguments": "{}", "call_id": one} for one in ids))
    before = response.SerializeToString(deterministic=True)
    fixed = with_call_ids(response, "c1")
    got = [one.call_id for one in function_calls(fixed.output)]
    assert len(set(got)) == len(got) == len(ids)
    assert all(got)
    assert response.SerializeToString(deterministic=True) == before
    written = [item["call_id"] for item in response_to_dict(fixed)["output"]]
    assert written == got


def test_whole_answer_is_passed_on_as_it_is() -> None:
    response = calls(call("add"))
    read = read_answer(model_pb2.CreateResponseResponse(response=response), "c1")
    assert not read.repaired
    assert read.response == response


@pytest.mark.parametrize("more", [{"status": "failed"}, {"error": {"code": "x", "message": "y"}}])
def test_response_that_is_no_answer_is_refused(more: dict[str, object]) -> None:
    response = answer(**more)  # type: ignore[arg-type]  # keys of the document
    with pytest.raises(MeshError) as caught:
        read_answer(model_pb2.CreateResponseResponse(response=response), "c1")
    assert caught.value.reason == Reason.ERROR_REASON_MODEL_ANSWER_INVALID


def test_tokens_are_counted_by_usage_else_as_captured() -> None:
    captured = tokens_pb2.TokenCapture(prompt_token_ids=bytes(8), output_token_ids=bytes(12))
    reply = model_pb2.CreateResponseResponse(response=says("x", tokens=7), tokens=captured)
    assert token_counts(reply) == (10, 7)
    reply.response.ClearField("usage")
    assert token_counts(reply) == (2, 3)


@given(
    said=st.dictionaries(
        st.sampled_from(["input_tokens", "output_tokens"]), st.integers(-(2**63), 2**63 - 1)
    ),
    captured=st.booleans(),
)
def test_an_answer_is_counted_so_too(said: dict[str, int], captured: bool) -> None:
    reply = model_pb2.CreateResponseResponse(response=says("x"))
    reply.response.usage.CopyFrom(responses_pb2.Usage(**said))  # type: ignore[arg-type]
    if captured:
        reply.tokens.prompt_token_ids, reply.tokens.output_token_ids = bytes(8), bytes(12)
    call = read_answer(reply, "c1")
    assert (call.input_tokens, call.output_tokens) == token_counts(reply)


# ---- parameters -------------------------------------------------------------------------------
def test_later_parameters_win_and_the_task_stays_as_it_was() -> None:
    task = params_from_json({"input": "hi", "temperature": 0.5, "top_p": 1, "seed": 3})
    before = task.SerializeToString()
    under = {"temperature": 0.1, "max_output_tokens": 9, "user": "u"}
    merged = params_to_dict(merge_params(under, task, {"top_p": 0.25}))
    assert merged == {
        "temperature": 0.5, "top_p": 0.25, "seed": 3, "max_output_tokens": 9, "user": "u"
    }  # fmt: skip
    assert task.SerializeToString() == before


def test_session_tools_win_even_over_null() -> None:
    own = {"tools": [{"type": "function", "name": "a"}, {"type": "web_search"}]}
    merged = with_tools(params_from_json(own), [tool("a", "the session's"), tool("b")])
    tools = params_to_dict(merged)["tools"]
    assert [one.get("name", one["type"]) for one in tools] == ["web_search", "a", "b"]
    assert tools[1]["description"] == "the session's"
    nothing = with_tools(params_from_json({"tools": None}), [tool("b")])
    assert [one["name"] for one in params_to_dict(nothing)["tools"]] == ["b"]


def test_input_as_text_is_a_user_message_and_nonsense_is_refused() -> None:
    (item,) = task_items(params_from_json({"input": "2+2?"}))
    assert (item.message.role, item.message.text) == ("user", "2+2?")
    assert task_items(params_from_json({})) == []
    with pytest.raises(MeshError) as caught:
        task_items(params_from_json({"input": 4}))
    assert caught.value.metadata == {"field": "task.params.input"}


@pytest.mark.parametrize("raw", [b"nonsense", b"[1]", b'{"input": "x"}'])
def test_bad_override_is_refused(raw: bytes) -> None:
    with pytest.raises(MeshError) as caught:
        read_override(raw)
    assert caught.value.reason == Reason.ERROR_REASON_FIELD_INVALID


def filled(
    base: responses_pb2.ResponseParams,
    *,
    tokens_left: int | None,
    changes: dict[str, Any] | None = None,
) -> responses_pb2.ResponseParams:
    params = responses_pb2.ResponseParams()
    fill_params(params, base, [], tokens_left=tokens_left, changes=changes)
    return params


@pytest.mark.parametrize(
    ("own", "left", "cap"),
    [(None, 100, 100), (50, 100, 50), (500, 100, 100), (None, 3, 16), (None, None, None)],
)
def test_one_call_may_not_exceed_what_is_left(
    own: int | None, left: int | None, cap: int | None
) -> None:
    document = {} if own is None else {"max_output_tokens": own}
    sent = filled(params_from_json(document), tokens_left=left)
    assert params_to_dict(sent).get("max_output_tokens") == cap
    assert params_to_dict(sent)["input"] == []


def test_one_call_changes_what_it_names_and_nothing_else() -> None:
    base = params_from_json({"temperature": 1.0, "tools": []})
    sent = params_to_dict(filled(base, tokens_left=None, changes={"top_p": 0.5}))
    assert sent == {"temperature": 1.0, "tools": [], "top_p": 0.5, "input": []}
    assert params_to_dict(base) == {"temperature": 1.0, "tools": []}
    with pytest.raises(ValueError, match="pass `items`"):
        filled(base, tokens_left=None, changes={"input": "x"})


def test_sampling_seeds_differ_by_task_and_call_and_are_stable() -> None:
    seeds = {sampling_seed(seed, call) for seed in (7, 8) for call in ("c1", "c2")}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert sampling_seed(7, "c1") == sampling_seed(7, "c1")


# ---- verdicts ---------------------------------------------------------------------------------
def verdict(status: str, **more: object) -> rollout_pb2.Verification:
    value = rollout_pb2.VerificationStatus.Value(f"VERIFICATION_STATUS_{status}")
    made = rollout_pb2.Verification(status=value)
    made.MergeFrom(rollout_pb2.Verification(**more))  # type: ignore[arg-type]  # any fields
    return made


@pytest.mark.parametrize(
    "good",
    [
        verdict("VERIFIED", reward=0.0),
        verdict("PENDING"),
        verdict("SKIPPED"),
        verdict("VERIFIED", reward=1.0, evidence_json=b'{"answer": 4}'),
    ],
)
def test_good_verdicts(good: rollout_pb2.Verification) -> None:
    check_verification(good)


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (verdict("UNSPECIFIED", reward=1.0), "status"),
        (verdict("VERIFIED"), "reward"),
        (verdict("VERIFIED", reward=math.nan), "reward"),
        (verdict("VERIFIED", reward=math.inf), "reward"),
        (verdict("PENDING", reward=0.0), "reward"),
        (verdict("SKIPPED", reward=0.0), "reward"),
        (verdict("VERIFIED", reward=1.0, evidence_json=b"[]"), "evidence_json"),
        (verdict("VERIFIED", reward=1.0, evidence_json=b"{"), "evidence_json"),
    ],
)
def test_bad_verdicts(bad: rollout_pb2.Verification, rule: str) -> None:
    with pytest.raises(MeshError) as caught:
        check_verification(bad)
    assert caught.value.reason == Reason.ERROR_REASON_CONTRACT_VIOLATED
    assert caught.value.metadata == {"rule": rule}


def test_bad_component() -> None:
    bad = reward(1.0, components=[rollout_pb2.RewardComponent(name="x", value=math.nan)])
    with pytest.raises(MeshError, match="'x'"):
        check_verification(bad)


def test_turn_rewards_are_added_only_under_the_sum_rule() -> None:
    given_ = reward(0.5)
    for rule in (resource_pb2.REWARD_RULE_VERIFIER_ONLY, resource_pb2.REWARD_RULE_INCLUDED):
        assert add_turn_rewards(given_, rule, [1.0]) is given_
    summed = add_turn_rewards(given_, SUM, [0.25, -0.5])
    assert summed.reward == 0.25
    assert [(part.name, part.value) for part in summed.components] == [
        ("verifier", 0.5),
        ("turns", -0.25),
    ]
    assert given_ == reward(0.5)
    assert not add_turn_rewards(verdict("PENDING"), SUM, [1.0]).HasField("reward")


# ---- weights ----------------------------------------------------------------------------------
def spans(*versions: int) -> list[tokens_pb2.WeightsSpan]:
    return [tokens_pb2.WeightsSpan(version=version) for version in versions]


def test_weights_too_far_apart_are_stale() -> None:
    age = WeightsAge(2)
    age.add(spans(4, 5))
    age.add([])
    age.add(spans(6))
    with pytest.raises(MeshError) as caught:
        age.add(spans(7))
    expected = {"oldest": "4", "current": "7", "max_staleness": "2"}
    assert caught.value.metadata == expected
    WeightsAge(None).add(spans(1, 99))


# ---- the clock --------------------------------------------------------------------------------
@given(
    deadline=st.none() | st.floats(0.01, 1e4),
    wall=st.floats(0.01, 1e4),
    cap=st.floats(0.01, 1e4),
    passed=st.floats(0, 2e4),
)
def test_the_attempt_ends_before_its_caller_and_no_hop_outlives_it(
    deadline: float | None, wall: float, cap: float, passed: float
) -> None:
    now = 0.0
    clock = RolloutClock(deadline, wall, lambda: now)
    until = math.inf if deadline is None else deadline
    assert clock.remaining() <= min(wall, until)
    assert clock.remaining() >= min(wall, 0.9 * until) - 0.5
    now = passed
    assert clock.remaining() >= 0
    assert clock.hop(cap) <= max(0.001, min(cap, until - passed))
    assert clock.hop(cap) > 0


def test_which_limit_comes_first() -> None:
    assert RolloutClock(10.0, 600.0, lambda: 0.0).deadline_first
    assert not RolloutClock(900.0, 600.0, lambda: 0.0).deadline_first
    assert not RolloutClock(None, 600.0, lambda: 0.0).deadline_first


def test_opaque_items_are_no_calls() -> None:
    opaque = answer({"type": "computer_call", "call_id": "x"})
    assert function_calls(opaque.output) == ()
