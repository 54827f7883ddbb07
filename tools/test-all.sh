#!/usr/bin/env bash
# Runs `make check` and all test targets of the Makefile, one after another, and prints a table of the
# results: tools/test-all.sh [TARGET...]. The logs are in .cache/test-all, or in the folder $LOGS. If a
# target fails, the script still runs the other targets, and then exits with 1.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=${LOGS:-.cache/test-all}
mkdir -p "$logs"
if [ $# -eq 0 ]; then
    # All test targets except test-all, in alphabetical order.
    mapfile -t targets < <(
        echo check
        sed -nE 's/^(test(-[a-z-]+)?):.*/\1/p' Makefile | grep -vx test-all | sort -u
    )
else
    targets=("$@")
fi
failed=0
rows=()
for target in "${targets[@]}"; do
    echo "test-all: running make $target" >&2
    began=$SECONDS
    if make "$target" >"$logs/$target.log" 2>&1; then result=passed; else
        result=failed
        failed=1
    fi
    # The summary line of each run of pytest in the log.
    counts=$(grep -aE '^(=+ )?[0-9]+ (passed|failed|skipped|errors?|deselected).* in [0-9.]+s' \
        "$logs/$target.log" | sed -E 's/^=+ //; s/ *=*$//' | paste -sd ';' | sed 's/;/; /g')
    rows+=("$(printf '%-16s %-7s %6d s  %s' "$target" "$result" $((SECONDS - began)) "$counts")")
    printf '%s\n' "${rows[-1]}" >&2
done
printf '%-16s %-7s %8s  %s\n' target result time tests
printf '%s\n' "${rows[@]}"
[ "$failed" -eq 0 ] || echo "test-all: some targets failed. Their logs are in $logs" >&2
exit "$failed"
