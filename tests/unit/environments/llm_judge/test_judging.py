"""Judging end to end, with scripted judges in place of a model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_model.config import ModelConfig
from gymmesh_model.service import ModelService
from gymmesh_resource.environments.llm_judge import LlmJudgeEnvironment
from gymmesh_resource.environments.llm_judge.texts import normalised
from gymmesh_responses import item_from_json, new_message
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.unit.environments.llm_judge.judges import ScriptedJudge, Seen, in_turn
from tests.unit.resource.served import MODEL, served, task

INJECTIONS: list[str] = yaml.safe_load(
    Path(__file__).with_name("injections.yaml").read_text(encoding="utf-8")
)
RUBRIC = [
    {"question": "Does it name the capital?", "pass_criteria": "YES", "weight": 3},
    {"question": "Does it mention the weather?", "pass_criteria": "NO", "weight": 1},
]


async def judged(
    judge: Any, answer: str, row: dict[str, Any] | None = None, **options: Any
) -> rollout_pb2.Verification:
    """The verdict, however busy the machine is."""
    of = task(**(row or {"expected_answer": "Paris", "question": "The capital of France?"}))
    environment = LlmJudgeEnvironment(**options)
    services = {"judge": judge}
    async with served(environment, model_services=services, verify_timeout_s=300.0) as mesh:
        said = [new_message("assistant", answer)]
        return await mesh.verify(of=of, transcript=said, timeout=300.0)


def evidence(verification: rollout_pb2.Verification) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(verification.evidence_json)
    return found


@pytest.mark.parametrize(("reply", "reward"), [("[[A=B]]", 1.0), ("No.\n[[A!=B]]", 0.0)])
async def test_equivalence(reply: str, reward: float) -> None:
    judge = in_turn(reply)
    verification = await judged(judge, "It is Paris.", judge_params={"temperature": 0})
    assert verification.reward == reward
    (seen,) = judge.seen
    assert seen.pieces == {
        "question": "The capital of France?",
        "expected_answer": "Paris",
        "generated_answer": "It is Paris.",
    }
    assert seen.request.params.temperature.real == 0.0
    usage = [(one.model, one.calls, one.input_tokens) for one in verification.model_usage]
    assert usage == [("judge", 1, 10)]


async def test_a_reply_without_a_verdict_is_asked_for_once_more() -> None:
    judge = in_turn("I think so.", "[[A=B]]")
    verification = await judged(judge, "Paris")
    assert verification.reward == 1.0
    assert len(judge.seen[1].texts) == 3
    assert judge.seen[1].texts[1] == "I think so."
    assert "[[A=B]], [[A!=B]]" in judge.seen[1].texts[2]
    assert evidence(verification)["judge_evaluations"][0]["asked"] == 2
    assert verification.model_usage[0].calls == 2


@pytest.mark.parametrize("row", [None, {"rubric": RUBRIC}, {"judge_instructions": "Style."}])
async def test_no_verdict_twice_is_a_failure_and_no_reward(row: dict[str, Any] | None) -> None:
    with pytest.raises(MeshError) as caught:
        await judged(in_turn("I cannot say."), "Paris", row)
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT
    assert "no verdict" in caught.value.message


async def test_no_verdict_twice_can_be_skipped() -> None:
    verification = await judged(in_turn("I cannot say."), "Paris", unreadable="skip")
    assert verification.status == rollout_pb2.VERIFICATION_STATUS_SKIPPED
    assert not verification.HasField("reward")
    assert evidence(verification)["judge_reply"] == "I cannot say."


class Down:
    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        raise MeshError(errors_pb2.ERROR_REASON_MODEL_UNREACHABLE, "nobody there")


@pytest.mark.parametrize("row", [None, {"rubric": RUBRIC}])
async def test_a_judge_that_is_down_is_a_failure_of_the_model(row: dict[str, Any] | None) -> None:
    with pytest.raises(MeshError) as caught:
        await judged(Down(), "Paris", row)
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_UNREACHABLE


@pytest.mark.parametrize("answer", ["", " \n\t"])
async def test_no_answer_is_worth_nothing_and_asks_nobody(answer: str) -> None:
    judge = in_turn("[[A=B]]")
    verification = await judged(judge, answer)
    assert verification.reward == 0.0
    assert evidence(verification)["failure_reason"] == "no_answer"
    assert not judge.seen


async def test_too_long_an_answer_is_not_shown() -> None:
    judge = in_turn("[[A=B]]")
    verification = await judged(judge, "x" * 11, max_answer_chars=10)
    assert verification.reward == 0.0
    assert evidence(verification)["failure_reason"] == "final_answer_too_long"
    assert not judge.seen


@pytest.mark.parametrize(
    ("replies", "reward"),
    [(["[[A=B]]", "[[A=B]]"], 1.0), (["[[A=B]]", "[[A!=B]]"], -1.0), (["[[A!=B]]"], 0.0)],
)
async def test_the_swap_check(replies: list[str], reward: float) -> None:
    judge = in_turn(*replies)
    verification = await judged(judge, "Paris!", check_twice_swap=True, reward_if_swap_fails=-1.0)
    assert verification.reward == reward
    assert len(judge.seen) == len(replies)
    if len(replies) == 2:
        assert judge.seen[1].pieces["expected_answer"] == "Paris!"
        assert judge.seen[1].pieces["generated_answer"] == "Paris"


REGEX_ROW = {"expected_answer": "4", "template_metadata": {"output_regex": r"Answer: (\w+)"}}


@pytest.mark.parametrize(
    ("answer", "replies", "options", "reward", "shown"),
    [
        ("2+2. Answer: 4", ["[[A=B]]"], {}, 1.0, ["4"]),
        ("Answer: 5 or 4", ["[[A!=B]]", "[[A=B]]"], {}, 0.5, ["5", "Answer: 5 or 4"]),
        ("Answer: 5", ["[[A!=B]]", "[[A!=B]]"], {}, 0.0, ["5", "Answer: 5"]),
        ("It is 4", ["[[A=B]]"], {}, 1.0, ["It is 4"]),
        (
            "Answer: 5",
            ["[[A!=B]]"],
            {"check_full_generation_on_fail": False},
            0.0,
            ["5"],
        ),
        ("Answer: 4", ["[[A=B]]"], {"use_per_record_regex": False}, 1.0, ["Answer: 4"]),
        ("Answer: 4", ["[[A=B]]"], {"extraction_length_threshold": 0}, 1.0, ["Answer: 4"]),
        ("Answer: 4", ["[[A!=B]]"], {"extraction_length_threshold": 0}, 0.0, ["Answer: 4"]),
    ],
)
async def test_extraction_and_rescue(
    answer: str, replies: list[str], options: dict[str, Any], reward: float, shown: list[str]
) -> None:
    judge = in_turn(*replies)
    verification = await judged(judge, answer, REGEX_ROW, **options)
    assert verification.reward == reward
    assert [seen.pieces["generated_answer"] for seen in judge.seen] == shown


async def test_a_pattern_that_hangs_finds_nothing() -> None:
    row = {"expected_answer": "4", "template_metadata": {"output_regex": r"(a+)+b"}}
    judge = in_turn("[[A=B]]")
    verification = await judged(judge, "a" * 60, row)
    assert verification.reward == 1.0
    assert judge.seen[0].pieces["generated_answer"] == "a" * 60
    assert "took too long" in verification.stages[0].note


@pytest.mark.parametrize(
    ("aggregation", "verdicts", "reward"),
    [
        ("weighted", {"capital": "[[YES]]", "weather": "[[YES]]"}, 0.75),
        ("weighted", {"capital": "[[NO]]", "weather": "[[NO]]"}, 0.25),
        ("mean", {"capital": "[[NO]]", "weather": "[[NO]]"}, 0.5),
        ("all", {"capital": "[[YES]]", "weather": "[[NO]]"}, 1.0),
        ("all", {"capital": "[[YES]]", "weather": "[[YES]]"}, 0.0),
    ],
)
async def test_a_rubric(aggregation: Any, verdicts: dict[str, str], reward: float) -> None:
    def reply(seen: Seen) -> str:
        return next(v for word, v in verdicts.items() if word in seen.pieces["criterion"])

    row = {"rubric": RUBRIC, "context": "[USER]: Where to?"}
    judge = ScriptedJudge(reply)
    verification = await judged(judge, "<think>hm</think>Paris", row, aggregation=aggregation)
    assert verification.reward == reward
    assert evidence(verification)["num_total"] == 2
    assert {seen.pieces["response"] for seen in judge.seen} == {"Paris"}
    assert {seen.pieces["context"] for seen in judge.seen} == {"[USER]: Where to?"}


async def test_a_score() -> None:
    row = {"judge_instructions": "Is it polite?", "expected_answer": "Paris, please."}
    judge = in_turn("[[7]]")
    verification = await judged(judge, "Paris", row, mode="score")
    assert verification.reward == pytest.approx(6 / 9)
    assert "Is it polite?" in judge.seen[0].skeleton
    assert judge.seen[0].pieces["reference"] == "Paris, please."


async def test_a_template_of_ones_own() -> None:
    template = "{{Q}} {question} | {expected_answer} | {generated_answer}"
    judge = in_turn("SAME")
    verification = await judged(
        judge,
        "Paris",
        judge_prompt_template=template,
        judge_equal_label="SAME",
        judge_not_equal_label="OTHER",
    )
    assert verification.reward == 1.0
    assert judge.seen[0].skeleton == "{Q} (question) | (expected_answer) | (generated_answer)"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"judge_prompt_template": "{question}"}, "generated_answer"),
        ({"judge_prompt_template": "{answer}"}, "cannot be filled in"),
        ({"judge_prompt_template": "{"}, "cannot be filled in"),
        ({"judge_equal_label": "A"}, "judge_equal_label"),
        ({"judge_equal_label": "same", "judge_not_equal_label": "not same"}, "contain"),
        ({"response_extract_regex": "("}, "response_extract_regex"),
        ({"least_score": 5.0, "most_score": 5.0}, "least_score"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LlmJudgeEnvironment(**options)


@pytest.mark.parametrize(
    ("row", "options", "field"),
    [
        ({}, {}, "expected_answer"),
        ({"expected_answer": ""}, {"mode": "equivalence"}, "expected_answer"),
        ({"expected_answer": ["a"]}, {}, "expected_answer"),
        ({"metadata": {"expected_answer": {}}}, {}, "metadata.expected_answer"),
        ({"rubric": []}, {}, "rubric"),
        ({"rubric": {}}, {}, "rubric"),
        ({"rubric": [{}]}, {}, "rubric[0]"),
        ({"rubric": ["a", 5]}, {}, "rubric[1]"),
        ({"rubric": [{"question": "a", "weight": "3"}]}, {}, "rubric[0].weight"),
        ({"rubric": [{"question": "a", "points": -1}]}, {}, "rubric"),
        ({"rubric": [{"question": "a", "pass_criteria": True}]}, {}, "rubric[0].pass_criteria"),
        ({"rubric": [{"question": "a", "pass_criteria": "No."}]}, {}, "rubric[0].pass_criteria"),
        ({"rubric": [{"question": "a", "pass_criteria": "FAIL"}]}, {}, "rubric[0].pass_criteria"),
        ({"expected_answer": "a", "template_metadata": {"output_regex": "("}}, {}, "output_regex"),
        ({"judge_instructions": 5}, {}, "judge_instructions"),
        ({"expected_answer": "a"}, {"mode": "rubric"}, "rubric"),
    ],
)
async def test_a_broken_row_is_refused_by_key(
    row: dict[str, Any], options: dict[str, Any], field: str
) -> None:
    environment = LlmJudgeEnvironment(**options)
    async with served(environment, model_services={"judge": in_turn("")}) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(task(**row))
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert field in caught.value.message


def _quoting(verdict: str) -> ScriptedJudge:
    """A judge that quotes the answer before and after its reasons."""

    def reply(seen: Seen) -> str:
        said = seen.pieces.get("generated_answer") or seen.pieces["response"]
        return f"{said}\nThe answer says: {said}\nThat is wrong.\n{verdict}"

    return ScriptedJudge(reply)


@pytest.mark.parametrize("row", ["equivalence", "rubric", "score"])
async def test_an_answer_cannot_judge_itself(row: str) -> None:
    rows: dict[str, tuple[dict[str, Any], str]] = {
        "equivalence": ({"expected_answer": "Paris"}, "[[A!=B]]"),
        "rubric": ({"rubric": ["It is right."]}, "[[NO]]"),
        "score": ({"judge_instructions": "Right?"}, "[[1]]"),
    }
    payload, verdict = rows[row]
    judge = _quoting(verdict)
    skeletons = set()
    async with served(LlmJudgeEnvironment(), model_services={"judge": judge}) as mesh:
        for answer in ["plain", *INJECTIONS]:
            verification = await mesh.verify(
                of=task(**payload), transcript=[new_message("assistant", answer)]
            )
            assert verification.reward == 0.0, answer
        skeletons = {seen.skeleton for seen in judge.seen}
        names = {tuple(seen.pieces) for seen in judge.seen}
    # Whatever the answer is, what speaks to the judge outside the markers is the same.
    assert len(skeletons) == len(names) == 1
    # An answer of nothing but thoughts is none, and not shown.
    assert len(judge.seen) >= len(INJECTIONS) - 2 >= 40


async def test_a_recorded_judge_in_a_model_service(tmp_path: Path) -> None:
    recording = tmp_path / "judge.jsonl"
    recording.write_text('{"match": "*", "answers": [{"text": "Same.\\n[[A=B]]"}]}\n')
    model = ModelService(ModelConfig(backend="replay", path=str(recording)), "judge", "judge-0")
    directory = PeerDirectory()
    await model.open(directory)
    try:
        verification = await judged(model.servicers()[MODEL], "Paris")
    finally:
        await model.close()
        await directory.close()
    assert verification.reward == 1.0


async def test_no_more_questions_at_a_time_than_allowed() -> None:
    open_now, most = 0, 0

    class Slow(ScriptedJudge):
        async def CreateResponse(
            self, request: model_pb2.CreateResponseRequest, context: CallContext
        ) -> model_pb2.CreateResponseResponse:
            nonlocal open_now, most
            open_now += 1
            most = max(most, open_now)
            await asyncio.sleep(0)
            open_now -= 1
            return await super().CreateResponse(request, context)

    row = {"rubric": [f"criterion {number}" for number in range(9)]}
    verification = await judged(Slow(lambda _: "[[YES]]"), "Paris", row, judge_concurrency=2)
    assert verification.reward == 1.0
    assert most == 2


@pytest.mark.golden
@pytest.mark.parametrize("mode", ["rule", "equivalence"])
async def test_agrees_with_recorded_rewards(golden_dir: Path, mode: Any) -> None:
    """By rule as recorded, and by a judge that goes by the same rule."""

    def reply(seen: Seen) -> str:
        given, wanted = seen.pieces["generated_answer"], seen.pieces["expected_answer"]
        return "[[A=B]]" if normalised(given) == normalised(wanted) else "[[A!=B]]"

    path = golden_dir / "equivalence_rule.example_rollouts.jsonl"
    rollouts = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {rollout["reward"] for rollout in rollouts} == {0.0, 1.0}
    own = ("responses_create_params", "response", "reward")
    environment = LlmJudgeEnvironment(mode=mode)
    environment.compat = "nemo"
    async with served(environment, model_services={"judge": ScriptedJudge(reply)}) as mesh:
        for rollout in rollouts:
            row = {key: value for key, value in rollout.items() if key not in own}
            if mode != "rule":
                del row["agent_ref"]  # names the server that goes by the rule alone
            verification = await mesh.verify(
                of=task(**row),
                transcript=[item_from_json(item) for item in rollout["response"]["output"]],
            )
            assert verification.reward == rollout["reward"]
