"""One call of the model service on its way to an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gymmesh.model.v1 import model_pb2
from gymmesh_model.backends.progress import Progress
from gymmesh_model.conversations import Turn
from gymmesh_model.settings import Settings
from gymmesh_model.tokens.record import TokenRecord


@dataclass(slots=True)
class Work:
    """What is known of a call; filled in as it goes, so that an abort finds what there is.

    Attributes:
        request: as it came; given up once the backend's call is made of it, since thousands of
            calls may wait for their answers.
        call_id: the request's.
        model: the name of the model that it asks for.
        settings: its parameters without the input, where they were met before.
        timeout: seconds for all of it, waiting included.
        progress: of a call that is streamed; None for one that is not.
        queue_s: seconds that it waited for a place.
        turn: its place in its conversation, where it has one.
        record: its tokens, where they are wanted and can be had.
        from_cache: whether its answer was kept from another call.
        versions: the weights in force while it ran, oldest first.
    """

    request: model_pb2.CreateResponseRequest | None
    timeout: float
    progress: Progress | None
    call_id: str = ""
    model: str = ""
    settings: Settings | None = None
    queue_s: float = 0.0
    turn: Turn | None = None
    record: TokenRecord | None = None
    from_cache: bool = False
    versions: Sequence[int] = ()
