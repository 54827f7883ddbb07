"""The model endpoint for an environment that plays its episodes itself."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """An endpoint for one episode, with OpenAI's Responses and Chat Completions APIs.

    Attributes:
        base_url: the root of the API, `http://HOST:PORT/v1`, without a trailing slash.
        key: sent as `Authorization: Bearer KEY`. A secret that is valid until the rollout ends. Do
            not write it to logs, to the session's state or to the verdict.
        model: the model's name for requests.
    """

    base_url: str
    key: str = field(repr=False)
    model: str
