"""A minimal model: it answers by a word in the last message, and numbers its answers.

`truncate` cuts the answer off, `tool` calls the first tool, `slow` takes a minute, `flood` is more
than its context; anything else is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from gymmesh.model.v1 import model_pb2 as pb
from gymmesh.model.v1 import model_pb2_grpc
from gymmesh.responses.v1 import responses_pb2
from tests.conformance.minimal.status import fail, require

_MODEL: Final = "gymmesh.model.v1.ModelService"
_CONTEXT: Final = 1000


class Echo(model_pb2_grpc.ModelServiceServicer):
    """The model. Every sample has another number, so that a repeated one shows."""

    def __init__(self) -> None:
        self._samples = 0
        self._weights: int | None = None
        self._calls: dict[str, tuple[bytes, asyncio.Task[pb.CreateResponseResponse]]] = {}

    async def GetModel(self, request: Any, context: Any) -> Any:
        """What it is."""
        return pb.GetModelResponse(
            name="policy",
            backend="echo",
            endpoint_model="echo",
            capabilities=pb.ModelCapabilities(streaming=True, tools=True),
            context_tokens=_CONTEXT,
            weights_version=self._weights,
            contract_version="1.0",
        )

    async def CreateResponse(self, request: Any, context: Any) -> Any:
        """One sample; the same request_id gets the same one."""
        await require(context, request, f"{_MODEL}/CreateResponse", "params")
        return await self._answer(request, context)

    async def StreamResponse(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.StreamResponseResponse]:
        """The same, its text as one delta."""
        await require(context, request, f"{_MODEL}/StreamResponse", "call")
        await require(context, request.call, f"{_MODEL}/StreamResponse", "params")
        answer = await self._answer(request.call, context)
        for index, item in enumerate(answer.response.output):
            for part in item.message.parts.parts:
                delta = pb.ResponseDelta(output_index=index, text=part.output_text.text.encode())
                yield pb.StreamResponseResponse(delta=delta)
        yield pb.StreamResponseResponse(completed=answer)

    async def AbortResponse(self, request: Any, context: Any) -> Any:
        """Cannot stop anything, so it knows no running call."""
        await require(context, request, f"{_MODEL}/AbortResponse", "request_id")
        code = grpc.StatusCode.NOT_FOUND
        details = {"request_id": request.request_id}
        await fail(context, code, "RESPONSE_NOT_FOUND", "no such call runs here", **details)

    async def ScoreContinuations(self, request: Any, context: Any) -> Any:
        """Scores nothing."""
        code = grpc.StatusCode.UNIMPLEMENTED
        method = f"{_MODEL}/ScoreContinuations"
        await fail(context, code, "NOT_OFFERED", "no scores here", method=method)

    async def SetWeightsVersion(self, request: Any, context: Any) -> Any:
        """Takes a version that is not lower."""
        await require(context, request, f"{_MODEL}/SetWeightsVersion", "version")
        previous = self._weights
        if previous is not None and request.version < previous:
            code = grpc.StatusCode.INVALID_ARGUMENT
            await fail(context, code, "FIELD_INVALID", "the version only grows", field="version")
        self._weights = request.version
        return pb.SetWeightsVersionResponse(previous=previous)

    async def ReadSideData(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.ReadSideDataResponse]:
        """Stores none."""
        await require(context, request, f"{_MODEL}/ReadSideData", "digest")
        code = grpc.StatusCode.UNIMPLEMENTED
        await fail(context, code, "NOT_OFFERED", "this model stores no side data")
        yield pb.ReadSideDataResponse()

    async def _answer(self, request: Any, context: Any) -> pb.CreateResponseResponse:
        await self._refuse(request, context)
        asked = request.params.SerializeToString(deterministic=True)
        params, call = self._calls.get(request.request_id, (asked, None))
        if params != asked:
            code = grpc.StatusCode.FAILED_PRECONDITION
            details = {"request_id": request.request_id}
            await fail(context, code, "REQUEST_ID_REUSED", "the params differ", **details)
        repeated = call is not None
        if call is None:
            call = asyncio.create_task(self._sample(request))
            if request.request_id:
                self._calls[request.request_id] = (asked, call)
        answer = pb.CreateResponseResponse()
        # A call that others may wait for outlives its caller; any other ends with it.
        answer.CopyFrom(await (asyncio.shield(call) if request.request_id else call))
        answer.from_cache = repeated
        return answer

    async def _refuse(self, request: Any, context: Any) -> None:
        if request.conversation.parent_call_id:
            code = grpc.StatusCode.FAILED_PRECONDITION
            details = {"conversation_id": request.conversation.id}
            await fail(context, code, "CONVERSATION_UNKNOWN", "nothing is cached here", **details)
        if request.params.HasField("previous_response_id"):
            code = grpc.StatusCode.INVALID_ARGUMENT
            details = {"parameter": "previous_response_id", "backend": "echo"}
            await fail(context, code, "PARAMETER_UNSUPPORTED", "cannot be expressed", **details)
        if "flood" in _last_text(request.params):
            code = grpc.StatusCode.OUT_OF_RANGE
            details = {"model": "policy", "limit_tokens": str(_CONTEXT)}
            await fail(context, code, "MODEL_CONTEXT_EXCEEDED", "too long", **details)

    async def _sample(self, request: Any) -> pb.CreateResponseResponse:
        text = _last_text(request.params)
        if "slow" in text:
            await asyncio.sleep(60)
        self._samples += 1
        response = responses_pb2.Response(
            id=f"resp-{self._samples}",
            model="echo",
            status="completed",
            usage=responses_pb2.Usage(input_tokens=5, output_tokens=3, total_tokens=8),
        )
        if "tool" in text and request.params.tools:
            call = response.output.add().function_call
            call.call_id = f"fc-{self._samples}"
            call.name = request.params.tools[0].function.name
            call.arguments = b"{}"
        else:
            message = response.output.add().message
            message.role = "assistant"
            message.status = "completed"
            message.parts.parts.add().output_text.text = f"{text} #{self._samples}"
        if "truncate" in text:
            response.status = "incomplete"
            response.incomplete_details.reason = "max_output_tokens"
        call_id = request.call_id or f"call-{self._samples}"
        return pb.CreateResponseResponse(response=response, call_id=call_id)


def _last_text(params: responses_pb2.ResponseParams) -> str:
    if params.HasField("input_text"):
        return params.input_text
    texts = [item.message.text for item in params.input if item.message.text]
    return texts[-1] if texts else ""
