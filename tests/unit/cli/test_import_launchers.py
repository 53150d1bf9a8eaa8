"""What `dsjob import` makes of the options of launchers, shells and Python."""

from typing import Any

import pytest

from tests.unit.cli.command import dsjob
from tests.unit.cli.test_import import indexed_job, job_of, line, told


@pytest.mark.parametrize(
    ("hosts", "world"),
    [
        ("-H host1:8,host2:8 -np 16", (2, 8)),
        ("-H host1:8,host2:8", (2, 8)),
        ("--host a,b -np 16", (2, 8)),
        ("-hosts a:4,b:4,c:4 -n 8", (2, 4)),
    ],
)
def test_the_hosts_of_mpirun_say_how_many_ranks_a_node_has(hosts: str, world: tuple[int, int]) -> None:
    spec = line(f"mpirun {hosts} python t.py")
    assert (spec["nodes"], spec["slotsPerNode"]) == world


def test_torchrun_starts_one_rank_a_pod_unless_it_is_told_of_more() -> None:
    words = ["torchrun", "--nnodes=2", "t.py"]
    result = dsjob("import", "-", stdin=indexed_job(words))
    assert job_of(result)["slotsPerNode"] == 1
    assert "one process a pod, which has 8 accelerators" in told(result, "warning")
    more = "resources: {limits: {nvidia.com/gpu: 8}}, env: [{name: PET_NPROC_PER_NODE, value: gpu}]"
    for manifest in (indexed_job(words, 2, more), indexed_job([*words[:2], "--nproc_per_node=gpu", "t.py"])):
        assert "slotsPerNode" not in job_of(dsjob("import", "-", stdin=manifest))


def test_the_variables_that_srun_exports_are_the_containers() -> None:
    result = dsjob("import", "--command", "srun -N 2 -D /w --export=ALL,NCCL_ALGO=Ring,A= python t.py")
    assert job_of(result)["template"]["spec"]["containers"][0]["env"] == [
        {"name": "NCCL_ALGO", "value": "Ring"},
        {"name": "A", "value": ""},
    ]
    assert "-D: write it as workingDir" in told(result, "left out")


@pytest.mark.parametrize(
    ("command", "training"),
    [
        ("python -W ignore train.py --a", {"command": ["python", "-W", "ignore", "train.py", "--a"]}),
        ("python -X faulthandler -m torch.distributed.run --nproc_per_node 2 t.py", {"script": "t.py"}),
        ("python -W ignore -m pkg.train", {"module": "pkg.train"}),
        ("python -O train.py", {"command": ["python", "-O", "train.py"]}),
        ('bash -euo pipefail -c "torchrun --nproc_per_node 2 t.py"', {"script": "t.py"}),
        ('bash -exo pipefail +o history -c "torchrun --nproc_per_node 2 t.py"', {"script": "t.py"}),
    ],
)
def test_a_program_is_found_behind_options_with_values(command: str, training: dict[str, Any]) -> None:
    assert line(command)["training"] == training
