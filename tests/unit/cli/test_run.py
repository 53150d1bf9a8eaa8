"""`dsjob run`: the same job on one machine. The ranks are plain Python programs here."""

import json
import os
import re
import signal
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import load
from tests.unit.agent.test_first_steps import DEEPSPEED, STAY, TRAIN, installed
from tests.unit.agent.test_transport import REPORT
from tests.unit.cli.runs import NO_GPU, ROOT, TELL, Running, Start, start

__all__ = ["start"]

WAIT = "import os, time; print('waiting as', os.getpid(), flush=True); time.sleep(60)"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_rank_finds_its_place_in_the_world(start: Start) -> None:
    ended = start(TELL, nodes=2, slotsPerNode=2).end()
    assert ended.code == 0, ended.output
    places = {
        rank: [given[name] for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR")]
        for rank, given in ended.ranks.items()
    }
    assert places == {
        0: ["0", "0", "4", "127.0.0.1"],
        1: ["1", "0", "4", "127.0.0.1"],
        2: ["0", "1", "4", "127.0.0.1"],
        3: ["1", "1", "4", "127.0.0.1"],
    }
    assert len({given["MASTER_PORT"] for given in ended.ranks.values()}) == 1
    assert re.search(r"^\[dsjob\] Complete after [\d.]+ s: 4 ranks ended with 0$", ended.output, re.MULTILINE)


def test_the_command_line_may_ask_for_another_world(start: Start) -> None:
    ended = start(TELL, "--nodes", "1", "--slots", "3", nodes=2).end()
    assert {given["WORLD_SIZE"] for given in ended.ranks.values()} == {"3"}


def test_the_ranks_read_the_configuration_and_the_files(start: Start) -> None:
    config = {"train_micro_batch_size_per_gpu": 4}
    program = f"{TELL}\nassert json.load(open(sys.argv[1])) == json.load(open('ds_config.json')) == {config}"
    ended = start(program, dsConfig=config, training={"args": ["$(DEEPSPEED_CONFIG)", "$(RANK)"]}).end()
    assert ended.code == 0, ended.output
    assert ended.ranks[0]["ARGS"] == [ended.ranks[0]["DEEPSPEED_CONFIG"], "0"]


def test_a_configuration_may_be_in_another_document(start: Start, tmp_path: Path) -> None:
    other = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "config"}}
    data = {"ds_config.json": '{"train_micro_batch_size_per_gpu": 4}'}
    (tmp_path / "config.yaml").write_text(json.dumps({**other, "data": data}))
    assert "DEEPSPEED_CONFIG" in start(TELL, "config.yaml", dsConfigFrom={"configMap": "config"}).end().ranks[0]


def test_a_failing_ranks_code_is_ours_and_the_cause_is_named(start: Start) -> None:
    program = (
        f"{TELL}\nif os.environ['RANK'] == '3':\n    print('last words'); sys.exit(7)\nimport time; time.sleep(60)"
    )
    ended = start(program, nodes=2, slotsPerNode=2).end()
    assert ended.code == 7
    assert 's: rank 3 on node 1 exited with code 7: "last words". Correct the cause, then run again.\n' in ended.output
    assert ended.output.endswith("  last words\n")


def test_a_signal_that_kills_a_rank_is_named(start: Start) -> None:
    ended = start("import os; os.abort()").end()
    assert ended.code == 128 + signal.SIGABRT
    assert "rank 0 on node 0 was killed by signal 6 (SIGABRT): Fatal Python error: Aborted" in ended.output


def test_a_rank_that_is_killed_starts_again_and_the_output_says_so(start: Start) -> None:
    program = "import os; os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.kill(os.getpid(), 9)"
    ended = start(program, nodes=2).end()
    assert ended.code == 0, ended.output
    assert re.search(r"round 2 begins: rank \d in pod \S+ was killed by signal 9\b.*; restart 1 of 20", ended.output)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_stops_it_stops_all_ranks_and_lets_them_save(start: Start, number: signal.Signals) -> None:
    save = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))\n"
    running = start(save + WAIT, nodes=2, slotsPerNode=2)
    pids = running.pids(4)
    running.process.send_signal(number)
    ended = running.end()
    assert ended.code == 128 + number
    assert ended.output.count("saved") >= 4
    assert "again" not in ended.output, "who has stopped it knows what to do"
    assert not any(is_alive(pid) for pid in pids)


def test_a_second_signal_waits_for_nobody(start: Start) -> None:
    patient = {"terminationGracePeriodSeconds": 600, "containers": [{"name": "trainer", "resources": NO_GPU}]}
    program = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAIT}"
    running = start(program, nodes=2, template={"spec": patient})
    pids = running.pids(2)
    running.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert running.process.poll() is None, "the ranks have their grace"
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert (ended.code, "again" in ended.output) == (128 + signal.SIGINT, False)
    assert not any(is_alive(pid) for pid in pids)


def test_killed_it_leaves_nothing_behind(start: Start) -> None:
    running = start(WAIT, nodes=2)
    pids = running.pids(2)
    running.process.kill()
    until = time.monotonic() + 60
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_killed_agent_ends_the_others_at_once(start: Start) -> None:
    running = start(WAIT, nodes=2)
    pids = running.pids(2)
    agent = int(Path(f"/proc/{pids[1]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(agent, signal.SIGKILL)
    ended = running.end()
    assert "no sign of life" not in ended.output, "others would miss it after their fence"
    assert ended.code == 128 + signal.SIGKILL
    assert re.search(r"s: the agent of node \d was killed by signal 9", ended.output)
    assert not any(is_alive(pid) for pid in pids)


def test_what_is_set_is_inherited_and_stays(start: Start) -> None:
    trainer = {"env": [{"name": "OF_THE_JOB", "value": "a"}, {"name": "OF_BOTH", "value": "a"}]}
    ours = {"OF_BOTH": "b", "OMP_NUM_THREADS": "3", "MASTER_ADDR": "localhost"}
    ended = start(TELL, trainer=trainer, environment=ours).end()
    expected = {"OF_THE_JOB": "a", **ours}
    assert {name: ended.ranks[0].get(name) for name in expected} == expected


def test_a_rank_of_another_world_is_refused(start: Start) -> None:
    ended = start(TELL, environment={"WORLD_SIZE": "8"}).end()
    assert ended.code == 1
    assert 'WorldMismatch on node 0: WORLD_SIZE is already set to "8"' in ended.output


def test_devices_are_divided_among_the_nodes(start: Start) -> None:
    gpus = {"resources": None}
    ended = start(TELL, nodes=2, slotsPerNode=2, trainer=gpus, environment={"CUDA_VISIBLE_DEVICES": "7,3,1,0"}).end()
    assert {rank: given["CUDA_VISIBLE_DEVICES"] for rank, given in ended.ranks.items()} == {
        0: "7,3",
        1: "7,3",
        2: "1,0",
        3: "1,0",
    }
    few = start(TELL, nodes=2, slotsPerNode=2, trainer=gpus, environment={"CUDA_VISIBLE_DEVICES": "0,1"}).end()
    assert few.code == 1
    assert "need 4 GPUs, and 2 are visible" in few.output
    one = start(TELL, slotsPerNode=2, trainer=gpus, environment={"CUDA_VISIBLE_DEVICES": "5,6"}).end()
    assert one.ranks[1]["CUDA_VISIBLE_DEVICES"] == "5,6"


def test_what_needs_a_cluster_is_said_to_be_ignored(start: Start) -> None:
    trainer = {"env": [{"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]}
    ended = start("", image="registry.example.com/llm:1", sharedMemory="1Gi", trainer=trainer).end()
    assert "ignored, as there is no pod: image, sharedMemory, the trainer's resources" in ended.output
    assert "variables SECRET" in ended.output


def test_variables_of_the_network_hold_but_not_the_pods_interface(start: Start) -> None:
    ended = start(TELL, network={"profile": "TCP", "interface": "eth9", "env": {"NCCL_IB_TC": "106"}}).end()
    assert ended.ranks[0]["NCCL_IB_TC"] == "106"
    assert not [name for name in ended.ranks[0] if name.endswith("SOCKET_IFNAME")]
    assert "network.interface" in ended.output


@pytest.mark.parametrize(("profile", "net"), [("TCP", "Socket"), ("InfiniBand", None)])
def test_a_fabric_between_machines_is_not_looked_for_on_one(start: Start, profile: str, net: str | None) -> None:
    gpus = {"resources": None}
    ended = start(TELL, network={"profile": profile}, trainer=gpus, environment={"CUDA_VISIBLE_DEVICES": "0"}).end()
    assert ended.ranks[0].get("NCCL_NET") == net
    assert ("the settings of network.profile" in ended.output) == (net is None)


@pytest.mark.parametrize("seconds", [0, 3])
def test_it_says_how_the_ranks_are_connected(start: Start, seconds: int) -> None:
    training = {"args": ["2.28-socket", str(seconds)]}
    ended = start(REPORT, training=training, nodes=2, network={"profile": "InfiniBand"}).end()
    assert ended.output.count("[dsjob]   between the nodes: NET/Socket (") == 1
    assert "NCCL 2.28" in ended.output
    assert ended.output.count("warning: spec.network.profile: NCCL reports NET/Socket") == 1


def test_the_documentation_lists_every_variable_that_a_rank_is_given(start: Start) -> None:
    page = (ROOT / "docs/run.md").read_text()
    documented = {
        name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)
    }
    config = {"train_micro_batch_size_per_gpu": 4}
    given = start(TELL, dsConfig=config, model=MODEL, training={"python": sys.executable}).end().ranks[0]
    assert given["PYTHONPATH"].startswith(f"{ROOT / 'operator'}:")
    ours = given.keys() - {"PATH", "TMPDIR", "CWD", "ARGS", "LC_CTYPE"}
    unlisted = {name for name in ours if not any(fnmatchcase(name, each) for each in documented)}
    assert not unlisted
    where_needed = {"HOME", "USER", "LOGNAME", *load("dso_home").CACHES, "CUDA_VISIBLE_DEVICES"}
    assert documented - {"DEEPSPEED_OPERATOR_*", "TMPDIR"} - ours == {*where_needed, "PYTORCH_NVML_BASED_CUDA_CHECK"}


def test_a_directory_keeps_what_was_rendered_and_made(start: Start, tmp_path: Path) -> None:
    program = "open('made', 'a').write('x')"
    for _ in range(2):
        assert start(program, "--dir", "kept", nodes=2).end().code == 0
    assert (tmp_path / "kept/etc/hostfile").read_text() == "127.0.0.1 slots=1\n127.0.0.2 slots=1\n"
    assert json.loads((tmp_path / "kept/etc/launch.json").read_text())["nodes"] == 2
    assert [(tmp_path / f"kept/node-{index}/workspace/made").read_text() for index in range(2)] == ["xx", "xx"]


def test_without_a_directory_nothing_is_kept(start: Start, tmp_path: Path) -> None:
    record = "import json, os; json.dump({'message': 'boom'}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))"
    ended = start(f"{record}\nraise SystemExit(1)").end()
    assert "boom" in ended.output
    assert {path.name for path in tmp_path.iterdir()} == {"job.yaml", "output"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"training": {"files": {"configMap": "other"}}}, "ConfigMap other of spec.training.files is in none"),
        ({"dsConfigFrom": {"configMap": "other"}}, "ConfigMap other of spec.dsConfigFrom is in none"),
    ],
)
def test_what_is_not_in_the_files_cannot_run(start: Start, spec: dict[str, Any], words: str) -> None:
    ended = start(TELL, **spec).end()
    assert (ended.code, ended.ranks) == (2, {})
    assert words in ended.output


def test_a_job_that_the_operator_would_refuse_does_not_start(start: Start) -> None:
    config = {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}
    ended = start(TELL, nodes=2, dsConfig=config).end()
    assert (ended.code, ended.ranks) == (1, {})
    assert "32 ≠ 4 × 8 × 2" in ended.output


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    ended = Running(tmp_path, "none.yaml").end()
    assert (ended.code, "none.yaml: unreadable: No such file or directory" in ended.output) == (2, True)


def test_one_job_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {}\n")
    ended = Running(tmp_path, "none.yaml").end()
    assert (ended.code, "there is no DeepSpeedJob" in ended.output) == (2, True)


CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": 2},
}
MODEL = {
    "parameters": 6_738_415_616,
    "layers": 32,
    "hiddenSize": 4096,
    "heads": 32,
    "vocabulary": 32000,
    "sequenceLength": 2048,
    "activationCheckpointing": False,
}


@pytest.mark.parametrize("stays", [False, True], ids=["in its last words", "while it runs"])
def test_a_job_with_a_model_says_once_what_its_first_steps_took(start: Start, tmp_path: Path, stays: bool) -> None:
    users = installed(tmp_path / "users", deepspeed=DEEPSPEED)
    path = {"PYTHONPATH": f"{ROOT / 'operator'}:{users}"}
    given = {"dsConfig": CONFIG, "model": MODEL, "deepspeedVersion": "0.19.8"}
    said_so = tmp_path / "said-so"
    program = TRAIN + STAY.format(until=str(said_so)) if stays else TRAIN
    running = start(program, environment=path, nodes=1, slotsPerNode=1, **given)
    if stays:
        running.wait_for_output("first steps: ")
        said_so.touch()
    ended = running.end()
    assert ended.code == 0, ended.output
    (said,) = re.findall(
        r"first steps: ([0-9.]+) s a step, network 0 %; nothing is known here of the device", ended.output
    )
    (trained,) = re.findall(r"trained in (\S+)", ended.output)
    assert 0.02 <= float(said) <= round(float(trained) / 15, 2) + 0.01, "of 15 steps of 25"


def test_a_deepspeed_that_is_found_late_is_told_all_the_same(start: Start, tmp_path: Path) -> None:
    """A file system may take longer to list the packages than the ranks to start."""
    listed = STAY.format(until=str(tmp_path / "run")).replace("while", "while 'find_spec' in sys.orig_argv[-1] and")
    slow = f"import sys, time{listed}"
    users = Path(installed(tmp_path / "users", sitecustomize=slow))
    (users / "deepspeed-0.19.8.dist-info").mkdir()
    path = {"PYTHONPATH": f"{ROOT / 'operator'}:{users}"}
    program = "import time\n" + STAY.format(until=str(tmp_path / "over"))
    running = start(program, environment=path, nodes=2, slotsPerNode=1)
    for words, file in (("the ranks run", "run"), ("DeepSpeed 0.19.8\n", "over")):
        running.wait_for_output(words)
        (tmp_path / file).touch()
    ended = running.end()
    assert ended.code == 0, ended.output
    assert ended.output.count("DeepSpeed 0.19.8\n") == 1
    assert ended.output.index("the ranks run") < ended.output.index("DeepSpeed 0.19.8")


def test_out_of_memory_says_what_was_predicted_and_what_would_fit(start: Start) -> None:
    words = "CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 79.11 GiB."
    program = f"class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError({words!r})"
    given = {"dsConfig": CONFIG, "model": MODEL, "deepspeedVersion": "0.19.8"}
    ended = start(program, nodes=1, slotsPerNode=1, **given).end()
    assert ended.code == 1
    (failed,) = [line for line in ended.output.splitlines() if line.startswith("[dsjob] Failed")]
    assert ". Predicted: most memory in the " in failed
    assert "; the smallest change that fits: " in failed
