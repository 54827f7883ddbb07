"""The suite for capture gateways: recorded sessions of ten programs, played over any of them."""

from gymmesh_conformance.gateway.adapter import (
    AdapterError,
    CaughtCall,
    CaughtSample,
    GatewayAdapter,
    OpenRollout,
    PartialGateway,
    SampledTokens,
    Script,
    TokenRollout,
    WrittenAnswer,
    WrittenCall,
    apis_of,
)
from gymmesh_conformance.gateway.endpoint import scripted_endpoint
from gymmesh_conformance.gateway.playing import run_gateway_suite, select_gateway_cases

__all__ = [
    "AdapterError",
    "CaughtCall",
    "CaughtSample",
    "GatewayAdapter",
    "OpenRollout",
    "PartialGateway",
    "SampledTokens",
    "Script",
    "TokenRollout",
    "WrittenAnswer",
    "WrittenCall",
    "apis_of",
    "run_gateway_suite",
    "scripted_endpoint",
    "select_gateway_cases",
]
