#!/usr/bin/env bash
# Builds Prometheus and promtool for the tests from the Go module proxy in .cache/prometheus, and prints
# this folder. Does nothing if both programs are up to date. Needs Go. The first build takes some
# minutes, and 1 GB in Go's caches.
#
# The programs are built without the web interface, which needs Node.js. Of the ways to discover
# services, only HTTP and files are built: the others need the libraries of two dozen clouds.
set -euo pipefail
cd "$(dirname "$0")/prometheus"
out=../../.cache/prometheus
key=$(cat go.mod go.sum | sha256sum | cut -d' ' -f1)

if [ "$(cat "$out/key" 2>/dev/null)" != "$key" ]; then
    command -v go >/dev/null || {
        echo "setup-prometheus: Go was not found: install Go 1.26.7 or newer" >&2
        exit 1
    }
    mkdir -p "$out"
    out=$(realpath "$out")
    module=github.com/prometheus/prometheus
    version=$(go list -mod=readonly -m -f '{{.Version}}' "$module")
    # In the module proxy, Prometheus 3.16.0 has the version v0.316.0. The build sets the version 3.16.0,
    # because otherwise the programs report no version.
    version=$(sed -E 's/^v0\.([0-9])([0-9]+)\.([0-9]+)$/\1 \2 \3/' <<<"$version" |
        awk '{printf "%d.%d.%d", $1, $2, $3}')
    for program in prometheus promtool; do
        echo "setup-prometheus: building $program $version" >&2
        CGO_ENABLED=0 go build -mod=readonly -trimpath -tags netgo,remove_all_sd \
            -ldflags "-s -w -X github.com/prometheus/common/version.Version=$version" \
            -o "$out/$program" "$module/cmd/$program"
    done
    echo "$key" >"$out/key"
fi
realpath "$out"
