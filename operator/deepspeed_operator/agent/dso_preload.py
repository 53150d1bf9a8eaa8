"""Imports for the ranks what they import, in a process that they are forked from, and judges whether that is safe.

Runs in the ranks' own interpreter. A module is imported once here and used in many ranks, so nothing that it did as it
was imported may depend on the rank, hold a device, or live in a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import threading
import time
import zlib
from typing import Any, Mapping, Sequence

# Variables that differ between the ranks of a pod and between its rounds. They are read as a rank runs.
OF_A_RANK = frozenset(
    (
        *("RANK", "LOCAL_RANK", "MASTER_PORT", "NCCL_DEBUG_FILE", "PYTHONPATH", "DEEPSPEED_OPERATOR_ROUND"),
        *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE"),
        *("DEEPSPEED_OPERATOR_PROGRESS", "KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN"),
    )
)
# Modules that do not bear a fork once they are imported, each with the reason.
UNFORKABLE = {
    "cupy": "its driver library is not usable after a fork",  # docs.cupy.dev, "Using multiprocessing"
    "grpc": "gRPC does not support a fork after it was initialized",  # grpc/doc/fork_support.md
    "habana_frameworks": "it opens its device as it is imported",
    "horovod": "MPI forbids a fork",  # open-mpi.org/faq: tuning-using-fork
    "jax": "its runtime has threads, and os.fork() with them may hang",  # jax warns so itself: jax/_src/xla_bridge.py
    "lightning": "it keeps the rank that it finds as it is imported",  # lightning/fabric/utilities/rank_zero.py
    "mpi4py": "MPI forbids a fork",
    "pytorch_lightning": "it keeps the rank that it finds as it is imported",
    "ray": "its workers talk through gRPC",
    "tensorflow": "its runtime has threads, and does not support a fork",  # tensorflow#5448
    "torch_npu": "it opens its device as it is imported",
    "torch_xla": "it opens its device as it is imported",
    "vllm": "it starts its engines by spawn where CUDA may be in use, and reads its settings as it is imported",
}
# Whose threads are pools of a numerical library, which stops them before a fork and starts them anew (OpenBLAS: by
# pthread_atfork, blas_server.c; PyTorch's and libgomp's start at their first use).
POOLS = frozenset(("numpy", "scipy", "torch", "sklearn", "numexpr"))
# Names of threads that a fork may leave behind: jemalloc starts its own anew (background_thread.c; pyarrow has it), and
# NVML, which DeepSpeed initializes as it is imported, is initialized again in the rank (dso_forkchild). CUDA's own
# begin alike, but whether CUDA is initialized is asked of itself.
FORKABLE = ("jemalloc_bg_thd", "cuda")
ENDING_SECONDS = 1.0  # for which a thread that was joined may still be seen
# What a process that has initialized an accelerator has open. Of NVIDIA only CUDA itself can tell: NVML opens the same.
DEVICES = ("/dev/kfd", "/dev/davinci", "/dev/accel", "/dev/neuron")
# Read by libraries of C as they are loaded, where nobody sees it.
OF_C = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "LD_", "MALLOC_")
LOWEST = 19
CUDA_ERROR_NOT_INITIALIZED = 3
# For each top-level module the variables that were not as at the start when a rank began to import it: a digest, or
# None where the variable had been taken away.
Changed = Mapping[str, Mapping[str, "int | None"]]


def digest(value: str) -> int:
    """The hook's, too: a value may be a secret, and is only compared."""
    return zlib.crc32(value.encode("utf-8", "surrogateescape"))


class Environ(type(os.environ)):  # type: ignore[misc]
    """os.environ, which notes who reads what.

    Who goes through all variables, or copies them, looks for names of its own, as tqdm and fsspec do: it is not noted.
    """

    reads: dict[str, dict[str, int | None]] = {}  # noqa: RUF012  one process has one environment
    passed: Any = None  # the key at which somebody is who goes through them
    # dict() asks for all keys first, then for each: those still to come, and who has read which so far.
    left: list[str] = []  # noqa: RUF012
    copied: list[tuple[str, str, int | None]] = []  # noqa: RUF012

    def __iter__(self) -> Any:
        keys = list(super().__iter__())
        try:
            for Environ.passed in keys:
                yield Environ.passed
            self.settle()
            Environ.left = keys
        finally:
            Environ.passed = None

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str) and key != self.passed:
            if self.left[:1] != [key]:
                self.settle()
            self.copied.append((self.reader(), key, self.digest(key)))
            if self.left[:1] != [key]:
                self.settle()
            elif len(self.left) == 1:
                self.copied.clear()
            del self.left[:1]
        return super().__getitem__(key)

    @classmethod
    def settle(cls) -> None:
        """Note what has been read, as it was no copy of all."""
        cls.left = []
        for reader, key, value in cls.copied:
            cls.reads.setdefault(reader, {}).setdefault(key, value)
        cls.copied.clear()

    def digest(self, key: str) -> int | None:
        try:
            return digest(super().__getitem__(key))
        except KeyError:
            return None

    @staticmethod
    def reader() -> str:
        frame: Any = _INTERPRETER._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") in _OF_ENVIRON:
            frame = frame.f_back
        return str(frame.f_globals.get("__name__")).partition(".")[0] if frame is not None else ""


_INTERPRETER: Any = sys
_OF_ENVIRON = ("os", "collections.abc", "_collections_abc", __name__)


class Watch:
    """Finds no module, but sees each import begin: threads that are new are of the one before, or of who imports."""

    def __init__(self) -> None:
        self.last = ""
        self.threads = threads()
        self.starters: list[tuple[str, str, set[str]]] = []

    def find_spec(self, name: str, *_: Any) -> None:
        frame: Any = _INTERPRETER._getframe(1)
        while frame is not None and (frame.f_code.co_name != "<module>" or "importlib" in frame.f_code.co_filename):
            frame = frame.f_back
        self.look(str(frame.f_globals.get("__name__")) if frame is not None else self.last)
        self.last = name.partition(".")[0]

    def look(self, running: str) -> None:
        now = threads()
        if now - self.threads:
            self.starters.append((self.last, running.partition(".")[0], now - self.threads))
        self.threads = now


def threads() -> set[str]:
    """The numbers of this process's threads, Python's and others."""
    try:
        return set(os.listdir("/proc/self/task"))
    except OSError:
        return set()


def name_of(thread: str) -> str | None:
    """What it is called; None where it has ended."""
    try:
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def given() -> dict[str, str]:
    """The environment as the agent gave it; Python itself sets LC_CTYPE where the locale is C (PEP 538)."""
    with open("/proc/self/environ", "rb") as file:
        pairs = [os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0") if pair]
    return {name: value for name, _, value in pairs}


class Preload:
    """What was imported, and why ranks cannot be forked from it; the reason is empty where they can."""

    def __init__(self, modules: Sequence[str], changed: Changed, without: Sequence[str]) -> None:
        self.changed = changed
        self.without = frozenset(without)  # top-level modules of the program itself, which may change
        self.modules = [name for name in modules if name.partition(".")[0] not in self.without]
        self.before = given()
        self.set: dict[str, str | None] = {}  # what the imports changed of the environment; None: taken away
        self.files: dict[str, tuple[int, int]] = {}
        self.refusal = self.unforkable(self.modules)
        if not self.refusal:
            self.load()

    def load(self) -> None:
        watch = Watch()
        environ: Any = os.environ
        original = environ.__class__
        environ.__class__ = Environ
        Environ.settle()
        Environ.reads.clear()
        sys.meta_path.insert(0, watch)  # type: ignore[arg-type]
        # torch then asks NVML whether there are devices, and not CUDA, which no fork survives.
        asked = "PYTORCH_NVML_BASED_CUDA_CHECK"
        if asked not in self.before:
            os.environ[asked] = "1"
        try:
            importing = Importing(self.modules, watch)
            importing.start()
            importing.join()
        finally:
            sys.meta_path.remove(watch)  # type: ignore[arg-type]
            environ.__class__ = original
        if asked not in self.before:
            os.environ.pop(asked, None)
        for variable in importing.context or ():
            variable.set(importing.context[variable])
        after = dict(os.environ)
        self.set = {
            name: after.get(name) for name in {*after, *self.before} if after.get(name) != self.before.get(name)
        }
        self.files = dict(states(list(sys.modules.values())))
        self.refusal = self.unforkable(sys.modules) or held() or threads_of(watch) or self.read()

    def unforkable(self, names: Any) -> str:
        for top in sorted({str(name).partition(".")[0] for name in names}):
            if top in UNFORKABLE:
                return f"{top} was imported, and {UNFORKABLE[top]}"
        return ""

    def read(self) -> str:
        """Whether a module read as it was imported what is another one in the rank."""
        Environ.settle()
        for reader, read in sorted(Environ.reads.items()):
            of_a_rank = sorted((OF_A_RANK - {"PYTHONPATH"}) & set(read))
            if of_a_rank:
                return f"{reader} reads {', '.join(of_a_rank)} as it is imported"
            for name, found in read.items():
                if self.changed.get(reader, {}).get(name, found) != found:
                    return f"the program sets {name} before it imports {reader}, which reads it then"
        for top in sorted(POOLS & set(self.changed)):
            for name, value in self.changed[top].items():
                here = os.environ.get(name)
                if name.startswith(OF_C) and value != (None if here is None else digest(here)):
                    return f"the program sets {name} before it imports {top}"
        return ""

    def differs(self, environment: Mapping[str, str]) -> str:
        """Whether a rank's environment is another one than that in which the modules were imported."""
        names = {*environment, *self.before} - OF_A_RANK
        others = sorted(name for name in names if environment.get(name) != self.before.get(name))
        # The last entry is the hook's, of which each round has another.
        if users_path(environment) != users_path(self.before):
            others.append("PYTHONPATH")
        return f"the environment differs in {', '.join(others[:5])}" if others else ""

    def outdated(self) -> str:
        """Whether a file that was imported has changed since."""
        for path, state in states(list(sys.modules.values())):
            if self.files.setdefault(path, state) != state:
                return f"{path} has changed since it was imported"
        return ""

    def hidden(self, directory: str) -> str:
        """Whether the program's directory has a module that would have come before one that is imported."""
        try:
            entries = os.listdir(directory)
        except OSError:
            return ""
        own: set[str] = set()
        for entry in entries:
            name, _, kind = entry.partition(".")
            if (
                kind in ("py", "pyc")
                or kind.endswith("so")
                or os.path.exists(os.path.join(directory, name, "__init__.py"))
            ):
                own.add(name)
        for name in sorted(own - {"sitecustomize"}):
            file = getattr(sys.modules.get(name), "__file__", None)
            if file and not file.startswith(directory + os.sep):
                return f"{directory} has a module {name}, too"
        return ""


class Importing(threading.Thread):
    """Has the lowest priority. A process could not raise its own again for the ranks, but each thread has one."""

    def __init__(self, modules: Sequence[str], watch: Watch) -> None:
        super().__init__(name="preload", daemon=True)
        self.modules, self.watch = modules, watch
        self.context: Any = None

    def run(self) -> None:
        with contextlib.suppress(OSError):  # a sandbox that has no priorities
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
        for name in self.modules:
            if name not in sys.modules:
                # What fails here the rank imports itself, and sees what there is to see.
                with contextlib.suppress(BaseException):
                    importlib.import_module(name)
                self.watch.look(name)
        contextvars: Any = importlib.import_module("contextvars")
        self.context = contextvars.copy_context()


def users_path(environment: Mapping[str, str]) -> str:
    return environment.get("PYTHONPATH", "").rpartition(":")[0]


def states(modules: Sequence[Any]) -> Any:
    for module in modules:
        path = getattr(module, "__file__", None)
        if isinstance(path, str):
            try:
                state = os.stat(path)
            except OSError:
                continue  # of an archive
            yield path, (state.st_mtime_ns, state.st_size)


def held() -> str:
    """What the imports left open or running that a fork would share or lose."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        if target.startswith(DEVICES):
            return f"an import has opened {target}"
    if cuda_is_initialized():
        return "an import has initialized CUDA"
    try:
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is not None:
            pass
    except ChildProcessError:
        return ""
    return "an import has started a process that runs on"


def cuda_is_initialized() -> bool:
    """Whether anybody in this process has: the driver's library counts no devices before."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False  # it is not even loaded
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED


def threads_of(watch: Watch) -> str:
    """Which thread that an import has started runs on, and would be missing after a fork."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        return f"an import has started the thread {others[0]}"
    until = time.monotonic() + ENDING_SECONDS
    for last, running, started in watch.starters:
        while not POOLS & {last, running}:
            names = [name for name in map(name_of, started) if name is not None]
            if all(name.startswith(FORKABLE) for name in names):
                break
            if time.monotonic() > until:
                return f"{running} has started threads as it was imported"
            time.sleep(0.01)
    return ""
