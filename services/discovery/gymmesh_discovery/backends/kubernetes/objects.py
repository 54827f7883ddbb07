"""The parts of Kubernetes' API objects that gymmesh reads: EndpointSlice (discovery.k8s.io/v1),
lists of slices, watch events, and Status.

The API's reference documents the fields. A field that Kubernetes omits or sets to null is None or
empty here.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

_T = TypeVar("_T")


class Conditions(msgspec.Struct, frozen=True):
    """The conditions of an endpoint; None: unknown."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Reference(msgspec.Struct, frozen=True):
    """The object behind an endpoint, usually a pod."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    """One endpoint; its addresses are interchangeable."""

    addresses: list[str] = []
    conditions: Conditions = Conditions()
    target_ref: Reference | None = None
    node_name: str | None = None
    zone: str | None = None


class Port(msgspec.Struct, frozen=True):
    """A port of all endpoints of a slice."""

    name: str | None = None
    port: int | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """An object's name and labels."""

    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class EndpointSlice(msgspec.Struct, frozen=True):
    """A part of a Service's endpoints, which all have the same ports."""

    metadata: Metadata
    endpoints: list[Endpoint] | None = None
    ports: list[Port] | None = None


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The version of a list, and where its next page begins."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class EndpointSliceList(msgspec.Struct, frozen=True):
    """A page of slices."""

    metadata: ListMetadata
    items: list[EndpointSlice] | None = None


class Status(msgspec.Struct, frozen=True):
    """A failure."""

    code: int = 0
    reason: str = ""
    message: str = ""


class WatchEvent(msgspec.Struct, frozen=True):
    """A change: ADDED, MODIFIED or DELETED with a slice, BOOKMARK, or ERROR with a Status."""

    type: str
    object: msgspec.Raw


class UnreadableError(ValueError):
    """An answer that is not from Kubernetes; the message says what is wrong."""


def read(text: bytes | msgspec.Raw, of: type[_T]) -> _T:
    """An object from its JSON. Raises UnreadableError."""
    try:
        return msgspec.json.decode(text, type=of)
    except (msgspec.DecodeError, RecursionError) as error:  # a ValidationError is a DecodeError
        raise UnreadableError(f"{error}") from None
