"""Whether the work of a captured program may be another conversation than the main one. Pure.

A gateway takes the first conversation that begins for the main one. Where a program that is not
known asks for a title before its work, that is the title, and the work is an actor's beside it.

One place for collectors, which have messages, and for readers of rows: both have the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import Raw


class _OfferedTools(msgspec.Struct):
    tools: list[Raw] | None = None


_DECODER: Final = msgspec.json.Decoder(_OfferedTools)


class _ActorsCall(Protocol):
    @property
    def call_id(self) -> str: ...

    @property
    def actor(self) -> str: ...

    @property
    def side_call(self) -> str: ...


def work_elsewhere(calls: Sequence[_ActorsCall], asked: Mapping[str, bytes]) -> str:
    """What to say of a rollout whose main conversation is one call without tools, while another
    actor's calls had some; empty for every other.

    Args:
        calls: in the order in which they completed.
        asked: by the id of a call, the JSON of its annotation `gateway_request`. A call
            without one asked for the same as its actor's call before.
    """
    main = [call.call_id for call in calls if not call.actor]
    if len(main) != 1 or main[0] not in asked or _offers_tools(asked[main[0]]):
        return ""
    for call in calls:
        if not call.actor or call.side_call or call.call_id not in asked:
            continue
        if _offers_tools(asked[call.call_id]):
            return (
                f"the main conversation is one call without tools, but actor {call.actor} "
                "made calls with tools. The call without tools is scored, shown and "
                "exported. If this call is not the rollout's work (for example, if it makes "
                "a title), list this call in the agent's option `side_calls`"
            )
    return ""


def _offers_tools(asked: bytes) -> bool:
    try:
        return bool(_DECODER.decode(asked).tools)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # a file may hold anything; this names no tools
