"""The images of one attempt: events name them, and their bytes are sent once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import image_urls, media_url, medium_of, with_images


class AttemptMedia:
    """Replaces the data URLs of images by media URLs.

    URLs of remote images are unchanged. So are data URLs that can't be restored exactly from the
    bytes and the media type: no part of a URL is ever lost.

    Args:
        note: sends an event, MediaAdded, before the event that names the medium.
    """

    def __init__(self, note: Callable[[rollout_pb2.RolloutEvent], None]) -> None:
        self._note = note
        self._types: dict[str, str] = {}  # of what was sent, by digest

    def named(self, item: responses_pb2.Item) -> responses_pb2.Item:
        """The item as events carry it; the same item if it has no image."""
        urls: dict[str, str] = {}
        for url in image_urls(item):
            if url not in urls and (medium := medium_of(url)) is not None and self._has(medium):
                urls[url] = media_url(medium.digest)
        return with_images(item, urls) if urls else item

    def all_named(self, items: Iterable[responses_pb2.Item]) -> list[responses_pb2.Item]:
        """`named` for each item."""
        return [self.named(item) for item in items]

    def _has(self, medium: rollout_pb2.Media) -> bool:
        """Whether the medium was sent, now or before; False if its bytes were sent with another
        type.
        """
        known = self._types.setdefault(medium.digest, "")
        if not known:
            self._types[medium.digest] = medium.media_type
            event = rollout_pb2.RolloutEvent(ignorable=True)
            event.media_added.media.CopyFrom(medium)
            self._note(event)
            return True
        return known == medium.media_type
