"""Makes of a forked process what a new interpreter would be, and runs the rank's program in it."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Mapping, Sequence

HERE = os.path.dirname(os.path.abspath(__file__))
PLACEHOLDER = os.path.join(HERE, "site")  # in the place that the hook's directory has in a rank's PYTHONPATH


class Program:
    """What follows the interpreter and its -u: a script, or -m and a module; then the arguments."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        self.module = argv[3] if argv[2] == "-m" else None
        self.script = argv[2]

    @property
    def directory(self) -> str:
        """What Python puts first on sys.path."""
        return os.getcwd() if self.module else os.path.dirname(os.path.realpath(self.script))

    @property
    def own(self) -> list[str]:
        """Top-level modules that are the program's, and not to be imported before it."""
        return [self.module.partition(".")[0]] if self.module else []

    def run(self) -> None:
        import __main__ as server

        given: Mapping[str, Any] = vars(server)
        main: Any = type(sys)("__main__")
        if "__annotations__" in given:
            main.__annotations__ = {}
        main.__builtins__ = given["__builtins__"]
        sys.modules["__main__"] = main
        if self.module:
            sys.argv = ["-m", *self.argv[4:]]
            runpy: Any = __import__("runpy")
            drop_ours()
            runpy._run_module_as_main(self.module)
            return
        machinery: Any = __import__("importlib.machinery").machinery
        sys.argv = self.argv[2:]
        main.__file__, main.__cached__ = absolute(self.script), None
        main.__loader__ = machinery.SourceFileLoader("__main__", main.__file__)
        drop_ours()
        with open(main.__file__, "rb") as file:
            source = file.read()
        exec(compile(source, main.__file__, "exec", dont_inherit=True), main.__dict__)


def absolute(script: str) -> str:
    """As Python makes it, since 3.9: joined, but not normalized."""
    if sys.version_info < (3, 9) or script.startswith("/"):
        return script
    return os.path.join(os.getcwd(), script)


def drop_ours() -> None:
    for name in [name for name in sys.modules if name.startswith("dso_")]:
        del sys.modules[name]


def become(program: Program, environment: Mapping[str, str], changed: Mapping[str, str | None], output: int) -> None:
    """Take a rank's session, output, environment and path, and what is random anew in each interpreter.

    `changed` is what the imports have changed of the environment, as they would have in the rank.
    """
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    for name, value in changed.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    interpreter: Any = sys
    if hasattr(sys, "orig_argv"):  # since Python 3.10
        interpreter.orig_argv = list(program.argv)
    draw_anew()
    initialize_anew()
    main_thread: Any = __import__("threading").main_thread()
    main_thread._set_native_id()  # Python 3.11 keeps the server's
    name_process(program.argv)
    __import__("importlib").invalidate_caches()
    find_modules(environment.get("PYTHONPATH", ""))
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, program.directory)


def find_modules(users: str) -> None:
    """sys.path as the rank's PYTHONPATH makes it, and the hook, which Python imports by the name sitecustomize."""
    hook = users.rpartition(":")[2]
    path = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    sys.path[:] = [hook if os.path.abspath(entry) == PLACEHOLDER else entry for entry in path]
    sys.modules.pop("sitecustomize", None)
    site: Any = __import__("site")
    site.execsitecustomize()


def draw_anew() -> None:
    """Random numbers that are drawn from the system as a module is imported; `random` does so itself."""
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def initialize_anew() -> None:
    """NVML, which DeepSpeed initializes as it is imported and later asks for free memory, serves no forked process."""
    nvml: Any = sys.modules.get("pynvml")
    if nvml is not None:
        with contextlib.suppress(Exception):
            nvml.nvmlInit()


def name_process(argv: Sequence[str]) -> None:
    """What ps shows: the kernel reads it from the process's memory, where the server left room."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        begin, end = int(fields[45]), int(fields[46])
        text = b"".join(os.fsencode(word) + b"\0" for word in argv)
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            memory.write(text[: end - begin - 1].ljust(end - begin, b"\0"))


def without_ours(raised: BaseException) -> None:
    """Let the traceback begin with the program, as that of a new interpreter does."""
    while raised.__traceback__ and raised.__traceback__.tb_frame.f_code.co_filename.startswith(HERE + os.sep):
        raised.__traceback__ = raised.__traceback__.tb_next
    hook = sys.excepthook
    begin = raised.__traceback__

    def excepthook(kind: Any, value: Any, traceback: Any) -> None:
        if value is raised:
            value.__traceback__ = traceback = begin
        hook(kind, value, traceback)

    sys.excepthook = excepthook
