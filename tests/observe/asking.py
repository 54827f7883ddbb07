"""A program of a scene that calls the model over HTTP: the agent `program` runs it in its process.

It brings the figures of the gateway, and costs a small machine no process for each rollout.
"""

from __future__ import annotations

import aiohttp


async def ask(prompt: str, url: str, key: str, model: str) -> None:
    """Puts the prompt to the model once; the answer is the rollout's. Raises ClientError."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    shown = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.post(f"{url}/v1/chat/completions", json=body, headers=shown) as response,
    ):
        await response.read()
