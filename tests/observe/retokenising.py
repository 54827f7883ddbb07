"""A model service that breaks the exact-token law when it is told to."""

from __future__ import annotations

from gymmesh.model.v1 import model_pb2
from gymmesh_model.service import ModelService
from gymmesh_runtime.context import CallContext

# Other tokens than any prompt of the toy tokenizer has, and more than one.
_OTHERS = b"\1\0\0\0" + b"\7\0\0\0" * 500


class Retokenising(ModelService):
    """Says of prompts that they were tokenised anew, while it `lies`, and declares nothing."""

    lies = False

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        reply = await super().CreateResponse(request, context)
        if not self.lies:
            return reply
        changed = model_pb2.CreateResponseResponse()
        changed.CopyFrom(reply)
        changed.tokens.ClearField("fork")
        changed.tokens.prompt_prefix_tokens = 0
        changed.tokens.prompt_token_ids = _OTHERS
        return changed
