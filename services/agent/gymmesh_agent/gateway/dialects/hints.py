"""What programs report about who calls and why: headers and metadata of the tested programs. Pure.

There is one table for all dialects, because a program may speak several. A hint is never trusted:
it may be absent, wrong or another program's.

    Claude Code   x-claude-code-session-id, x-claude-code-agent-id; metadata.user_id in the body
    Codex         thread-id, x-codex-parent-thread-id, x-openai-subagent, and JSON in
                  x-codex-turn-metadata with request_kind and window_number
    OpenCode      x-session-id, x-parent-session-id
    OpenAI's and Anthropic's libraries   idempotency-key, x-stainless-retry-count
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gymmesh_agent.gateway.request import Hints
from gymmesh_responses import CodecError, loads

_LONGEST: Final = 200
_LONGEST_JSON: Final = 10_000
_MOST: Final = 1_000_000

_SESSION: Final = (
    "x-claude-code-session-id",
    "thread-id",
    "thread_id",
    "x-session-id",
    "session-id",
    "session_id",
)
_PARENT: Final = ("x-codex-parent-thread-id", "x-parent-session-id")
_AGENT: Final = "x-claude-code-agent-id"
_KIND: Final = "x-openai-subagent"
_TURN: Final = "x-codex-turn-metadata"
_RETRY_KEY: Final = "idempotency-key"
_RETRIES: Final = "x-stainless-retry-count"
_PRODUCT: Final = re.compile(r"[A-Za-z0-9._-]{1,60}")
# Claude Code's older form; the newer one is JSON.
_USER_SESSION: Final = re.compile(r"_session_([0-9A-Za-z-]{1,100})$")


def read_hints(
    headers: Mapping[str, str],
    *,
    metadata: Mapping[str, Any] | None = None,
    session: object = None,
) -> Hints:
    """The hints of a request.

    headers: their names in lower case. metadata: values in the body that replace absent headers.
    session: the body's session, used if no header names one.
    """
    said = _Said(headers, metadata or {})
    turn = said.json(_TURN)
    own = said.first(_SESSION) or _short(turn.get("thread_id")) or _short(session)
    parent = said.first(_PARENT) or _short(turn.get("parent_thread_id"))
    agent = said.text(_AGENT)
    if parent and not agent:
        agent = own  # such a program gives each sub-agent a session of its own
    window = turn.get("window_number")
    product = _PRODUCT.match(said.text("user-agent"))
    return Hints(
        program=product[0] if product else "",
        session=own,
        agent=agent,
        parent_agent=parent,
        request_kind=_short(turn.get("request_kind")) or said.text(_KIND),
        window=window if type(window) is int and 0 <= window < _MOST else None,
        retry_key=said.text(_RETRY_KEY),
        retries=said.count(_RETRIES),
    )


def session_of_user(user_id: object) -> str:
    """The session in Anthropic's `metadata.user_id`, as Claude Code writes it; else empty."""
    if not isinstance(user_id, str) or len(user_id) > _LONGEST_JSON:
        return ""
    if user_id.startswith("{"):
        return _short(_parsed(user_id).get("session_id"))
    found = _USER_SESSION.search(user_id)
    return found[1] if found else ""


class _Said:
    """Headers, and the metadata of a body for headers that are absent."""

    def __init__(self, headers: Mapping[str, str], metadata: Mapping[str, Any]) -> None:
        self._headers = headers
        self._metadata = metadata

    def _raw(self, name: str) -> object:
        value = self._headers.get(name)
        return self._metadata.get(name) if value is None else value

    def text(self, name: str) -> str:
        return _short(self._raw(name))

    def first(self, names: tuple[str, ...]) -> str:
        return next((found for name in names if (found := self.text(name))), "")

    def count(self, name: str) -> int:
        text = self.text(name)
        return min(int(text), _MOST) if text.isascii() and text.isdigit() else 0

    def json(self, name: str) -> Mapping[str, Any]:
        value = self._raw(name)
        if isinstance(value, Mapping):
            return value
        if isinstance(value, str) and len(value) <= _LONGEST_JSON:
            return _parsed(value)
        return {}


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        value = loads(text)
    except CodecError:
        return {}
    return value if isinstance(value, dict) else {}


def _short(value: object) -> str:
    """The text if it is printable and short; otherwise empty."""
    if isinstance(value, str) and len(value) <= _LONGEST and value.isprintable():
        return value
    return ""
