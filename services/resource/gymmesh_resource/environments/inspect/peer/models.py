"""The model that a sample's solver and scorers reach: the one of its session."""

from __future__ import annotations

from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageUser,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelOutput,
    get_model,
    messages_to_openai_responses,
    modelapi,
)
from inspect_ai.model._model import init_active_model

from gymmesh_resource.environments.inspect.peer.session import SampleSession, current_session

MOST_AT_ONCE = 100_000


class AgentPlayed(Exception):
    """The solver called the model again after our agent had played: no more of it is needed."""


class SessionModel(Model):
    """The model of the evaluation: each call reaches that of the session it is made in."""

    def __init__(self) -> None:
        super().__init__(get_model("mockllm/model", memoize=False).api, GenerateConfig())

    @property
    def api(self) -> ModelAPI:
        """The session's; Inspect reads here what a model can do, too."""
        session = current_session()
        return self._base if session is None or session.api is None else session.api

    @api.setter
    def api(self, api: ModelAPI) -> None:
        self._base = api

    async def generate(
        self, input: Any, tools: Any = None, *args: Any, **named: Any
    ) -> ModelOutput:
        """As Inspect's; where our agent plays, the first call is where it takes over."""
        session = current_session()
        tools = [] if tools is None else tools
        messages = [ChatMessageUser(content=input)] if isinstance(input, str) else input
        if session is None:
            raise RuntimeError(
                "the model was called while no sample runs. Call the model only within a sample"
            )
        if session.api is None:
            if session.opened.done():
                raise AgentPlayed
            await session.hand_over(messages, tools, submits=True)
            raise AgentPlayed
        return await super().generate(input, tools, *args, **named)


@modelapi(name="gymmesh")
class JudgeApi(ModelAPI):
    """The service's model, for scorers. `refused`: none is configured."""

    def __init__(self, session: SampleSession, *, refused: bool) -> None:
        super().__init__("judge")
        self._session, self._refused = session, refused

    async def generate(
        self, input: list[ChatMessage], tools: Any, tool_choice: Any, config: GenerateConfig
    ) -> ModelOutput:
        """One answer of the judge. Raises what the service does."""
        if self._refused:
            raise RuntimeError(
                "a scorer calls a model; to allow model calls of scorers, set the option "
                "`judge: true`"
            )
        if tools:
            raise RuntimeError("a scorer offers tools to the judge, but the judge can't call tools")
        wanted = {
            "temperature": config.temperature,
            "top_p": config.top_p,
            "max_output_tokens": config.max_tokens,
        }
        question = {
            "session": self._session.id,
            "input": await responses_input(input),
            "params": {name: value for name, value in wanted.items() if value is not None},
        }
        return ModelOutput.from_content("judge", await self._session.host.ask("judge", question))

    def max_connections(self) -> int:
        """The mesh has bounds of its own."""
        return MOST_AT_ONCE


def endpoint_api(base_url: str, key: str, model: str) -> ModelAPI:
    """An endpoint of OpenAI's API, as Inspect calls those that it does not know."""
    name = f"openai-api/gymmesh/{model}"
    return get_model(name, base_url=base_url, api_key=key, memoize=False).api


def activate(model: Model) -> None:
    """What `get_model()` without a name answers from now on, in this context."""
    init_active_model(model, GenerateConfig())


async def responses_input(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as input of the Responses API; images of files are put in."""
    items = [dict(item) for item in await messages_to_openai_responses(messages)]
    for item in items:
        if item.get("role") == "developer":
            item["role"] = "system"
        match item.get("content"):
            case [{"type": "input_text", "text": str(text)}]:
                item["content"] = text
    return items
