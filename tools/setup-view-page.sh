#!/usr/bin/env bash
# Installs the packages that build and test the web page of gym-cli view, from the page's lock file.
set -euo pipefail
cd "$(dirname "$0")/../clients/view/ui"
command -v npm >/dev/null || {
    echo "setup-view-page: npm was not found: install Node.js 20.19 or newer" >&2
    exit 1
}
key=$(sha256sum package-lock.json | cut -d' ' -f1)
if [ "$(cat node_modules/.key 2>/dev/null)" != "$key" ]; then
    echo "setup-view-page: installing the page's packages" >&2
    npm ci --ignore-scripts --no-audit --no-fund >&2
    echo "$key" >node_modules/.key
fi
