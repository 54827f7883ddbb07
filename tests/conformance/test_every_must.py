"""Every sentence of the contract that says MUST has a case, or a reason why none can see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from gymmesh_conformance.cases import SUITES, load_cases
from gymmesh_conformance.collectors import load_collector_cases
from gymmesh_conformance.mux.runner import load_mux_cases

_CONTRACT: Final = Path(__file__).parents[2] / "proto" / "gymmesh"

#: By words of the sentence: the cases that show it, or why nobody outside can.
_SHOWN: Final[Mapping[str, tuple[str, ...] | str]] = {
    # TRANSPORT.md
    "MUST accept connections without TLS": ("resource/says_what_it_is", "model/says_what_it_is"),
    "MUST NOT ping a server": ("agent/waits_for_a_slow_model", "collector/waits_for_a_slow_agent"),
    "messages of up to 64 MiB (67,108,864 bytes)": (
        *("resource/takes_large_messages", "model/takes_large_messages"),
        *("agent/takes_large_messages", "agent/is_ready_for_large_answers"),
        "discovery/ignores_unknown_fields_and_takes_large_messages",
    ),
    "MUST accept uncompressed messages": ("resource/says_what_it_is", "model/says_what_it_is"),
    "MUST NOT compress unless": "gRPC libraries hand messages over decompressed",
    "MUST give them no more than the time that remains": ("agent/hands_its_deadline_on",),
    "MUST NOT fail for want of one": (
        *("resource/metadata_that_nobody_knows", "model/metadata_that_nobody_knows"),
        *("agent/metadata_that_nobody_knows", "discovery/metadata_that_nobody_knows"),
        "mux/metadata_of_a_call",
    ),
    "MUST serve `grpc.health.v1.Health`": (
        *("resource/says_that_it_is_healthy", "model/says_that_it_is_healthy"),
        *("agent/says_that_it_is_healthy", "discovery/says_that_it_is_healthy"),
        *("resource/goes_down", "model/goes_down", "agent/goes_down", "discovery/goes_down"),
    ),
    "MUST take them": ("resource/keeps_open_sessions_while_it_goes_down",),
    "MUST NOT open further sessions": ("resource/keeps_open_sessions_while_it_goes_down",),
    "MUST expect a bare DEADLINE_EXCEEDED": "what a caller expects leaves no trace",
    # The comments
    "must pass every parameter of `params` to its backend": ("model/drops_no_parameter",),
    "must ignore deltas of an unknown kind": "a reader's own choice leaves no trace",
    "must be treated as PEER_UNAVAILABLE": ("collector/a_stream_without_an_end_is_not_data",),
    "must send the whole conversation": "only the caller knows what it changed",
    "must then send the whole conversation": "only the caller knows what it changed",
    "Agents and models must not read the payload": ("agent/single_answer",),  # its world tells
    "must not be read as 0": ("collector/not_judged_is_not_zero",),
    "must refuse the document rather than drop": "of the codec: see the codec vectors",
    "Whether the model's host must keep": "not a rule of the contract but of the endpoint",
    "must also expect a DEADLINE_EXCEEDED without": "what a caller expects leaves no trace",
    "must be `hello`": ("agent/collect_begins_with_hello",),
    "each task must name its own": ("agent/needs_an_environment",),
    "The digest that the image must have": ("sandbox/image_of_another_digest",),
    "and drop the groups that it has not acknowledged": "a consumer's own groups leave no trace",
    "exceed the number of finished groups": "the suite has no runs: see the tests of groups",
    "a consumer must leave `after_cursor` zero": "the suite has no runs: see the tests of groups",
    "The collector must - send nothing until": "the suite has no runs: see the tests of groups",
    "The reader must compare the digest": "a reader's own check leaves no trace",
    "A reader must check this digest before": "a reader's own check leaves no trace",
    "a reader must use the row of the earlier call": "a reader's own choice leaves no trace",
    "A trainer must not learn from tokens": "what a trainer learns from leaves no trace",
    "The server must answer without calling the endpoint": ("model/says_what_it_is",),
    "a reader must not use it as data": ("collector/a_stream_without_an_end_is_not_data",),
    "a reader must not infer one": ("collector/not_judged_is_not_zero",),
    "the instance must register again": ("discovery/renews_no_lease_that_is_not_there",),
    "Such an offer must have the same identity": "the suite has no relay: see the tests of relays",
    "All later calls, including Verify, must be sent": "a world has one instance of each service",
    "Every later call must be sent to this instance": "a world has one instance of each service",
    "must call neither CallTool nor NextTurn": "a caller's own choice: see the tests of episodes",
    "the server must not show it in an answer": "what never appears: see the tests of episodes",
    "the agent must call NextTurn": ("agent/turns_until_done",),
    "the agent must send each call after the answer": ("agent/calls_in_order",),
    "the answers among which the model must choose": "describes a field",
    "A message that was begun must be finished": (
        *("mux/a_request_that_is_late", "mux/a_request_that_does_not_come"),
        "mux/cancels_in_the_middle_of_a_request",
    ),
}


def _sentences() -> list[str]:
    """The sentences with the word, of TRANSPORT.md and of the comments of every file."""
    texts = [(_CONTRACT / "TRANSPORT.md").read_text(encoding="utf-8").replace("\n- ", ".\n")]
    for path in sorted(_CONTRACT.glob("*/v1/*.proto")):
        comments = re.findall(r"^ *//(.*)$|^(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        texts.append("\n".join(comment or "." for comment, _ in comments))
    parts = [part for text in texts for part in re.split(r"[.;](?=\s)|\n\.\n", text)]
    plain = [" ".join(part.split()) for part in parts]
    return [
        one
        for one in plain
        if re.search(r"\b(MUST|must)\b", one) and "meant as in RFC 2119" not in one
    ]


@pytest.mark.parametrize("sentence", _sentences())
def test_a_sentence_that_says_must(sentence: str) -> None:
    if sentence.startswith("The conformance suite has a case for each MUST"):
        return
    known = [words for words in _SHOWN if words in sentence]
    assert known, "it has no case: write one, or say here why none can see it"


def test_no_words_are_left_over() -> None:
    text = "\n".join(_sentences())
    assert [words for words in _SHOWN if words not in text] == []


def test_the_cases_are_there() -> None:
    there = {f"{suite}/{case.name}" for suite in SUITES for case in load_cases(suite)}
    there |= {f"collector/{case.name}" for case in load_collector_cases()}
    there |= {f"mux/{case.name}" for case in load_mux_cases()}
    named = {name for shown in _SHOWN.values() if isinstance(shown, tuple) for name in shown}
    assert named <= there
