"""A stored rollout as lines for a terminal, as wide as that is. Pure.

Rollouts are untrusted: whatever a model, a tool or a file wrote is escaped before it is printed
(`gymmesh_cli.terminal`), and here laid out so that no line of theirs looks like one of ours: theirs
are indented behind a bar.
"""

from __future__ import annotations

import contextlib
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from gymmesh_data import Actor, Conversation, StoredRollout, actors_of, conversation_of
from gymmesh_data.rollout import object_of, objects_of
from gymmesh_data.samples import token_reads
from gymmesh_responses import dumps, loads
from gymmesh_rows import SandboxOpened
from gymmesh_runtime.text import one_line, shortened

_MOST_WIDE: Final = 110
_LEAST_WIDE: Final = 40
_BAR: Final = "│ "
_LONGEST: Final = 2000
_WROTE: Final = 600  # of a program's output: its end
_TIMINGS: Final = {
    "duration_us": "in all",
    "model_us": "models",
    "tools_us": "tools",
    "verify_us": "verdict",
}
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "system": {"fg": "magenta", "bold": True},
    "user": {"fg": "blue", "bold": True},
    "assistant": {"fg": "green", "bold": True},
    "tool": {"fg": "yellow", "bold": True},
    "quiet": {"dim": True},
    "head": {"bold": True},
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line in pieces, each with its style, as `gymmesh_cli.terminal.echo_parts` takes them."""

    parts: tuple[tuple[str, dict[str, Any]], ...]


class ConversationView:
    """Lays rollouts out.

    Args:
        width: columns; that of the terminal where it is not given.
        tokens: whether to say how many tokens each model call read and sampled.
    """

    def __init__(self, width: int | None = None, *, tokens: bool = False) -> None:
        width = width or shutil.get_terminal_size((100, 24)).columns
        self._width = max(_LEAST_WIDE, min(width, _MOST_WIDE))
        self._tokens = tokens

    def lines(self, rollout: StoredRollout, conversation: Conversation) -> Iterator[Line]:
        """The rollout: what it was, its messages and those of actors, its end."""
        yield from self._head(rollout)
        for place, message in enumerate(conversation.messages):
            if place == conversation.prompt_length and place:
                yield _line("─" * self._width, "quiet")
            yield from self._message(message)
        yield from self._below(rollout, conversation)
        for actor in actors_of(rollout):
            yield from self._actor(actor)
        yield _line("─" * self._width, "quiet")
        yield from self._end(rollout)
        yield _line("")

    def _below(self, rollout: StoredRollout, conversation: Conversation) -> Iterator[Line]:
        for what, count in sorted(conversation.losses.items()):
            yield _line(f"(not shown: {one_line(what)}: {count})", "quiet")
        if self._tokens:
            yield from self._token_counts(rollout)

    def _actor(self, actor: Actor) -> Iterator[Line]:
        """What another actor said; what it went on from is not said again."""
        yield _line("─" * self._width, "quiet")
        text = f"actor {one_line(actor.name)}  reward {_number(actor.reward)}"
        text += "  trained" if actor.trainable else "  not trained"
        for piece in self._wrapped(text, ""):
            yield _line(piece, "head")
        for place, (one, after) in enumerate(zip(actor.conversations, actor.after, strict=True)):
            said = conversation_of(one)
            if place:
                yield _line("·" * self._width, "quiet")
            if after:
                yield _line(f"(continues after {one_line(after)})", "quiet")
            for message in said.messages[said.prompt_length if after else 0 :]:
                yield from self._message(message)
            yield from self._below(one, said)

    def document(self, rollout: StoredRollout, conversation: Conversation) -> dict[str, Any]:
        """The same as JSON values."""
        keys = (
            "run_id", "repeat_index", "attempt", "environment", "agent", "program_name",
            "program_version", "stop_reason", "program", "sandboxes",
        )  # fmt: skip
        told = {key: rollout.value(key) for key in (*keys, "failure", "verification")}
        return {
            "task_id": rollout.task_id,
            "rollout_id": rollout.rollout_id,
            **{key: told[key] for key in keys if told[key] is not None},
            "messages": conversation.messages,
            "prompt_length": conversation.prompt_length,
            "tools": conversation.tools,
            "reward": rollout.reward,
            "verification": told["verification"],
            "failure": told["failure"],
            "metadata": rollout.metadata,
            "not_shown": dict(conversation.losses),
            **({"actors": actors} if (actors := _actors(rollout)) else {}),
        }

    def _head(self, rollout: StoredRollout) -> Iterator[Line]:
        names = [("task", rollout.task_id), ("repeat", str(rollout.repeat_index))]
        names += [("environment", rollout.environment), ("agent", rollout.agent)]
        ran = (rollout.columns.program_name, rollout.columns.program_version)
        names += [("program", " ".join(filter(None, ran))), ("model", rollout.model)]
        text = "  ".join(f"{name} {one_line(value)}" for name, value in names if value)
        for piece in self._wrapped(text, ""):
            yield _line(piece, "head")
        if rollout.rollout_id:
            yield _line(f"rollout {one_line(rollout.rollout_id)}", "quiet")

    def _message(self, message: dict[str, Any]) -> Iterator[Line]:
        role = str(message["role"])
        note = f" ({one_line(str(message['tool_call_id']))})" if "tool_call_id" in message else ""
        yield Line(((role, _STYLES.get(role, {})), (note, _STYLES["quiet"])))
        if message.get("reasoning_content"):
            yield _line(f"{_BAR}(reasoning)", "quiet")
            yield from self._text(str(message["reasoning_content"]), "quiet")
        yield from self._content(message.get("content"))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            said = f"{one_line(function['name'])}({one_line(_plain(function['arguments']))})"
            note = f"  {one_line(str(call.get('id', '')))}"
            yield from self._text(f"calls {said}{note}", "")

    def _content(self, content: Any) -> Iterator[Line]:
        if isinstance(content, str):
            yield from self._text(content, "")
            return
        for part in content or ():
            if part.get("type") == "text":
                yield from self._text(str(part["text"]), "")
            else:
                url = str((part.get("image_url") or {}).get("url", ""))
                yield from self._text(f"[image: {url[:60]}{'…' if len(url) > 60 else ''}]", "quiet")

    def _text(self, text: str, style: str) -> Iterator[Line]:
        """Somebody's text, behind a bar."""
        for line in text.split("\n") if text else ():
            for piece in self._wrapped(one_line(line.expandtabs(4)), _BAR):
                yield Line(((_BAR, _STYLES["quiet"]), (piece, _STYLES.get(style, {}))))

    def _wrapped(self, text: str, before: str) -> list[str]:
        room = self._width - len(before)
        return textwrap.wrap(
            text, room, drop_whitespace=False, replace_whitespace=False, break_on_hyphens=False
        ) or [""]

    def _token_counts(self, rollout: StoredRollout) -> Iterator[Line]:
        for one in token_reads(rollout):
            tokens = rollout.tokens_of(one.call)
            if tokens is not None:
                known = "" if one.prompt_length is None else f"{one.prompt_length} read, "
                yield _line(f"tokens        {known}{len(tokens.output_token_ids)} sampled", "quiet")

    def _end(self, rollout: StoredRollout) -> Iterator[Line]:
        for name, text in _ending(rollout):
            pieces = self._wrapped(one_line(text), " " * 14)
            yield Line(((f"{name:<14}", _STYLES["quiet"]), (pieces[0], {})))
            for piece in pieces[1:]:
                yield _line(f"{'':<14}{piece}")


def _ending(rollout: StoredRollout) -> Iterator[tuple[str, str]]:
    """What became of a rollout, a name and a text each."""
    if rollout.failed:
        yield "failed", _failure(rollout.value("failure"))
    if rollout.stop_reason:
        detail = rollout.columns.stop_detail
        stopped = rollout.stop_reason + (f": {detail}" if detail else "")
        yield "stopped", shortened(stopped, _LONGEST)
    yield from _program(rollout.value("program"))
    if rollout.work_elsewhere:
        yield "check", rollout.work_elsewhere
    for opened in rollout.columns.sandboxes:
        yield from _sandbox(opened)
    verdict = rollout.verification
    if not rollout.failed:
        reward = _number(rollout.reward)
        status = f" ({verdict['status']})" if verdict.get("status") else ""
        reason = f": {shortened(str(verdict['reason']), _LONGEST)}" if verdict.get("reason") else ""
        yield "reward", f"{reward}{status}{reason}"
    if verdict.get("explanation"):
        yield "because", str(verdict["explanation"])
    for part in objects_of(verdict, "components"):
        weight = f" x {part['weight']}" if "weight" in part else ""
        yield "", f"{part.get('name')}: {part.get('value')}{weight}"
    if verdict.get("verifier"):
        yield "verifier", f"{verdict['verifier']} {verdict.get('version', '')}".strip()
    evidence = object_of(verdict, "evidence")
    for key, value in evidence.items():
        yield "evidence", f"{key}: {_shown(value)}"
    for stage in objects_of(verdict, "stages"):
        note = f", {stage['note']}" if stage.get("note") else ""
        yield "stage", f"{stage.get('name')}: {_seconds(stage.get('duration_us'))}{note}"
    for old in objects_of(verdict, "previous"):
        yield (
            "old verdict",
            f"reward {old.get('reward')} by {old.get('verifier')} {old.get('version')}",
        )
    timings = rollout.metadata.get("timings")
    if isinstance(timings, dict):
        told = [f"{_seconds(timings.get(key))} {name}" for key, name in _TIMINGS.items()]
        yield "time", ", ".join(told)
    for key, value in rollout.columns.extras.items():
        if key not in evidence:
            yield "task key", f"{key}: {_shown(value)}"


def _program(program: Any) -> Iterator[tuple[str, str]]:
    """How the program ended that ran as the agent, and the end of what it wrote."""
    if not isinstance(program, dict):
        return
    code, signal = program.get("exit_code"), program.get("signal")
    how = f"exit code {code}" if code is not None else f"signal {signal}"
    detail = str(program.get("detail") or "")
    yield "program", shortened(detail if how in detail else f"{detail} ({how})", _LONGEST).lstrip()
    if wrote := str(program.get("output_tail") or "").strip():
        tail = wrote if len(wrote) <= _WROTE else f"… {wrote[-_WROTE:]}"
        for place, line in enumerate(tail.split("\n")):
            yield "" if place else "wrote", line.removesuffix("\r").expandtabs(4)


def _sandbox(opened: SandboxOpened) -> Iterator[tuple[str, str]]:
    """How a sandbox ended, where it did before its rollout."""
    if opened.end is not UNSET:
        detail = f": {opened.end.detail}" if opened.end.detail else ""
        yield "sandbox", shortened(f"{opened.role} {opened.end.cause}{detail}", _LONGEST)


def _actors(rollout: StoredRollout) -> list[dict[str, Any]]:
    """The other actors as JSON values: what the row says of each, and its messages."""
    return [
        actor.said
        | {"conversations": [{"messages": conversation_of(one).messages} for one in said]}
        for actor in actors_of(rollout)
        if (said := actor.conversations)
    ]


def _number(reward: float | None) -> str:
    return "none" if reward is None else f"{reward:g}"


def _failure(failure: Any) -> str:
    if not isinstance(failure, dict):
        return _plain(failure)
    status = object_of(failure, "status")
    said = (failure.get("boundary"), status.get("reason"), status.get("message"))
    return " ".join(shortened(str(one), _LONGEST) for one in said if one)


def _seconds(microseconds: Any) -> str:
    known = isinstance(microseconds, int | float) and not isinstance(microseconds, bool)
    return f"{microseconds / 1e6:.3f} s" if known else "?"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "surrogatepass")


def _shown(value: Any) -> str:
    """As `_plain`, but a text that reads as a JSON value, such as a number, is quoted."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            loads(value)
            return dumps(value).decode("utf-8", "surrogatepass")
    return _plain(value)


def _line(text: str, style: str = "") -> Line:
    return Line(((text, _STYLES.get(style, {})),))
