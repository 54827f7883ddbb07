"""Calls of models, as sessions and rollouts offer them to environment code."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from gymmesh.model.v1 import model_pb2
from gymmesh_resource.model_access.client import (
    ModelAnswer,
    Models,
    Prompt,
    conversation_params,
    in_call,
)
from gymmesh_resource.model_access.usage import UsageCounter


class ModelAccess:
    """The base of sessions and rollouts: calls models on behalf of a rollout."""

    rollout_id: str
    _models: Models | None = None

    @cached_property
    def usage(self) -> UsageCounter:
        """The usage of its model calls so far that no turn or verdict has reported yet."""
        return UsageCounter()

    async def ask(
        self,
        model: str,
        prompt: Prompt,
        *,
        system: str | None = None,
        seed: int | None = None,
        **params: Any,
    ) -> ModelAnswer:
        """One answer of the model that the environment calls `model`.

        `prompt`: a user's message, or a whole conversation. `params`: Responses parameters such
        as `temperature`, `max_output_tokens` or `text`. The call is made for the rollout: it
        takes no longer than what remains of the environment's own call, and its tokens are
        reported with the turn or the verdict that it is made for.

        Raises MeshError MODEL_* when the model fails. If the environment does not catch the
        error, the rollout fails at that model and may be retried. Catch the error if a verdict
        is possible without the answer.
        """
        models = self._served_models()
        request = model_pb2.CreateResponseRequest(
            params=conversation_params(prompt, system, params),
            rollout_id=self.rollout_id,
            seed=seed,
        )
        return await models.ask(model, request, self._usage_counter())

    def ask_sync(self, model: str, prompt: Prompt, **named: Any) -> ModelAnswer:
        """`ask` for a plain method, which runs in a thread: waits for the answer."""
        return self._served_models().from_thread(self.ask(model, prompt, **named))

    def _served_models(self) -> Models:
        if self._models is None:
            raise RuntimeError("the environment is not being served, so it can't call models")
        return self._models

    def _usage_counter(self) -> UsageCounter:
        call = in_call.get()
        return self.usage if call is None or call.usage_counter is None else call.usage_counter
