"""Task folders in the corners of both formats, made in a folder of a test's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

GREETING = 'test "$(cat hello.txt)" = hello && r=1 || r=0'
SOLVE = "#!/bin/sh\necho hello >hello.txt\n"
TEXT = f"#!/bin/sh\n{GREETING}\necho $r >/logs/verifier/reward.txt\n"
NUMBERS = (
    f"#!/bin/sh\n{GREETING}\necho 0.5 >/logs/verifier/reward.txt\n"
    'echo "{\\"reward\\": $r, \\"lines\\": 3}" >/logs/verifier/reward.json\n'
)
IMAGE = 'version = "1.0"\n[environment]\ndocker_image = "made/box:1"\nallow_internet = false\n'
NEW = (
    'schema_version = "1.4"\n[environment]\ndocker_image = "made/box:1"\n'
    'network_mode = "no-network"\n'
)
COMPOSE = """\
services:
  client:
    build: {dockerfile: Dockerfile}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
      - COLOUR=green
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
"""
# What pytest -rA writes, since the sandbox has no pytest.
SUMMARY = """\
test "$(cat bye.txt)" = bye && r=1 || r=0
echo "=========== short test summary info ==========="
test "$COLOUR" = green && test "$TEST_DIR" = /tests && test -f $TEST_DIR/test_outputs.py \\
  && echo "PASSED ../tests/test_outputs.py::test_room"
if [ $r = 1 ]; then echo "PASSED ../tests/test_outputs.py::test_bye"
else echo "FAILED ../tests/test_outputs.py::test_bye - assert 'a' == 'b'"; exit 1; fi
"""


def harbor_task(
    toml: str = NEW, test: str = TEXT, solve: str = SOLVE, **files: str
) -> dict[str, str]:
    """The files of a task of Harbor by their paths."""
    made = {"task.toml": toml, "instruction.md": "Write hello into hello.txt.\n"}
    made["tests/test.sh"] = test
    if solve:
        made["solution/solve.sh"] = solve
    return made | files


def older_task(
    yaml: str = "", run: str = SUMMARY, compose: str = COMPOSE, typed: str = "", **files: str
) -> dict[str, str]:
    """The files of a task of Terminal-Bench 1 by their paths. `typed`: a solution.yaml in
    place of solution.sh.
    """
    made = {
        "task.yaml": f"instruction: Write bye into bye.txt.\ndifficulty: easy\n{yaml}",
        "docker-compose.yaml": compose,
        "Dockerfile": "FROM made/box:1\nWORKDIR /app\n",
        "run-tests.sh": run,
        "solution.sh": "echo bye >bye.txt\n",
        "tests/test_outputs.py": "def test_bye(): ...\n",
    } | files
    if typed:
        made["solution.yaml"] = typed
        del made["solution.sh"]
    return made


def stepped_task(
    steps: Mapping[str, str],
    head: str = "",
    toml: str = NEW,
    **files: str,
) -> dict[str, str]:
    """A task of Harbor with steps, each by its name with what its table says. A step wants its
    name in the file `done`, a line for each step.
    """
    tables = "".join(f'[[steps]]\nname = "{name}"\n{said}' for name, said in steps.items())
    made = {"task.toml": f"{head}{toml}{tables}"}
    for number, name in enumerate(steps, start=1):
        made |= {
            f"steps/{name}/instruction.md": f"Write {name}.\n",
            f"steps/{name}/tests/test.sh": (
                f'test "$(sed -n {number}p done)" = {name} && r=1 || r=0\n'
                "echo $r >/logs/verifier/reward.txt\n"
            ),
            f"steps/{name}/solution/solve.sh": f"echo {name} >>done\n",
        }
    return made | files


#: Tasks that run: the solution earns 1, and nothing earns 0.
RUNNABLE: Mapping[str, Mapping[str, str]] = {
    "text": harbor_task(IMAGE),
    "json-first": harbor_task(test=NUMBERS),
    "suite/deep/nested": harbor_task(),
    "ignored-exit-code": harbor_task(test=f"{TEXT}exit 7\n"),
    "no-first-line": harbor_task(
        test=f"{GREETING}\n[[ $BASH_VERSION ]] && echo $r >/logs/verifier/reward.txt\n"
    ),
    "verifier-variables": harbor_task(
        f'{NEW}env = {{PLACE = "here", LEFT = "${{UNSET:-left}}"}}\n'
        '[verifier]\ntimeout_sec = 30\nenv = {WANTED = "${WORD}"}\n',
        'test "$(cat hello.txt)" = "$WANTED" -a "$PLACE$LEFT" = hereleft && r=1 || r=0\n'
        "echo $r >/logs/verifier/reward.txt\n",
    ),
    "solution-variables": harbor_task(
        f'{NEW}[solution]\nenv = {{WORD = "${{WORD}}"}}\n',
        solve='. "$(dirname "$0")/more.sh"\n',
        **{"solution/more.sh": 'printf %s "$WORD" >hello.txt\n'},
    ),
    "files-of-the-environment": harbor_task(
        test='test "$(cat given/copy.txt)" = given && r=1 || r=0\n'
        "echo $r >/logs/verifier/reward.txt\n",
        solve="cp given/word.txt given/copy.txt\n",
        **{"environment/given/word.txt": "given\n"},
    ),
    "users": harbor_task(
        f'{NEW}[agent]\nuser = "sandbox"\n[verifier]\nuser = "root"\n',
        f"{GREETING}\ntest $(id -u) = 0 || r=0\necho $r >/logs/verifier/reward.txt\n",
    ),
    "agents-user": harbor_task(
        f"{NEW}[agent]\nuser = 1000\n",
        f"{GREETING}\ntest $(id -u) = 0 || r=0\necho $r >/logs/verifier/reward.txt\n",
    ),
    "workdir": harbor_task(f'{NEW}workdir = "/app"\n', f"cd /app\n{TEXT.partition(chr(10))[2]}"),
    "own-folders": harbor_task(
        test="cat /logs/verifier/seen /logs/agent/note 2>/dev/null; test -e /logs/artifacts/a"
        " && test ! -e /logs/verifier/seen && r=1 || r=0\necho $r >/logs/verifier/reward.txt\n",
        solve="touch /logs/verifier/seen /logs/agent/note /logs/artifacts/a\n",
    ),
    "limits": harbor_task(
        IMAGE.replace("[environment]", '[environment]\nmemory = "512M"\ncpus = 1\n')
    ),
    "marked": harbor_task(**{"instruction.md": "<!-- a canary -->\n# canary 1\n\nDo it.\n"}),
    "older": older_task(),
    "older-shell": older_task(
        "run_tests_in_same_shell: true\nparser_name: swebench\n",
        'test "$WORD:$(pwd)" = bye:/tmp && r=PASSED || r=FAILED\n'
        'echo "SWEBench results starts here"; echo $r; echo "SWEBench results ends here"\n',
        typed='- command: export WORD="b"\n- {command: cd /tmp, block: true}\n'
        "- command: export WORD=${WORD}ye\n",
    ),
    "older-lines": older_task(typed="- command: w=bye\n- command: echo $w >bye.txt\n"),
    "older-times": older_task(
        "max_agent_timeout_sec: 100\nmax_test_timeout_sec: 20\n",
        compose=COMPOSE.replace("    volumes:", "    ports: ['8888:8888']\n    volumes:"),
    ),
}


def write_tasks(place: Path, tasks: Mapping[str, Mapping[str, str]]) -> Path:
    """Writes the folders, and returns the one that they are in."""
    for name, files in tasks.items():
        for path, content in files.items():
            file = place / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
    return place
