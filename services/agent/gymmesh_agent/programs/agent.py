"""The agent `program`: runs a published program, or a function of your own, without changes.

The program runs in a sandbox of the session. It calls the model through the rollout's gateway,
which captures every call. The environment judges what the program left in the sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_agent.agent import Agent
from gymmesh_agent.context import RolloutContext
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_agent.loop import Completion
from gymmesh_agent.programs.ends import ProgramEnd, completion_of
from gymmesh_agent.programs.in_process import find_function, run_in_process
from gymmesh_agent.programs.options import ENVIRONMENT, read_options
from gymmesh_agent.programs.played import check_played, wait_for_episode
from gymmesh_agent.programs.prompt import prompt_of
from gymmesh_agent.programs.sandboxed import ProgramTask, program_version, run_in_sandbox
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import SandboxHandle

# The call outlives the episode's time by this, so that the agent ends it and not its deadline.
_SLACK_S: Final = 60.0


class ProgramAgent(Agent):
    """Runs a program as the agent. How the program ends decides whether the rollout completed."""

    version: ClassVar[str] = "1"
    runs_programs: ClassVar[bool] = True
    description: ClassVar[str] = (
        "Runs a program in a sandbox of the session; its model calls go through the gateway."
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises ValueError for invalid options."""
        self._options = read_options(options)
        if self._options.in_process:
            find_function(self._options.function)
        # By image: asking takes seconds.
        self._versions: dict[str, str] = {}
        self._asking = asyncio.Lock()

    @property
    def program_sandbox(self) -> str:
        options = self._options
        return "" if options.in_process or options.is_environment else options.sandbox

    @property
    def wants_play(self) -> bool:
        return self._options.is_environment

    async def program_of(self, context: RolloutContext) -> rollout_pb2.Program:
        """The program and its version, which is requested once for each image.

        Raises FIELD_INVALID for a sandbox whose programs can't reach the gateway.
        """
        options = self._options
        if options.is_environment:
            _check_plays(context)
            return rollout_pb2.Program(name=options.name, version=context.environment_version)
        if options.in_process:
            return rollout_pb2.Program(name=options.name)
        sandbox = self._sandbox(context)
        await _check_network(sandbox, options.sandbox)
        if not options.program:
            return rollout_pb2.Program(name=options.name)
        ref = await sandbox.open()
        image = ref.image_digest or ref.image
        async with self._asking:
            if image not in self._versions:
                self._versions[image] = await program_version(sandbox, options)
        return rollout_pb2.Program(name=options.name, version=self._versions[image])

    async def run(self, context: RolloutContext) -> Completion:
        """Run the program to its end, and again for each turn of an environment that takes turns.

        Raises the error with which the rollout fails.
        """
        options = self._options
        if options.is_environment:
            return await self._play(context)
        prompt = prompt_of(context.items)
        program = await self.program_of(context)
        named = f"{program.name} {program.version}".rstrip()
        # The end of this block raises what ended the rollout at the gateway.
        async with context.gateway(
            options.program, tools=options.mcp, side_calls=options.side_calls
        ) as gateway:
            end = await self._run_once(context, gateway, prompt, context.name)
            await context.program_ended(end.event(named))
            runs = 1
            while context.multi_turn and end.is_completed and not gateway.stopped.is_set():
                turn = await context.next_turn(context.last_call)
                if turn.done:
                    break
                runs += 1
                name = f"{context.name}/{runs}"
                end = await self._run_once(context, gateway, prompt_of(turn.items), name)
                await context.program_ended(end.event(named))
        return completion_of(end, options.name)

    async def _run_once(
        self, context: RolloutContext, gateway: Gateway, prompt: str, name: str
    ) -> ProgramEnd:
        options, before = self._options, context.tally.model_calls

        def answers() -> int:
            return context.tally.model_calls - before

        if options.in_process:
            task = ProgramTask(prompt, gateway.url, name)
            return await run_in_process(options, task, gateway, answers)
        task = ProgramTask(prompt, gateway.sandbox_url, name)
        return await run_in_sandbox(self._sandbox(context), options, task, gateway, answers)

    async def _play(self, context: RolloutContext) -> Completion:
        """Let the environment play. Its own result stays in the session, for the verdict."""
        options = self._options
        async with context.gateway(side_calls=options.side_calls) as gateway:
            play = context.play(gateway, options.model, options.timeout_s + _SLACK_S)
            completion = await wait_for_episode(play, gateway.stopped, options.timeout_s)
            timed_out = completion.reason == rollout_pb2.STOP_REASON_PROGRAM_TIMEOUT
            how = "its timeout_s expired" if timed_out else "the episode is over"
            detail = f"environment {context.environment} {context.environment_version}: {how}"
            await context.program_ended(rollout_pb2.ProgramEnded(detail=detail))
        check_played(context.environment, context.tally.model_calls)
        return completion

    def _sandbox(self, context: RolloutContext) -> SandboxHandle:
        """The session's sandbox for the program. Raises FIELD_INVALID if there is none."""
        sandbox = context.sandboxes.get(self._options.sandbox)
        if sandbox is None:
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"the environment lends no sandbox {self._options.sandbox!r} for the program; use "
                "an environment that lends a sandbox, such as the environment 'workspace'",
                metadata={"field": "options.sandbox"},
            )
        return sandbox


def _check_plays(context: RolloutContext) -> None:
    """Raises FIELD_INVALID for an environment that can't play an episode itself."""
    if not context.environment_plays:
        raise MeshError(
            errors_pb2.ERROR_REASON_FIELD_INVALID,
            f"the option 'program: {ENVIRONMENT}' needs an environment that plays its episodes "
            f"itself. The environment {context.environment!r} doesn't play its episodes: use the "
            "agent tool_loop, or another program",
            metadata={"field": "options.program"},
        )


async def _check_network(sandbox: SandboxHandle, role: str) -> None:
    """Raises FIELD_INVALID for a sandbox whose network has no gateway. In a network that reaches
    everything that its host reaches, the host's own program at the gateway's address would get
    the rollout's key.
    """
    kind = (await sandbox.about()).sandbox.network
    if kind != sandbox_pb2.NETWORK_KIND_RELAY:
        shown = sandbox_pb2.NetworkKind.Name(kind).removeprefix("NETWORK_KIND_").lower()
        raise MeshError(
            errors_pb2.ERROR_REASON_FIELD_INVALID,
            f"the program can't reach the model from the sandbox {role!r}, because the sandbox's "
            f"network is '{shown}'. Use an environment that lends a sandbox with the network "
            "'agent', for example the environment 'workspace' with the option 'network: agent'",
            metadata={"field": "options.sandbox"},
        )
