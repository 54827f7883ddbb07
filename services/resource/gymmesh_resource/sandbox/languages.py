"""The languages that programs may be written in.

A further one is a line in `LANGUAGES`; its interpreter must be in the sandbox, below `/usr`.
With `waiting`, programs in it can be started ahead; see `Program.waiting`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gymmesh_resource.sandbox.program import Program


@dataclass(frozen=True, slots=True)
class Language:
    """How a source text is run: the file it is put into, and the command.

    `waiting`: the command that waits for the file, if there is one.
    """

    file: str
    argv: tuple[str, ...]
    waiting: tuple[str, ...] = ()


# An interpreter that has started becomes one that was started with the file: the same `__main__`,
# and tracebacks that begin with the program's own lines.
_PYTHON_WAITS = """
def become(space):
    import builtins, os, sys
    os.write(1, b".")
    if os.read(0, 1) != b"\\n":
        os._exit(0)
    os.write(1, b".")
    del sys.argv[0]
    path = sys.argv[0]
    loader = sys.modules["_frozen_importlib_external"].SourceFileLoader("__main__", path)
    space.clear()
    space.update(
        __name__="__main__", __doc__=None, __package__=None, __loader__=loader, __spec__=None,
        __annotations__={}, __builtins__=builtins, __file__=path, __cached__=None,
    )
    try:
        with open(path, "rb") as file:
            source = file.read()
        exec(compile(source, path, "exec", dont_inherit=True), space)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        trace = error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
become(globals())
"""
_SHELL_WAITS = 'printf .; IFS= read -r line || exit 0; printf .; exec /bin/sh "$1"'

LANGUAGES = {
    # Isolated mode: neither variables nor the program's own folder change what is imported.
    "python": Language(
        "main.py",
        ("{python}", "-I", "/app/main.py"),
        ("{python}", "-I", "-c", _PYTHON_WAITS, "/app/main.py"),
    ),
    "shell": Language(
        "main.sh",
        ("/bin/sh", "/app/main.sh"),
        ("/bin/sh", "-c", _SHELL_WAITS, "sh", "/app/main.sh"),
    ),
}


def program_in(language: str, source: str, stdin: bytes = b"") -> Program:
    """A program of one source text. Raises KeyError for a language that is not there."""
    known = LANGUAGES[language]
    # Lone surrogates, which a model may write, are kept as they are for the interpreter to refuse.
    files = {known.file: source.encode("utf-8", "surrogatepass")}
    return Program(known.argv, files, stdin, known.waiting)
