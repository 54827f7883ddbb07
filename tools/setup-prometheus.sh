#!/usr/bin/env bash
# Builds Prometheus and promtool for the tests from the Go module proxy into .cache/prometheus,
# once. Prints that folder. Needs Go; the first build takes some minutes and 1 GB of Go's own
# caches.
#
# They are built without the web interface, which needs Node.js, and of the service discoveries
# with those by HTTP and by file alone: the rest brings the libraries of two dozen clouds.
set -euo pipefail
cd "$(dirname "$0")/prometheus"
out=../../.cache/prometheus
key=$(cat go.mod go.sum | sha256sum | cut -d' ' -f1)

if [ "$(cat "$out/key" 2>/dev/null)" != "$key" ]; then
    command -v go >/dev/null || {
        echo "setup-prometheus: there is no Go; install Go 1.26.7 or newer" >&2
        exit 1
    }
    mkdir -p "$out"
    out=$(realpath "$out")
    module=github.com/prometheus/prometheus
    version=$(go list -mod=readonly -m -f '{{.Version}}' "$module")
    # The module proxy has Prometheus 3.16.0 as v0.316.0. Without the stamp it has no version.
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
