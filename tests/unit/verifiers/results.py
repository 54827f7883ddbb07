"""Results as the runner reports them."""

from __future__ import annotations

from typing import Any


def trace(**more: Any) -> dict[str, Any]:
    return {
        "id": "t1",
        "agent": "agent",
        "trainable": True,
        "ok": True,
        "reward": 1.125,
        "rewards": {
            "right": {"score": 1.0, "weight": 1.0},
            "brief": {"score": 0.5, "weight": 0.25},
        },
        "metrics": {"turns": 2.0, "unset": None},
        "stop_condition": "agent_completed",
        "timeout": False,
        "scoring": True,
        "turns": 2,
        "errors": [],
        **more,
    }


def episode(*traces: dict[str, Any], ok: bool = True, **more: Any) -> dict[str, Any]:
    return {"ok": ok, "timeout": False, "errors": [], "traces": list(traces), **more}
