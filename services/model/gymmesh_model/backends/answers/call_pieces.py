"""Tool calls that a stream brings in pieces, put together. Pure.

Servers agree neither on indices nor on ids: some give each call the index 0, some give each piece
another id, some give neither. So one rule decides, from names and arguments first:

1. A piece without a name continues the call of its index; without an index, the last call.
   So do bare arguments with a new index and no id, as long as the last call's are not whole.
2. A name where the call has no arguments yet is a piece of its name, unless the call's name is a
   tool's already and the longer one is not, or no tools are known and the ids differ. The whole
   name once more says nothing new.
3. A name after arguments that are a whole JSON object begins a new call.
4. A name after arguments that are not whole is the call's own name once more, or begins a new
   call where its index or id is another one. Anything else is no answer.
5. So a call without arguments ends with the next one's index, id or name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gymmesh_model.backends.calls import GrowingText
from gymmesh_model.convert import as_written, is_object
from gymmesh_model.errors import AnswerInvalid

Json = dict[str, Any]


class GrowingCall:
    """One call. place: of its output item."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.id = ""
        self.name: str | None = None  # not come yet
        self.arguments = GrowingText()

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are a JSON object, to which nothing can be added."""
        return is_object(str(self.arguments))

    def document(self) -> Json:
        """The call as a whole answer has it."""
        function: Json = {"arguments": str(self.arguments)}
        if self.name is not None:
            function["name"] = self.name
        return {"id": self.id, "type": "function", "function": function}


class CallPieces:
    """The calls of one answer. tools: the names of those the model was offered."""

    def __init__(self, tools: Collection[str] = ()) -> None:
        self.calls: list[GrowingCall] = []
        self._tools: Final = frozenset(tools)
        self._by_index: dict[int, GrowingCall] = {}

    def add(self, piece: Any, next_place: int) -> tuple[GrowingCall, str]:
        """Takes one piece: its call, and the text to hand on.

        next_place: of a call that begins with it. Raises AnswerInvalid.
        """
        if not isinstance(piece, Mapping):
            raise AnswerInvalid(
                "a chunk of the response's stream has a tool call that is not an object"
            )
        function = piece.get("function")
        function = function if isinstance(function, Mapping) else {}
        name, text = as_written(function.get("name")), as_written(function.get("arguments"))
        given, index = piece.get("id"), piece.get("index")
        call_id = given if isinstance(given, str) else ""
        index = index if type(index) is int else None
        bare = function.get("name") is None and bool(text)
        call = self._known(index, call_id, bare=bare)
        if call is not None and name and self._begins(call, name, call_id, text):
            call = None
        if call is None:
            call = GrowingCall(next_place)
            self.calls.append(call)
        if index is not None:
            self._by_index[index] = call
        call.id = call.id or call_id
        if name and name != call.name:
            call.name = (call.name or "") + name
        elif "name" in function and call.name is None:
            call.name = name
        return call, call.arguments.add(text)

    def _known(self, index: int | None, call_id: str, *, bare: bool) -> GrowingCall | None:
        """The call that the piece may continue. bare: whether it has arguments and no name."""
        last = self.calls[-1] if self.calls else None
        if index is None:
            same = (call for call in self.calls if call_id and call.id == call_id)
            return next(same, last)
        if index in self._by_index:
            return self._by_index[index]
        # Some servers count pieces rather than calls.
        goes_on = bare and not call_id and last is not None and not last.is_whole
        return last if goes_on else None

    def _begins(self, call: GrowingCall, name: str, call_id: str, text: str) -> bool:
        """Whether a piece with this name begins a new call, though `call` has its index."""
        other_id = bool(call_id and call.id and call_id != call.id)
        if not call.name:
            return False
        if str(call.arguments):
            if call.is_whole:
                # The end of a call may repeat what the call is.
                repeats = name == call.name and call_id and call_id == call.id and not text
                return not repeats
            if other_id:
                return True
            if name != call.name:
                raise AnswerInvalid(
                    f"the response's stream names the tool call {name[:100]!r} before the "
                    f"arguments of the tool call {call.name[:100]!r} are complete"
                )
            return False
        if name == call.name:
            return other_id
        if self._tools:
            longer = call.name + name
            if any(tool.startswith(longer) for tool in self._tools):
                return False
            if call.name in self._tools:
                return True
        return other_id
