r"""Starts an engine with each configuration of stdin and trains two steps; one JSON line each: what the engine did.

    python3 -m bench.gpu.inside.engine [PROCESSES] <questions.jsonl >answers.jsonl

Processes side by side, each forked from this one, which has imported torch and DeepSpeed and loaded what DeepSpeed
compiles, and has not touched the GPU. With DS_ACCELERATOR=cpu a dry run. Compile first, side by side, what is loaded:

    OPS="FusedAdamBuilder CPUAdamBuilder CPUAdagradBuilder CPULionBuilder FusedLambBuilder FusedLionBuilder \
        QuantizerBuilder UtilsBuilder" . bench/gpu/install.sh
"""

# pyright: basic, reportMissingImports=false

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

import deepspeed
import deepspeed.comm.torch
import torch
from deepspeed.ops import op_builder

_CUDA = os.environ["DS_ACCELERATOR"] == "cuda"
_SECONDS = 60
_WIDTH, _ROWS, _STEPS, _MOST_MICRO_STEPS = 64, 4, 2, 32
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
            found[name] = _first_line(error)
    torch.cuda.get_device_capability = capability
    assert not torch.cuda.is_initialized()
    return found


def _first_line(error: BaseException) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return re.sub(r"(?<![\w.])/[\w./+-]*/", "…/", line)[:240]


def _did(question: dict[str, Any]) -> dict[str, Any]:
    at = "start"
    try:
        deepspeed.init_distributed(
            "nccl" if _CUDA else "gloo",
            auto_mpi_discovery=False,
            init_method=f"file://{Path.cwd()}/meeting",
            rank=0,
            world_size=1,
        )
        torch.manual_seed(0)
        model = _Model()
        optimizer = _own_optimizer(question["config"], model) if question["optimizer"] == "script" else None
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, model_parameters=list(model.parameters()), config=question["config"]
        )
        at = "step"
        _work(engine, question["optimizer"] == "none")
    except Exception as error:  # whatever it raises is how it refuses
        return {"did": "refused", "at": at, "type": type(error).__name__, "says": _first_line(error)}
    return {"did": "evaluated" if question["optimizer"] == "none" else "trained", "steps": engine.global_steps}


def _own_optimizer(config: dict[str, Any], model: _Model) -> Any:
    """Return the one that a careful script would pass: DeepSpeed's for the host where it is offloaded."""
    section = config.get("zero_optimization")
    zero = section if isinstance(section, dict) else {}
    offload = zero.get("offload_optimizer")
    if isinstance(offload, dict) and zero.get("stage") and offload.get("device", "none") != "none":
        return deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters(), lr=1e-4)
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def _work(engine: Any, evaluate: bool) -> None:
    given = torch.randn(_ROWS, _WIDTH, device=engine.device, dtype=next(engine.module.parameters()).dtype)
    if evaluate:
        with torch.no_grad():
            engine.eval()
            engine(given)
        return
    for _ in range(min(_STEPS * engine.gradient_accumulation_steps(), _MOST_MICRO_STEPS)):
        engine.backward(engine(given).float().square().mean())
        engine.step()
    if _CUDA:
        torch.cuda.synchronize()


class _Child:
    def __init__(self, question: dict[str, Any]) -> None:
        self.question, self.begun = question, time.monotonic()
        self.directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.pid = os.fork()
        if self.pid == 0:
            self._run()

    def _run(self) -> None:
        os.setpgid(0, 0)
        os.chdir(self.directory.name)
        output = os.open("output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1", MASTER_ADDR="127.0.0.1")
        os.environ.update(MASTER_PORT="29500")
        answer = _did(self.question)
        Path("answer.tmp").write_text(json.dumps(answer))
        Path("answer.tmp").rename("answer")
        os._exit(0)

    def ended(self) -> bool:
        late = time.monotonic() - self.begun > _SECONDS
        if late:
            os.killpg(self.pid, signal.SIGKILL)
        pid, self.status = os.waitpid(self.pid, 0 if late else os.WNOHANG)
        return pid != 0

    def line(self) -> str:
        answer = Path(self.directory.name, "answer")
        took = time.monotonic() - self.begun
        if answer.exists():
            found = json.loads(answer.read_text())
        else:
            why = f"not done after {_SECONDS} s" if took > _SECONDS else f"ended with status {self.status}"
            found = {"did": "died", "says": why}
        self.directory.cleanup()
        kept = {key: value for key, value in self.question.items() if key != "config"}
        return json.dumps({**kept, **found, "seconds": round(took, 1)})


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed prints on stdout
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 14
    waiting = [json.loads(line) for line in sys.stdin]
    if not _CUDA:
        vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None  # it would be compiled first
    ops = _load_ops() if _CUDA else {}
    machine = {"deepspeed": deepspeed.__version__, "torch": torch.__version__, "processes": most, "ops": ops}
    print(json.dumps(machine), file=answers, flush=True)
    running: list[_Child] = []
    while waiting or running:
        while waiting and len(running) < most:
            running.append(_Child(waiting.pop(0)))
        for child in [child for child in running if child.ended()]:
            running.remove(child)
            print(child.line(), file=answers, flush=True)
        time.sleep(0.02)


main()
