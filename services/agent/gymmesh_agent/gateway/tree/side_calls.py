"""The table of side calls: calls that programs make beside their conversation. Its data is in
side_calls.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Final

import msgspec

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.request import GatewayRequest
from gymmesh_agent.gateway.tree.normal_form import is_preamble_item, message_text_of, user_texts

COMPACTION: Final = "compaction"
# The kind of a side call is its actor's name.
_KIND: Final = re.compile(r"^[a-z][a-z0-9_]{0,39}$")


class SideCallRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the table, or one of an agent's own lines; side_calls.yaml explains the
    conditions.

    Raises:
        ValueError: an invalid line; the message names the key.
    """

    kind: str
    trained: bool = False
    request_kind: str = ""
    system: str = ""
    first: str = ""
    last: str = ""
    no_tools: bool = False
    most_output_tokens: int | None = None

    def __post_init__(self) -> None:
        if not _KIND.match(self.kind):
            raise ValueError(
                f"kind: {self.kind[:80]!r} is not a word of at most 40 lowercase letters, digits "
                "and underscores, such as 'title'"
            )
        if self.trained != (self.kind == COMPACTION):
            raise ValueError(
                "trained: must be true if 'kind' is 'compaction', and false for every other kind, "
                "because a trainer learns only from compactions"
            )
        if not (self.request_kind or self.system or self.first or self.last or self.no_tools):
            raise ValueError(
                "kind: the side call has no condition and would match every model call; add one of "
                "the keys 'request_kind', 'system', 'first', 'last' and 'no_tools'"
            )

    def holds(self, request: GatewayRequest, texts: _RequestTexts, offers_tools: bool) -> bool:
        """Whether a request fulfils every condition."""
        if self.request_kind and self.request_kind != request.hints.request_kind:
            return False
        if self.no_tools and offers_tools:
            return False
        if self.most_output_tokens is not None:
            asked = request.params.get("max_output_tokens")
            if not isinstance(asked, int) or asked > self.most_output_tokens:
                return False
        return self.system in texts.system and self.first in texts.first and self.last in texts.last


class ProgramHabits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a program's calls; side_calls.yaml explains the fields."""

    program: str
    user_agents: tuple[str, ...] = ()
    tools_always: bool = False
    answer_tools: tuple[str, ...] = ()
    own_answers: tuple[str, ...] = ()
    calls: tuple[SideCallRule, ...] = ()


class _RequestTexts(msgspec.Struct, frozen=True):
    """The texts of a request that the conditions look at. A text that an answer of the model
    passed to a tool is omitted: it is a sub-agent's prompt, whatever it says.
    """

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


def habits_of(program: str, user_agent: str, own: Sequence[SideCallRule] = ()) -> ProgramHabits:
    """What is known of a program, by its name or its User-Agent, after the agent's own lines;
    for an unknown program, only the agent's own lines.
    """
    known = _BY_PROGRAM.get(program) or _BY_USER_AGENT.get(user_agent.lower()) or _NONE
    return msgspec.structs.replace(known, calls=(*own, *known.calls)) if own else known


def side_call_of(
    habits: ProgramHabits, request: GatewayRequest, was_written: Callable[[list[str]], bool]
) -> SideCallRule | None:
    """The line that matches a request; None: the request belongs to a conversation.

    Args:
        was_written: whether one of the texts is, word for word, an argument of a tool call that the
            model wrote.
    """
    if not habits.calls:
        return None
    texts = _texts_of(request, was_written)
    offers_tools = any(tool.get("name") not in habits.answer_tools for tool in request.tools)
    return next((rule for rule in habits.calls if rule.holds(request, texts, offers_tools)), None)


def _texts_of(request: GatewayRequest, was_written: Callable[[list[str]], bool]) -> _RequestTexts:
    items = request.items
    system = [request.instructions]
    for item in items:
        if not is_preamble_item(item):
            break
        system.append(message_text_of(item))
    begins = next((item for item in items if _is_user(item)), None)
    # Some programs put system text behind the last message.
    behind = next((item for item in reversed(items) if not is_preamble_item(item)), None)

    def told(item: pb.Item | None) -> str:
        if item is None or not _is_user(item) or was_written(user_texts([item])):
            return ""
        return message_text_of(item)

    return _RequestTexts("\n".join(system), told(begins), told(behind))


def _is_user(item: pb.Item) -> bool:
    return item.WhichOneof("kind") == "message" and item.message.role == "user"
