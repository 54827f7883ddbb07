"""What is sent to SGLang, read by SGLang's own request schema and parameter classes.

SGLang itself needs a GPU. Behind the small server stand its classes: the schema that refuses a body
of `/generate`, its sampling parameters with their checks, and what writes the versions of weights
into an answer. Its package would import the whole engine, so these modules are imported alone.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh_model import ModelConfig, ModelService
from gymmesh_runtime.peers import PeerDirectory
from tests.support.dialogue import Dialogue, result, user
from tests.support.token_servers import TokenServer
from tests.support.vllm_server import END, calls, says

VOCABULARY: Final = 3_000_000
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": None}
PACKAGES: Final = (
    "sglang",
    "sglang.api",
    "sglang.api.v1",
    "sglang.srt",
    "sglang.srt.sampling",
    "sglang.srt.sampling.watermarking",
    "sglang.srt.utils",
)


@pytest.fixture(scope="module")
def sglang() -> Iterator[types.SimpleNamespace]:
    """The modules, in packages that import nothing by themselves."""
    home = Path(str(distribution("sglang").locate_file("")))
    with pytest.MonkeyPatch.context() as patch:
        for name in PACKAGES:
            package = types.ModuleType(name)
            package.__path__ = [str(home / name.replace(".", "/"))]
            patch.setitem(sys.modules, name, package)
        yield types.SimpleNamespace(
            schema=importlib.import_module("sglang.api.v1.api_types"),
            sampling=importlib.import_module("sglang.srt.sampling.sampling_params"),
            weights=importlib.import_module("sglang.srt.utils.weight_versions"),
        )
        for name in [one for one in sys.modules if one.startswith("sglang")]:
            patch.delitem(sys.modules, name, raising=False)


def checked(sglang: Any, seen: list[Any]) -> Any:
    """Refuses a body as SGLang does; `seen` gets its sampling parameters."""

    def check(body: dict[str, Any]) -> str | None:
        try:
            sglang.schema.GenerateRequest.from_json_value(body)
        except sglang.schema.JsonContractError as error:
            return str(error)
        params = sglang.sampling.SamplingParams(**body["sampling_params"])
        try:
            params.verify(VOCABULARY)
        except ValueError as error:
            return str(error)
        seen.append(params)
        return None

    return check


async def asked(server: TokenServer, **params: Any) -> Dialogue:
    """Two calls, the second with the result of a tool."""
    options = {"tokenizer": "tests.support.token_servers:toy_tokenizer"}
    config = ModelConfig(backend="sglang", url=server.url, options=options, max_retries=0)
    service = ModelService(config, "policy", "p-0")
    await service.open(PeerDirectory())
    try:
        talk = Dialogue(service, tools=[TOOL], **params)
        reply = await talk.ask(user("what is two and three"))
        await talk.ask(result(reply, "five"))
    finally:
        await service.close()
    return talk


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {"temperature": 1.0, "top_p": 1.0}),
        ({"temperature": 0.0}, {"temperature": 1.0, "top_k": 1}),
        (
            {"temperature": 0.7, "top_p": 0.9, "max_output_tokens": 64},
            {"temperature": 0.7, "top_p": 0.9, "max_new_tokens": 64},
        ),
    ],
)
async def test_sglang_reads_what_is_sent(
    sglang: Any, params: dict[str, Any], expected: dict[str, Any]
) -> None:
    seen: list[Any] = []
    script = [calls("add", '{"a":   2, "b":3}'), says("five")]
    server = TokenServer("sglang", splits=True, script=script, check=checked(sglang, seen))
    async with server:
        talk = await asked(server, **params)
    assert talk.prompts == server.prompts
    assert talk.outputs == server.outputs
    assert not any(capture.HasField("fork") for capture in talk.captures)
    assert len(seen) == 2
    for found in seen:
        assert found.stop_token_ids == {END}
        assert {key: getattr(found, key) for key in expected} == expected
    # Without a limit of the call's: as many as the context has room for, not SGLang's 128.
    if "max_output_tokens" not in params:
        assert seen[0].max_new_tokens == server.context - len(server.prompts[0])


async def test_the_versions_that_sglang_writes_are_read(sglang: Any) -> None:
    def spans(answer: dict[str, Any]) -> dict[str, Any]:
        count = len(answer["output_ids"])
        events = [sglang.weights.WeightVersionEvent("4", 1)]
        found = sglang.weights.compute_weight_version_spans(events, "5", count)
        sglang.weights.add_weight_versions_to_meta_info(answer["meta_info"], found, count)
        return answer

    script = [calls("add", '{"a": 2}'), says("five")]
    server = TokenServer("sglang", script=script, alter=spans)
    async with server:
        talk = await asked(server)
    for capture in talk.captures:
        found = [(one.version, one.first_token) for one in capture.weights]
        assert found == [(4, 0), (5, 1)]
