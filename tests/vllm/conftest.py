"""A real vLLM behind our model service, once for all tests: as a process, and in this process.

Opt-in (`make test-vllm`): it takes minutes, and an environment of its own that has vLLM. What it
computes on is told by GYMMESH_TEST_VLLM: `cpu` or `gpu`; without it nothing is collected here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.vllm import EngineConfig, ServeConfig
from gymmesh_runtime.config import Secret
from gymmesh_runtime.peers import PeerDirectory
from tests.support.dialogue import Dialogue
from tests.vllm.talk import Talk, user

DEVICE: Final = os.environ.get("GYMMESH_TEST_VLLM", "")
ROOT: Final = Path(__file__).parents[2]
WEIGHTS: Final = ROOT / ".cache" / "vllm" / "model"
START_S: Final = 600.0

collect_ignore_glob = [] if DEVICE else ["test_*.py"]

COMMON: Final = [
    *("--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "16"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    *("--chat-template", str(ROOT / "tools" / "vllm" / "chat_template.jinja")),
]
ARGS: Final = {
    "cpu": [*COMMON, "--enforce-eager"],
    "gpu": [*COMMON, "--gpu-memory-utilization", "0.3"],
}
ENVIRONMENT: Final = {
    # Two threads: the machine has other things to do, too.
    "cpu": {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "2"},
    "gpu": {},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Loading a model takes minutes; vLLM's own warnings are not ours to mend."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).rpartition("/")[0] == here:
            item.add_marker(pytest.mark.timeout(START_S + 200))
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[dict[str, str]]:
    """The variables that vLLM needs here, for processes that are started, and for this one."""
    needed = {**ENVIRONMENT[DEVICE], "HF_HUB_OFFLINE": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in needed.items():
            patch.setenv(name, value)
        yield needed


def configured(kind: str, log: Path, **more: Any) -> ModelConfig:
    """A `vllm` model of that kind (`serve` or `engine`) with the default weights."""
    own: dict[str, Any] = {"model": str(WEIGHTS), "args": ARGS[DEVICE], "ready_s": START_S}
    given: dict[str, Any] = {"model": "small", "timeout_s": 100.0, "max_retries": 0, **more}
    if kind == "engine":
        return ModelConfig(backend="vllm", engine=EngineConfig(**own), **given)
    executable = str(Path(sys.executable).with_name("vllm"))
    env = {name: Secret(value) for name, value in ENVIRONMENT[DEVICE].items()}
    serve = ServeConfig(**own, executable=executable, env=env, log=str(log))
    return ModelConfig(backend="vllm", serve=serve, **given)


@pytest.fixture(scope="session", params=["serve", "engine"])
def kind(request: pytest.FixtureRequest) -> str:
    """Where vLLM runs; all tests with the one come before all with the other."""
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's log."""
    return tmp_path_factory.mktemp("vllm") / "log"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service(
    kind: str, log: Path, environment: dict[str, str], say: Callable[[str], None]
) -> AsyncIterator[ModelService]:
    """The model service over a vLLM that it has started, or loaded."""
    service = ModelService(configured(kind, log, options={"keep_aborted": True}), "policy", "p-0")
    begun = time.monotonic()
    await service.open(PeerDirectory())
    ready = time.monotonic()
    try:
        # The first call computes what the others find.
        await Talk(service, max_output_tokens=2).ask(user("hello"))
        warm = time.monotonic()
        say(f"\n{kind}: ready after {ready - begun:.0f} s, warm {warm - ready:.0f} s later")
        yield service
    finally:
        async with asyncio.timeout(60):
            await service.close()


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Prints past pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def out(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(text, flush=True)

    return out


@pytest.fixture
def talk(service: ModelService) -> Dialogue:
    """A conversation at temperature 0."""
    return Talk(service)
