"""An HTTP server that cases of CallPort start in a sandbox: it says what it was asked."""

from __future__ import annotations

import itertools
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8123
_count = itertools.count(1)


class Handler(BaseHTTPRequestHandler):
    """Answers with the method, the path and the body; some paths do something else."""

    def do_GET(self) -> None:
        """See the class."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, answer = 200, f"{self.command} {self.path} ".encode() + body
        path, _, query = self.path.partition("?")
        if path == "/missing":
            status = 404
        elif path == "/away":
            status = 302
        elif path == "/count":
            answer = str(next(_count)).encode()
        elif path == "/size":
            answer = bytes(int(query) + 1)
        elif path == "/never":
            time.sleep(60)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:{PORT}/missing")
        self.send_header("X-Given-Back", self.headers.get("X-Given", ""))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
