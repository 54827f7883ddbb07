"""One client's stream as a pure state machine: its subscriptions, its resources, and those to send.

``receive_whole`` and ``receive_delta`` take the requests of the two protocols, state of the world
and delta; a stream uses one of them. ``due`` returns the resources to send now. The client's state
is compared with the catalog only when the stream can send, so nothing queues up for a slow client,
and a client never gets an old state after a new one.

Invariants: a name is sent again only if its content changed, or if the client subscribes again. A
resource that a client rejected is not sent again until it changes. The names in a request count
even if its nonce is that of an older response. Otherwise a name that was unsubscribed and
subscribed again in the meantime would never be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gymmesh_discovery.xds.catalog import Catalog, Resource
from gymmesh_discovery.xds.names import ENDPOINTS, TYPES, WHOLE

_ANY: Final = "*"
_MOST_NAMES: Final = 10_000
_LONGEST_NAME: Final = 1024
# The version under which the client knows that there is no such resource.
_ABSENT: Final = ""
# No resource has this version: it is sent again, or said to be gone.
_STALE: Final = "?"


class TooManyNamesError(Exception):
    """The client subscribes to more names than it may."""


@dataclass(frozen=True, slots=True)
class Push:
    """A response to send."""

    type_url: str
    version: str
    nonce: str
    resources: list[Resource]
    removed: list[str]


@dataclass(slots=True)
class _Subscription:
    """What the client wants and has of one type.

    ``sent`` holds the version by name, of what was sent last. ``owed``: a response is due even if
    there is nothing in it. ``had_cache``: the client came with what an earlier stream had sent.
    ``nonce``: of the last response, until it is acknowledged. ``given_up``: names that the client
    gave up before that, and that may thus still arrive.
    """

    names: set[str] = field(default_factory=set)
    wildcard: bool = False
    named: bool = False  # whether it has ever named something
    sent: dict[str, str] = field(default_factory=dict)
    owed: bool = False
    had_cache: bool = False
    nonce: str = ""
    given_up: set[str] = field(default_factory=set)

    def wanted(self, type_url: str, catalog: Catalog) -> set[str]:
        return self.names.union(catalog.names(type_url)) if self.wildcard else self.names


class ClientStream:
    """The state of one stream."""

    def __init__(self, *, delta: bool) -> None:
        self._delta = delta
        self._types: dict[str, _Subscription] = {}
        self._pushes = 0

    def receive_whole(self, type_url: str, version: str, names: Iterable[str]) -> None:
        """A request of the state-of-the-world protocol; ``version`` is the version that the client
        has.

        Raises TooManyNamesError. An unknown type is ignored.
        """
        if type_url not in TYPES:
            return
        asked = _checked(set(names))
        known = self._types.get(type_url)
        if known is None:
            known = self._types[type_url] = _Subscription(had_cache=bool(version))
        known.named = known.named or bool(asked)
        wildcard = type_url in WHOLE and (_ANY in asked or not known.named)
        asked.discard(_ANY)
        known.owed = known.owed or bool(asked - known.names) or wildcard > known.wildcard
        for name in known.sent.keys() - asked if not wildcard else ():
            del known.sent[name]
        known.names, known.wildcard = asked, wildcard

    def receive_delta(
        self,
        type_url: str,
        subscribe: Iterable[str],
        unsubscribe: Iterable[str],
        has: Mapping[str, str],
        nonce: str = "",
    ) -> None:
        """A request of the delta protocol.

        ``has``: the versions that the client has from an earlier stream. ``nonce``: the nonce of
        the response that the request acknowledges or refuses. Raises TooManyNamesError. An unknown
        type is ignored.
        """
        if type_url not in TYPES:
            return
        added, dropped = set(subscribe), set(unsubscribe)
        known = self._types.get(type_url)
        if known is None:
            known = self._types[type_url] = _Subscription(had_cache=bool(has), owed=True)
            known.wildcard = type_url in WHOLE and not added
            known.sent.update(_within_bounds(has))
        else:
            for name in added:
                known.sent.pop(name, None)  # a new subscription is sent it again
        if nonce and nonce == known.nonce:
            known.nonce = ""
            known.given_up.clear()
        if _ANY in added:
            known.wildcard = type_url in WHOLE
            # It may have given all up before, and dropped what it had; and what it gave up may
            # be on its way, and then it keeps it, for it wants everything now.
            known.sent = dict.fromkeys({*known.sent, *known.given_up}, _STALE)
            known.given_up.clear()
        if _ANY in dropped:
            known.wildcard = False
        known.names = _checked((known.names | added) - dropped - {_ANY})
        for name in dropped & known.sent.keys():
            if known.wildcard:
                known.sent[name] = _STALE
            elif known.sent.pop(name) != _ABSENT and type_url in WHOLE and known.nonce:
                known.given_up.add(name)
        _checked(known.given_up)

    @property
    def is_owed(self) -> bool:
        """Whether the client has a subscription for which nothing was sent yet."""
        return any(known.owed for known in self._types.values())

    def due(self, catalog: Catalog) -> list[Push]:
        """The responses to send now. The stream records them as sent."""
        known = [(type_url, self._types[type_url]) for type_url in TYPES if type_url in self._types]
        pushes = (self._due_of(type_url, one, catalog) for type_url, one in known)
        return [push for push in pushes if push is not None]

    def _due_of(self, type_url: str, known: _Subscription, catalog: Catalog) -> Push | None:
        if type_url == ENDPOINTS and not catalog.settled and known.had_cache:
            return None
        wanted = known.wanted(type_url, catalog)
        changed: list[Resource] = []
        whole: list[Resource] = []
        removed: list[str] = []
        for name in sorted(wanted):
            if type_url == ENDPOINTS and not catalog.settled and not catalog.has_endpoints(name):
                continue
            found = catalog.find(type_url, name)
            if found is None:
                if known.sent.get(name) != _ABSENT:
                    removed.append(name)
                continue
            whole.append(found)
            if known.sent.get(name) != found.version:
                changed.append(found)
        gone = [name for name in known.sent.keys() - wanted if known.sent[name] != _ABSENT]
        answer = known.owed and (self._delta or type_url in WHOLE)
        if not (changed or removed or gone or answer):
            return None
        for name in removed:
            known.sent[name] = _ABSENT
        for name in [name for name in known.sent if name not in wanted]:
            del known.sent[name]
        known.sent.update({one.name: one.version for one in changed})
        known.owed = False
        if not self._delta and type_url not in WHOLE and not changed:
            return None  # that a name is absent cannot be said
        self._pushes += 1
        known.nonce = str(self._pushes)
        resources = changed if self._delta or type_url not in WHOLE else whole
        said_gone = sorted([*removed, *gone]) if self._delta else []
        return Push(type_url, str(catalog.version), known.nonce, resources, said_gone)


def _checked(names: set[str]) -> set[str]:
    if len(names) > _MOST_NAMES or any(len(name) > _LONGEST_NAME for name in names):
        raise TooManyNamesError
    return names


def _within_bounds(versions: Mapping[str, str]) -> dict[str, str]:
    if len(versions) > _MOST_NAMES:
        raise TooManyNamesError
    return {name: version for name, version in versions.items() if len(name) <= _LONGEST_NAME}
