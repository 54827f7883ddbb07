"""Rollouts of a help desk, as gym-cli writes them: tools that fail, token ids, and a vocabulary."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import completed_row, fold
from gymmesh_responses import dumps, function_call_output, item_from_json
from tests.support.rollouts import answer, completed, make_events, make_task, verdict

Json = dict[str, Any]
#: Of these repeats the first finds the ticket, the second asks for one that is not there.
TASK: Final = "desk-1"
_WORD: Final = re.compile(r"\s?\w+|\s+|[^\w\s]")
_SIGNS: Final = {" ": "\u0120", "\n": "\u010a"}
_LATENCY_US: Final = 640_000
_ANSWERS: Final = (
    ("The ticket is open.\nIt waits for the customer\u2019s answer \u2615.", 1.0),
    ("I can\u2019t find the ticket.", 0.1),
)


def vocabulary() -> dict[str, int]:
    """Pieces of a byte-level vocabulary that spells all that is said here; unknown are bytes."""
    byte_signs = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in byte_signs]
    pieces = [chr(byte) for byte in byte_signs] + [chr(0x100 + at) for at in range(len(others))]
    said = [text for text, _ in _ANSWERS] + [
        _called(name, arguments) for name, arguments in (("find", {"ticket": 41}), ("reply", {}))
    ]
    words = {word for text in said for word in _WORD.findall(text) if word.isascii()}
    pieces += sorted("".join(_SIGNS.get(sign, sign) for sign in word) for word in words)
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}


def write_tokenizer(path: Path) -> Path:
    """A tokenizer.json of `vocabulary`, with a token for the end of a turn."""
    pieces = vocabulary()
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [{"id": len(pieces), "content": "<|end|>", "special": True}],
                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                "decoder": {"type": "ByteLevel"},
                "model": {"type": "BPE", "vocab": pieces, "merges": []},
            }
        )
    )
    return path


def write_desk(path: Path, run_ids: tuple[str, ...] = ("run-night-7",)) -> Path:
    """A file of two repeats of each run: in one a tool fails in each of the ways it can."""
    with path.open("wb") as file:
        for run_id in run_ids:
            for repeat in (0, 1):
                file.write(dumps(_row(repeat, run_id, len(run_ids) > 1)) + b"\n")
    return path


def _row(repeat: int, run_id: str, several: bool) -> Json:
    said, reward = _ANSWERS[repeat]
    calls = [("find", {"ticket": 41}, "OK", '{"ticket": 41, "state": "open"}')]
    if repeat:
        calls = [
            ("find", {"ticket": 14}, "TOOL_ERROR", "NotFound: no ticket 14; the newest is 41"),
            ("find", {"number": 41}, "BAD_ARGUMENTS", "'ticket' is a required property"),
            ("reply", {}, "UNKNOWN_TOOL", "There is no tool 'reply'. Tools: find"),
        ]
    bodies: list[pb.RolloutEvent] = []
    held = [1, 2, 3]
    for step, (name, arguments, outcome, output) in enumerate(calls):
        bodies += _called_and_answered(step, held, name, arguments, outcome, output)
    last = answer(said, "c-last")
    last.model_call_completed.parent_call_id = f"c{len(calls) - 1}"
    bodies.append(_with_tokens(last, held, said))
    judged = verdict(reward, expected="open", said=said)
    judged.verified.verification.verifier = "desk"
    for name, value, weight in (("state", float(not repeat), 0.9), ("polite", 1.0, 0.1)):
        part = judged.verified.verification.components.add()
        part.name, part.value, part.weight = name, value, weight
    judged.verified.timings.total_us = 1_200
    end = completed()
    end.completed.duration_us = (len(calls) + 1) * _LATENCY_US + 60_000
    name = f"ro-{TASK}-{repeat}" + (f"-{run_id}" if several else "")
    task = make_task(TASK)
    del task.params.input[:]
    asked = {"type": "message", "role": "user", "content": "Is ticket 41 still open?"}
    task.params.input.append(item_from_json(asked))
    task.environment = "desk"
    events = make_events(name, 1, *bodies, judged, end, task=task)
    events[0].started.environment = "desk"
    row: Json = completed_row(task, fold(events, name, task_id=TASK))
    return row | {"run_id": run_id, "repeat_index": repeat}


def _called_and_answered(
    step: int, held: list[int], name: str, arguments: Json, outcome: str, output: str
) -> list[pb.RolloutEvent]:
    asked = answer("", f"c{step}")
    call = asked.model_call_completed
    call.parent_call_id = f"c{step - 1}" if step else ""
    del call.response.output[:]
    thought = "The customer names a ticket; look it up." if not step else "Look again."
    call.response.output.append(
        item_from_json(
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]}
        )
    )
    made = {"type": "function_call", "name": name, "call_id": f"f{step}"}
    call.response.output.append(item_from_json(made | {"arguments": json.dumps(arguments)}))
    answered = pb.RolloutEvent()
    tool = answered.tool_call_completed
    tool.call_id, tool.name, tool.model_call_id = f"f{step}", name, f"c{step}"
    tool.output.CopyFrom(function_call_output(f"f{step}", output))
    tool.outcome = pb.ToolOutcome.Value(f"TOOL_OUTCOME_{outcome}")
    tool.timings.total_us = 18_000 + step
    return [_with_tokens(asked, held, _called(name, arguments)), answered]


def _called(name: str, arguments: Json) -> str:
    return f"{name} {json.dumps(arguments)}"


def _with_tokens(event: pb.RolloutEvent, held: list[int], said: str) -> pb.RolloutEvent:
    """The same model call with the token ids of a text, by `vocabulary`; `held` is its prompt, and
    grows by them.
    """
    known = vocabulary()
    ids: list[int] = []
    for word in _WORD.findall(said):
        whole = known.get("".join(_SIGNS.get(sign, sign) for sign in word))
        ids += [whole] if whole is not None else [known[_sign(byte)] for byte in word.encode()]
    ids.append(len(known))
    call = event.model_call_completed
    logprobs = [-0.02 * (at % 7) ** 2.6 for at in range(len(ids))]
    call.tokens.prompt_token_ids = struct.pack(f"<{len(held)}i", *held)
    call.tokens.output_token_ids = struct.pack(f"<{len(ids)}i", *ids)
    call.tokens.logprobs = struct.pack(f"<{len(ids)}f", *logprobs)
    held += ids
    call.timings.total_us = _LATENCY_US
    call.response.usage.output_tokens = len(ids)
    return event


def _sign(byte: int) -> str:
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in shown:
        return chr(byte)
    return chr(0x100 + [one for one in range(256) if one not in shown].index(byte))
