"""A rollout's events as text for people, in colour where the terminal has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_cli.terminal.writing import echo, echo_parts
from gymmesh_client import FailedAttempt
from gymmesh_client.boundaries import boundary_name
from gymmesh_client.rows import status_dict
from gymmesh_responses import bytes_to_text, image_urls, text_of
from gymmesh_runtime.errors import from_status, repeats
from gymmesh_runtime.text import one_line, shortened

IS_FACE = True  # see tools/import_faces.py

_LONG: Final = 2000
_LONGEST_LABEL: Final = 40
_MARGIN: Final = " " * 10


class EventPrinter:
    """Prints events as they come; keeps only the delta that is being written."""

    def __init__(self) -> None:
        self._in_delta = False

    def show(self, event: pb.RolloutEvent) -> None:
        """Print one event."""
        kind = event.WhichOneof("event") or ""
        if kind == "output_delta":
            self._delta(event.output_delta)
            return
        if self._in_delta:
            echo()
            self._in_delta = False
        printer = _PRINTERS.get(kind)
        if printer is not None:
            printer(getattr(event, kind))

    def failure(self, failed: FailedAttempt) -> None:
        """Print why the rollout failed, and whether a retry may help."""
        boundary = boundary_name(failed.failure.boundary)
        status = status_dict(failed.failure.status)
        reason = f" {status['reason']}" if status["reason"] else ""
        message = str(status["message"])
        if repeats(from_status(failed.failure.status).reason):
            message = message.rstrip(".") + ". Fix the code, then retry."
        elif failed.failure.retry_safe:
            message = message.rstrip(".") + ". A retry is safe."
        _line("failed", f"{boundary}{reason}: {message}", "red")

    def _delta(self, delta: pb.OutputDelta) -> None:
        which = delta.WhichOneof("delta")
        if which is not None:
            piece = getattr(delta, which).decode(errors="replace").replace("\n", f"\n{_MARGIN}")
            begin = "" if self._in_delta else _MARGIN
            echo_parts((begin + piece, {"dim": which == "reasoning"}), end="")
            self._in_delta = True


def _line(label: str, text: str, colour: str, *, dim: bool = False) -> None:
    shown = shortened(text, _LONG)
    head, *rest = shown.split("\n")
    name = f"{one_line(label[:_LONGEST_LABEL]):>9} "
    echo_parts((name, {"fg": colour, "bold": True}), (head, {"dim": dim}))
    for line in rest:  # further in than any label, so that none looks like an event of its own
        echo_parts((_MARGIN + line, {"dim": dim}))


def _started(started: pb.Started) -> None:
    tools = [tool.function.name or tool.opaque.type for tool in started.params.tools]
    text = f"agent {started.agent}, environment {started.environment}"
    _line("started", text + (f", tools {', '.join(tools)}" if tools else ""), "blue")
    _items(started.items)


def _model_call(call: pb.ModelCallCompleted) -> None:
    _items((*call.context_items, *call.response.output))


def _turn(turn: pb.TurnCompleted) -> None:
    _items(turn.items)
    if turn.HasField("reward"):
        _line("turn", f"reward {turn.reward:g}", "magenta")


def verdict_text(verdict: pb.Verification) -> str:
    """A verdict in one line: its reward, components and explanation, or why there is none."""
    if verdict.HasField("reward"):
        parts = ", ".join(f"{part.name} {part.value:g}" for part in verdict.components)
        why = verdict.explanation if verdict.explanation != parts else ""
        shown = f"reward {verdict.reward:g}" + (f"  ({parts})" if parts else "")
        return shown + (f"  {why}" if why else "")
    status = pb.VerificationStatus.Name(verdict.status).removeprefix("VERIFICATION_STATUS_")
    return status + (f": {verdict.reason}" if verdict.reason else "")


def _verified(verified: pb.Verified) -> None:
    verdict = verified.verification
    _line("verified", verdict_text(verdict), "green")
    if verdict.evidence_json:
        _line("", bytes_to_text(verdict.evidence_json), "green", dim=True)


def _completed(done: pb.Completed) -> None:
    counts, reason = done.counts, pb.StopReason.Name(done.stop_reason)
    _line(
        "completed",
        f"{reason.removeprefix('STOP_REASON_')}, {_counted(counts.model_calls, 'model call')}, "
        f"{_counted(counts.tool_calls, 'tool call')}, {counts.input_tokens} tokens in, "
        f"{counts.output_tokens} out, {done.duration_us / 1e6:.2f} s",
        "green",
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _items(items: Iterable[responses_pb2.Item]) -> None:
    for item in items:
        _item(item)


def _item(item: responses_pb2.Item) -> None:
    kind = item.WhichOneof("kind")
    if kind == "message":
        role = item.message.role
        _line(role or "message", _said(item), _ROLE_COLOURS.get(role, "cyan"))
    elif kind == "function_call":
        call = item.function_call
        _line("call", f"{call.name}({call.arguments.decode(errors='replace')})", "yellow")
    elif kind == "function_call_output":
        _line("output", _said(item), "yellow")
    elif kind == "reasoning":
        reasoning = item.reasoning
        texts = [*reasoning.summary.texts, *reasoning.content.texts]
        if texts:
            _line("reasoning", "\n".join(texts), "white", dim=True)
    elif kind == "opaque":
        _line(item.opaque.type or "item", item.opaque.json.decode(errors="replace"), "white")


def _said(item: responses_pb2.Item) -> str:
    """An item's text, and how many images it has."""
    text, images = text_of(item), sum(1 for _ in image_urls(item))
    if not images:
        return text or "(no text)"
    shown = "(an image)" if images == 1 else f"({images} images)"
    return f"{text} {shown}" if text else shown


_ROLE_COLOURS: Final = {"user": "blue", "system": "blue", "developer": "blue"}
_PRINTERS: Final[dict[str, Callable[[Any], None]]] = {
    "started": _started,
    "model_call_completed": _model_call,
    "tool_call_completed": lambda call: _item(call.output),
    "turn_completed": _turn,
    "verified": _verified,
    "completed": _completed,
}
