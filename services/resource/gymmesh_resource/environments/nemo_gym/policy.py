"""Calls of the policy at the endpoint of an episode, and the answers that end the episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from gymmesh_resource.environments.nemo_gym.client import NoAnswer, bounded_body
from gymmesh_resource.environments.nemo_gym.server import FAULT
from gymmesh_resource.model_endpoint import ModelEndpoint
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_runtime.errors import MeshError

#: Bytes of a request or an answer.
LARGEST: Final = 64 << 20
_CONNECT_S: Final = 10.0
# The rollout is over, as at a limit of the policy; or the conversation no longer fits the model.
_ENDING: Final = frozenset(("rollout_over", "context_length_exceeded"))


def policy_client() -> aiohttp.ClientSession:
    """The HTTP client for endpoints. An answer may take as long as the episode does."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
    )


def headers_of(endpoint: ModelEndpoint) -> dict[str, str]:
    """The headers of a call."""
    return {"Authorization": f"Bearer {endpoint.key}", "Content-Type": "application/json"}


async def ask_policy(
    http: aiohttp.ClientSession, endpoint: ModelEndpoint, body: Mapping[str, Any]
) -> dict[str, Any] | None:
    """A response of the model; None: a limit of the policy ended the episode.

    Raises ENVIRONMENT_FAULT for anything else; the agent knows the cause where it is the model's.
    """
    url = f"{endpoint.base_url}/responses"
    try:
        async with http.post(url, data=dumps(body), headers=headers_of(endpoint)) as reply:
            text = await bounded_body(reply, LARGEST)
            if reply.status != 200:
                if ends_episode(text):
                    return None
                raise _failed(f"it answered {reply.status}")
        response = loads(text)
    except (aiohttp.ClientError, TimeoutError, CodecError, NoAnswer) as error:
        raise _failed(type(error).__name__) from error
    if isinstance(response, dict) and isinstance(response.get("output"), list):
        return response
    raise _failed("its answer is not a response of the Responses API")


def ends_episode(text: bytes) -> bool:
    """Whether the body of an error says that the policy gets no further answer."""
    try:
        return loads(text)["error"]["code"] in _ENDING
    except (CodecError, LookupError, TypeError):
        return False


def _failed(problem: str) -> MeshError:
    return MeshError(
        FAULT,
        f"The model endpoint of the episode failed: {problem}.",
        metadata={"environment": "nemo_gym", "stage": "play"},
    )
