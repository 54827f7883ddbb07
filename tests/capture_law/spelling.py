"""How a random program spells what it sends back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.minted import Minted
from tests.capture_law.compare import flat
from tests.capture_law.truth import RESPELLED, Segment, TrueCall
from tests.unit.gateway_tree.wire import TAG, call, message

INVALID = b'{"broken'
#: What a dialect sends where the arguments are no JSON object.
PLACEHOLDER = b'{"not_an_object":true}'


@dataclass(frozen=True)
class Habits:
    """How a program spells its history, and what it says of itself."""

    program: str
    sessions: bool
    sub_agent_ids: bool
    call_ids: str  # minted, own, own by place: each answer has the same
    message_ids: bool
    reasoning: str  # kept, anonymous, dropped
    arguments: str  # verbatim, javascript, pretty
    objects_only: bool
    texts: str  # plain, parts, split, stripped
    texts_first: bool

    @classmethod
    def drawn(cls, rng: Random) -> Habits:
        """Of a random program."""
        program = rng.choice(["", "", "claude-code", "codex", "opencode", "mini-swe-agent"])
        return cls(
            program=program,
            sessions=program in ("claude-code", "codex", "opencode") or rng.random() < 0.2,
            sub_agent_ids=rng.random() < 0.6,
            call_ids=rng.choices(["minted", "own", "own by place"], [88, 8, 4])[0],
            message_ids=rng.random() < 0.3,
            reasoning=rng.choice(["kept", "anonymous", "dropped"]),
            arguments=rng.choice(["verbatim", "javascript", "pretty"]),
            objects_only=rng.random() < 0.5,
            texts=rng.choice(["plain", "parts", "split", "stripped"]),
            texts_first=rng.random() < 0.5,
        )

    def echoed(self, asked: TrueCall, rng: Random) -> Segment:
        """A recorded answer as the program has it in its history."""
        wire: list[pb.Item] = []
        is_named, calls = False, 0
        for place, item in enumerate(asked.output):
            minted = Minted(TAG, asked.call_id, place).id("call")
            if item.HasField("reasoning"):
                if self.reasoning != "dropped":
                    copied = pb.Item()
                    copied.CopyFrom(item)
                    if self.reasoning == "kept":
                        copied.reasoning.id, is_named = minted, True
                    wire.append(copied)
            elif item.HasField("message"):
                wire += self._text(item.message.text, minted)
                is_named = is_named or self.message_ids
            else:
                wire_id, calls = minted, calls + 1
                if self.call_ids == "own":
                    wire_id = f"own-{rng.random()}"
                elif self.call_ids == "own by place":
                    wire_id = f"call-{calls}"
                else:
                    is_named = True
                name, arguments = item.function_call.name, item.function_call.arguments
                wire.append(call(name, self._arguments(arguments), wire_id))
        if self.texts_first:
            wire.sort(key=lambda item: item.HasField("function_call"))
        true = asked.output
        is_lost = self.objects_only and INVALID in arguments_of(true)
        if is_lost and not is_named:
            # Nothing on the wire says what this was: the program wrote it anew.
            return Segment(("lost", str(flat(wire))), tuple(wire), true, asked, RESPELLED)
        return Segment(("ans", asked.number), tuple(wire), true, asked, is_named=is_named)

    def _text(self, text: str, minted: str) -> list[pb.Item]:
        id = minted if self.message_ids else ""
        if self.texts == "stripped":
            return [message("assistant", text.strip(), id=id)]
        if self.texts == "parts" and len(text) > 2:
            return [message("assistant", text[:2], text[2:], id=id)]
        if self.texts == "split" and len(text) > 2 and not id:
            return [message("assistant", text[:2]), message("assistant", text[2:])]
        return [message("assistant", text, id=id)]

    def _arguments(self, arguments: bytes) -> bytes:
        if arguments == INVALID:
            return PLACEHOLDER if self.objects_only else arguments
        if self.arguments == "verbatim":
            return arguments
        value = json.loads(arguments)
        if self.arguments == "pretty":
            return json.dumps(value, indent=2, sort_keys=True).encode()
        if "n" in value:
            value["n"] = 1
        return json.dumps(value, separators=(",", ":")).encode()


def arguments_of(items: Sequence[pb.Item]) -> list[bytes]:
    """The arguments of the calls among these items."""
    return [item.function_call.arguments for item in items if item.HasField("function_call")]
