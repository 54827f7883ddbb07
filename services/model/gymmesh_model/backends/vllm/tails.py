"""Has the tails of append-only prompts rendered, and checks once that they are valid.

`gymmesh_model.tokens.append_only` explains tails and the check. A tail costs two renderings of a
short conversation with its system messages. The first tail of each shape costs about sixteen
renderings.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.tokens import (
    MARKS,
    OTHER_MARKS,
    Ends,
    Marks,
    NewMessages,
    Prefix,
    Shape,
    answer,
    behind,
    common_tail,
    histories,
)
from gymmesh_runtime.errors import MeshError

Json = dict[str, Any]
Render = Callable[[list[Json], bool], Awaitable[bytes]]
"""Returns the tokens of messages as the template renders them. The flag: whether the rendering ends
where the next answer begins. Raises MeshError; MODEL_REQUEST_REFUSED if the template refuses the
messages.
"""

# Tools and template arguments of this many kinds are known at a time.
_MOST_SHAPES: Final = 512
_DEPENDS: Final = "the text that the template appends to an answer depends on earlier messages"


class NoTail(Exception):
    """The prompt cannot be append-only; the message is a clause that says why."""


class _Refused(NoTail):
    """The template refuses these messages. It may accept others."""


class _Depends(NoTail):
    """The tail depends on more than the new messages."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """ends: None if tails of this shape can't be used; `reason` says why. calls: how many calls the
    invented answer has.
    """

    ends: Ends | None
    reason: str = ""
    calls: int = 0


class Tails:
    """The tails of one tokenizer's prompts, and the shapes that were checked."""

    def __init__(self) -> None:
        self._checked: OrderedDict[tuple[bytes, Shape], _Checked] = OrderedDict()
        self._checking: dict[tuple[bytes, Shape], asyncio.Lock] = {}

    async def behind(
        self, prefix: Prefix, new: NewMessages, settings: bytes, render: Render
    ) -> bytes:
        """The tokens after the prefix.

        settings: a digest of the tools and the template's arguments, which `render` applies.
        Raises NoTail, and the errors of `render` except a template's refusal.
        """
        checked = await self._check(new, (settings, new.shape), render)
        if checked.ends is None:
            raise NoTail(checked.reason)
        tail = await _tail(_with_calls(new, checked.calls), render)
        found = behind(prefix, tail, checked.ends)
        if found is None:
            raise NoTail("the template does not show where the earlier answer ends")
        return found

    async def _check(self, new: NewMessages, key: tuple[bytes, Shape], render: Render) -> _Checked:
        known = self._checked.get(key)
        if known is not None:
            self._checked.move_to_end(key)
            return known
        # Rollouts that begin together ask for one check.
        lock = self._checking.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if (known := self._checked.get(key)) is None:
                    known = await _checked(new, render)
                    self._checked[key] = known
                    if len(self._checked) > _MOST_SHAPES:
                        self._checked.popitem(last=False)
        finally:
            # Those that wait have the lock; later calls find the result, or check again.
            if self._checking.get(key) is lock:
                del self._checking[key]
        return known


async def _checked(new: NewMessages, render: Render) -> _Checked:
    """The result of the check for new messages of this shape. Raises NoTail if these messages can't
    show the result.
    """
    failure: NoTail | None = None
    # Some templates take one tool call an answer, and some leave calls out.
    for calls in sorted({len(new.calls), min(1, len(new.calls)), 0}, reverse=True):
        try:
            return _Checked(await _ends(_with_calls(new, calls), render), calls=calls)
        except _Depends as error:
            # Fewer calls would only hide it: the tail behind the real answer is not known.
            return _Checked(None, str(error))
        except NoTail as error:
            failure = failure or error
    if isinstance(failure, _Refused):
        raise failure
    return _Checked(None, str(failure))


async def _ends(new: NewMessages, render: Render) -> Ends:
    """The template's ends after an answer. Raises NoTail; _Depends if the tail depends on more than
    the new messages.
    """
    first, *others = histories(new)
    tail = await _tail(new, render)
    if not tail:
        raise NoTail("the template renders nothing after an answer")
    others_tails = [
        await _tail_or_none(new, render, reasons=True),
        *[await _tail_or_none(new, render, history=one) for one in others],
    ]
    if not new.calls:  # behind a call, its rest separates the mark from the answer's end
        others_tails += [await _tail_or_none(new, render, marks=one) for one in OTHER_MARKS]
    compared = {one for one in others_tails if one is not None}
    if not compared:
        raise NoTail("the template refuses every second test conversation for a comparison")
    if compared != {tail}:
        raise _Depends(_DEPENDS)
    for place, message in enumerate(new.messages):
        if message["role"] not in ("user", "tool"):
            left = [*new.messages[:place], *new.messages[place + 1 :]]
            without = replace(new, messages=left)
            if await _tail_or_none(without, render) == tail:
                raise NoTail(f"the template moves a later {message['role']} message")
    plain = await _end((), first, render)
    return Ends(await _end(new.calls, first, render) if new.calls else plain, plain)


async def _tail(
    new: NewMessages,
    render: Render,
    *,
    history: list[Json] | None = None,
    marks: Marks = MARKS,
    reasons: bool = False,
) -> bytes:
    """The tail of new messages. Raises NoTail if the template refuses the messages."""
    before = histories(new)[0] if history is None else history
    try:
        one, two = [
            await render([*before, answer(new.calls, mark, reasons=reasons), *new.messages], True)
            for mark in marks
        ]
    except MeshError as error:
        if error.reason != errors.ERROR_REASON_MODEL_REQUEST_REFUSED:
            raise
        raise _Refused(
            f"the chat template refuses the short test conversation: {error.message}"
        ) from None
    if one == two:
        raise NoTail("the template omits the answer")
    return common_tail(one, two)


async def _tail_or_none(new: NewMessages, render: Render, **how: Any) -> bytes | None:
    try:
        return await _tail(new, render, **how)
    except NoTail:
        return None


async def _end(calls: Sequence[Json], history: list[Json], render: Render) -> bytes:
    """The tokens that the template puts after a last answer with these calls; empty if the template
    refuses the answer.
    """
    try:
        one, two = [await render([*history, answer(calls, mark)], False) for mark in MARKS]
    except MeshError as error:
        if error.reason != errors.ERROR_REASON_MODEL_REQUEST_REFUSED:
            raise
        return b""
    return common_tail(one, two)


def _with_calls(new: NewMessages, calls: int) -> NewMessages:
    """The same new messages after an answer that has only the first `calls` tool calls."""
    return replace(new, calls=new.calls[:calls])
