"""`dsjob import`: jobs of other kinds, scripts and command lines become DeepSpeedJobs, or are refused with "
"the reason."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.command import Result, dsjob

GPUS = "resources: {limits: {nvidia.com/gpu: 8}}"


def job_of(result: Result) -> dict[str, Any]:
    """Return the spec of the only DeepSpeedJob that was printed."""
    assert result.stdout, result.stderr
    return yaml.safe_load(result.stdout)["spec"]


def told(result: Result, treatment: str) -> str:
    return "\n".join(line for line in result.stderr.splitlines() if line.strip().startswith(f"{treatment}: "))


def line(command: str, *arguments: str) -> dict[str, Any]:
    result = dsjob("import", "--command", command, *arguments)
    assert result.exit_code == 0, result.stderr
    return job_of(result)


@pytest.mark.parametrize(
    ("command", "world", "training"),
    [
        (
            "deepspeed --num_gpus 4 train.py --deepspeed ds.json",
            (1, 4),
            {"script": "train.py", "args": ["--local_rank=$(LOCAL_RANK)", "--deepspeed", "ds.json"]},
        ),
        ("deepspeed --no_local_rank --include localhost:0,1,3 train.py", (1, 3), {"script": "train.py"}),
        ("deepspeed --no_local_rank --include a@b:0,1 --module pkg.train", (2, None), {"module": "pkg.train"}),
        ("torchrun --nnodes=2 --nproc-per-node 8 --node_rank 0 t.py -x", (2, 8), {"script": "t.py", "args": ["-x"]}),
        ("torchrun --nnodes 1:4 --nproc_per_node=gpu -m pkg.t", (4, None), {"module": "pkg.t"}),
        ("torchrun --no-python ./run --x", (1, None), {"command": ["./run"], "args": ["--x"]}),
        ("python3 -m torch.distributed.run --nproc_per_node=2 t.py", (1, 2), {"script": "t.py"}),
        (
            "python -m torch.distributed.launch --nproc_per_node=2 t.py",
            (1, 2),
            {"script": "t.py", "args": ["--local-rank=$(LOCAL_RANK)"]},
        ),
        (
            "accelerate launch --num_machines 2 --num_processes 16 t.py --bf16",
            (2, 8),
            {"script": "t.py", "args": ["--bf16"]},
        ),
        ("mpirun -np 4 --hostfile h -mca btl ^openib python t.py", (1, 4), {"script": "t.py"}),
        ("/opt/conda/bin/python -u t.py", (1, None), {"script": "t.py", "python": "/opt/conda/bin/python"}),
        ("CUDA_LAUNCH_BLOCKING=1 numactl -N 0 torchrun t.py", (1, None), {"script": "t.py"}),
    ],
)
def test_a_launchers_words_become_the_world_and_the_program(
    command: str, world: tuple[int, int | None], training: dict[str, Any]
) -> None:
    spec = line(command)
    assert (spec["nodes"], spec.get("slotsPerNode")) == world
    assert spec["training"] == training


def test_the_options_of_accelerate_become_the_configuration_that_it_writes() -> None:
    spec = line(
        "accelerate launch --use_deepspeed --zero_stage 3 --offload_optimizer_device cpu --gradient_clipping 1.0 "
        "--gradient_accumulation_steps 4 --mixed_precision bf16 --num_processes 8 t.py"
    )
    assert spec["training"] == {"script": "t.py", "integration": "Accelerate"}
    assert spec["dsConfig"] == {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True},
    }


def test_a_configuration_file_of_accelerate_stays_with_accelerate_which_gets_the_jobs_world() -> None:
    training = line("accelerate launch --config_file a.yaml --num_machines 2 --num_processes 16 --machine_rank 0 t.py")
    assert training["training"]["launcher"] == "None"
    words = training["training"]["command"]
    assert words[words.index("--num_processes") + 1] == "16"
    assert words[words.index("--machine_rank") + 1] == "$(NODE_RANK)"
    assert words[-3:] == ["--config_file", "a.yaml", "t.py"]


def test_what_a_script_does_before_its_program_runs_once_a_pod_and_its_variables_reach_the_arguments() -> None:
    spec = line(
        'set -e\ncd /app && pip install -r r.txt\nexport NCCL_DEBUG=INFO MASTER_ADDR=$(hostname -i)\nMODEL="a b"\n'
        "OUT=/data/$(date +%F)\n"
        'torchrun --nproc_per_node=2 t.py --model "$MODEL" --out $OUT/x --rest $MODEL 2>&1 | tee log\nsleep infinity'
    )
    container = spec["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "NCCL_DEBUG", "value": "INFO"}]
    assert container["command"][:2] == ["/bin/bash", "-c"]
    assert container["command"][2].splitlines() == [
        "set -e",
        "cd /app && pip install -r r.txt",
        "export ARGUMENT_1=$(date +%F)",
        'exec "$@"',
    ]
    args = spec["training"]["args"]
    assert args == ["--model", "a b", "--out", "/data/$(ARGUMENT_1)/x", "--rest", "a", "b"]


def container(words: list[str], more: str = GPUS) -> str:
    return f"{{name: pytorch, image: 'r/i:1', command: {json.dumps(words)}, {more}}}"


def pytorch_job(master: list[str], worker: list[str], workers: int = 1) -> str:
    def role(words: list[str], replicas: int) -> str:
        return f"{{replicas: {replicas}, template: {{spec: {{containers: [{container(words)}]}}}}}}"

    return (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: t}\nspec:\n  pytorchReplicaSpecs:\n"
        f"    Master: {role(master, 1)}\n    Worker: {role(worker, workers)}\n"
    )


def indexed_job(words: list[str], pods: int = 2, more: str = GPUS) -> str:
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: t}}\nspec:\n  parallelism: {pods}\n"
        f"  completionMode: Indexed\n  template: {{spec: {{containers: [{container(words, more)}]}}}}\n"
    )


ACCELERATE = ["accelerate", "launch", "--num_machines", "3", "--machine_rank", "0", "--main_process_ip", "x", "t.py"]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (indexed_job(["torchrun", "--nproc_per_node=8", "t.py"]), "each of the 2 pods trains alone"),
        (indexed_job(["deepspeed", "t.py"]), "each of the 2 pods trains alone"),
        (indexed_job(["python", "t.py"]), "nothing tells them of each other"),
        (pytorch_job(["deepspeed", "t.py"], ["deepspeed", "t.py"]), "each of the 2 pods trains alone"),
        (pytorch_job(["torchrun", "--nnodes=1", "t.py"], ["torchrun", "--nnodes=1", "t.py"]), "trains alone"),
        (indexed_job(ACCELERATE, 3), "each of the 3 pods says that it is node 0"),
        (indexed_job(["sleep", "1"]), "nothing that trains is started"),
        ("#SBATCH -N 2\nsrun accelerate launch --num_machines 2 --machine_rank=0 t.py", "says that it is node 0"),
        ("#SBATCH -N 2\nmodule load x\n", "nothing that trains is started"),
        (indexed_job(["python", "t.py"]).replace("parallelism: 2", "parallelism: $N"), "$N is to be filled in first"),
    ],
)
def test_what_would_train_wrongly_is_refused(manifest: str, words: str) -> None:
    result = dsjob("import", "-", stdin=manifest)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in told(result, "refused")


@pytest.mark.parametrize(
    "manifest",
    [
        pytorch_job(["torchrun", "t.py"], ["torchrun", "t.py"]),  # the operator sets PET_NNODES
        pytorch_job(["python", "t.py"], ["python", "t.py"]),
        pytorch_job(
            ["torchrun", "--nnodes=2", "--node_rank=0", "t.py"], ["torchrun", "--nnodes=2", "--node_rank=1", "t.py"]
        ),
        indexed_job(["python", "t.py"], 2, f"{GPUS}, env: [{{name: WORLD_SIZE, value: '2'}}]"),
        indexed_job(["sh", "-c", "torchrun --nnodes 2 --node_rank $JOB_COMPLETION_INDEX t.py"]),
        indexed_job(["sh", "-c", "if [ $X = 0 ]; then torchrun --nnodes=2 t.py; else torchrun --nnodes=2 t.py; fi"]),
    ],
)
def test_pods_that_form_one_world_stay_one(manifest: str) -> None:
    result = dsjob("import", "-", stdin=manifest)
    assert result.exit_code == 0, result.stderr
    assert job_of(result)["nodes"] == 2
    assert job_of(result)["training"]["script"] == "t.py"


def test_the_user_says_which_world_is_meant() -> None:
    alone = indexed_job(["torchrun", "--nproc_per_node=8", "t.py"])
    for nodes in (1, 2):
        assert job_of(dsjob("import", "-", "--nodes", nodes, stdin=alone))["nodes"] == nodes


def mpi_job(version: str, words: list[str]) -> str:
    return (
        f"apiVersion: kubeflow.org/{version}\nkind: MPIJob\nmetadata: {{name: t}}\nspec:\n  slotsPerWorker: 8\n"
        "  runPolicy: {cleanPodPolicy: All, ttlSecondsAfterFinished: 60, backoffLimit: 2}\n  mpiReplicaSpecs:\n"
        "    Launcher: "
        f"{{template: {{spec: {{containers: [{container(words, 'env: [{name: NCCL_DEBUG, value: INFO}]')}]}}}}}}\n"
        f"    Worker: {{replicas: 2, template: {{spec: {{containers: [{container(['/usr/sbin/sshd', '-D'])}]}}}}}}\n"
    )


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
@pytest.mark.parametrize(
    "words",
    [
        ["deepspeed", "--hostfile=/etc/mpi/hostfile", "--no_local_rank", "t.py"],
        ["mpirun", "-np", "16", "--allow-run-as-root", "-x", "LD_LIBRARY_PATH", "python", "t.py"],
        ["bash", "-c", "sleep 30; mpirun -np 16 -N 8 python t.py"],
    ],
)
def test_an_mpi_jobs_program_runs_in_its_workers_without_mpi(version: str, words: list[str]) -> None:
    result = dsjob("import", "-", stdin=mpi_job(version, words))
    spec = job_of(result)
    assert (spec["nodes"], spec["training"]) == (2, {"script": "t.py"})
    assert "slotsPerNode" not in spec  # the limit of 8 GPUs says it
    assert spec["lifecycle"] == {"ttlSecondsAfterFinished": 60, "cleanPodPolicy": "DeleteAll"}
    assert spec["failurePolicy"] == {"maxRestarts": 2}
    trainer = spec["template"]["spec"]["containers"][0]
    assert "command" not in trainer
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in trainer["env"]
    assert "sshd" in told(result, "left out")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["mpirun", "-np", "2", "/home/mpiuser/pi"], "is an MPI program"),
        (["horovodrun", "-np", "2", "python", "t.py"], "a Horovod program"),
        (["bash", "/opt/train.sh"], "is in the image"),
    ],
)
def test_a_program_of_mpi_itself_is_refused(words: list[str], why: str) -> None:
    assert why in told(dsjob("import", "-", stdin=mpi_job("v2beta1", words)), "refused")


def test_a_checkpoint_on_no_volume_is_warned_of() -> None:
    def warnings(more: str) -> str:
        words = ["torchrun", "--nnodes=2", "t.py", "--output_dir", "/ckpt/x"]
        pods = indexed_job(words, 2, f"{GPUS}{more}")
        return told(dsjob("import", "-", stdin=pods), "warning")

    assert "--output_dir /ckpt/x is on no volume" in warnings("")
    assert "on no volume" not in warnings(", volumeMounts: [{name: a, mountPath: /ckpt}]")


def test_variables_and_fields_that_are_the_operators_are_taken_out() -> None:
    more = (
        f"{GPUS}, env: [{{name: MASTER_ADDR, value: a}}, {{name: WORLD_SIZE, value: '2'}}, {{name: X, value: z}}], "
        "ports: [{containerPort: 29500}], livenessProbe: {tcpSocket: {port: 1}}"
    )
    manifest = indexed_job(["python", "t.py"], 2, more).replace(
        "{spec: {", "{spec: {subdomain: s, restartPolicy: Never, "
    )
    result = dsjob("import", "-", stdin=manifest)
    pod = job_of(result)["template"]["spec"]
    assert list(pod) == ["containers"]
    assert pod["containers"][0]["env"] == [{"name": "X", "value": "z"}]
    assert not {"ports", "livenessProbe"} & set(pod["containers"][0])
    for name in ("MASTER_ADDR", "WORLD_SIZE", "subdomain", "ports", "livenessProbe", "completionMode"):
        assert name in told(result, "left out"), name


def test_a_configuration_and_a_script_of_a_config_map_in_the_files_are_read() -> None:
    mounts = "volumeMounts: [{name: code, mountPath: /code}]"
    maps = (
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: code}\ndata:\n"
        "  run.sh: torchrun --nnodes=2 /code/t.py --deepspeed /code/ds.json\n"
        "  ds.json: '{\"train_micro_batch_size_per_gpu\": 1}'\n"
    )
    manifest = indexed_job(["bash", "/code/run.sh"], 2, f"{GPUS}, {mounts}")
    manifest = manifest.replace("{spec: {", "{spec: {volumes: [{name: code, configMap: {name: code}}], ")
    spec = job_of(dsjob("import", "-", stdin=manifest + maps))
    assert spec["training"] == {"script": "/code/t.py", "args": ["--deepspeed", "$(DEEPSPEED_CONFIG)"]}
    assert spec["dsConfigFrom"] == {"configMap": "code", "key": "ds.json"}


RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch-distributed}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {nodeSelector: {a: b}, containers: [{name: node, image: "r/runtime:1"}]}}}
"""
TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    numNodes: 2
    command: [torchrun, t.py]
    resourcesPerNode: {limits: {nvidia.com/gpu: 4}}
    env: [{name: A, value: b}]
"""


def test_a_train_job_is_joined_with_its_runtime(tmp_path: Path) -> None:
    job, runtime = tmp_path / "job.yaml", tmp_path / "runtime.yaml"
    job.write_text(TRAIN_JOB)
    runtime.write_text(RUNTIME)
    spec = job_of(dsjob("import", job, runtime))
    assert (spec["nodes"], spec["training"]) == (2, {"script": "t.py"})
    assert spec["template"]["spec"]["nodeSelector"] == {"a": "b"}
    trainer = spec["template"]["spec"]["containers"][0]
    assert (trainer["image"], trainer["env"]) == ("r/runtime:1", [{"name": "A", "value": "b"}])
    assert trainer["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    without = dsjob("import", job)
    assert "torch-distributed: a runtime of Kubeflow Trainer that is not among the files" in told(without, "warning")


def test_a_runtime_of_mpi_runs_its_launchers_program_in_its_nodes(tmp_path: Path) -> None:
    job, runtime = tmp_path / "job.yaml", tmp_path / "runtime.yaml"
    node = "{name: node, template: {spec: {template: {spec: {containers: [{name: node, image: r, command: [sshd]}]}}}}}"
    words = "[mpirun, python3, t.py]"
    launcher = node.replace("name: node, t", "name: launcher, t").replace("[sshd]", words)
    runtime.write_text(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\nmetadata: {name: r}\nspec:\n"
        f"  mlPolicy: {{mpi: {{numProcPerNode: 2}}}}\n  template: {{spec: {{replicatedJobs: [{node}, {launcher}]}}}}\n"
    )
    job.write_text(TRAIN_JOB.replace("torch-distributed", "r").replace("    command: [torchrun, t.py]\n", ""))
    spec = job_of(dsjob("import", job, runtime))
    assert (spec["nodes"], spec["slotsPerNode"], spec["training"]) == (2, 2, {"script": "t.py"})


def test_a_resource_step_of_a_workflow_is_imported_with_its_parameters() -> None:
    manifest = indexed_job(["torchrun", "--nnodes=2", "t.py", "--lr", "{{inputs.parameters.lr}}"])
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": "w-"},
        "spec": {
            "entrypoint": "main",
            "templates": [
                {
                    "name": "main",
                    "steps": [
                        [
                            {
                                "name": "a",
                                "template": "train",
                                "arguments": {"parameters": [{"name": "lr", "value": "3"}]},
                            }
                        ]
                    ],
                },
                {
                    "name": "train",
                    "inputs": {"parameters": [{"name": "lr"}]},
                    "resource": {"action": "create", "manifest": manifest},
                },
            ],
        },
    }
    result = dsjob("import", "-", stdin=json.dumps(workflow))
    assert job_of(result)["training"]["args"] == ["--lr", "3"]
    assert "successCondition is status.state == Complete" in told(result, "changed")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: RayJob\napiVersion: ray.io/v1\nmetadata: {name: r}\n", "RayJob r: Ray starts its own workers"),
        ('{"zero_optimization": {"stage": 2}}', "a DeepSpeed configuration"),
        ("compute_environment: LOCAL\ndistributed_type: DEEPSPEED\n", "a configuration of accelerate"),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {{ .Values.name }}\n",
            "a Helm template: render it first",
        ),
        ("import torch\nprint(torch)\n", "a Python program"),
        ("#PBS -l select=2\npython t.py\n", "a PBS script"),
        ("worker-1 slots=8\nworker-2 slots=8\n", "a hostfile"),
        ("apiVersion: deepspeed-operator.dev/v1alpha1\nkind: DeepSpeedJob\nmetadata: {name: d}\n", "already"),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: "
            f"[{container(['python', 't.py'])}]}}}}}}\n",
            "Deployment d: its pods are alike and nameless, so that no rank is one's own: import the command "
            "line of its "
            'container. What it runs: image r/i:1, 8 GPUs, "python t.py"',
        ),
    ],
)
def test_a_file_that_is_no_job_is_named_with_what_is_known_of_it(text: str, words: str) -> None:
    result = dsjob("import", "-", stdin=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_programs_read_what_became_of_each_part() -> None:
    result = dsjob("import", "-", "-o", "json", stdin=mpi_job("v2beta1", ["deepspeed", "t.py"]))
    (job,) = json.loads(result.stdout)["jobs"]
    assert job["manifest"]["kind"] == "DeepSpeedJob"
    assert {remark["treatment"] for remark in job["remarks"]} == {"carried", "changed", "left out"}
    assert job["findings"] == []
