"""The prompt of a program: the text of the task's items. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import item_to_dict
from gymmesh_runtime.errors import MeshError

_TEXTS: Final = ("input_text", "output_text", "text")


def prompt_of(items: Iterable[responses_pb2.Item]) -> str:
    """The messages' texts, in their order, with a blank line between them.

    A program's prompt is text. Raises TASK_INVALID for images, calls and other content that is not
    text, and if there is no text.
    """
    texts: list[str] = []
    for number, item in enumerate(items):
        document = item_to_dict(item)
        if document.get("type", "message") != "message":
            raise _refused(number, f"an item of the type {document['type']!r}")
        content = document.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        for part in parts:
            if part.get("type") not in _TEXTS:
                raise _refused(number, f"a part of the type {part.get('type')!r}")
            texts.append(str(part.get("text", "")))
    prompt = "\n\n".join(filter(None, texts))
    if not prompt.strip():
        raise MeshError(
            errors_pb2.ERROR_REASON_TASK_INVALID,
            "the task's input has no text for the program's prompt",
            metadata={"field": "input"},
        )
    return prompt


def _refused(number: int, what: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_TASK_INVALID,
        f"the task's input has {what}, but the prompt of a program can only be text",
        metadata={"field": f"input[{number}]"},
    )
