"""Tells the agent of each optimizer step that a rank makes, of what it does between two of them, and what it loads.

The hook in the ranks loads it with DeepSpeed's first engine that trains. A rank has a page of shared memory, which the
agent reads as it likes, also while the rank hangs: no call is made for a step, and no rank waits for anybody.
"""

from __future__ import annotations

import importlib
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

# In this order: steps made here, steps timed, DeepSpeed's own count, the phase, samples of a step; then when the last
# step ended and the phase began (time.monotonic, which is the agent's, too), and the learning rate.
HEAD = "5q3d"
HEAD_BYTES = 64
WINDOW = 64  # the last steps, of each the seconds
# After these: when the first step ended, the seconds of all saves, and when the last save ended.
SPENT, SPENT_PLACE = "3d", HEAD_BYTES + 8 * WINDOW
# Then: how many forward passes were timed, and what they took together, in seconds.
PASSES, PASSES_PLACE = "qd", SPENT_PLACE + 24
# Last: when the newest save began (time.time), and where to: the length of the path, 0 for none yet, and the path.
PATH_BYTES = 1024
SAVE, SAVE_PLACE = f"dH{PATH_BYTES}s", PASSES_PLACE + 16
LENGTH, LENGTH_PLACE = "H", SAVE_PLACE + 8
# And a byte: what has become of a checkpoint to load, one of LOADS.
LOAD_PLACE = LENGTH_PLACE + 2 + PATH_BYTES
BYTES = LOAD_PLACE + 1
LOADS = ("", "loads", "found", "none")
PHASES = ("Starting", "FirstStep", "Step", "Evaluation", "Saving")
FIRST_STEP, STEP, EVALUATION, SAVING = range(1, 5)
# There where the job's configuration has load_universal from the operator, and not from the user.
UNIVERSAL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "universal")
PLACE = "/dev/shm"  # memory: a full or slow disk keeps no rank from its next step
UNKNOWN = float("nan")
# What an engine and a Trainer of transformers do between two steps, by the names of their methods.
OF_AN_ENGINE = {"save_checkpoint": SAVING, "save_16bit_model": SAVING, "eval_batch": EVALUATION}
OF_A_TRAINER = {"_save_checkpoint": SAVING, "evaluate": EVALUATION, "predict": EVALUATION}


class Stopwatch:
    """Adds up what forward passes take. A GPU's are timed by itself, and nobody waits for it."""

    MOST_PENDING = 256

    def __init__(self, device: str) -> None:
        self.torch: Any = importlib.import_module("torch") if device == "cuda" else None
        self.pending: list[Any] = []  # of passes that the GPU has not ended yet, the events before and after
        self.passes, self.seconds = 0, 0.0

    def mark(self) -> Any:
        if self.torch is None:
            return time.monotonic()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add(self, begun: Any) -> None:
        if self.torch is None:
            self.passes, self.seconds = self.passes + 1, self.seconds + time.monotonic() - begun
            return
        self.pending.append((begun, self.mark()))
        while self.pending and self.pending[0][1].query():
            before, after = self.pending.pop(0)
            self.passes, self.seconds = self.passes + 1, self.seconds + before.elapsed_time(after) / 1000
        del self.pending[self.MOST_PENDING :]


def computes_alone(engine: Any) -> bool:
    """Whether no collective is part of its forward pass."""
    tensor = getattr(engine, "autotp_size", int)()
    sequence = getattr(engine, "sequence_parallel_size", 1)
    return bool(
        engine.zero_optimization_stage() < 3
        and engine.mpu is None
        and not engine.has_moe_layers
        and tensor < 2
        and sequence == 1
        and engine.device.type in ("cpu", "cuda")
    )


def finds_nothing(load_dir: Any = None, tag: Any = None, *_: Any, **__: Any) -> bool:
    """Whether load_checkpoint(), called so, would find no checkpoint of any kind, and no name of one."""
    named = (os.path.join(load_dir, name) for name in ("latest", "latest_universal"))
    return tag is None and not any(map(os.path.lexists, named))


def plainly(engine: Any, load: Any, *arguments: Any, **named: Any) -> Any:
    """Load, and begin where there is nothing to load: DeepSpeed fails there once it is told load_universal."""
    config = None
    try:
        if os.path.exists(UNIVERSAL) and finds_nothing(*arguments, **named) and engine.load_universal_checkpoint():
            config = engine._config
            config.load_universal_checkpoint = False
    except Exception:
        config = None  # another DeepSpeed, or no directory
    try:
        return load(*arguments, **named)
    finally:
        if config is not None:
            config.load_universal_checkpoint = True


class Loads:
    """Which checkpoint an engine has loaded before its first step, and who trains the same parameters with it."""

    def __init__(self, engine: Any, recorder: Recorder | None) -> None:
        """`recorder`: which tells the agent of it while it loads, too; None where there is no shared memory."""
        functools: Any = importlib.import_module("functools")
        self.engine: Any = engine
        self.called, self.path = False, ""
        original = engine.load_checkpoint

        def load(*arguments: Any, **named: Any) -> Any:
            note("loads")
            result = plainly(engine, original, *arguments, **named)
            self.called = True
            try:
                self.path = os.path.dirname(os.path.abspath(result[0])) if result[0] else self.path
            except Exception:
                self.path = ""  # another DeepSpeed, which does not tell
            note("found" if self.path else "none")
            return result

        def note(what: str) -> None:
            if recorder is not None:
                recorder.memory[LOAD_PLACE] = LOADS.index(what)

        engine.load_checkpoint = self.wrapper = functools.wraps(original)(load)

    def start(self, group: Any, step: Any) -> Any:
        """At the first step, after which the engine is let go; None where nobody is known to train with this rank.

        `step` is the engine's before it, and not that of its load: rank 0 may have given all ranks what it has loaded.
        """
        engine: Any = self.engine
        self.engine = None
        if engine is None:
            return None  # this one is not its first
        own: Any = engine.__dict__
        if own.get("load_checkpoint") is self.wrapper:
            del own["load_checkpoint"]
        dist: Any = importlib.import_module("torch.distributed")
        if "grid" in own:  # the stages of a pipeline, which all ranks are part of
            peers = range(dist.get_world_size())
        elif engine.enable_backward_allreduce and engine.seq_data_parallel_group is not None:
            peers = dist.get_process_group_ranks(engine.seq_data_parallel_group)
        else:
            peers = ()  # unknown, or the program trains each rank apart
        if not group or step is None or len(peers) < 2:
            return None
        name = f"{group} {min(peers)} {len(peers)}"
        return {"rank": dist.get_rank(), "peers": name, "loads": self.called, "path": self.path, "step": step}


class Recorder:
    def __init__(self, directory: str, rank: int) -> None:
        """Raises OSError where there is no shared memory."""
        struct: Any = importlib.import_module("struct")
        mmap: Any = importlib.import_module("mmap")
        self.functools: Any = importlib.import_module("functools")
        self.weakref: Any = importlib.import_module("weakref")
        file = os.open(os.path.join(directory, str(rank)), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(file, bytes(BYTES))  # a page that is there: later none can be missing
            self.memory = mmap.mmap(file, BYTES)
        finally:
            os.close(file)
        self.head, self.second, self.spent = struct.Struct(HEAD), struct.Struct("d"), struct.Struct(SPENT)
        self.passes, self.save, self.length = struct.Struct(PASSES), struct.Struct(SAVE), struct.Struct(LENGTH)
        self.stopwatch: Any = None  # None: its passes are not timed
        self.engine: Callable[[], Any] = lambda: None
        self.ours: list[Any] = []
        self.taken = self.timed = self.step = self.samples = 0
        self.at, self.rate = 0.0, UNKNOWN
        self.first = self.saving = self.saved = 0.0
        self.phase, self.since = FIRST_STEP, time.monotonic()
        self.interrupted = False  # the time since the last step is not that of a step

    def watch(self, engine: Any) -> None:
        """The newest engine that trains is the one whose steps count."""
        self.engine = self.weakref.ref(engine)
        kind: Any = engine.__class__
        # Of its class: an attribute of the engine itself would keep it, and a GPU's memory, alive after its last use.
        self.replace(kind, "_take_model_step", self.stepping)
        self.replace(kind, "train", self.switching)
        self.replace(kind, "eval", self.evaluating)
        for name, phase in OF_AN_ENGINE.items():
            self.replace(kind, name, self.spending(name, phase))
        self.time_passes(engine, kind)
        trainer: Any = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
        for name, phase in OF_A_TRAINER.items() if trainer is not None else ():
            self.replace(trainer, name, self.spending(name, phase))
        self.step = int(engine.global_steps)
        self.write()

    def replace(self, kind: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        original = getattr(kind, name, None)
        # Another tool's callable that is no method would be called with the engine as one argument more.
        if hasattr(original, "__get__") and original not in self.ours:
            wrapped = self.functools.wraps(original)(wrapper(original))
            self.ours.append(wrapped)
            setattr(kind, name, wrapped)

    def stepping(self, original: Any) -> Any:
        def step(engine: Any, *arguments: Any, **named: Any) -> Any:
            result = original(engine, *arguments, **named)
            if self.engine() is engine:
                self.count(engine)
            return result

        return step

    def time_passes(self, engine: Any, kind: Any) -> None:
        self.stopwatch = None
        try:
            if computes_alone(engine):
                self.stopwatch = Stopwatch(engine.device.type)
                self.replace(kind, "forward", self.passing)
        except Exception:
            self.stopwatch = None  # another DeepSpeed, which does not tell

    def passing(self, original: Any) -> Any:
        def forward(engine: Any, *arguments: Any, **named: Any) -> Any:
            begun = self.mark() if self.phase != EVALUATION and self.engine() is engine else None
            result = original(engine, *arguments, **named)
            if begun is not None:
                self.add(begun)
            return result

        return forward

    def mark(self) -> Any:
        try:
            return self.stopwatch and self.stopwatch.mark()
        except Exception:
            self.stopwatch = None
            return None

    def add(self, begun: Any) -> None:
        try:
            self.stopwatch.add(begun)
        except Exception:
            self.stopwatch = None

    def switching(self, original: Any) -> Any:
        def switch(engine: Any, mode: bool = True) -> Any:
            if not mode:
                self.enter(EVALUATION)
            elif self.phase == EVALUATION:
                self.enter(STEP if self.taken else FIRST_STEP)
            return original(engine, mode)

        return switch

    def evaluating(self, original: Any) -> Any:
        def evaluate(engine: Any) -> Any:
            self.enter(EVALUATION)
            return original(engine)

        return evaluate

    def spending(self, name: str, phase: int) -> Callable[[Any], Any]:
        def wrapper(original: Any) -> Any:
            def spent(*arguments: Any, **named: Any) -> Any:
                before = self.phase
                self.enter(phase)
                if name == "save_checkpoint":
                    self.note_save(*arguments, **named)
                try:
                    return original(*arguments, **named)
                finally:
                    self.enter(before)

            return spent

        return wrapper

    def note_save(self, engine: Any, save_dir: Any = None, tag: Any = None, *_: Any, **__: Any) -> None:
        try:
            name = f"global_step{engine.global_steps}" if tag is None else str(tag)
            path = os.fsencode(os.path.abspath(os.path.join(save_dir, name)))
            if "://" in os.fspath(save_dir) or len(path) > PATH_BYTES:
                return
            # The agent reads when it likes: there is no path until all of it is there.
            self.length.pack_into(self.memory, LENGTH_PLACE, 0)
            self.save.pack_into(self.memory, SAVE_PLACE, time.time(), 0, path)
            self.length.pack_into(self.memory, LENGTH_PLACE, len(path))
        except Exception:
            return  # it is not saved to a directory, or by another DeepSpeed

    def enter(self, phase: int) -> None:
        now = time.monotonic()
        if self.phase == SAVING:
            self.saving, self.saved = self.saving + now - self.since, now
        self.phase, self.since, self.interrupted = phase, now, True
        self.write()

    def count(self, engine: Any) -> None:
        try:
            now = time.monotonic()
            if self.taken and not self.interrupted:
                self.second.pack_into(self.memory, HEAD_BYTES + 8 * (self.timed % WINDOW), now - self.at)
                self.timed += 1
            if self.phase != STEP:
                self.phase, self.since = STEP, now
            self.at, self.interrupted = now, False
            self.first = self.first or now
            self.taken += 1
            self.step, self.samples = int(engine.global_steps), int(engine.train_batch_size())
            rate = engine.optimizer.param_groups[0]["lr"]
            self.rate = rate if type(rate) is float else UNKNOWN  # to read a tensor would wait for the GPU
        except Exception:
            self.rate = UNKNOWN  # another DeepSpeed, which does not tell
        self.write()

    def write(self) -> None:
        counts = (self.taken, self.timed, self.step, self.phase, self.samples)
        self.spent.pack_into(self.memory, SPENT_PLACE, self.first, self.saving, self.saved)
        self.head.pack_into(self.memory, 0, *counts, self.at, self.since, self.rate)
        if self.stopwatch is not None:
            self.passes.pack_into(self.memory, PASSES_PLACE, self.stopwatch.passes, self.stopwatch.seconds)
