"""Processes that are started beside gRPC run, whatever its fork handlers would do; in processes of
their own, since gRPC reads its settings once.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SETTING = "GRPC_ENABLE_FORK_SUPPORT"
# The handlers abort 3 to 4 of 100.
_STARTED = 300
_START_MANY = f"""
import asyncio
import gymmesh_runtime, grpc, uvloop
from asyncio.subprocess import DEVNULL

async def echo(request, context):
    return request

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(echo)

async def main():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{{port}}") as channel:
        call = channel.unary_unary("/test/Echo")

        async def busy():
            while True:
                await call(b"again")

        callers = [asyncio.create_task(busy()) for _ in range(4)]
        statuses = set()
        for _ in range({_STARTED}):
            started = await asyncio.create_subprocess_exec("true", stderr=DEVNULL)
            statuses.add(await started.wait())
        for one in callers:
            one.cancel()
        await asyncio.wait(callers)
    await server.stop(None)
    print(statuses)

uvloop.run(main())
"""
_WHEN_LOADED = f"""
import importlib, os, sys
from importlib.abc import MetaPathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "grpc":
            print(os.environ.get("{_SETTING}"))

sys.meta_path.insert(0, Finder())
module, name = sys.argv[1].split(":")
getattr(importlib.import_module(module), name)
print("loaded")
"""


def said(script: str, *arguments: str) -> list[str]:
    """The words that a script prints in an environment that sets nothing of gRPC."""
    env = {name: value for name, value in os.environ.items() if name != _SETTING}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return done.stdout.split()


def test_every_process_that_is_started_runs() -> None:
    assert said(_START_MANY) == ["{0}"]


@pytest.mark.parametrize(
    "name",
    [
        "gymmesh:Agent",
        "gymmesh:Environment",
        "gymmesh:Mesh",
        "gymmesh:TokenBackend",
        "gymmesh:advantages",
        "gymmesh:collect",
        "gymmesh_cli.main:cli",
        "gymmesh_discovery.service:DiscoveryService",
        "gymmesh_mesh.worker:main",
        "gymmesh_model:ModelService",
        "gymmesh_resource:Environment",
    ],
)
def test_it_is_set_before_grpc_is_loaded(name: str) -> None:
    assert said(_WHEN_LOADED, name) in (["0", "loaded"], ["loaded"])
