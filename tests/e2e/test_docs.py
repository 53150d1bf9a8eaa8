"""The README and pages of docs/ show what a user sees."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from tests.consoles import ROOT, hold
from tests.e2e.jobs import NO_GPU, job
from tests.e2e.kube import Namespace, eventually
from tests.unit.agent.test_progress_sources import DEEPSPEED

PROGRAMS = Path(sys.executable).parent  # dsjob's


def all_said(namespace: Namespace) -> bool:
    """Whether each job has come to its end, and its last event is written."""
    jobs = namespace.jobs()
    ends = {(job.body["metadata"]["name"], job.reason("Ready")) for job in jobs if job.holds("Complete", "Stalled")}
    told = {(event["involvedObject"]["name"], event["reason"]) for event in namespace.all_events()}
    return len(ends) == len(jobs) and ends <= told


def shell_in(namespace: Namespace, directory: Path) -> Callable[[str], str]:
    """Return what runs a command of a page, whose kubectl is about the namespace, and returns what it prints."""
    cluster = namespace.cluster
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_bytes(cluster.kubeconfig.read_bytes())
    path = f"{cluster.bin}:{PROGRAMS}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}

    def shell(command: str) -> str:
        return subprocess.run(
            ["bash", "-c", command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    shell(f"kubectl config set-context --current --namespace={namespace.name}")
    return shell


def test_the_page_of_status_shows_what_kubectl_prints(
    make_namespace: Callable[..., Namespace], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    namespace = make_namespace("status")
    assert hold("docs/status.md", shell_in(namespace, tmp_path), pytestconfig, varies=True) == 12
    namespace.delete("long", "--wait=false")


# A second a step, from the 471st of 1,000 on; then it stands still.
TELLS = """\
import json, os, time
time.sleep(5)
for step in range(471, 481):
    time.sleep(1)
    with open(os.environ.get("DEEPSPEED_OPERATOR_PROGRESS", os.devnull), "a") as file:
        print(json.dumps({"step": step, "totalSteps": 1000, "loss": 2.03125}), file=file)
time.sleep(600)
"""


def test_the_page_of_progress_shows_what_kubectl_prints(
    make_namespace: Callable[..., Namespace], image: Callable[[str], str], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    namespace = make_namespace("progress")
    namespace.config_map("code", {"train.py": TELLS})
    training = {"script": "train.py", "files": {"configMap": "code"}}
    namespace.apply(job("llm", image("plain-python"), training=training, trainer={"resources": NO_GPU}))
    found = namespace.wait("llm", lambda job: job.status.get("progress", {}).get("step") == 480, 120)
    shell = shell_in(namespace, tmp_path)
    assert hold("docs/progress.md", shell, pytestconfig, varies=True) == 2
    assert hold("docs/goodput.md", shell, pytestconfig, varies=True) == 1
    progress = found.status["progress"]
    last, eta = (datetime.fromisoformat(progress[name]) for name in ("lastUpdateTime", "eta"))
    assert (eta - last).total_seconds() == pytest.approx(520, rel=0.1)
    namespace.delete("llm", "--wait=false")


# Two ranks that meet at each step, until rank 1 of the first round does not come; of DeepSpeed what the agents touch.
MEETS = """\
import os, shutil, socket, time
import deepspeed
os.makedirs("torch/distributed", exist_ok=True)
shutil.copy("collectives.py", "torch/distributed")
from torch.distributed.collectives import all_reduce

def load_batch():
    time.sleep(600)

rank, first = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    peer = socket.create_server(("", address[1])).accept()[0]
while rank == 1:
    try:
        peer = socket.create_connection(address)
        break
    except OSError:
        time.sleep(0.1)
engine, *_ = deepspeed.initialize()
for step in range(5):
    if step == 3 and first and rank == 1:
        load_batch()
    all_reduce(peer)
    engine._take_model_step()
"""
COLLECTIVES = """\
def all_reduce(peer):
    peer.sendall(b"x")
    peer.recv(1)
"""


def test_the_page_of_hangs_shows_what_kubectl_prints_of_a_gang_that_hung_and_then_trained(
    make_namespace: Callable[..., Namespace], image: Callable[[str], str], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    namespace = make_namespace("hangs")
    namespace.config_map("code", {"train.py": MEETS, "collectives.py": COLLECTIVES, "deepspeed.py": DEEPSPEED})
    training = {"script": "train.py", "files": {"configMap": "code"}}
    limits = {"lifecycle": {"progressDeadlineSeconds": 10}}
    namespace.apply(
        job("llm", image("plain-python"), nodes=2, training=training, trainer={"resources": NO_GPU}, **limits)
    )
    done = namespace.wait("llm", lambda job: job.holds("Complete", "Failed"), 120)
    assert (done.status["state"], done.status["restarts"]) == ("Complete", 1)
    assert hold("docs/hangs.md", shell_in(namespace, tmp_path), pytestconfig, varies=True) == 1
    namespace.delete("llm", "--wait=false")


@pytest.mark.parametrize(("page", "commands"), [("docs/commands.md", 19), ("docs/failure-policy.md", 5)])
def test_the_page_shows_what_the_commands_print(
    page: str, commands: int, make_namespace: Callable[..., Namespace], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    shell = shell_in(make_namespace(Path(page).stem), tmp_path)
    assert hold(page, shell, pytestconfig, varies=True) == commands


def test_readme_shows_what_kubectl_prints(
    make_namespace: Callable[..., Namespace], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    namespace = make_namespace("readme")
    shell = shell_in(namespace, tmp_path)

    def printed(command: str) -> str:
        output = shell(command)
        eventually(lambda: all_said(namespace), lambda: f"the jobs end after {command}", 300)
        return output

    assert hold("README.md", printed, pytestconfig, varies=True) == 6
    assert hold("docs/first-job.md", printed, pytestconfig, varies=True) == 6
    events = shell("kubectl describe dsj quickstart | sed '1,/^Events/d'")
    assert re.findall(r"Starting|Running|Completed", events) == ["Starting", "Running", "Completed"]
