#!/usr/bin/env bash
# Builds a Consul agent for the tests from the Go module proxy: .cache/consul/consul, once. Prints
# its path. Needs Go; the first build takes some minutes and 1 GB of Go's own caches.
#
# 1.16.3 is the newest version that is licensed under the MPL and whose own modules are all
# published; the pins are in tools/consul/go.mod.
set -euo pipefail
cd "$(dirname "$0")/consul"
out=../../.cache/consul
key=$(cat go.mod go.sum | sha256sum | cut -d' ' -f1)

if [ ! -x "$out/consul" ] || [ "$(cat "$out/key" 2>/dev/null)" != "$key" ]; then
    command -v go >/dev/null || {
        echo "setup-consul: there is no Go; install Go 1.26 or newer" >&2
        exit 1
    }
    echo "setup-consul: building Consul (some minutes)" >&2
    mkdir -p "$out"
    go build -mod=readonly -trimpath -o "$out/consul" github.com/hashicorp/consul
    echo "$key" >"$out/key"
fi
realpath "$out/consul"
