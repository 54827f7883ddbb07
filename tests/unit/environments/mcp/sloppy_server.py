"""An MCP server over standard streams that breaks the protocol as its arguments say.

Arguments: JSON of what `tools/list` answers, and of what `tools/call` answers.
"""

from __future__ import annotations

import json
import sys

listed, answered = json.loads(sys.argv[1]), json.loads(sys.argv[2])

for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message.get("method")
    if number is None:
        continue
    answers = {
        "initialize": {
            "protocolVersion": message.get("params", {}).get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "sloppy", "version": "1"},
        },
        "tools/list": listed,
        "tools/call": answered,
    }
    reply = {"jsonrpc": "2.0", "id": number}
    if method in answers:
        reply["result"] = answers[method]
    else:
        reply["error"] = {"code": -32601, "message": "there is no such method"}
    print(json.dumps(reply), flush=True)
