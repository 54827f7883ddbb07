"""The table of side calls: what programs ask beside their conversation. Data in side_calls.yaml."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import msgspec

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.request import GatewayRequest
from gymmesh_agent.gateway.tree.normal_form import is_preamble_item, message_text_of

COMPACTION: Final = "compaction"


class SideCallRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the table; side_calls.yaml says what the conditions mean."""

    kind: str
    trained: bool = False
    request_kind: str = ""
    system: str = ""
    first: str = ""
    last: str = ""
    no_tools: bool = False
    most_output_tokens: int | None = None

    def holds(self, request: GatewayRequest, texts: _RequestTexts) -> bool:
        """Whether a request fulfils every condition."""
        if self.request_kind and self.request_kind != request.hints.request_kind:
            return False
        if self.no_tools and request.tools:
            return False
        if self.most_output_tokens is not None:
            asked = request.params.get("max_output_tokens")
            if not isinstance(asked, int) or asked > self.most_output_tokens:
                return False
        return self.system in texts.system and self.first in texts.first and self.last in texts.last


class ProgramHabits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a program's calls; side_calls.yaml says what the fields mean."""

    program: str
    user_agents: tuple[str, ...] = ()
    tools_always: bool = False
    own_answers: tuple[str, ...] = ()
    calls: tuple[SideCallRule, ...] = ()


class _RequestTexts(msgspec.Struct, frozen=True):
    """The texts of a request that the conditions look at."""

    system: str
    first: str
    last: str


PROGRAM_HABITS: Final = msgspec.yaml.decode(
    files(__package__).joinpath("side_calls.yaml").read_bytes(), type=tuple[ProgramHabits, ...]
)
"""The whole table."""

_BY_PROGRAM: Final = {habits.program: habits for habits in PROGRAM_HABITS}
_BY_USER_AGENT: Final = {
    name.lower(): habits for habits in PROGRAM_HABITS for name in habits.user_agents
}
_NONE: Final = ProgramHabits(program="")


def habits_of(program: str, user_agent: str) -> ProgramHabits:
    """What is known of a program, by its name or by its User-Agent's; nothing of an unknown one."""
    return _BY_PROGRAM.get(program) or _BY_USER_AGENT.get(user_agent.lower()) or _NONE


def side_call_of(habits: ProgramHabits, request: GatewayRequest) -> SideCallRule | None:
    """The line of the table that explains a request; None: it belongs to a conversation."""
    texts = _texts_of(request)
    return next((rule for rule in habits.calls if rule.holds(request, texts)), None)


def _texts_of(request: GatewayRequest) -> _RequestTexts:
    items = request.items
    system = [request.instructions]
    for item in items:
        if not is_preamble_item(item):
            break
        system.append(message_text_of(item))
    first = next((message_text_of(item) for item in items if _is_user(item)), "")
    # Some programs put system text behind the last message.
    behind = next((item for item in reversed(items) if not is_preamble_item(item)), None)
    last = message_text_of(behind) if behind is not None and _is_user(behind) else ""
    return _RequestTexts("\n".join(system), first, last)


def _is_user(item: pb.Item) -> bool:
    return item.WhichOneof("kind") == "message" and item.message.role == "user"
