"""Serves NeMo RL's own endpoint over a real vLLM: `python -m tests.vllm.theirs_server FOLDER PORT`.

The trainer's temperature is 1.0 and its top_p 0.9, those of validation are 0.0 and 1.0.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

from tests.vllm.theirs import endpoint_setup

SAMPLING = {"temperature": 1.0, "top_p": 0.9, "val_temperature": 0.0, "val_top_p": 1.0}


async def serve(folder: str, port: int) -> None:
    """Serve until the process is ended."""
    # Only vLLM's environment has these.
    import fastapi
    import uvicorn
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=folder,
        served_model_name="policy",
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=8,
        enforce_eager=True,
        logprobs_mode="processed_logprobs",
    )
    worker: Any = SimpleNamespace(
        llm=AsyncLLM.from_engine_args(arguments),
        llm_async_engine_args=arguments,
        cfg={"vllm_cfg": {}, **SAMPLING},
        routed_experts_dtype=None,
        _return_routed_experts_enabled=lambda: False,
    )
    app = endpoint_setup()(worker, fastapi.FastAPI())

    async def health() -> str:
        return "up"

    app.add_api_route("/health", health)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
