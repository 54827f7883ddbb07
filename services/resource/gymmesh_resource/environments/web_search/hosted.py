"""Search by a hosted service, any that answers in JSON.

Invariant: the key goes to the service and nowhere else: not into logs, errors, or `repr`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from gymmesh_resource.environments.web_search.corpus import Hit

_BODY = 4 * 1024**2
_TITLE, _URL, _SNIPPET = 200, 2_000, 400


class HostedSearchError(Exception):
    """The service did not answer as it should; the text has neither key nor address."""


class HostedSearchOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service that is asked by GET and answers in JSON.

    url: its address. key: sent in the header `key_header`, behind `key_prefix`.
    query_parameter, limit_parameter: what they are called. parameters: sent with every query.
    results: where the list of hits stands in the answer, keys joined by dots.
    title, address, snippet: the hits' keys. timeout_s: seconds for an answer.
    """

    url: str
    key: str = ""
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "
    query_parameter: str = "q"
    limit_parameter: str = "count"
    parameters: dict[str, str] = {}
    results: str = "results"
    title: str = "title"
    address: str = "url"
    snippet: str = "snippet"
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 8.0

    def __repr__(self) -> str:
        return f"HostedSearchOptions(url={self.url.partition('?')[0]!r}, key=***)"


class HostedSearch:
    """Finds documents by a service."""

    def __init__(self, options: HostedSearchOptions) -> None:
        if not options.url.startswith(("http://", "https://")):
            raise ValueError("hosted.url must begin with http:// or https://")
        self._options = options
        self._session: Any = None

    async def search(self, query: str, limit: int) -> list[Hit]:
        """The best hits, best first. Raises `HostedSearchError`."""
        import aiohttp

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._options.timeout_s)
            self._session = aiohttp.ClientSession(timeout=timeout)
        asked = self._options
        headers = {asked.key_header: f"{asked.key_prefix}{asked.key}"} if asked.key else {}
        parameters = {
            **asked.parameters,
            asked.query_parameter: query.encode("utf-8", "replace").decode(),
            asked.limit_parameter: str(limit),
        }
        try:
            # A redirect could carry the key to another host.
            async with self._session.get(
                asked.url, params=parameters, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    raise HostedSearchError(f"the search service answered HTTP {answer.status}")
                body = await _read(answer)
        except TimeoutError:
            raise HostedSearchError("the search service took too long") from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            # Its text may have the whole address.
            raise HostedSearchError(f"the search failed with {type(error).__name__}") from None
        return self._hits(body, limit)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _hits(self, body: bytes, limit: int) -> list[Hit]:
        try:
            found: Any = json.loads(body)
        except ValueError:
            raise HostedSearchError("the search service did not answer with JSON") from None
        for key in filter(None, self._options.results.split(".")):
            found = found.get(key) if isinstance(found, Mapping) else None
        if not isinstance(found, list):
            raise HostedSearchError(
                f"the answer of the search service has no list under {self._options.results!r}; "
                "check the option hosted.results"
            )
        hits = [self._hit(one) for one in found if isinstance(one, Mapping)]
        return [hit for hit in hits if hit.url][:limit]

    def _hit(self, one: Mapping[str, Any]) -> Hit:
        def text(key: str, most: int) -> str:
            value = one.get(key)
            return " ".join(value.split())[:most] if isinstance(value, str) else ""

        url = text(self._options.address, _URL)
        title = text(self._options.title, _TITLE) or url
        return Hit(url, url, title, text(self._options.snippet, _SNIPPET))


async def _read(answer: Any) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(65_536):
        body += chunk
        if len(body) > _BODY:
            raise HostedSearchError(f"the answer of the search service exceeds {_BODY} bytes")
    return bytes(body)
