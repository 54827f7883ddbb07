"""What a gateway reports about a model call that it captured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gymmesh.model.v1 import tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import dumps


class GatewayCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How a program's call is related to the earlier calls.

    Attributes:
        params: all Responses parameters of the call except its input; shared, and never changed.
        link: as in ModelCallCompleted.
        side_call: the purpose of a side call; empty for all others.
        fork: how its conversation departs from the parent's; None: it does not.
        replaced_params: Responses parameters that the program requested and the run replaced.
        left_out: the names of what the request had and the model service does not receive.
    """

    params: responses_pb2.ResponseParams
    link: rollout_pb2.CallLink.ValueType
    side_call: str = ""
    fork: tokens_pb2.Fork | None = None
    replaced_params: Mapping[str, Any] = {}
    left_out: Sequence[str] = ()

    def describe(self, completed: rollout_pb2.ModelCallCompleted) -> None:
        """Fill in the fields of the call's event.

        Raises:
            CodecError: a replaced parameter is not JSON.
        """
        completed.link = self.link
        completed.side_call = self.side_call
        if self.fork is not None:
            completed.fork.CopyFrom(self.fork)
        if self.replaced_params:
            completed.replaced_params_json = dumps(self.replaced_params)
        completed.left_out.extend(self.left_out)
