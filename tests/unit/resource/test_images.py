"""A tool or a turn shows an image in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource import Environment, Image, Rollout, Session, Turn, tool
from gymmesh_resource.errors import WrongResult
from gymmesh_resource.rollout import Transcript
from gymmesh_resource.tools import answer_of
from gymmesh_responses import MOST_IMAGE_BYTES, item_to_dict, items_to_list
from gymmesh_runtime.errors import MeshError
from tests.support.images import image_part, png
from tests.unit.resource.served import served, task

GIF = b"GIF89a" + bytes(20)


class Gallery(Environment[None]):
    """Shows pictures."""

    @tool
    def look(self) -> Image:
        """Look at the first picture."""
        return Image(png(1))

    @tool
    def compare(self) -> list[str | Image]:
        """Look at two."""
        return ["before", Image(png(1), "and after:"), Image(png(2), detail="low")]

    @tool
    async def damaged(self) -> Image:
        """Look at one that is not a picture."""
        return Image(b"<svg/>")

    def opening(self, session: Session[None]) -> Image:
        return Image(png(3), "What is this?")

    def next_turn(self, session: Session[None], new: Transcript) -> Turn:
        return Turn(["Look again:", Image(png(4))], done=True)

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


def shown(parts: responses_pb2.ContentParts) -> Any:
    output = responses_pb2.FunctionCallOutput(parts=parts)
    document: Any = item_to_dict(responses_pb2.Item(function_call_output=output))
    return document["output"]


async def test_tools_and_turns_show_images() -> None:
    async with served(Gallery()) as mesh:
        opened = await mesh.create(task())
        one = await mesh.call(opened.session_id, "look")
        two = await mesh.call(opened.session_id, "compare")
        turn = await mesh.turn(opened.session_id)
    assert shown(one.parts) == [image_part(1)]
    assert shown(two.parts) == [
        {"type": "input_text", "text": "before"},
        {"type": "input_text", "text": "and after:"},
        image_part(1),
        image_part(2) | {"detail": "low"},
    ]
    question = {"type": "input_text", "text": "What is this?"}
    assert items_to_list(opened.items) == [
        {"type": "message", "role": "user", "content": [question, image_part(3)]}
    ]
    assert items_to_list(turn.items) == [
        {"type": "message", "role": "user", "content": "Look again:"},
        {"type": "message", "role": "user", "content": [image_part(4)]},
    ]


async def test_what_is_not_an_image_is_a_fault_and_never_shown() -> None:
    async with served(Gallery()) as mesh:
        opened = await mesh.create(task())
        with pytest.raises(MeshError) as caught:
            await mesh.call(opened.session_id, "damaged")
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert "is not a PNG, JPEG, GIF or WebP: it begins with b'<svg/>'" in caught.value.message


def test_an_image_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    path.write_bytes(png(5))
    assert Image(path).parts == Image(str(path)).parts == Image(png(5)).parts
    path.write_bytes(GIF)  # its bytes say what it is, whatever its name is
    assert Image(path).media_type == "image/gif"
    assert Image(memoryview(GIF)).media_type == "image/gif"
    with pytest.raises(FileNotFoundError):
        Image(tmp_path / "none.png")


def test_the_size_of_an_image_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "large.gif"
    large = GIF + bytes(MOST_IMAGE_BYTES)
    path.write_bytes(large)
    for image in (large, path):
        with pytest.raises(
            ValueError, match="is larger than 20,000,000 bytes, the limit for an image"
        ):
            Image(image)
    with pytest.raises(ValueError, match="it is empty"):
        Image(b"")


@pytest.mark.parametrize("value", [[Image(GIF), {"a": 1}], {"picture": Image(GIF)}, b"GIF89a"])
def test_an_image_stands_beside_texts_alone(value: object) -> None:
    with pytest.raises(
        WrongResult, match="Return text, an Image, or values that JSON can represent"
    ):
        answer_of(value)
