"""A row as read from a file: its columns, the conversations in them, and its other keys.

Calls form a tree. The model read the conversation of the parent call, and then the call's own items
before its answer. The parts of the final call and its ancestors make up `response.output`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from gymmesh_responses import (
    CodecError,
    JsonValue,
    dumps_clean,
    loads,
    media_url,
    with_images_in_json,
)
from gymmesh_rows.columns import ModelCall, RowMetadata
from gymmesh_rows.columns import Row as Columns

COLUMNS: Final = frozenset(Columns.__struct_encode_fields__)
"""The keys of a row that are columns."""
METADATA_COLUMNS: Final = frozenset(RowMetadata.__struct_encode_fields__)
"""The keys of a row's `metadata` that are columns."""
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
ASKED: Final = ".gateway_request"
"""The end of the key of annotations that store a program's request without its conversation."""
_NOT_CAPTURED: Final = "UNSPECIFIED"
# Of the parameters, what is a program's alone; all others are the run's where it sets them.
_THE_PROGRAMS: Final = frozenset(("input", "instructions", "tools"))


class RowError(ValueError):
    """A row is invalid. The text names the key and the problem."""


class ActorConversation(NamedTuple):
    """A conversation of an actor other than the root agent, from its first call to a call that
    nobody continues.

    Attributes:
        before: the items that the actor read before its first call, including the first items if it
            continued them.
        after: the id of the other actor's call that it continues; this call's items are last in
            `before`.
        calls: the actor's calls.
        said_before: how many items of the first call's part are also in `before`. For rows that
            don't record which calls these items belong to.
    """

    before: list[Raw]
    after: str
    calls: list[ModelCall]
    said_before: int = 0


class Row(Columns, dict=True):
    """A row of a run's file. Do not change it or its parts.

    Every method that follows the calls raises RowError if the calls do not form a tree.
    """

    @property
    def line(self) -> bytes:
        """The JSON line from which the row was read."""
        line: bytes = self.__dict__["line"]
        return line

    @cached_property
    def params(self) -> Mapping[str, Any]:
        """`responses_create_params`, parsed, with the images in its input that it names."""
        params: dict[str, Any] = parsed(self.responses_create_params)
        if "input" in params:
            params["input"] = with_images_in_json(params["input"], self.images)
        return params

    @cached_property
    def images(self) -> Mapping[str, str]:
        """The data URLs of the row's media, by the URLs with which its items name them."""
        return {
            media_url(one.digest): f"data:{one.media_type};base64,{one.data}" for one in self.media
        }

    def items(self, texts: list[Raw]) -> list[Any]:
        """Items of the row, parsed, with the images in them that they name. Items share the text of
        an image that several of them have.
        """
        found: Any = parsed(b"[%b]" % b",".join(map(bytes, texts)))
        items: list[Any] = with_images_in_json(found, self.images)
        return items

    @cached_property
    def members(self) -> Mapping[str, Raw]:
        """The keys of the row as written in its file, with values that are not parsed."""
        return members_of(self.line)

    @cached_property
    def extras(self) -> Mapping[str, JsonValue]:
        """The keys that are not columns, with parsed values: the task's own keys, and keys of the
        evidence.
        """
        return {key: parsed(value) for key, value in self.members.items() if key not in COLUMNS}

    def sent_params(self, call: ModelCall) -> Mapping[str, Any]:
        """The parameters of a call without the input, including `tools` and `instructions`. For a
        program's call: the program's own parameters, overridden by the run's parameters. For any
        other call: the row's parameters.

        Raises RowError if a gateway's annotation does not have a gateway's form.
        """
        run = {key: value for key, value in self.params.items() if key != "input"}
        note = self._asked.get(call.call_id)
        if note is None:
            return run
        asked = parsed(note)
        if type(asked) is not dict:
            raise RowError(f"annotations: {ASKED[1:]}: must be an object")
        programs = asked.get("params") or {}
        if type(programs) is not dict:
            raise RowError(f"annotations: {ASKED[1:]}.params: must be an object")
        told = {key: value for key, value in programs.items() if key not in _THE_PROGRAMS}
        told |= {key: value for key, value in run.items() if key not in _THE_PROGRAMS}
        told["tools"] = asked.get("tools") or []
        if instructions := asked.get("instructions"):
            told["instructions"] = instructions
        return told

    def is_asked_by_program(self, call: ModelCall) -> bool:
        """Whether a program requested the call, and the gateway recorded the request."""
        return call.call_id in self._asked

    @cached_property
    def _asked(self) -> Mapping[str, Raw]:
        """What programs asked for beside the conversation, not parsed, by the ids of their calls. A
        gateway writes it with the first call that asks for it, and each further one of the same
        actor asked for the same until another is written, on whatever branch it is.
        """
        written = {
            note.model_call_id: note.value
            for note in self.annotations
            if note.key.endswith(ASKED) and note.model_call_id
        }
        found: dict[str, Raw] = {}
        last: dict[str, Raw] = {}
        for call in self.calls if written else ():
            if call.call_id in written:
                last[call.actor] = written[call.call_id]
            elif call.link == _NOT_CAPTURED:
                continue
            if call.actor in last:
                found[call.call_id] = last[call.actor]
        return found

    @property
    def of_earlier_form(self) -> bool:
        """Whether the line has the form of NeMo Gym or of version 0.1."""
        return "beginnings" in self.__dict__

    @property
    def beginnings(self) -> Mapping[str, tuple[int, str]]:
        """For the first calls of an actor in rows of version 0.1: how many leading items of the
        call's part it had read before, and the call that it continued.
        """
        beginnings: Mapping[str, tuple[int, str]] = self.__dict__.get("beginnings", {})
        return beginnings

    @cached_property
    def by_id(self) -> Mapping[str, ModelCall]:
        """The calls by their ids. If two calls have the same id, the later call."""
        return {call.call_id: call for call in self.calls}

    @cached_property
    def final_call(self) -> ModelCall | None:
        """The root agent's last call; if the root agent made no call, the last of all calls."""
        for call in reversed(self.calls):
            if not call.actor:
                return call
        return self.calls[-1] if self.calls else None

    @cached_property
    def opening(self) -> list[Raw]:
        """The items with which the conversation began."""
        if self.first_items:
            return self.first_items
        given = members_of(bytes(self.responses_create_params)).get("input")
        if given is None or bytes(given) == b"null":
            return []
        if bytes(given)[:1] == b'"':
            return [Raw(b'{"type":"message","role":"user","content":%b}' % bytes(given))]
        try:
            return msgspec.json.decode(given, type=list[Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # unpaired surrogates, which msgspec does not read, or no list
        items = parsed(given)
        if type(items) is not list:
            raise RowError("responses_create_params.input: must be a text or a list")
        return [Raw(dumps_clean(item)) for item in items]

    def part(self, call: ModelCall) -> list[Raw]:
        """A call's items: those before its answer, the answer, and those that followed it."""
        if call.first_item is UNSET:
            return call.items
        return self.response.output[call.first_item : call.first_item + call.item_count]

    def answer(self, call: ModelCall) -> list[Raw]:
        """The items that the model wrote in this call."""
        return self.part(call)[call.context_count : call.context_count + call.answer_count]

    def replies(self, call: ModelCall) -> list[Raw]:
        """The replies to a call's answer: the outputs of its tools, and the environment's turns."""
        return self.part(call)[call.context_count + call.answer_count :]

    def path(self, call: ModelCall) -> list[ModelCall]:
        """The calls whose conversation a call continues, in order, and then the call itself."""
        path = [call]
        while call.parent_call_id and not call.detached:
            parent = self.by_id.get(call.parent_call_id)
            if parent is None:
                raise RowError(
                    f"calls: the parent {call.parent_call_id!r} of call {call.call_id!r} is missing"
                )
            if len(path) > len(self.calls):
                raise RowError(f"calls: the parents of call {call.call_id!r} form a cycle")
            path.append(parent)
            call = parent
        path.reverse()
        return path

    def agent_paths(self) -> list[list[ModelCall]]:
        """The root agent's conversations, in the order in which they end. Each is the list of its
        calls. There is one for each call of the root agent that no later call continues, so there
        are several if the history began again (a compaction) or branched.
        """
        found: list[list[ModelCall]] = []
        continued = set[str]()
        for call in reversed(self.calls):
            if not call.actor and call.call_id not in continued:
                path = self.path(call)
                continued.update(one.call_id for one in path)
                found.append(path)
        found.reverse()
        return found

    def prompt(self, call: ModelCall) -> array[int] | None:
        """All token ids that a call read. None if they are unknown, or can't be assembled from the
        tokens of earlier calls.
        """
        additions: list[ModelCall] = []
        for one in reversed(self.path(call)):
            if one.tokens is UNSET:
                return None
            additions.append(one)
            if not one.tokens.prompt_prefix_tokens:
                break
        else:
            return None
        known = array("i")
        for one in reversed(additions):
            if one.tokens is UNSET or one.tokens.prompt_prefix_tokens > len(known):
                return None
            del known[one.tokens.prompt_prefix_tokens :]
            known.extend(one.tokens.prompt_token_ids)
            if one is not call:
                known.extend(one.tokens.output_token_ids)
        return known

    def actor_conversations(self, name: str) -> Iterator[ActorConversation]:
        """The conversations of an actor: one for each of its calls that it did not continue."""
        own = [call for call in self.calls if call.actor == name]
        went_on = {call.parent_call_id for call in own if not call.detached}
        for call in own:
            if call.call_id in went_on:
                continue
            path = self.path(call)
            begins = len(path) - 1
            while begins and path[begins - 1].actor == name:
                begins -= 1
            before = [] if path[0].detached else list(self.opening)
            for one in path[:begins]:
                before += self.part(one)
            after = path[begins - 1].call_id if begins else ""
            said_before, named = self.beginnings.get(path[begins].call_id, (0, after))
            before += self.part(path[begins])[:said_before]
            yield ActorConversation(before, named, path[begins:], said_before)


def parsed(text: Raw | bytes) -> JsonValue:
    """The parsed value of JSON text in a row. Raises RowError for a number beyond the range of a
    double. All other mistakes were found when the row was read.
    """
    try:
        return loads(bytes(text))
    except CodecError as error:
        raise RowError(str(error)) from None


def members_of(text: bytes) -> Mapping[str, Raw]:
    """The members of a JSON object, not parsed. Raises RowError if it is not an object."""
    try:
        return _MEMBERS.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _members_slowly(text)


def _members_slowly(text: bytes) -> Mapping[str, Raw]:
    """As `members_of`, for what msgspec does not read: unpaired surrogates."""
    value = parsed(text)
    if type(value) is not dict:
        raise RowError("must be a JSON object")
    return {key: Raw(dumps_clean(one)) for key, one in value.items()}
