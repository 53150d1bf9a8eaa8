"""Runs within the ranks' interpreters, and tells the agent which worlds they form and which engines DeepSpeed makes.

Only inside a rank can that be known: a launcher of the user's own may start any world, and a framework may hand
DeepSpeed another configuration than the job's. The user's program must not need a change for it, so this module is
copied as sitecustomize.py to the end of the ranks' PYTHONPATH, where Python imports it by itself at every start.

Where the job's plan is to be corrected by a measurement, it measures the first steps of DeepSpeed, too. Nothing here
may fail a training, or let ranks wait for each other where not all of them have come. Only the first engine with an
optimizer is measured: where there is a second one, steps of both are between two of the first.
"""

from __future__ import annotations

import importlib
import os
import sys
import time

# A user's module may have the name of any other: what the ranks never import stays out, json as well as typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

# In the first steps memory is allocated and kernels are chosen.
FIRST_STEP, LAST_STEP = 5, 20
GPU_BYTES, CPU_BYTES = (256 << 10, 16 << 20, 128 << 20), (64 << 10, 2 << 20, 16 << 20)
REPEATED = 3
SLOW_SECONDS = 0.25  # of one all-reduce: a larger one would take long and tell no more
PATIENCE_SECONDS = 20
HERE = os.path.dirname(os.path.abspath(__file__))
RESULT = os.path.join(HERE, "measured.json")
MEASURES = os.path.join(HERE, "measure")  # there where the first steps are to be measured
REPORTS = os.path.join(HERE, "reports.jsonl")
IMPORTS = os.path.join(HERE, "dso_imports.py")  # there where the ranks of a later round may be forked
STACKS = 50  # the signal at which a rank writes where its threads are
REPORTED = 16  # by one process: programs that join and leave groups without end tell nothing new


class Finder:
    """Finds modules as the others do, and calls back once one has been imported.

    Importing torch or DeepSpeed here would cost each interpreter seconds, and most never import them.
    """

    def __init__(self, imported: dict[str, Callable[[Any], Any]]) -> None:
        self.imported = imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.imported:
            return None
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None:
                guarded(self.attach, name, spec.loader)
                return spec
        return None

    def attach(self, name: str, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            tell = self.imported.pop(name, None)
            if not self.imported and self in sys.meta_path:
                sys.meta_path.remove(self)
            del loader.exec_module
            load(module)
            if tell is not None:
                guarded(tell, module)

        loader.exec_module = exec_module


def guarded(call: Callable[..., Any], *arguments: Any) -> bool:
    try:
        call(*arguments)
    except Exception:
        return False
    return True


class Reports:
    """What this process tells the agent: the worlds that it joins, and the engines that DeepSpeed makes in it."""

    def __init__(self) -> None:
        # A launcher gives a rank all of these. Who sets them itself may be a server, or an evaluation beside the ranks.
        self.launched = all(os.environ.get(name, "").isdigit() for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        # Ray's actors form groups as their program divides them.
        self.divided = "RAY_RAYLET_PID" in os.environ or "RAY_NODE_ID" in os.environ
        self.written = 0
        self.stepped = False
        self.group: str | None = None
        self.imports: Any = None
        self.recorder: Any = None
        self.module: Any = None

    def write(self, **facts: Any) -> None:
        if self.written < REPORTED:
            self.written += 1
            json: Any = importlib.import_module("json")
            line = json.dumps({"pid": os.getpid(), **facts}) + "\n"
            file = os.open(REPORTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)

    def watch_worlds(self, c10d: Any) -> None:
        original = c10d.init_process_group

        def init_process_group(*arguments: Any, **named: Any) -> Any:
            made = original(*arguments, **named)
            guarded(self.world, c10d)
            return made

        c10d.init_process_group = like(original, init_process_group)

    def world(self, c10d: Any) -> None:
        if c10d.get_backend() != "fake":
            certain = self.launched and not self.divided
            self.group = answer(first_of, c10d)
            self.write(world=c10d.get_world_size(), rank=c10d.get_rank(), group=self.group, certain=certain)

    def watch_engines(self, deepspeed: Any) -> None:
        original = deepspeed.initialize

        def initialize(*arguments: Any, **named: Any) -> Any:
            made = original(*arguments, **named)
            guarded(self.engine, made[0])
            guarded(self.record, made[0])  # of its class, before the engine itself gets another way to make its step
            guarded(self.watch_step, made[0])
            return made

        deepspeed.initialize = like(original, initialize)

    def engine(self, engine: Any) -> None:
        dist: Any = importlib.import_module("torch.distributed")
        if dist.get_rank() == 0:
            facts: dict[str, Any] = {"world": dist.get_world_size()}
            facts.update((name, answer(ask, engine)) for name, ask in OF_AN_ENGINE.items())
            certain = facts["optimizer"] is not None and not self.divided
            self.write(world=facts["world"], rank=0, group=self.group, certain=certain, engine=facts)

    def watch_imports(self) -> None:
        self.imports = importlib.import_module("dso_imports").Imports()
        del sys.modules["dso_imports"]  # the program finds no module of ours
        sys.meta_path.insert(0, self.imports)

    def progresshook(self) -> Any:
        if self.module is None:
            util: Any = importlib.import_module("importlib.util")
            spec = util.spec_from_file_location("dso_progresshook", os.path.join(HERE, "dso_progresshook.py"))
            module = util.module_from_spec(spec)  # the program finds no module of ours
            spec.loader.exec_module(module)
            self.module = module
        return self.module

    def record(self, engine: Any) -> None:
        """Have each step of it seen by the agent, where that has made a directory for it."""
        if trains(engine):
            if self.recorder is None:
                module = self.progresshook()
                rank = os.environ["RANK"] if self.launched else importlib.import_module("torch.distributed").get_rank()
                self.recorder = module.Recorder(f"{module.PLACE}/{os.path.basename(HERE)}", int(rank))
            self.recorder.watch(engine)

    def watch_step(self, engine: Any) -> None:
        """Tell of the first step: what fails before it fails again when it is started again."""
        if not trains(engine):
            return
        take = engine._take_model_step
        loads = answer(lambda engine: self.progresshook().Loads(engine, self.recorder), engine)

        def stepped(*arguments: Any, **named: Any) -> Any:
            step = answer(lambda engine: int(engine.global_steps), engine)
            result = take(*arguments, **named)
            if engine.__dict__.get("_take_model_step") is stepped:
                del engine.__dict__["_take_model_step"]
            start = answer(lambda loads: loads.start(self.group, step), loads)
            if not self.stepped:
                self.stepped = True
                guarded(lambda: self.write(stepped=True, start=start))
                if self.imports is not None:
                    guarded(self.imports.write)
            return result

        engine._take_model_step = stepped


def first_of(c10d: Any) -> str:
    """The group's name, which the first of its processes to come here gives it: the same on all of its ranks.

    Nobody waits for it: a group of which some ranks have no hook is named, too.
    """
    store = c10d.PrefixStore("deepspeed-operator", c10d._get_default_store())
    first: str = store.compare_set("first", "", os.urandom(8).hex()).decode()
    return first


def trains(engine: Any) -> bool:
    return type(getattr(engine, "basic_optimizer", None)).__name__ not in ("NoneType", "DummyOptim")


def optimizer_of(engine: Any) -> Any:
    return str(engine.optimizer_name() or type(engine.basic_optimizer).__name__)[:64] if trains(engine) else None


def precision_of(engine: Any) -> str:
    return "bf16" if engine.bfloat16_enabled() else "fp16" if engine.fp16_enabled() else "fp32"


# What an engine is, whatever its script or a framework was given.
OF_AN_ENGINE: dict[str, Callable[[Any], Any]] = {
    "stage": lambda engine: int(engine.zero_optimization_stage()),
    "precision": precision_of,
    "microBatch": lambda engine: engine.train_micro_batch_size_per_gpu(),
    "accumulation": lambda engine: engine.gradient_accumulation_steps(),
    "trainBatch": lambda engine: engine.train_batch_size(),
    "optimizer": optimizer_of,
    "ownOptimizer": lambda engine: bool(engine.client_optimizer),
    "ownScheduler": lambda engine: bool(engine.client_lr_scheduler),
}


def answer(ask: Callable[[Any], Any], asked: Any) -> Any:
    """None where this DeepSpeed, or this torch, does not tell."""
    try:
        return ask(asked)
    except Exception:
        return None


def like(original: Any, wrapper: Any) -> Any:
    functools: Any = importlib.import_module("functools")
    return functools.wraps(original)(wrapper)


class Measurement:
    def __init__(self, deepspeed: Any) -> None:
        self.deepspeed, self.original = deepspeed, deepspeed.initialize
        self.engine: Any = None
        self.collectives: dict[str, Any] = {}
        self.times: list[float] = []

        def initialize(*arguments: Any, **named: Any) -> Any:
            made = self.original(*arguments, **named)
            if not guarded(self.begin, made[0]):
                self.end()
            return made

        self.wrapper = deepspeed.initialize = like(self.original, initialize)

    def begin(self, engine: Any) -> None:
        if not trains(engine):
            return
        if self.engine is not None:
            self.end()
            return
        self.engine = engine
        guarded(self.measure_network, engine)
        if os.environ["RANK"] == "0":
            take = engine._take_model_step

            def stepped(*arguments: Any, **named: Any) -> Any:
                result = take(*arguments, **named)
                if not guarded(self.stepped):
                    self.end()
                return result

            engine._take_model_step = stepped

    def measure_network(self, engine: Any) -> None:
        torch: Any = importlib.import_module("torch")
        dist: Any = importlib.import_module("torch.distributed")
        store: Any = importlib.import_module("torch.distributed.distributed_c10d")._get_default_store()
        accelerator: Any = importlib.import_module("deepspeed.accelerator").get_accelerator()
        group = engine.seq_data_parallel_group
        if dist.get_world_size(group) == 1:
            return
        sizes = CPU_BYTES if accelerator.device_name() == "cpu" else GPU_BYTES
        # Whole numbers: zero.Init would make others of floating ones. Allocated before the others count on this rank.
        buffer = torch.zeros(sizes[-1], dtype=torch.uint8, device=accelerator.current_device_name())
        if not all_are_here(dist, store):
            return
        points: list[list[float]] = []
        for size in sizes:
            data = buffer[:size]
            dist.all_reduce(data, group=group)
            accelerator.synchronize()
            begun = time.perf_counter()
            for _ in range(REPEATED):
                dist.all_reduce(data, group=group)
            accelerator.synchronize()
            slowest = torch.tensor(
                [int((time.perf_counter() - begun) / REPEATED * 1e9)], dtype=torch.int64, device=buffer.device
            )
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
            points.append([size, slowest.item() / 1e9])
            if points[-1][1] > SLOW_SECONDS:
                break
        self.collectives = {"ranks": dist.get_world_size(group), "points": points}

    def stepped(self) -> None:
        self.times.append(time.perf_counter())
        if len(self.times) < LAST_STEP:
            return
        engine = self.engine
        self.end()
        seconds = (self.times[-1] - self.times[FIRST_STEP - 1]) / (LAST_STEP - FIRST_STEP)
        measured: dict[str, Any] = {
            "steps": LAST_STEP,
            "stepSeconds": seconds,
            "allReduce": self.collectives or None,
            # A script may have other plans than the job's configuration, which may leave them to a framework.
            **{name: OF_AN_ENGINE[name](engine) for name in ("microBatch", "accumulation", "stage", "precision")},
        }
        if engine.device.type == "cuda":
            torch: Any = importlib.import_module("torch")
            device = torch.cuda.get_device_properties(engine.device)
            measured.update(device=device.name, deviceMemory=device.total_memory)
            measured.update(peakMemory=torch.cuda.max_memory_allocated(engine.device))
        if not os.path.exists(RESULT):
            json: Any = importlib.import_module("json")
            with open(RESULT + ".new", "w", encoding="utf-8") as file:
                json.dump(measured, file)
            os.replace(RESULT + ".new", RESULT)

    def end(self) -> None:
        if self.deepspeed.initialize is self.wrapper:
            self.deepspeed.initialize = self.original
        if self.engine is not None:
            self.engine.__dict__.pop("_take_model_step", None)
        self.engine = None


def all_are_here(dist: Any, store: Any) -> bool:
    """Whether every rank of the world has come to this point, in every rank's opinion the same.

    The last one to come says so, or the first whose patience ends says no: who asks first decides. A rank whose image
    brings its own sitecustomize, or whose memory was not enough for the buffer, never comes.
    """
    datetime: Any = importlib.import_module("datetime")
    store = dist.PrefixStore("deepspeed-operator", store)
    last = store.add("arrived", 1) == dist.get_world_size()
    decides = last or not guarded(store.wait, ["all"], datetime.timedelta(seconds=PATIENCE_SECONDS))
    if decides and store.add("decided", 1) == 1:
        store.set("all", "yes" if last else "no")
    return store.get("all") == b"yes"


def load_next() -> None:
    """Whoever else has a sitecustomize comes to its turn, as if this one were not there."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    machinery: Any = importlib.import_module("importlib.machinery")
    spec = machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        util: Any = importlib.import_module("importlib.util")
        module = sys.modules["sitecustomize"] = util.module_from_spec(spec)
        spec.loader.exec_module(module)


def watch_stacks() -> None:
    """Have the stacks of all threads written to a file when the signal comes, whatever the interpreter does then."""
    # Both are parts of the interpreter itself: no file of the user's stands in for them.
    signal: Any = importlib.import_module("_signal")
    if "faulthandler" in sys.builtin_module_names and signal.getsignal(STACKS) == signal.SIG_DFL:
        name = f"stacks-{os.environ['RANK']}-{os.getpid()}"
        file = os.open(os.path.join(HERE, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        importlib.import_module("faulthandler").register(STACKS, file)


def imported_deepspeed(reports: Reports, deepspeed: Any) -> None:
    guarded(reports.watch_engines, deepspeed)
    if os.path.exists(MEASURES) and os.environ.get("RANK", "").isdigit():
        Measurement(deepspeed)


if __name__ == "sitecustomize":
    reports = Reports()
    finder = Finder(
        {
            "torch.distributed.distributed_c10d": reports.watch_worlds,
            "deepspeed": lambda deepspeed: imported_deepspeed(reports, deepspeed),
        }
    )
    for name in [name for name in finder.imported if name in sys.modules]:
        # A rank that was forked from a process which had imported it.
        guarded(finder.imported.pop(name), sys.modules[name])
    if finder.imported:
        sys.meta_path.insert(0, finder)
    if reports.launched:
        guarded(watch_stacks)
    if reports.launched and os.path.exists(IMPORTS):
        guarded(reports.watch_imports)
    load_next()
