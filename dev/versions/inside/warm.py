"""Two ranks of warm_rank.py at a stage, argument 1: until a checkpoint, then twice from it, first cold and then forked.

Prints their losses, seconds of imports and exit codes, with what the agent's modules said.
"""

# The agent is beside DeepSpeed there only.
# pyright: basic, reportMissingImports=false

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

AGENT = "/operator/deepspeed_operator/agent"
sys.path.insert(1, AGENT)
from dso_warm import WarmInterpreters  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
RANKS = 2


def ranks(hook: Path, program: list[str]) -> list[SimpleNamespace]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    given.update(
        LOCAL_WORLD_SIZE=str(RANKS), OMP_NUM_THREADS="1", USE_LIBUV="0", PYTHONPATH=f"{os.environ['PYTHONPATH']}:{hook}"
    )
    return [
        SimpleNamespace(
            argv=[sys.executable, "-u", *program], environment={**given, "RANK": str(number), "LOCAL_RANK": str(number)}
        )
        for number in range(RANKS)
    ]


def of(code: int, output: bytes) -> dict[str, object]:
    lines = [line.split() for line in output.decode().splitlines()]
    losses = [line[1] for line in lines if line[:1] == ["loss"]]
    imports = next((float(line[1]) for line in lines if line[:1] == ["imports"]), None)
    return {"code": code, "losses": losses, "imports": imports, "output": "" if code == 0 else output.decode()[-3000:]}


def cold(specs: list[SimpleNamespace]) -> list[dict[str, object]]:
    processes = [
        subprocess.Popen(spec.argv, env=spec.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for spec in specs
    ]
    outputs = [process.communicate()[0] for process in processes]
    return [of(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def forked(warm: WarmInterpreters, specs: list[SimpleNamespace]) -> list[dict[str, object]]:
    pipes = [os.pipe() for _ in specs]
    begun = time.monotonic()
    pids = warm.fork(specs, [write for _, write in pipes])
    took = time.monotonic() - begun
    for _, write in pipes:
        os.close(write)
    if pids is None:
        return []
    outputs = [os.fdopen(read, "rb").read() for read, _ in pipes]
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    return [{**of(code, output), "forked": took} for code, output in zip(codes, outputs, strict=True)]


def main() -> None:
    program = ["/inside/warm_rank.py", sys.argv[1]]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["TMPDIR"] = tempfile.tempdir = directory
        hook = Path(directory) / "hook"
        hook.mkdir()
        shutil.copy(f"{AGENT}/dso_hook.py", hook / "sitecustomize.py")
        shutil.copy(f"{AGENT}/dso_imports.py", hook)
        program.append(f"{directory}/checkpoint")
        first = cold(ranks(hook, program))
        found = {"first": first, "said": []}
        imports = hook / "imports.json"
        if imports.exists():
            warm = WarmInterpreters(found["said"].append)
            warm.prepare(ranks(hook, program)[0], json.loads(imports.read_text()))
            while warm.server and not warm.server.ready:
                time.sleep(0.05)
                warm.look()
            found["cold"] = cold(ranks(hook, program))
            found["forked"] = forked(warm, ranks(hook, program))
            warm.end()
        print(json.dumps(found))


main()
