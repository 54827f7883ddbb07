"""A script as `peer.script`, with samples that behave as their ids say."""

from __future__ import annotations

import asyncio
import os
from typing import Any

_PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
_IDS = ("right", "wrong", "asks", "dies", "garbage", "hangs", "raises", "unscored", "refused")
_played: dict[str, dict[str, Any]] = {}


async def load(_host: Any, params: dict[str, Any]) -> dict[str, Any]:
    if params["args"].get("missing"):
        raise ModuleNotFoundError("No module named 'openai'")
    return {"samples": len(_IDS), "limits": ["time_limit"], "epochs": 1}


async def samples(_host: Any, params: dict[str, Any]) -> list[dict[str, Any]]:
    page = _IDS[params["start"] : params["start"] + params["count"]]
    return [
        {
            "id": one,
            "input": [{"role": "user", "content": f"Be {one}."}],
            "sandbox": None,
            "problem": "ValueError: it has no choices" if one == "refused" else "",
        }
        for one in page
    ]


async def open_sample(_host: Any, params: dict[str, Any]) -> dict[str, Any]:
    _played[params["session"]] = params
    offered = ("look", "submit")
    tools: list[Any] = [{"type": "function", "name": name, "parameters": {}} for name in offered]
    return {"tools": tools, "left_out": ["web_search"]}


async def call(_host: Any, params: dict[str, Any]) -> dict[str, Any]:
    if params["arguments"].get("bad"):
        return {"error": "that is bad"}
    text = {"type": "input_text", "text": "seen"}
    if params["name"] == "submit":
        return {"output": [text], "done": True}
    return {"output": [text, {"type": "input_image", "image_url": _PIXEL}], "done": False}


async def play(_host: Any, params: dict[str, Any]) -> None:
    if params["key"] == "refused":
        raise RuntimeError(f"nobody may play with {params['key']}")
    _played[params["session"]]["endpoint"] = params["model"]


async def verify(host: Any, params: dict[str, Any]) -> dict[str, Any]:
    sample = _played[params["session"]]["sample"]
    score: dict[str, Any] = {"name": "match", "numbers": {"": float(sample == "right")}}
    score |= {"unscored": False, "value": "C", "answer": params["items"][-1]["content"]}
    score["explanation"] = _played[params["session"]].get("endpoint", params["stop"])
    match sample:
        case "dies":
            os._exit(9)
        case "garbage":
            os.write(host._replies, b"this is not JSON\n")
            await asyncio.Event().wait()
        case "hangs":
            await asyncio.Event().wait()
        case "raises":
            raise RuntimeError("the scorer broke")
        case "unscored":
            score |= {"numbers": {}, "unscored": True, "value": None}
        case "asks":
            asked = {"session": params["session"], "input": params["items"], "params": {}}
            score["explanation"] = await host.ask("judge", asked)
    return {"scores": [score], "limit": None}


async def close(_host: Any, params: dict[str, Any]) -> None:
    del _played[params["session"]]


METHODS = {
    "load": load,
    "samples": samples,
    "open": open_sample,
    "call": call,
    "play": play,
    "verify": verify,
    "close": close,
}
