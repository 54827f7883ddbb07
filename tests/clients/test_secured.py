"""Every language collects over mutual TLS with a token, and says at once what keeps it from it."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.clients.conftest import LANGUAGES
from tests.clients.programs import COMMANDS
from tests.integration.security.test_mesh import mesh
from tests.support.certificates import Authority, Pair
from tests.support.cli import rows_of, sums, write_tasks

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASKS = 8
TOKEN = "a-token-of-the-nightly-run"
#: Far less than a collector waits for an agent that is away; a loaded machine takes a while.
BOUND_S = 60.0


@dataclass(frozen=True, slots=True)
class Secured:
    """A mesh's agent and what a caller shows it."""

    agent: str
    authority: Authority
    stranger: Authority
    caller: Pair
    token: Path

    def options(self, *, authority: Authority | None = None) -> list[str | Path]:
        """The options of a caller that may collect."""
        return [
            *("--ca", (authority or self.authority).path, "--cert", self.caller.certificate),
            *("--key", self.caller.key, "--token-file", self.token),
        ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority, stranger = Authority(folder), Authority(folder, "stranger")
    services, caller = authority.issue("services"), authority.issue("caller")
    token = folder / "token"
    token.write_text(TOKEN + "\n")
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    security = (
        f"{{tls: {{authority: {authority.path}, certificate: {services.certificate}, "
        f"key: {services.key}}}, identities: {{"
        "services: {certificates: [services], may: [register, serve]}, "
        f'nightly: {{token_sha256: "{digest}", may: [collect]}}}}}}'
    )
    async with mesh(folder, security) as agent:
        yield Secured(agent, authority, stranger, caller, token)


async def run(
    language: str, agent: str, folder: Path, options: Sequence[str | Path]
) -> tuple[int, str]:
    """A program's exit code and what it says, within the bound."""
    tasks = write_tasks(folder, sums(TASKS))
    process = await asyncio.create_subprocess_exec(
        *COMMANDS[language],
        *("--agent", agent, "--input", tasks, "--output", folder / "rows.jsonl"),
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(BOUND_S):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, said.decode()


@pytest.mark.parametrize("language", LANGUAGES)
async def test_mutual_tls_with_a_token(language: str, secured: Secured, tmp_path: Path) -> None:
    code, said = await run(language, secured.agent, tmp_path, secured.options())
    assert code == 0, said
    rows = rows_of(tmp_path / "rows.jsonl")
    assert len(rows) == TASKS
    assert TOKEN not in said


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("wrong", ["no token", "no tls", "another authority", "no certificate"])
async def test_what_is_wrong_is_said_within_seconds(
    wrong: str, language: str, secured: Secured, tmp_path: Path
) -> None:
    shown: dict[str, Sequence[str | Path]] = {
        "no token": secured.options()[:6],
        "no tls": [],
        "another authority": secured.options(authority=secured.stranger),
        "no certificate": ["--ca", secured.authority.path, "--token-file", secured.token],
    }
    code, said = await run(language, secured.agent, tmp_path, shown[wrong])
    assert code == 1, said
    reason = "CREDENTIAL_INVALID" if wrong == "no token" else "PEER_UNAVAILABLE"
    assert reason in said
    if wrong == "another authority":
        assert re.search("certificat|UnknownIssuer", said)
    assert TOKEN not in said


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("there", ["nobody", "one that says nothing"])
async def test_an_address_without_an_agent(there: str, language: str, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if there != "nobody":
            listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        code, said = await run(language, address, tmp_path, [])
    assert code == 1, said
    assert "PEER_UNAVAILABLE" in said or "DEADLINE_PASSED" in said


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_token_needs_tls_on_the_way_to_another_machine(
    language: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    code, said = await run(language, "agent.example:9401", tmp_path, ["--token-file", token])
    assert code in (1, 2), said
    assert "a token needs TLS" in said
