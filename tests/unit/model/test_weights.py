"""Which weights answer a call: as announced, with adapters, and while new ones are being loaded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymmesh_model.backends.calls import CallWeights, WeightsInForce
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.token_engines.continued import ContinuedAnswer
from gymmesh_model.serving import WeightsClock, spans
from gymmesh_runtime.errors import MeshError


def seen(call: CallWeights) -> list[tuple[int, str]]:
    return [(one.version, one.adapter) for one in call.seen]


def test_an_adapter_leaves_calls_under_way_as_they_are() -> None:
    clock = WeightsClock("policy")
    clock.set(3)
    bare = clock.begin()
    clock.set(4, "a@4")
    adapted = clock.begin()
    clock.set(5, "a@5")
    assert (bare.adapter, seen(bare)) == ("", [(3, "")])
    assert (adapted.adapter, seen(adapted)) == ("a@4", [(4, "a@4")])
    assert clock.adapters_in_use == ["a@4"]
    # The weights below the adapter are others now.
    clock.set(6)
    assert seen(adapted) == [(4, "a@4"), (6, "a@4")]
    assert [(one.version, one.first_token, one.adapter) for one in spans(adapted.seen, 9)] == [
        (4, 0, "a@4"),
        (6, 9, "a@4"),
    ]
    clock.end(adapted)
    assert clock.adapters_in_use == []


def test_a_request_sent_again_names_what_is_in_force_then() -> None:
    clock = WeightsClock("policy")
    call = clock.begin()
    assert seen(call) == []
    clock.set(1, "a@1")
    assert seen(call) == []  # it was sent before any version was known
    call.start()
    assert (call.adapter, seen(call)) == ("a@1", [(1, "a@1")])


def test_a_version_names_one_adapter() -> None:
    clock = WeightsClock("policy")
    clock.set(4, "a@4")
    assert clock.set(4, "a@4") == 4
    for version, adapter, field in ((3, "a@3", "version"), (4, "", "adapter"), (4, "b", "adapter")):
        with pytest.raises(MeshError) as caught:
            clock.set(version, adapter)
        assert caught.value.reason_name == "FIELD_INVALID"
        assert caught.value.metadata["field"] == field


def test_what_a_backend_reports_is_of_the_weights_below_an_adapter() -> None:
    clock = WeightsClock("policy")
    clock.set(4, "a@4")
    clock.follow(9)
    assert (clock.version, clock.adapter) == (4, "a@4")


def test_what_an_answer_reports_is_the_newest_version_but_not_that_of_other_calls() -> None:
    clock = WeightsClock("policy")
    clock.set(5)
    told: list[int | None] = []
    clock.changed = lambda: told.append(clock.version)
    before = clock.begin()
    clock.reported(6)
    clock.reported(5)
    assert clock.version == 6
    assert (seen(before), seen(clock.begin())) == ([(5, "")], [(5, "")])
    with pytest.raises(MeshError, match="version 6 is already loaded"):
        clock.set(5)
    clock.follow(6)  # the whole endpoint has it now
    assert (seen(before), seen(clock.begin())) == ([(5, ""), (6, "")], [(6, "")])
    assert clock.set(7) == 6
    assert told == [6, 6, 7]


async def test_calls_wait_for_weights_that_are_being_loaded() -> None:
    clock = WeightsClock("policy")
    clock.set(1)
    call = clock.begin()
    clock.wait_for(60.0)
    clock.follow(2)  # a server may name them before all are loaded
    waiting = asyncio.create_task(call.before_request(again=True))
    written = asyncio.create_task(clock.loaded())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert call.explains_abort()
    assert clock.version == 1
    clock.set(2)
    await asyncio.gather(waiting, written)
    assert seen(call) == [(2, "")]
    assert not call.explains_abort()


async def test_the_wait_ends_by_itself() -> None:
    clock = WeightsClock("policy")
    clock.wait_for(60.0)
    clock.wait_for(0.01)
    async with asyncio.timeout(30):
        await clock.loaded()
    assert not clock.is_loading()
    clock.go_on()  # nothing waits


async def test_a_request_that_is_written_keeps_its_adapter() -> None:
    clock = WeightsClock("policy")
    clock.set(1, "a@1")
    call = clock.begin()
    clock.set(2, "a@2")
    await call.before_request(again=False)
    assert seen(call) == [(1, "a@1")]
    assert call.explains_abort()


# -- answers in parts -------------------------------------------------------------------------


def part(ids: list[int], *weights: tuple[int, int], aborted: bool = True) -> Generation:
    return Generation(ids, [-1.0] * len(ids), weights=weights, aborted=aborted, finished=False)


def answered(*parts: tuple[Generation, list[WeightsInForce]], **params: Any) -> ContinuedAnswer:
    answer = ContinuedAnswer([1, 2], SamplingParams(**params))
    for one, known in parts:
        answer.add(one, known)
    return answer


A1, A2 = WeightsInForce(1, "a@1"), WeightsInForce(2, "a@2")


def test_a_part_goes_on_from_those_before() -> None:
    answer = answered((part([3, 4]), [A1]), max_tokens=10, seed=7)
    assert answer.prompt == [1, 2, 3, 4]
    assert (answer.params.max_tokens, answer.params.seed) == (8, 9)
    assert not answer.is_whole
    answer.add(part([5], aborted=False), [A2])
    assert answer.is_whole
    made = answer.generation()
    assert (made.token_ids, len(made.logprobs)) == ([3, 4, 5], 3)
    assert list(made.weights) == [(1, 0, "a@1"), (2, 2, "a@2")]
    assert not made.aborted


def test_what_the_server_reports_counts_before_what_was_announced() -> None:
    answer = answered(
        (part([3, 4], (1, 0), (2, 1)), [WeightsInForce(1), WeightsInForce(2)]),
        (part([]), [WeightsInForce(2)]),
        (part([5, 6], (2, 0), (3, 1), aborted=False), [WeightsInForce(2)]),
    )
    assert list(answer.generation().weights) == [(1, 0, ""), (2, 1, ""), (3, 3, "")]


def test_without_a_report_no_token_passes_for_fresher() -> None:
    answer = answered(
        (part([3, 4]), [WeightsInForce(1), WeightsInForce(2)]),
        (part([5], aborted=False), [WeightsInForce(2)]),
    )
    assert list(answer.generation().weights) == [(1, 0, ""), (2, 2, "")]


def test_tokens_of_unknown_weights_leave_all_of_them_unknown() -> None:
    answer = answered((part([3, 4]), []), (part([5], aborted=False), [WeightsInForce(2)]))
    assert answer.is_unknown
    assert list(answer.generation().weights) == []


def test_an_answer_that_has_used_its_tokens_is_whole() -> None:
    answer = answered((part([3, 4]), [A1]), max_tokens=2)
    assert answer.is_whole
    assert answer.generation().finished is False
    assert not answer.generation().aborted
