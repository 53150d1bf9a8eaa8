"""What `dsjob import` makes of scripts whose shell does more than set variables and start a launcher."""

from pathlib import Path

import pytest

from tests.unit.cli.command import Result, dsjob
from tests.unit.cli.test_import import GPUS, container, indexed_job, job_of, line, pytorch_job, told

START = "torchrun --nproc_per_node=2 t.py"


def entrypoint(script: str) -> str:
    """Return the shell that each pod runs before the program of this script."""
    command = line(script)["template"]["spec"]["containers"][0]["command"]
    return command[2].removesuffix('exec "$@"').strip()


def batch(tmp_path: Path, script: str) -> Result:
    path = tmp_path / "job.sbatch"
    path.write_text(script)
    return dsjob("import", path)


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("tensorboard --logdir /l &", "tensorboard --logdir /l &"),
        ("(cd /a; ./serve) &", "(cd /a; ./serve) &"),
        ("while read f; do cp $f /x; done < list", "while read f; do cp $f /x; done < list"),
        (
            "usage() {\n  ls\n}\nfunction get {\n  wget x\n}\nget",
            "usage() {\n  ls\n}\nfunction get {\n  wget x\n}\nget",
        ),
        ("for ((n=0; n<3; n++)); do wget x$n; done", "for ((n=0; n<3; n++)); do wget x$n; done"),
        ("[ -d /d ] && echo there\nwget x", "wget x"),
        ("wget x || exit 1", "wget x || exit 1"),
        ("cat list | python3 fetch.py", "cat list | python3 fetch.py"),
    ],
)
def test_what_runs_before_the_program_means_what_it_meant(before: str, kept: str) -> None:
    assert entrypoint(f"{before}\n{START}") == kept


def test_a_scripts_own_arguments_are_not_the_program_that_its_entrypoint_runs() -> None:
    script = 'if [ $# -lt 1 ]; then echo usage; exit 1; fi\nprepare() { wget "$1"; }\nprepare "$@"\n' + START
    assert entrypoint(script) == 'before() {\nprepare() { wget "$1"; }\nprepare "$@"\n}\nbefore'
    manifest = indexed_job(["bash", "-c", f'./get "$1"\n{START}', "sh", "a b"], 1)
    container = job_of(dsjob("import", "-", stdin=manifest))["template"]["spec"]["containers"][0]
    assert container["command"][2].splitlines()[-2:] == ["before 'a b'", 'exec "$@"']


def test_options_that_a_scripts_arguments_would_add_are_not_there() -> None:
    loop = 'MORE=""\nwhile [[ $# -gt 0 ]]; do case $1 in --size) MORE="$MORE --size $2"; shift 2;; esac; done\n'
    result = dsjob("import", "--command", f"{loop}{START} $MORE --x")
    assert job_of(result)["training"]["args"] == ["--x"]
    assert "the script's own arguments" in told(result, "left out")


def test_a_value_that_a_condition_decides_is_told() -> None:
    script = f'STAGE=2\nif [ "$MODEL" = big ]; then STAGE=3; fi\n{START} --stage $STAGE'
    result = dsjob("import", "--command", script)
    assert job_of(result)["training"]["args"] == ["--stage", "2"]
    assert "STAGE: a condition of the script decides it; here it is 2" in told(result, "warning")


def test_a_command_in_a_variable_is_read_where_eval_runs_it() -> None:
    training = line('C="deepspeed --no_local_rank --num_gpus 2 t.py --a \\"b c\\" --at $(date)"\necho $C\neval "$C"')
    assert training["slotsPerNode"] == 2
    assert training["training"]["args"] == ["--a", "b c", "--at", "$(ARGUMENT_1)"]
    container = training["template"]["spec"]["containers"][0]
    assert container["command"][2] == 'export ARGUMENT_1=$(date)\nexec "$@"'


def test_arguments_in_a_here_document_are_read() -> None:
    script = "read -r -d '' ALL <<EOF\npkg.train \\\n  --a 1\nEOF\ndeepspeed --no_local_rank --num_gpus 2 --module $ALL"
    assert line(script)["training"] == {"module": "pkg.train", "args": ["--a", "1"]}


def test_bash_may_be_told_that_its_options_end() -> None:
    manifest = indexed_job(["bash", "-c", "--", "python3 t.py"], 1)
    assert job_of(dsjob("import", "-", stdin=manifest))["training"] == {"script": "t.py"}


def test_a_program_in_front_of_a_launcher_is_named(tmp_path: Path) -> None:
    result = dsjob("import", "--command", f"parallel_compile {START}")
    assert job_of(result)["training"] == {"script": "t.py"}
    assert "parallel_compile: it would wrap the launcher" in told(result, "left out")
    binding = batch(tmp_path, "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node 4\nsrun ./bind.sh python t.py --a\n")
    assert job_of(binding)["training"] == {"command": ["./bind.sh", "python", "t.py", "--a"]}


def test_a_home_directory_is_the_containers() -> None:
    assert line(f"{START} ~/data")["training"]["args"] == ["$(HOME)/data"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("deepspeed t.py", "a rank for each GPU of its host"),
        ("torchrun --nproc_per_node=gpu t.py", "a rank for each GPU of its host"),
        ("accelerate launch --num_processes $MANY t.py", "how many ranks a pod has"),
    ],
)
def test_ranks_whose_number_is_not_written_are_told(command: str, words: str) -> None:
    assert words in told(dsjob("import", "--command", command), "warning")
    assert words not in dsjob("import", "--command", command, "--slots", "2").stderr
    job = indexed_job(command.split(), 1, GPUS)
    assert words not in dsjob("import", "-", stdin=job).stderr


def test_mpiruns_ranks_a_node_say_how_many_nodes_there_are() -> None:
    spec = line("mpirun -n 128 -npernode 4 -env A=1 -env B 2 python t.py")
    assert (spec["nodes"], spec["slotsPerNode"]) == (32, 4)
    assert [each["name"] for each in spec["template"]["spec"]["containers"][0]["env"]] == ["A", "B"]


@pytest.mark.parametrize(
    ("options", "nodes"),
    [("-n 16 --gpus-per-node=8", 2), ("-n 8 --ntasks-per-node=4", 2), ("-n 4 --gres=gpu:4", 1), ("-n 6", 1)],
)
def test_slurms_tasks_say_how_many_nodes_there_are(tmp_path: Path, options: str, nodes: int) -> None:
    result = batch(tmp_path, f"#!/bin/bash\n#SBATCH {options}\nsrun python t.py\n")
    assert job_of(result)["nodes"] == nodes
    assert ("SLURM chooses" in told(result, "warning")) == (options == "-n 6")


def test_a_step_on_some_of_slurms_nodes_is_a_job_of_these(tmp_path: Path) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=3\n#SBATCH --gpus-per-node=8\nALL=($(scontrol show hostnames $SLURM_NODELIST))\n"
        'srun --nodes=2 --ntasks=2 bash -c "torchrun --nnodes 2 --nproc_per_node 8 t.py --server ${ALL[2]}" &\n'
        "srun --nodes=1 serve &\nwait\n"
    )
    result = batch(tmp_path, script)
    assert job_of(result)["nodes"] == 2
    warnings = told(result, "warning")
    assert "3 nodes were asked for, and the program is started on 2" in warnings
    assert "serve: it ran beside the program" in warnings
    assert "no pod has SLURM" in warnings


LAUNCHER = ["bash", "-c", "sed s/x/y/ /etc/hosts.list > /job/hostfile && deepspeed --hostfile /job/hostfile t.py --a"]
WAITING = ["bash", "-c", "mkdir -p /run/sshd; /usr/sbin/sshd -D"]


def pod(words: list[str], more: str = GPUS) -> str:
    return f"{{spec: {{containers: [{container(words, more)}]}}}}"


def job_sets_job(name: str, replicas: int, words: list[str], more: str = GPUS) -> str:
    template = f"{{spec: {{template: {pod(words, more)}}}}}"
    return f"  - {{name: {name}, replicas: {replicas}, template: {template}}}\n"


HEAD = "metadata: {name: t}\nspec:\n"


@pytest.mark.parametrize(
    ("manifest", "nodes"),
    [
        (pytorch_job(LAUNCHER, ["sleep", "infinity"], 3), 4),
        (
            f"apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\n{HEAD}  leaderWorkerTemplate:\n"
            f"    size: 3\n    leaderTemplate: {pod(LAUNCHER)}\n    workerTemplate: {pod(WAITING)}\n",
            3,
        ),
        (
            f"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n{HEAD}  replicatedJobs:\n"
            + job_sets_job("launcher", 1, LAUNCHER, "resources: {}")
            + job_sets_job("workers", 4, WAITING),
            4,
        ),
        (
            f"apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n{HEAD}  tasks:\n"
            f"  - {{name: master, replicas: 1, template: {pod(LAUNCHER, 'resources: {}')}}}\n"
            f"  - {{name: worker, replicas: 2, template: {pod(WAITING)}}}\n",
            2,
        ),
    ],
)
def test_pods_that_wait_for_ssh_run_what_their_launcher_starts_in_them(manifest: str, nodes: int) -> None:
    result = dsjob("import", "-", stdin=manifest)
    spec = job_of(result)
    assert spec["nodes"] == nodes
    assert spec["training"] == {"script": "t.py", "args": ["--local_rank=$(LOCAL_RANK)", "--a"]}
    trainer = spec["template"]["spec"]["containers"][0]
    assert trainer["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert "command" not in trainer
    assert "these pods waited for ssh" in told(result, "left out")


def test_pods_that_serve_together_are_no_training() -> None:
    manifest = (
        f"apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\n{HEAD}  leaderWorkerTemplate:\n    size: 2\n"
        f"    leaderTemplate: {pod(['sh', '-c', './ray.sh leader; python3 -m vllm.entrypoints.openai.api_server'])}\n"
        f"    workerTemplate: {pod(['sh', '-c', 'bash ./ray.sh worker'])}\n"
    )
    result = dsjob("import", "-", stdin=manifest)
    assert result.exit_code == 1
    assert "it serves, and trains nothing" in told(result, "refused")


def test_an_init_container_that_waits_for_another_controllers_pod_is_told() -> None:
    waiting = "initContainers: [{name: w, image: b, command: [sh, -c, 'until nslookup t-master; do sleep 1; done']}], "
    manifest = indexed_job(["python3", "t.py"], 1).replace("{spec: {", f"{{spec: {{{waiting}")
    assert "init container w: it waits for a host" in told(dsjob("import", "-", stdin=manifest), "warning")


def test_what_is_to_be_filled_in_is_told() -> None:
    more = f"env: [{{name: TOKEN, value: <token>}}, {{name: HOME_OF, value: $(OTHER)}}], {GPUS}"
    manifest = indexed_job(["python3", "t.py", "--model_path", "${MODEL}"], 1, more)
    warnings = told(dsjob("import", "-", stdin=manifest), "warning")
    assert "to be filled in before it is applied: args ${MODEL}, value <token>" in warnings
    assert "on no volume" not in warnings


def test_a_script_that_a_script_writes_is_read(tmp_path: Path) -> None:
    written = "cat > run.sh <<'END'\n#!/bin/bash\ntorchrun --nnodes 2 --nproc_per_node 4 t.py --a $A\nEND\n"
    result = batch(tmp_path, f"#!/bin/bash\n#SBATCH -N 2\n{written}chmod +x run.sh\nA=1\nsrun bash ./run.sh\n")
    spec = job_of(result)
    assert (spec["nodes"], spec["slotsPerNode"]) == (2, 4)
    assert spec["training"] == {"script": "t.py", "args": ["--a", "1"]}


def test_what_ssh_starts_on_each_node_is_one_world() -> None:
    torchrun = "cd /w && torchrun --nnodes 4 --node_rank $n --master_addr a --nproc_per_node 8 /x/t.py"
    spec = line(f'for n in 0 1 2 3; do\n  ssh node$n "{torchrun}" &\ndone\nwait')
    assert (spec["nodes"], spec["slotsPerNode"], spec["training"]) == (4, 8, {"script": "/x/t.py"})
    assert spec["template"]["spec"]["containers"][0]["workingDir"] == "/w"
