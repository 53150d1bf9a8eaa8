"""What a newcomer tries first: the demo, and the examples as they are."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dev.cluster.cluster import Cluster
from dev.images.commands import without_make
from tests.e2e.installation import Operator
from tests.e2e.kube import Namespace

ROOT = Path(__file__).parents[2]
LOSS = re.compile(r"rank (\d) epoch \d step \d+ loss (\d+\.\d+)")


def losses(text: str, rank: int) -> list[float]:
    return [float(loss) for who, loss in LOSS.findall(text) if int(who) == rank]


def assert_falls(found: list[float]) -> None:
    assert len(found) >= 4
    assert found[-1] < found[0] / 2


@pytest.mark.disrupts
@pytest.mark.parametrize("where", ["local", "current"])
def test_demo_trains_and_explains_what_it_refuses(
    cluster: Cluster, operator: Operator, image: Callable[[str], str], where: str
) -> None:
    """On the cluster of this machine; and as on a user's own: of that the demo knows what the environment says."""
    command, variables = [sys.executable, "-m", "dev.demo"], {**without_make(), "CLUSTER": where}
    if where == "current":
        images = [f"{name.upper()}_IMAGE={image(name)}" for name in ("operator", "worker")]
        command = ["make", "demo", "CLUSTER=current", *images]
        del variables["CLUSTER"]
        variables |= {"KUBECONFIG": str(cluster.kubeconfig), "PATH": f"{cluster.bin}:{variables['PATH']}"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    finally:
        operator.install()  # the demo upgrades the release of the other tests to values of its own
    assert done.returncode == 0, done.stdout + done.stderr
    training, _, ending = done.stdout.partition("Losses\n")
    _, _, conditions = training.partition("Conditions\n")
    for condition in ("Accepted", "Complete"):
        assert re.search(rf"^ +{condition} +True ", conditions, re.MULTILINE), done.stdout
    assert_falls(losses(ending, rank=0))
    assert_falls(losses(ending, rank=1))
    assert re.search(r"^quickstart +Complete +2 ", training, re.MULTILINE)
    assert "32 ≠ 4 × 8 × 2" in ending
    assert ("The cluster stays up." in ending) == (where == "local")


def test_the_deepspeed_command_line_runs_the_same_program(make_namespace: Callable[..., Namespace]) -> None:
    namespace = make_namespace("example")
    namespace.apply(*yaml.safe_load_all((ROOT / "examples/quickstart-deepspeed-launcher.yaml").read_text()))
    job = namespace.finished("quickstart-deepspeed", seconds=180)
    assert job.outcome == "Complete", namespace.report("quickstart-deepspeed")
    for rank in (0, 1):
        assert_falls(losses(namespace.log(f"quickstart-deepspeed-1-{rank}"), rank))
