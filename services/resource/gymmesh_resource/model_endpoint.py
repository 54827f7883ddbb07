"""Where an environment that plays its episodes itself calls the model."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """An endpoint as OpenAI has it, for one episode: Responses and Chat Completions.

    Attributes:
        base_url: the root of the API, `http://HOST:PORT/v1`, without a slash at the end.
        key: sent as `Authorization: Bearer KEY`. A secret that ends with the rollout: keep it out
            of logs, of the session's state and of what the verdict returns.
        model: the name under which to ask for the model.
    """

    base_url: str
    key: str = field(repr=False)
    model: str
