#!/usr/bin/env bash
# Builds a Consul agent for the tests from the Go module proxy, and prints its path
# (.cache/consul/consul). Does nothing if the agent is already built. Needs Go. The first build takes
# some minutes, and 1 GB in Go's caches.
#
# 1.16.3 is the newest version with the licence MPL whose own modules are all published. The versions
# are pinned in tools/consul/go.mod.
set -euo pipefail
cd "$(dirname "$0")/consul"
out=../../.cache/consul
key=$(cat go.mod go.sum | sha256sum | cut -d' ' -f1)

if [ ! -x "$out/consul" ] || [ "$(cat "$out/key" 2>/dev/null)" != "$key" ]; then
    command -v go >/dev/null || {
        echo "setup-consul: Go was not found: install Go 1.26 or newer" >&2
        exit 1
    }
    echo "setup-consul: building Consul (takes some minutes)" >&2
    mkdir -p "$out"
    go build -mod=readonly -trimpath -o "$out/consul" github.com/hashicorp/consul
    echo "$key" >"$out/key"
fi
realpath "$out/consul"
