"""A gang that trains: what its ranks are given, and what the operator reads of it."""

import ast
import base64
import hashlib
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from deepspeed_operator.delivery import agent_archive, without_words
from deepspeed_operator.job.installation import AGENT_ROOM
from tests.unit.agent.harness import AGENT, CONFIG, NO_RESTARTS, PRINT_ENVIRONMENT, TOKEN, Gang, interpreters

Make = Callable[..., Gang]


@pytest.mark.parametrize("python", interpreters())
def test_two_pods_train_on_every_python_from_3_8(gang: Make, python: str) -> None:
    ended = gang(nodes=2, python=python).run()
    assert [each.code for each in ended] == [0, 0]
    assert "trained\n" in ended[0].output
    assert "[rank 1] trained\n" in ended[1].output


def test_success_leaves_only_the_short_message(gang: Make) -> None:
    (ended,) = gang().run()
    done = {"protocol": 3, "reason": "Completed", "round": 1, "deepspeed": None}
    assert ended.cause == {**done, "stepped": None, "rounds": NO_RESTARTS}
    assert b"\n" not in ended.message


def test_each_rank_has_its_place_in_the_world(gang: Make) -> None:
    made = gang(nodes=2, slots=2, script=PRINT_ENVIRONMENT)
    ended = made.run()
    ranks = {env["RANK"]: env for each in ended for env in each.environments}
    assert sorted(ranks) == ["0", "1", "2", "3"]
    last = ranks["3"]
    assert {name: last[name] for name in WORLD} == WORLD
    assert last["MASTER_ADDR"] == made.hosts[0]
    assert last["DEEPSPEED_CONFIG"] == str(made.directory / "etc/ds_config.json")
    assert int(last["OMP_NUM_THREADS"]) >= 1
    assert ranks["2"]["TORCHELASTIC_ERROR_FILE"] != last["TORCHELASTIC_ERROR_FILE"]
    assert not {"NNODES", "NPROC_PER_NODE", "PET_NNODES", "ACCELERATE_USE_DEEPSPEED"} & set(last)


def test_the_networks_variables_yield_to_what_the_container_has(gang: Make) -> None:
    variables = {"NCCL_NET": "IB", "NCCL_IB_TC": "41", "NCCL_DEBUG": "INFO"}
    (ended,) = gang(script=PRINT_ENVIRONMENT, launch={"environment": variables}).run(NCCL_NET="Socket", NCCL_DEBUG="")
    (env,) = ended.environments
    assert {name: env[name] for name in variables} == {"NCCL_NET": "Socket", "NCCL_IB_TC": "41", "NCCL_DEBUG": ""}


@pytest.mark.parametrize(("own", "whole"), [(None, "/gib:/nvidia"), ("/torch:/nvidia", "/gib:/nvidia:/torch")])
def test_the_networks_libraries_come_before_the_images(gang: Make, own: str | None, whole: str) -> None:
    given = {} if own is None else {"LD_LIBRARY_PATH": own}
    (ended,) = gang(script=PRINT_ENVIRONMENT, launch={"libraryPath": ["/gib", "/nvidia"]}).run(**given)
    assert ended.environments[0]["LD_LIBRARY_PATH"] == whole


WORLD = {
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "LOCAL_SIZE": "2",
    "GROUP_RANK": "1",
    "NODE_RANK": "1",
    "CROSS_RANK": "1",
    "CROSS_SIZE": "2",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "pretrain-1",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
}


def test_a_variable_that_is_already_set_wins_and_is_named(gang: Make) -> None:
    (ended,) = gang(script=PRINT_ENVIRONMENT).run(MASTER_PORT="4711", OMP_NUM_THREADS="3", CUDA_VISIBLE_DEVICES="MIG-x")
    (env,) = ended.environments
    assert (env["MASTER_PORT"], env["OMP_NUM_THREADS"], env["CUDA_VISIBLE_DEVICES"]) == ("4711", "3", "MIG-x")
    assert 'MASTER_PORT is already set to "4711" in the container and kept' in ended.output


@pytest.mark.parametrize(
    ("integration", "variables"),
    [
        ("Accelerate", ["ACCELERATE_USE_DEEPSPEED", "ACCELERATE_DEEPSPEED_CONFIG_FILE"]),
        ("Lightning", ["PL_DEEPSPEED_CONFIG_PATH"]),
    ],
)
def test_an_integration_is_told_where_the_configuration_is(gang: Make, integration: str, variables: list[str]) -> None:
    (ended,) = gang(script=PRINT_ENVIRONMENT, launch={"integration": integration}).run()
    (env,) = ended.environments
    assert [env[name] for name in variables][-1] == env["DEEPSPEED_CONFIG"]
    assert not [name for name in env if name.startswith("ACCELERATE_") and name not in variables]


def test_no_configuration_no_variable(gang: Make) -> None:
    (ended,) = gang(script=PRINT_ENVIRONMENT, config=None).run()
    assert "DEEPSPEED_CONFIG" not in ended.environments[0]


def test_arguments_expand_by_the_rules_of_kubernetes(gang: Make) -> None:
    arguments = ["--rank=$(RANK)", "$$(RANK)", "$(NO_SUCH_NAME)", "$HOME", "a$(WORLD_SIZE)b$(NODE_RANK)", "$(", "$$"]
    made = gang(script="import json, sys; print(json.dumps(sys.argv[1:]))", launch={"args": arguments})
    (ended,) = made.run()
    assert '["--rank=0", "$(RANK)", "$(NO_SUCH_NAME)", "$HOME", "a1b0", "$(", "$"]' in ended.output


def test_a_module_and_a_command_run_like_a_script(gang: Make) -> None:
    (module,) = gang(launch={"program": {"kind": "module", "value": ["train"]}}).run()
    assert "trained" in module.output
    command = {"kind": "command", "value": ["sh", "-c", "echo rank $RANK of $0"]}
    made = gang(slots=2, launch={"program": command, "args": ["$(WORLD_SIZE)"], "python": "no-python"})
    (ended,) = made.run()
    assert "rank 0 of 2\n" in ended.output
    assert "[rank 1] rank 1 of 2\n" in ended.output


def mount(directory: Path, files: dict[str, str]) -> None:
    """Files as a ConfigMap volume shows them: links into ..data."""
    data = directory / "files" / "..2026"
    data.mkdir(parents=True)
    (directory / "files" / "..data").symlink_to("..2026")
    for name, text in files.items():
        (data / name).write_text(text)
        (directory / "files" / name).symlink_to(f"..data/{name}")


def test_user_files_are_copied_beside_the_configuration_into_a_writable_directory(gang: Make) -> None:
    script = "import helper, json, os; open('checkpoint', 'w'); print(os.getcwd(), json.load(open('ds_config.json')))"
    made = gang(launch={"files": True, "program": {"kind": "script", "value": ["job.py"]}})
    mount(made.directory, {"job.py": script, "helper.py": "", "ds_config.json": "{}"})
    (ended,) = made.run()
    assert ended.code == 0, ended.output
    assert f"/workspace {CONFIG}" in ended.output
    assert "ds_config.json differs from the job's configuration: replaced by the job's" in ended.output


def test_state_and_readiness_over_http(gang: Make) -> None:
    made = gang(nodes=2, script="import time; time.sleep(60)", launch={"deepspeedVersion": "0.19.8"})
    first = made.start(0)
    first.wait_for(lambda: first.ask("/livez") == 200)
    first.wait_for(lambda: first.get("/state")[1]["hosts"]["registered"] == 1)
    status, state = first.get("/state")
    assert (status, state["phase"], state["ranks"]) == (200, "Waiting", [])
    assert (state["hosts"]["expected"], state["missing"]) == (2, [made.hosts[1]])
    second = made.start(1)
    second.wait_until_ready()
    first.wait_until_ready()
    state = second.get("/state")[1]
    assert (state["phase"], state["job"], state["attempt"]) == ("Running", "pretrain", 1)
    assert state["uidDigest"] == hashlib.sha256(b"job-uid").hexdigest()
    assert state["index"] == 1
    assert [(rank["rank"], rank["exitCode"]) for rank in state["ranks"]] == [(1, None)]
    assert first.ask("/nothing") == 404
    first.signal(signal.SIGTERM)
    first.wait_for(lambda: first.ask("/readyz") != 200)


def test_a_probe_waits_until_the_ranks_run_and_does_not_fail(gang: Make) -> None:
    made = gang(nodes=2, script="import time; time.sleep(60)")
    first = made.start(0)
    first.wait_for(lambda: first.ask("/livez") == 200)
    with ThreadPoolExecutor() as pool, closing(HTTPConnection(first.host, made.port, timeout=60)) as probe:
        probe.request("GET", "/readyz")
        gone = [socket.create_connection((first.host, made.port)) for _ in range(14)]
        for each in gone:
            each.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
            each.close()
        answer = pool.submit(probe.getresponse)
        assert first.get("/state")[1]["phase"] == "Waiting"
        assert not answer.done()
        made.start(1)
        assert answer.result(60).status == 200


def test_probes_that_wait_are_bounded(gang: Make) -> None:
    first = gang(nodes=2).start(0)
    first.wait_for(lambda: first.ask("/livez") == 200)
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_connection((first.host, first.gang.port))) for _ in range(17)]
        for each in probes:
            each.settimeout(10)
            each.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
            first.wait_for(lambda: first.ask("/livez") == 200)
        assert probes[0].recv(1) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"POST /heartbeat HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /heartbeat HTTP/1.1\r\nAuthorization: Bearer %s\r\nContent-Length: 60000\r\n\r\n" % TOKEN.encode()
        + b"[" * 60000,
    ],
)
def test_nothing_that_is_sent_ends_the_agents_http(gang: Make, sent: bytes) -> None:
    made = gang(script="import time; time.sleep(60)")
    running = made.start()
    running.wait_until_ready()
    with socket.create_connection((running.host, made.port), timeout=30) as stranger:
        stranger.sendall(sent)
        assert stranger.recv(100).startswith(b"HTTP/1.1 400 ")
    assert running.ask("/readyz") == 200


def package(directory: Path, name: str, files: dict[str, str]) -> str:
    """A package directory for PYTHONPATH; returns the path."""
    root = directory / "packages"
    for file, text in files.items():
        path = root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_the_installed_deepspeed_is_reported_and_compared(gang: Make, tmp_path: Path) -> None:
    path = package(tmp_path, "deepspeed-0.18.9.dist-info", {"METADATA": ""})
    script = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    made = gang(script=script, launch={"deepspeedVersion": "0.19.8"})
    running = made.start(PYTHONPATH=path)
    running.wait_for(lambda: running.ask("/readyz") == 200 and running.get("/state")[1]["deepspeed"] is not None)
    warning = "DeepSpeed 0.18.9 is installed; spec.deepspeedVersion says 0.19.8"
    assert warning in running.get("/state")[1]["warnings"]
    (made.code / "go").touch()
    assert running.end().cause["deepspeed"] == "0.18.9"


def test_user_modules_cannot_stand_in_for_the_agents_and_the_ranks_still_see_them(gang: Make, tmp_path: Path) -> None:
    names = ["queue.py", "json.py", "socket.py"]
    path = package(tmp_path, "", dict.fromkeys(names, "print('the user module')"))
    (ended,) = gang(script="import queue, sys; print(sys.path)").run(PYTHONPATH=path)
    assert ended.code == 0, ended.output
    assert ended.output.count("the user module") == 1
    assert str(AGENT) not in ended.output


def test_a_gang_ends_together_when_rank_0_is_first(gang: Make) -> None:
    made = gang(nodes=3, script="import os, time; time.sleep(float(os.environ['RANK'])); print('done')")
    ended = made.run()
    assert [each.code for each in ended] == [0, 0, 0]
    assert [each.cause["reason"] for each in ended] == ["Completed"] * 3


def test_a_gang_ends_together_when_rank_0_is_last(gang: Make) -> None:
    made = gang(nodes=3, script="import os, time; time.sleep(2 - float(os.environ['RANK']))")
    assert [each.code for each in made.run()] == [0, 0, 0]


def test_what_is_delivered_is_the_same_program_on_the_same_lines() -> None:
    for path in AGENT.glob("dso_*.py"):
        source, delivered = path.read_text(), without_words(path.read_text())
        assert statements(delivered) == statements(source), path.name
        assert len(delivered.splitlines()) <= len(source.splitlines())


def statements(source: str) -> list[tuple[int, str]]:
    """All statements with their lines, but for docstrings and what stands where only a docstring was."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    simple = [node for node in found if not hasattr(node, "body") and not isinstance(node, ast.Pass)]
    texts = [node for node in simple if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    return [(node.lineno, ast.dump(node)) for node in texts]


def test_it_runs_as_it_is_delivered_in_one_file_of_bounded_size(gang: Make, tmp_path: Path) -> None:
    delivered = agent_archive()
    archive = base64.b64decode(delivered)
    assert len(archive) <= AGENT_ROOM
    path = tmp_path / "agent"
    path.write_bytes(archive)
    (ended,) = gang(agent=path).run()
    assert ended.code == 0, ended.output
