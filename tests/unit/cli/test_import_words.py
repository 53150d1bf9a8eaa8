"""What `dsjob import` makes of the words of scripts, and of values of any type."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.cli.imports.conversion import GivenWorld
from deepspeed_operator.cli.imports.dispatch import imported
from tests.unit.cli.command import dsjob
from tests.unit.cli.test_import import indexed_job, job_of, told


def test_a_scripts_own_arguments_are_none_and_its_defaults_hold() -> None:
    result = dsjob(
        "import",
        "--command",
        'OUT=$1\nif [ "$OUT" == "" ]; then\n  OUT=./out\nfi\nLR=${2:-1e-4}\nmkdir -p $OUT\nrm -rf $OUT/*\n'
        ": ${STAGE:=3}\ndeepspeed --no_local_rank t.py --lr $LR --output_dir $OUT --stage $STAGE $@",
    )
    spec = job_of(result)
    assert spec["training"]["args"] == ["--lr", "1e-4", "--output_dir", "./out", "--stage", "3"]
    script = spec["template"]["spec"]["containers"][0]["command"][2]
    assert script == 'OUT=./out\nmkdir -p $OUT\nexec "$@"'
    assert "delete what was saved before" in told(result, "left out")
    assert "the script's own arguments" in told(result, "left out")


ODD: list[object] = [None, "x", [1], {"a": 1}]


@pytest.mark.parametrize("name", ["argo-volcano", "jobset-mnist", "mpijob-pi", "volcano-mpi"])
def test_a_value_of_any_type_may_be_anywhere(name: str) -> None:
    text = (Path(__file__).parent / "imports" / f"{name}.yaml").read_text()
    whole: dict[str, Any] = next(yaml.safe_load_all(text))

    def changed(value: Any) -> Iterator[None]:
        places: list[tuple[Any, Any]] = []
        if hasattr(value, "items"):
            places = list(value.items())
        elif hasattr(value, "append"):
            places = [(at, value[at]) for at in range(len(value))]
        for at, inner in places:
            for odd in ODD:
                value[at] = odd
                yield
            value[at] = inner
            yield from changed(inner)

    for _ in changed(whole):
        result = imported([("a.yaml", json.dumps(whole))], GivenWorld(), None)
        assert result.conversions or result.unknown or result.beside


def test_arrays_and_what_only_the_cluster_knows_of_a_batch_script() -> None:
    script = (
        "#!/bin/bash\n#SBATCH --job-name=a_b\n#SBATCH -N 2 --gres=gpu:h100:4 --time=1-02:00:00\n#SBATCH "
        "--mem=64G -c 8\n"
        "module load cuda\nexport MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
        'RUN=(torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4\n  --rdzv_endpoint=$MASTER_ADDR:29500) # c\nX=""\n'
        'if [ -d /x ]; then X="--auto-resume=1"; fi\n'
        'srun $X -l "${RUN[@]}" t.py --name run-$SLURM_JOB_ID --rank $SLURM_PROCID\n'
    )
    result = dsjob("import", "-", stdin=script)
    spec = job_of(result)
    assert (spec["nodes"], "slotsPerNode" in spec) == (2, False)
    assert spec["training"] == {"script": "t.py", "args": ["--name", "run-a_b", "--rank", "$(NODE_RANK)"]}
    assert spec["lifecycle"] == {"activeDeadlineSeconds": 26 * 3600}
    resources = spec["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"nvidia.com/gpu": 4}, "requests": {"cpu": 8, "memory": "64Gi"}}
    assert "module load cuda" in told(result, "left out")
    assert "write spec.image" in told(result, "warning")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("deepspeed --hostfile hosts t.py", "say it by --nodes"),
        ("torchrun --nnodes $(wc -l < hosts) t.py", "say it by --nodes"),
        ("DATA=<path to data>\ntorchrun t.py $DATA", "<path to data> is to be filled in first"),
        ("srun -N $N python t.py\n#SBATCH --array=1-3", ""),
    ],
)
def test_what_only_a_shell_or_its_author_knows_is_asked_for(script: str, words: str) -> None:
    result = dsjob("import", "--command", script)
    assert words in told(result, "refused")
    assert result.exit_code == (1 if words else 0)


def test_text_that_kubectl_takes_for_something_else_is_quoted() -> None:
    result = dsjob("import", "--command", "torchrun t.py 1e-4 y off 0o17 1_000 .5 1:2 null ''")
    assert result.exit_code == 0, result.stderr
    assert "1e-4" in job_of(result)["training"]["args"]


def test_what_dsjob_validate_would_refuse_is_told_and_counts() -> None:
    manifest = indexed_job(["torchrun", "--nnodes=2", "--nproc_per_node=16", "t.py"])
    result = dsjob("import", "-", stdin=manifest)
    assert result.exit_code == 1
    assert "error[more-ranks-than-accelerators]" in result.stderr


def test_without_a_file_or_a_command_line_nothing_is_done() -> None:
    assert dsjob("import").exit_code == 2
    assert "no such file" in dsjob("import", "/nowhere.yaml").stderr.lower()


@pytest.mark.parametrize("queued", [True, False])
def test_a_suspended_job_of_a_queue_waits_there_and_not_for_ever(queued: bool) -> None:
    manifest = indexed_job(["torchrun", "t.py"], 1).replace("spec:", "spec:\n  suspend: true", 1)
    if queued:
        manifest = manifest.replace("{name: t}", "{name: t, labels: {kueue.x-k8s.io/queue-name: team-a}}")
    spec = job_of(dsjob("import", "-", stdin=manifest))
    assert (spec.get("scheduling"), spec.get("suspend")) == (
        ({"queueName": "team-a"}, None) if queued else (None, True)
    )


def test_a_script_with_the_line_ends_of_windows_keeps_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_bytes(b"#!/bin/bash\r\ndeepspeed --num_gpus 8 train.py \\\r\n  --lr 1e-4 \\\r\n  --epochs 3\r\n")
    result = dsjob("import", script)
    training = yaml.safe_load(result.stdout)["spec"]["training"]
    assert training["args"] == ["--local_rank=$(LOCAL_RANK)", "--lr", "1e-4", "--epochs", "3"]


@pytest.mark.parametrize(
    "script",
    [
        'if [ "$AGAIN" ]; then\n  deepspeed --num_gpus 8 train.py -r\nelse\n  deepspeed --num_gpus 8 train.py\nfi\n',
        "for seed in 1 2; do\n  deepspeed --num_gpus 8 train.py --seed $seed\ndone\n",
    ],
    ids=["condition", "loop"],
)
def test_a_program_within_a_construct_is_started_by_the_ranks_alone(tmp_path: Path, script: str) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"#!/bin/bash\npip install --user extra\n{script}")
    result = dsjob("import", path)
    assert "here it is started once" in result.stderr
    (trainer,) = job_of(result)["template"]["spec"]["containers"]
    assert "deepspeed" not in "".join(trainer["command"]), "each pod would train alone before the ranks do"
    assert "pip install --user extra" in "".join(trainer["command"])


@pytest.mark.parametrize("joint", ["\n", " && "])
def test_a_script_that_starts_ranks_twice_is_two_jobs(tmp_path: Path, joint: str) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"#!/bin/bash\ndeepspeed --num_gpus 8 pretrain.py{joint}deepspeed --num_gpus 8 finetune.py\n")
    result = dsjob("import", path)
    assert "deepspeed --num_gpus 8 pretrain.py: it starts ranks" in told(result, "refused")
    assert "make a job of each" in result.stderr
    assert not result.stdout
