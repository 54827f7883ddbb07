"""Stands in for `vllm serve`: what it does is told by the environment variable FAKE_VLLM.

Run as a process of its own. It listens on the port it is given and answers to its key.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE = os.environ.get("FAKE_VLLM", "serve")
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


class Handler(BaseHTTPRequestHandler):
    """Knows one model, and dies of a call to /die."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers GET."""
        if self.path == "/die":
            print("a last word", flush=True)
            os._exit(7)
        self._answer(200 if self.path == "/v1/models" else 404, {"data": [{"id": _model()}]})

    def do_POST(self) -> None:
        """Answers POST: a chat with the model's name, and nothing else."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": f"I am {asked.get('model')}"}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        chat = self.path == "/v1/chat/completions"
        self._answer(200 if chat else 404, {"id": "c1", "model": _model(), "choices": choices})

    def _answer(self, status: int, document: object) -> None:
        if self.headers.get("Authorization") != f"Bearer {os.environ.get('VLLM_API_KEY')}":
            status, document = 401, {"error": {"message": "who are you?"}}
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: its log is what the tests look at."""


def _model() -> str:
    return sys.argv[sys.argv.index("--served-model-name") + 1]


def main() -> None:
    """Does what FAKE_VLLM says."""
    print("fake vllm:", json.dumps(sys.argv[1:]), flush=True)
    if MODE == "fail":
        for number in range(40):
            print(f"line {number}", file=sys.stderr, flush=True)
        print("ValueError: no such model", file=sys.stderr, flush=True)
        sys.exit(3)
    if MODE == "silent":
        os.kill(os.getpid(), signal.SIGILL)
    if MODE == "hang":
        time.sleep(600)
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", STUBBORN])
    print(f"child {child.pid}", flush=True)
    if MODE == "late":
        time.sleep(float(os.environ.get("FAKE_SECONDS", "0.6")))
    host, port = (sys.argv[sys.argv.index(flag) + 1] for flag in ("--host", "--port"))
    server = ThreadingHTTPServer((host, int(port)), Handler)
    if MODE == "other-key":
        os.environ["VLLM_API_KEY"] = "another"
    server.serve_forever()


def install(folder: Path) -> Path:
    """Writes an executable that is this file; gives its path."""
    executable = folder / "bin" / "vllm"
    executable.parent.mkdir(parents=True, exist_ok=True)
    executable.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__)} "$@"\n')
    executable.chmod(0o755)
    return executable


def child_of(log: Path) -> int:
    """Of one with that log, running or not: the child that ignores SIGTERM."""
    found = re.search(r"child (\d+)", log.read_text())
    assert found is not None
    return int(found.group(1))


def processes(log: Path) -> tuple[int, int]:
    """Of a running one with that log: its group, and the child that ignores SIGTERM."""
    child = child_of(log)
    return os.getpgid(child), child


async def gone(pid: int, seconds: float = 60.0) -> None:
    """Returns when there is no such process, or only its remains; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        asked = ("ps", "-o", "stat=", "-p", str(pid))
        ps = await asyncio.create_subprocess_exec(*asked, stdout=asyncio.subprocess.PIPE)
        state = (await ps.communicate())[0].strip()
        if not state or state.startswith(b"Z"):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"process {pid} is still there")


if __name__ == "__main__":
    main()
