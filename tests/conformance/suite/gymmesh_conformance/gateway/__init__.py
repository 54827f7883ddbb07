"""The suite for capture gateways: recorded sessions of ten programs, played over any of them."""

from gymmesh_conformance.gateway.adapter import (
    AdapterError,
    CaughtCall,
    CaughtSample,
    GatewayAdapter,
    OpenRollout,
    SampledTokens,
    Script,
    TokenRollout,
    WrittenAnswer,
    WrittenCall,
)
from gymmesh_conformance.gateway.endpoint import scripted_endpoint
from gymmesh_conformance.gateway.playing import run_gateway_suite, select_gateway_cases

__all__ = [
    "AdapterError",
    "CaughtCall",
    "CaughtSample",
    "GatewayAdapter",
    "OpenRollout",
    "SampledTokens",
    "Script",
    "TokenRollout",
    "WrittenAnswer",
    "WrittenCall",
    "run_gateway_suite",
    "scripted_endpoint",
    "select_gateway_cases",
]
