"""Side data of an answer that new weights interrupt: a token keeps the row it was sampled with."""

from __future__ import annotations

import pytest

from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.token_engines import SglangGenerate, VllmCompletions, VllmGenerate
from gymmesh_model.backends.token_engines.continued import ContinuedAnswer
from gymmesh_model.errors import AnswerInvalid
from gymmesh_model.tokens import SideRows


def rows(first: int, data: bytes, dtype: str = "uint8") -> SideRows:
    return SideRows("routed_experts", dtype, (1,), first, data)


def test_an_interrupted_answer_has_the_rows_of_all_its_parts() -> None:
    answer = ContinuedAnswer([1, 2, 3], SamplingParams())
    assert answer.rows_end(1) == 1
    answer.add(Generation([4, 5], side_data=[rows(1, b"abc")], aborted=True), ())
    # The last sampled token was read by no forward pass: the next part has its row.
    assert answer.rows_end(1) == 4
    assert answer.rows_end(None) is None
    answer.add(Generation([6], side_data=[rows(4, b"D")]), ())
    [whole] = answer.generation().side_data
    assert (whole.first_token, bytes(whole.data)) == (1, b"abcD")


def test_a_row_that_two_parts_have_is_the_earlier_ones() -> None:
    joined = rows(0, b"abc").followed_by(rows(0, b"xyzd"))
    assert bytes(joined.data) == b"abcd"


@pytest.mark.parametrize("later", [rows(4, b"d"), rows(3, b"dd", "int16")])
def test_parts_that_do_not_belong_together_are_refused(later: SideRows) -> None:
    with pytest.raises(AnswerInvalid, match="routed_experts"):
        rows(0, b"abc").followed_by(later)


def test_scores_name_the_adapter_in_force() -> None:
    for protocol, key in (
        (VllmCompletions(model="base"), "model"),
        (VllmGenerate(model="base"), "model"),
        (SglangGenerate(), "lora_path"),
    ):
        assert protocol.score_request([1], [2], "r", adapter="a@4")[key] == "a@4"
        assert protocol.score_request([1], [2], "r").get(key) in ("base", None)


def test_vllms_generate_has_the_scores_beside_its_choices() -> None:
    listed = [None, {"2": {"logprob": -0.5}, "7": {"logprob": -0.1}}]
    answer = {"choices": [{"index": 0}], "prompt_logprobs": listed}
    scores = VllmGenerate().scores(answer, [1], [2])
    assert (list(scores.logprobs), scores.greedy) == ([-0.5], False)
