"""The answers of an OpenEnv server to `reset` and `step`, and their text for the model. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gymmesh_resource.environments._base64_images import image_part, image_url, text_part
from gymmesh_resource.environments._step_rewards import read_reward
from gymmesh_responses import data_of_url, dumps

# The first characters, in base64, of the kinds of images that models read.
_BEGINS: Final = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
_MOST_IMAGES: Final = 16
_METADATA: Final = "metadata"
_MCP_KEYS: Final = frozenset(("tool_name", "result", "error"))
# Kinds of an MCP tool's error for which the model can do nothing.
_FAULTS: Final = frozenset(("transport_error",))


class BadStep(Exception):
    """An answer that is not one of the protocol's; one clause says why."""


class ToolFault(Exception):
    """An MCP tool could not be reached; the text is the server's."""


@dataclass(frozen=True, slots=True)
class ObservedStep:
    """An observation; the step's reward, if any; whether the episode is over."""

    observation: Mapping[str, Any]
    reward: float | None
    done: bool


def read_step(data: Mapping[str, Any]) -> ObservedStep:
    """The data of an `observation` message. Raises BadStep."""
    observation, done = data.get("observation", {}), data.get("done", False)
    if not isinstance(observation, dict):
        raise BadStep("its observation is not an object")
    if not isinstance(done, bool):
        raise BadStep(f"its `done` is {str(done)[:50]!r}, neither true nor false")
    try:
        return ObservedStep(observation, read_reward(data.get("reward")), done)
    except ValueError as error:
        raise BadStep(str(error)) from None


def shown(observation: Mapping[str, Any], *, metadata: bool) -> list[dict[str, Any]]:
    """An observation as parts for the model: JSON, and after it the images that it holds as data.

    Empty where there is nothing to show.
    """
    seen = {key: one for key, one in observation.items() if metadata or key != _METADATA}
    if not seen:
        return []
    images: list[str] = []
    text = dumps(_without_images(seen, images)).decode()
    return [text_part(text), *map(image_part, images)]


def shown_of_mcp(
    observation: Mapping[str, Any], *, metadata: bool
) -> tuple[list[dict[str, Any]], bool]:
    """What an MCP tool answered as parts for the model, and whether that is an error.

    Raises ToolFault.
    """
    others = observation.keys() - _MCP_KEYS - {_METADATA}
    if others or "tool_name" not in observation:
        return shown(observation, metadata=metadata), False
    error = observation.get("error")
    if isinstance(error, dict):
        message = str(error.get("message") or error.get("error_type"))
        if error.get("error_type") in _FAULTS:
            raise ToolFault(message[:500])
        return [text_part(message)], True
    result = observation.get("result")
    if isinstance(result, str):
        return [text_part(result)], False
    if not isinstance(result, dict) or not isinstance(result.get("content"), list):
        return shown({"result": result}, metadata=False), False
    return list(_blocks(result)), result.get("is_error", result.get("isError")) is True


def _blocks(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content = result["content"]
    if not content:
        structured = result.get("structured_content", result.get("structuredContent"))
        yield text_part("" if structured is None else dumps(structured).decode())
    for block in content:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield text_part(block["text"])
        elif isinstance(block, dict) and (url := image_url(str(block.get("data", "")))):
            yield image_part(url)
        else:
            kind = block.get("type") if isinstance(block, dict) else None
            yield text_part(f"[{str(kind)[:50]}]")


def _without_images(value: Any, images: list[str]) -> Any:
    """The value with the name of an image in place of each, which goes to `images`."""
    if isinstance(value, dict):
        return {key: _without_images(one, images) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_images(one, images) for one in value]
    if not isinstance(value, str) or len(images) >= _MOST_IMAGES:
        return value
    found = data_of_url(value) if value.startswith("data:") else None
    encoded = value if found is None else found[1]
    url = image_url(encoded) if encoded.startswith(_BEGINS) else ""
    if not url:
        return value
    images.append(url)
    return f"[image {len(images)}]"
