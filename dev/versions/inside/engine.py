r"""Starts an engine with each configuration of stdin and trains some steps; one JSON line each: what the engine did.

    python3 dev/versions/inside/engine.py [AT_ONCE] <questions.jsonl >answers.jsonl

AT_ONCE worlds side by side, each rank forked from this process, which has imported torch and DeepSpeed and loaded what
DeepSpeed compiles, and has not touched the GPU. DS_ACCELERATOR says where: by default on a GPU, in one rank each. On a
CPU machine nothing is compiled: see _prepare_cpu. On a GPU machine compile first, side by side, what is loaded:

    OPS="FusedAdamBuilder CPUAdamBuilder CPUAdagradBuilder CPULionBuilder FusedLambBuilder FusedLionBuilder \
        QuantizerBuilder UtilsBuilder" . bench/gpu/install.sh
"""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import gc
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Found through NVML: CUDA does not survive a fork.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
os.environ.setdefault("DS_ACCELERATOR", "cuda")
# Many run side by side: none of them compiles with processes of its own.
os.environ.update(TORCHINDUCTOR_COMPILE_THREADS="1", MAX_JOBS="2", OMP_NUM_THREADS="2")
_CUDA = os.environ["DS_ACCELERATOR"] == "cuda"
if not _CUDA:
    os.environ.update(OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1")  # there is no compiler
    import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import

_stdout = os.dup(1)  # for the answers: DeepSpeed prints on stdout
os.dup2(2, 1)

import beforehand  # noqa: E402
import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.ops import op_builder  # noqa: E402

_MOST_SECONDS = 60
_WIDTH, _ROWS, _MANY_MICRO_STEPS = 64, 4, 32
_OPS = (
    "FusedAdamBuilder",
    "CPUAdamBuilder",
    "CPUAdagradBuilder",
    "CPULionBuilder",
    "FusedLambBuilder",
    "FusedLionBuilder",
    "QuantizerBuilder",
    "UtilsBuilder",
    "AsyncIOBuilder",
)


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.Linear(_WIDTH, _WIDTH)

    def forward(self, given: Any, **_: Any) -> Any:
        return self.second(torch.relu(self.first(given)))


def _load_ops() -> dict[str, str]:
    """Load what was compiled before, and ask no GPU what to compile it for."""
    found = {}
    capability = torch.cuda.get_device_capability
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    for name in _OPS:
        try:
            getattr(op_builder, name)().load(verbose=False)
            found[name] = "loaded"
        except Exception as error:
            found[name] = _words(error)
    torch.cuda.get_device_capability = capability
    assert not torch.cuda.is_initialized()
    return found


class _Kernels:
    """Takes what the compiled steps of optimizers take, and does nothing."""

    def __getattr__(self, name: str) -> Any:
        return self._take

    @staticmethod
    def _take(*arguments: Any) -> None:
        for each in arguments:
            if not isinstance(each, int | float | torch.Tensor | list):
                raise TypeError(f"incompatible function arguments: {each!r}")


def _prepare_cpu() -> None:
    from deepspeed.ops.op_builder import cpu

    beforehand.prepare_cpu()
    # They would be compiled: the steps of optimizers that a CPU has.
    for builder in (cpu.CPUAdamBuilder, cpu.FusedAdamBuilder):
        builder.load = lambda *_, **__: _Kernels()
    # Only some CPUs have fp16, it says; each of them does it well enough.
    type(deepspeed.accelerator.get_accelerator()).is_fp16_supported = lambda _: True
    # DeepSpeed collects garbage at each of its reports; here that is most of the time, and nothing runs out.
    gc.collect = lambda *_: 0
    gc.freeze()
    torch.set_num_threads(1)


def _words(error: BaseException) -> str:
    return re.sub(r"(?<![\w.])/[\w./+-]*/", "…/", " ".join(str(error).split()))[:240]


def _did(question: dict[str, Any], rank: int) -> dict[str, Any]:
    at = "start"
    try:
        deepspeed.init_distributed(
            "nccl" if _CUDA else "gloo",
            auto_mpi_discovery=False,
            init_method=f"file://{Path.cwd()}/meeting",
            rank=rank,
            world_size=question.get("world", 1),
        )
        torch.manual_seed(0)
        model = _Model()
        optimizer = _own_optimizer(question["config"], model) if question["optimizer"] == "script" else None
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, model_parameters=list(model.parameters()), config=question["config"]
        )
        at = "step"
        _work(engine, question)
    except Exception as error:  # whatever it raises is how it refuses
        return {"did": "refused", "at": at, "type": type(error).__name__, "says": _words(error)}
    except SystemExit as end:
        return {"did": "exited", "at": at, "says": str(end.code)}
    did = "evaluated" if question["optimizer"] == "none" else "trained"
    return {"did": did, "steps": engine.global_steps, "micro_steps": engine.micro_steps}


def _own_optimizer(config: dict[str, Any], model: _Model) -> Any:
    """Return the one that a careful script would pass: DeepSpeed's for the host where it is offloaded."""
    section = config.get("zero_optimization")
    zero = section if isinstance(section, dict) else {}
    offload = zero.get("offload_optimizer")
    if isinstance(offload, dict) and zero.get("stage") and offload.get("device", "none") != "none":
        return deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters(), lr=1e-4)
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def _work(engine: Any, question: dict[str, Any]) -> None:
    accumulation, steps = int(engine.gradient_accumulation_steps()), question.get("steps", 2)
    if not steps:
        return
    given = torch.randn(_ROWS, _WIDTH, device=engine.device, dtype=next(engine.module.parameters()).dtype)
    if question["optimizer"] == "none":
        with torch.no_grad():
            engine.eval()
            engine(given)
        return
    # One whole step at least: optimizers and schedulers fail in it, or not at all. ZenFlow sets the accumulation to 0.
    for _ in range(max(steps, accumulation, min(steps * accumulation, _MANY_MICRO_STEPS))):
        engine.backward(engine(given).float().square().mean())
        engine.step()
    if _CUDA:
        torch.cuda.synchronize()


class _World:
    """The ranks of one question, in a directory of their own."""

    def __init__(self, question: dict[str, Any]) -> None:
        self.question, self.begun = question, time.monotonic()
        self.directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.answers = [Path(self.directory.name, f"answer-{rank}") for rank in range(question.get("world", 1))]
        self.ticks, self.awake, self.why = 0, self.begun, ""
        self.running = {self._forked(rank) for rank in range(len(self.answers))}

    def _forked(self, rank: int) -> int:
        pid = os.fork()
        if pid == 0:
            self._run(rank)
        os.setpgid(pid, pid)
        return pid

    def _run(self, rank: int) -> None:
        """Be a rank, and wait when done: another one may still need it."""
        os.chdir(self.directory.name)
        output = os.open(f"output-{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)), CROSS_RANK="0", CROSS_SIZE="1")
        os.environ.update(dict.fromkeys(("WORLD_SIZE", "LOCAL_SIZE", "LOCAL_WORLD_SIZE"), str(len(self.answers))))
        os.environ.update(dict.fromkeys(("HOME", "TMPDIR"), self.directory.name))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        answer = _did(self.question, rank)
        unfinished = self.answers[rank].with_suffix(".tmp")
        unfinished.write_text(json.dumps(answer))
        unfinished.rename(self.answers[rank])
        signal.pause()

    def ended(self) -> bool:
        """End all ranks as soon as one refuses, or all are done, or nothing more is to be expected."""
        found = self._found()
        done = len(found) == len(self.answers) or any(each["did"] == "refused" for each in found)
        self.running -= {pid for pid in self.running if os.waitpid(pid, os.WNOHANG)[0]}
        if not done and not self._late() and len(self.running) == len(self.answers):
            return False
        for pid in self.running:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return True

    def _late(self) -> bool:
        """By what they compute, and not by the clock: the machine may have others to serve first."""
        threads = [each for pid in self.running for each in Path(f"/proc/{pid}/task").glob("*/stat")]
        fields = [fields for each in threads if (fields := _stat(each))]
        ticks, runs = sum(int(each[11]) + int(each[12]) for each in fields), any(each[0] != "S" for each in fields)
        if runs or ticks != self.ticks:
            self.ticks, self.awake = ticks, time.monotonic()
        seconds = ticks / os.sysconf("SC_CLK_TCK")
        asleep = time.monotonic() - self.awake
        self.why = f"not done after {_MOST_SECONDS} s" if max(seconds, asleep) > _MOST_SECONDS else ""
        return bool(self.why)

    def _found(self) -> list[dict[str, Any]]:
        return [json.loads(each.read_text()) for each in self.answers if each.exists()]

    def line(self) -> str:
        found = self._found()
        took = time.monotonic() - self.begun
        self.directory.cleanup()
        died = {"did": "died", "says": self.why or "a rank ended by itself"}
        refused = [each for each in found if each["did"] == "refused"]
        answer = refused[0] if refused else found[0] if len(found) == len(self.answers) else died
        kept = {key: value for key, value in self.question.items() if key != "config"}
        return json.dumps({**kept, **answer, "seconds": round(took, 1)})


def _stat(path: Path) -> list[str]:
    """Return a thread's state and what follows; nothing where it has just ended."""
    try:
        return path.read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def main() -> None:
    at_once = int(sys.argv[1]) if len(sys.argv) > 1 else 14
    ops = _load_ops() if _CUDA else {}
    if not _CUDA:
        _prepare_cpu()
    waiting = [json.loads(line) for line in sys.stdin]
    machine = {"deepspeed": deepspeed.__version__, "torch": torch.__version__, "processes": at_once, "ops": ops}
    _tell(json.dumps(machine))
    running: list[_World] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(_World(waiting.pop(0)))
        for world in [world for world in running if world.ended()]:
            running.remove(world)
            _tell(world.line())
        time.sleep(0.02)


def _tell(line: str) -> None:
    os.write(_stdout, f"{line}\n".encode())


main()
