#!/usr/bin/env bash
# Installs the Debian packages that are not installed yet: tools/setup-debian.sh NAME...
# Needs root, or sudo without a password. Otherwise, the script lists the packages to install and fails.
set -euo pipefail
missing=()
for name in "$@"; do
    dpkg-query --show --showformat='${db:Status-Status}\n' "$name" 2>/dev/null |
        grep -qx installed || missing+=("$name")
done
[ ${#missing[@]} -gt 0 ] || exit 0
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || {
        echo "setup-debian: install these Debian packages as root: ${missing[*]}" >&2
        exit 1
    }
    as_root=(sudo -n)
fi
echo "setup-debian: installing ${missing[*]}" >&2
install=(apt-get install --yes --no-install-recommends)
export DEBIAN_FRONTEND=noninteractive
# The policy file stops Debian from starting services of these packages. The tests start the services.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi
"${as_root[@]}" apt-get update --quiet=2 >&2
"${as_root[@]}" "${install[@]}" "${missing[@]}" >&2
