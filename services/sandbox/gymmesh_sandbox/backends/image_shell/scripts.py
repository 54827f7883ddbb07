"""The shell scripts that run inside a sandbox, for any POSIX shell.

An image needs `/bin/sh` and the usual small programs (stat, find, mkdir, mv …) of GNU or of
BusyBox. Scripts that end processes use only builtins of the shell, because the container may be
unable to start another process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

#: The first process of a container. It reaps what others leave, and ends with the sandbox's life,
#: also when nobody is left who ends the container: $1 seconds, 0 for no limit.
FIRST_PROCESS: Final = r"""
if [ "$1" -gt 0 ]; then
    sleep "$1" & life=$!
    while kill -0 "$life" 2>/dev/null; do wait "$life"; done
else
    while :; do sleep 86400 & wait $!; done
fi
"""

#: Becomes the program of $6 and its arguments. Writes its process id first, as nothing else
#: reports it. $1: the folder; $2 to $5: its limits, 0 for none: seconds of a processor, blocks of
#: 512 bytes in a file, KiB of address space, open files.
BECOME: Final = r"""
echo $$
cd "$1" || exit 126
[ "$2" = 0 ] || ulimit -t "$2" || exit 126
[ "$3" = 0 ] || ulimit -f "$3" || exit 126
[ "$4" = 0 ] || ulimit -v "$4" || exit 126
[ "$5" = 0 ] || ulimit -n "$5" 2>/dev/null
shift 5
exec "$@"
"""

#: The same, once it has opened its standard input: $1, and the others behind it.
START: Final = (
    r"""
exec <"$1"
shift
"""
    + BECOME
)

#: Makes the pipe $1 and holds it open, so that neither side waits for the other to open it.
#: Writes the number of the process that holds it.
OPEN_PIPE: Final = r"""
pipe() {
    mkdir -p -m 711 "${1%/*}" && mkfifo -m 666 "$1" && mkfifo -m 600 "$1.hold" || return 1
    (exec 9<>"$1"; read _ <"$1.hold") >/dev/null 2>&1 &
    echo $!
}
"""

#: A line for each process: number, state, parent, session, start time.
LIST_PROCESSES: Final = r"""
for one in /proc/[0-9]*; do
    line=
    { IFS= read -r line <"$one/stat"; } 2>/dev/null
    [ -n "$line" ] || continue
    set -- ${line##*)}
    echo "${one#/proc/} $1 $2 $4 ${20}"
done
"""

#: Defines `halt PID STARTED`: stops a process and those that descend from it, by their parents or
#: by its session, in five rounds at most. What started before STARTED does not descend from it.
STOP_DESCENDANTS: Final = r"""
halt() {
    target=$1 since=$2 known=" $1 " pass=0
    kill -STOP "$target"
    while [ "$pass" -lt 5 ]; do
        pass=$((pass + 1)) more=
        for one in /proc/[0-9]*; do
            line=
            { IFS= read -r line <"$one/stat"; } 2>/dev/null
            [ -n "$line" ] || continue
            set -- ${line##*)}
            [ "${20}" -ge "$since" ] && [ "${one#/proc/}" != "$target" ] || continue
            case $known in
                *" $2 "*|*" ${one#/proc/} "*) ;;
                *) [ "$4" = "$target" ] || continue;;
            esac
            case $1 in [TtZX]) continue;; esac
            kill -STOP "${one#/proc/}" && known="$known${one#/proc/} " more=1
        done
        [ -n "$more" ] || return 0
    done
}
"""

#: Defines `mark PID OWN ANY`: writes PID when its environment has a line with ANY and not OWN.
READ_MARK: Final = r"""
mark() {
    [ -r "/proc/$1/environ" ] || return 0
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in *"$2"*) return 0;; *"$3"*) echo "$1"; return 0;; esac
    done <"/proc/$1/environ"
}
"""

#: How often the kernel has ended a process at the limit of memory.
COUNT_OOM: Final = r"""
for one in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
    [ -r "$one" ] || continue
    while read -r key value; do
        [ "$key" != oom_kill ] || echo "$value"
    done <"$one"
done
"""

#: Defines `real PATH`: the absolute path that PATH leads to; parts that are not there stay.
#: An `x` behind it keeps line ends of the path.
REAL: Final = r"""
real() {
    path=$1 rest=
    until found=$(readlink -f "$path" && echo x); do
        case $path in /|"") found="/
x"; break;; esac
        rest=/${path##*/}$rest
        path=${path%/*}
        [ -n "$path" ] || path=/
    done
    found=${found%?x}
    [ -z "$rest" ] || found=${found%/}$rest
}
"""

#: Defines `fold FOLDER OWNER`: makes a folder and those above it that are missing.
MAKE_FOLDER: Final = r"""
fold() {
    [ -z "$1" ] || [ -d "$1" ] || {
        fold "${1%/*}" "$2" && mkdir "$1" && chown "$2" "$1"
    }
}
"""

#: Exit codes of the scripts for files.
NOT_FOUND: Final = 44
NOT_VALID: Final = 45
DISK_FULL: Final = 46
BEYOND_END: Final = 47
TOO_MANY_BYTES: Final = 52
TOO_MANY_ENTRIES: Final = 53
DENIED: Final = 51

_FAILED = r"""
failed() {
    case $1 in
        *"No space left"*|*"quota exceeded"*) exit 46;;
        *"Permission denied"*|*"Operation not permitted"*) exit 51;;
    esac
    echo "$1" >&2
    exit "${2:-1}"
}
"""

#: Defines `missing PATH`: ends with the code for a path that is not there, or of which the user
#: cannot know as it may not pass through a folder above it.
_MISSING = r"""
missing() {
    above=$1
    while above=${above%/*}; [ -n "$above" ]; do
        [ -d "$above" ] || continue
        [ -x "$above" ] || exit 51
        exit 44
    done
    exit 44
}
"""

#: Defines `closed FOLDER`: returns the code for a folder that cannot be made: whether the user may
#: not write to the first one above it that is there, or it is no folder.
CLOSED: Final = r"""
closed() {
    above=$1/
    while above=${above%/*}; [ -n "$above" ]; do
        [ -e "$above" ] || continue
        [ -d "$above" ] || return 45
        break
    done
    [ -w "${above:-/}" ] && [ -x "${above:-/}" ] || return 51
    return 45
}
"""

#: Writes standard input to the file $1: owner $2, mode $3, at the offset $4 (empty: the whole
#: file, which takes the place of what is there at once); $5: a word that nobody guesses; $6: not
#: empty where the script has a user's rights and not root's.
WRITE_FILE: Final = (
    MAKE_FOLDER
    + CLOSED
    + _FAILED
    + r"""
drained() { cat >/dev/null; exit "$1"; }
[ ! -d "$1" ] || [ -L "$1" ] || drained 45
fold "${1%/*}" "$2" 2>/dev/null || { closed "${1%/*}"; drained $?; }
if [ -n "$6" ] && { [ -z "$4" ] || [ ! -e "$1" ]; }; then
    closed "${1%/*}"; [ $? != 51 ] || drained 51
fi
[ -z "$6" ] || [ -z "$4" ] || [ ! -f "$1" ] || [ -w "$1" ] || drained 51
if [ -z "$4" ]; then
    new=${1%/*}/.gymmesh-$5
    said=$(cat 2>&1 >"$new") || { rm -f "$new"; cat >/dev/null; failed "$said"; }
    said=$(chown "$2" "$new" 2>&1 && chmod "$3" "$new" 2>&1 && mv -fT "$new" "$1" 2>&1) || {
        rm -f "$new"; failed "$said"; }
else
    [ ! -L "$1" ] || { [ "$4" = 0 ] && rm -f "$1"; } || drained 45
    [ -e "$1" ] || [ "$4" = 0 ] || drained 47
    [ ! -e "$1" ] || [ -f "$1" ] || drained 45
    [ -e "$1" ] || : >"$1" || drained 45
    [ "$4" -le "$(stat -c %s "$1")" ] || drained 47
    said=$(truncate -s "$4" "$1" 2>&1) || { cat >/dev/null; failed "$said"; }
    said=$(cat 2>&1 >>"$1") || { cat >/dev/null; failed "$said"; }
    said=$(chown "$2" "$1" 2>&1 && chmod "$3" "$1" 2>&1) || failed "$said"
fi
"""
)

#: Reads the plain file $1 from the byte $2 on (from 1), at most $3 bytes; empty: all.
READ_FILE: Final = (
    _MISSING
    + r"""
[ -e "$1" ] || missing "$1"
[ -f "$1" ] || exit 45
[ -r "$1" ] || exit 51
if [ -z "$3" ]; then exec tail -c "+$2" "$1"; fi
tail -c "+$2" "$1" 2>/dev/null | head -c "$3"
"""
)

#: Lists what is in the folder $1, or the file $1 itself. Each entry begins with the word $2, which
#: nobody can guess; $3: `-maxdepth 1`, or empty for all below; $4: not empty for the entry itself.
LIST_FILES: Final = (
    _MISSING
    + r"""
[ -e "$1" ] || [ -L "$1" ] || missing "$1"
deep='-maxdepth 0' top=$1
if [ -d "$1" ] && [ -z "$4" ]; then
    [ -r "$1" ] && [ -x "$1" ] || exit 51
    deep="-mindepth 1 $3" top=${1%/}/
fi
find "$top" $deep -exec stat -c "$2 I %f %s %u %g %Y %y/%n" {} + 2>/dev/null
find "$top" $deep -type l -exec sh -c '
word=$1; shift
for one; do printf "%s L %s\n%s T %s\n" "$word" "$one" "$word" "$(readlink "$one"; echo x)"; done
' sh "$2" {} + 2>/dev/null
exit 0
"""
)

#: Sums up the files below $1, and ends with the code for what may not be read, for more than $2
#: bytes, and for more than $3 files and folders.
SIZE_UP: Final = r"""
find "$1" \( -path /proc -o -path /sys \) -prune -o -type d -exec sh -c '
for one; do [ -r "$one" ] && [ -x "$one" ] && echo 0 || echo denied; done' sh {} + \
-o -type f -exec sh -c '
for one; do [ -r "$one" ] || echo denied; done; stat -c %s "$@"' sh {} + 2>/dev/null | {
    size=0 count=0
    while read -r one; do
        [ "$one" != denied ] || exit 51
        size=$((size + one)) count=$((count + 1))
        [ "$size" -le "$2" ] || exit 52
        [ "$count" -le "$3" ] || exit 53
    done
}
"""

#: Writes what a connection to the port $1 of the container gets and sends, by what the image has.
CONNECT: Final = r"""
if command -v python3 >/dev/null 2>&1; then exec python3 -c '
import socket, sys, threading
try:
    port = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
except OSError:
    sys.exit(49)
port.settimeout(None)
def send():
    while piece := sys.stdin.buffer.raw.read(65536):
        try: port.sendall(piece)
        except OSError: pass
threading.Thread(target=send, daemon=True).start()
while piece := port.recv(65536):
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
' "$1"
elif command -v bash >/dev/null 2>&1; then exec bash -c '
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 49
cat >&3 <&0 & cat <&3' bash "$1" 2>/dev/null
elif command -v nc >/dev/null 2>&1; then
    nc 127.0.0.1 "$1" || exit 49
else exit 50; fi
"""
UNREACHABLE: Final = 49
NO_CLIENT: Final = 50

_DECODE: Final = r"""
left=$#
while [ "$left" -gt 0 ]; do
    word=$(printf '%bx' "$1"); shift
    set -- "$@" "${word%x}"
    left=$((left - 1))
done
"""


def command(script: str, arguments: Sequence[bytes]) -> list[str]:
    """The argv that runs a script with arguments, which may have any bytes but zero.

    The API sends argv as JSON, so words that are not UTF-8 are sent as octal escapes.
    """
    try:
        words = [one.decode() for one in arguments]
    except UnicodeDecodeError:
        script = _DECODE + script
        words = ["".join(f"\\0{byte:03o}" for byte in one) for one in arguments]
    return ["/bin/sh", "-c", script, "sh", *words]


def quoted(word: bytes) -> bytes:
    """A word for a script that is sent to a shell as bytes."""
    return b"'" + word.replace(b"'", b"'\\''") + b"'"


def call(name: bytes, words: Iterable[bytes]) -> bytes:
    """A line that calls a function or program with words."""
    return b" ".join((name, *map(quoted, words))) + b"\n"
