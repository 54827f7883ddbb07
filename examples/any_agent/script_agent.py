"""An agent that runs a script as a subprocess; the script calls the model over OpenAI's API."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from gymmesh import Agent, Completion, RolloutContext, text_of

SCRIPT = Path(__file__).with_name("script.py")


class ScriptAgent(Agent):
    """Runs script.py with the task's prompt, and is done when the script has ended."""

    version = "1"
    runs_programs = True

    async def run(self, context: RolloutContext) -> Completion:
        prompt = "\n".join(text_of(item) for item in context.items)
        async with context.gateway() as gateway:
            script = await asyncio.create_subprocess_exec(
                sys.executable,
                str(SCRIPT),
                prompt,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env={
                    "PATH": os.environ["PATH"],
                    "OPENAI_BASE_URL": f"{gateway.url}/v1",
                    "OPENAI_API_KEY": gateway.key,
                },
            )
            try:
                await script.wait()
            finally:
                if script.returncode is None:
                    script.kill()
                    await script.wait()
        return Completion.program_exited()
