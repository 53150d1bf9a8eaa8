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
# DeepSpeed starts a thread as it is imported on GPU machines; whether ranks train after a fork there is not shown yet.
POOLS = frozenset(("numpy", "scipy", "torch", "sklearn", "numexpr", "deepspeed"))
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
    """os.environ, which notes who reads what."""

    reads: dict[str, dict[str, int | None]] = {}  # noqa: RUF012  one process has one environment

    def __getitem__(self, key: Any) -> Any:
        frame: Any = _INTERPRETER._getframe(1)
        # Who goes through all of them looks for names of its own, as tqdm does.
        if isinstance(key, str) and frame.f_code.co_name != "__iter__":
            while frame is not None and frame.f_globals.get("__name__") in _OF_ENVIRON:
                frame = frame.f_back
            reader = str(frame.f_globals.get("__name__")) if frame is not None else ""
            try:
                value: str | None = super().__getitem__(key)
            except KeyError:
                value = None
            self.reads.setdefault(reader.partition(".")[0], {}).setdefault(
                key, None if value is None else digest(value)
            )
        return super().__getitem__(key)


_INTERPRETER: Any = sys
_OF_ENVIRON = ("os", "collections.abc", "_collections_abc", __name__)


class Watch:
    """Finds no module, but sees each import begin: threads that are new are of the one before, or of who imports."""

    def __init__(self) -> None:
        self.last = ""
        self.threads = unseen_threads()
        self.starters: list[tuple[str, str]] = []

    def find_spec(self, name: str, *_: Any) -> None:
        frame: Any = _INTERPRETER._getframe(1)
        while frame is not None and (frame.f_code.co_name != "<module>" or "importlib" in frame.f_code.co_filename):
            frame = frame.f_back
        self.look(str(frame.f_globals.get("__name__")) if frame is not None else self.last)
        self.last = name.partition(".")[0]

    def look(self, running: str) -> None:
        threads = unseen_threads()
        if threads > self.threads:
            self.starters.append((self.last, running.partition(".")[0]))
        self.threads = threads


def unseen_threads() -> int:
    """Threads that are none of Python's."""
    try:
        return len(os.listdir("/proc/self/task")) - len(_INTERPRETER._current_frames())
    except OSError:
        return 0


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
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        return f"an import has started the thread {others[0]}"
    for last, running in watch.starters:
        if not POOLS & {last, running}:
            return f"{running} has started threads as it was imported"
    return ""
