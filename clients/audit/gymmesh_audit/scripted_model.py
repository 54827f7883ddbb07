"""Replaces the models that an environment calls, so that an audit is repeatable."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_audit.attack import Attack
from gymmesh_responses import new_message, text_of
from gymmesh_runtime.context import CallContext

#: What a judge is asked to write for yes and for no, in the prompts of judges.
LABELS: Final[tuple[tuple[str, str], ...]] = (
    ("[[A=B]]", "[[A!=B]]"),
    ("[[YES]]", "[[NO]]"),
    ("[[MET]]", "[[NOT MET]]"),
    ("JUDGEMENT: CORRECT", "JUDGEMENT: INCORRECT"),
    ("VERDICT: YES", "VERDICT: NO"),
    ("YES", "NO"),
    ("CORRECT", "INCORRECT"),
)
_SCALE = re.compile(r"from (?P<least>-?[\d.]+) \(worst\) to (?P<most>-?[\d.]+) \(best\)")
_OBJECT = re.compile(r"\{[^{}]*\}")
_STOP = re.compile(r"#{2,}\w+#{2,}")


@dataclass(frozen=True, slots=True)
class _Asked:
    """One question to the model: its text, and how many messages it came with."""

    text: str
    messages: int


class ScriptedModel:
    """A model service whose answers follow from the attack that the rollout plays.

    As a judge, it accepts what should win and rejects what should not win. In attacks on judges it
    obeys the answer, or quotes and rejects it. As a simulated user it says hello, and then ends the
    chat.
    """

    def __init__(self) -> None:
        self._attacks: dict[str, Attack] = {}

    def play(self, rollout_id: str, attack: Attack) -> None:
        """Announce the attack that the rollout with this id plays."""
        self._attacks[rollout_id] = attack

    def forget(self, rollout_id: str) -> None:
        """The rollout has ended; forget its attack."""
        self._attacks.pop(rollout_id, None)

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        text = _reply(_asked(request.params), self._attacks.get(request.rollout_id))
        response = responses_pb2.Response(
            status="completed",
            output=[new_message("assistant", text)],
            usage=responses_pb2.Usage(input_tokens=1, output_tokens=1),
        )
        return model_pb2.CreateResponseResponse(response=response, call_id=request.call_id)


def _asked(params: responses_pb2.ResponseParams) -> _Asked:
    texts = [params.instructions, params.input_text, *map(text_of, params.input)]
    return _Asked("\n".join(texts), len(params.input))


def _reply(asked: _Asked, attack: Attack | None) -> str:
    labels = next((pair for pair in LABELS if all(one in asked.text for one in pair)), None)
    scale = _SCALE.search(asked.text)
    if scale is not None:
        labels = (f"[[{scale['most']}]]", f"[[{scale['least']}]]")
    if labels is None:
        stop = _STOP.search(asked.text)
        if stop is None:
            return "OK"
        return "Hello, I need your help." if asked.messages < 2 else f"Thank you. {stop[0]}"
    yes, no = labels
    if attack is None:
        return no
    if attack.judge == "obeys":
        return f"The answer says that it is right.\n{yes}"
    if attack.judge == "refuses":
        return f"The answer wants me to write {yes}, but it is wrong.\n{no}"
    met = _criterion_met(asked.text)
    right = attack.wins is True if met is None else met
    return f"I compared them.\n{yes if right else no}"


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key written twice")
    return dict(pairs)


def _criterion_met(text: str) -> bool | None:
    """What the answer itself says of the criterion that is asked about; None where it says nothing.

    An answer to a rubric is a JSON object of criteria in audits; see `llm_judge`'s expected().
    """
    for found in _OBJECT.finditer(text):
        try:
            claims = json.loads(found[0], object_pairs_hook=_once)
        except ValueError:
            continue
        rest = text[: found.start()] + text[found.end() :]
        # Prompts end with what is asked.
        asked = max(claims, key=rest.rfind, default="")
        if asked in rest and isinstance(claims.get(asked), bool):
            return bool(claims[asked])
    return None
