#!/usr/bin/env bash
# Brings the packages that the page of gym-cli view is built and tested with, from its lock file.
set -euo pipefail
cd "$(dirname "$0")/../clients/view/ui"
command -v npm >/dev/null || {
    echo "setup-view-page: needs npm: install Node.js 20.19 or newer" >&2
    exit 1
}
key=$(sha256sum package-lock.json | cut -d' ' -f1)
if [ "$(cat node_modules/.key 2>/dev/null)" != "$key" ]; then
    echo "setup-view-page: installing the page's packages" >&2
    npm ci --ignore-scripts --no-audit --no-fund >&2
    echo "$key" >node_modules/.key
fi
