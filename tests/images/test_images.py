import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.cluster import Cluster
from dev.cluster.processes import CommandError
from dev.images import bases, images, pruning, registry
from dev.images.buildah import buildah, container
from dev.images.commands import run
from tests.consoles import ROOT, hold
from tests.e2e.kube import eventually

PYTHON = "/opt/deepspeed-operator/bin/python"
EVERY_MODULE = """
import importlib, pkgutil, deepspeed_operator
for module in pkgutil.walk_packages(deepspeed_operator.__path__, "deepspeed_operator."):
    if ".agent" not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        print(module.name)
"""
STEPS = Path(__file__).parent / "steps.py"
# Of what `dsjob run` prints, without findings and DeepSpeed's own lines.
SHOWN = re.compile(r"\[dsjob\] |\[deepspeed-operator\] rank |(\[rank \d\] )?rank \d")


class Opened:
    """An image opened for looking into it and for running programs in it."""

    def __init__(self, container: str) -> None:
        self.container = container
        self.root = Path(buildah("mount", container))
        self.config: dict[str, Any] = json.loads(buildah("inspect", container))["OCIv1"]["config"]

    def run(self, command: str, *options: str) -> str:
        isolated = ("run", "--isolation=chroot", "--network=host", *options)
        return buildah(*isolated, self.container, "--", "sh", "-c", command)

    def has(self, program: str) -> bool:
        found = self.run(f"command -v {program} || true")
        return bool(found)


def opened(name: str) -> Generator[Opened]:
    with container(images.local(name)) as opened:
        yield Opened(opened)


@pytest.fixture(scope="module")
def operator() -> Generator[Opened]:
    yield from opened("operator")


@pytest.fixture(scope="module")
def worker() -> Generator[Opened]:
    yield from opened("worker")


def test_the_operator_runs_as_nobody_in_particular_and_on_a_read_only_root(operator: Opened) -> None:
    assert operator.config["User"] == "65532:65532"
    assert operator.config["Entrypoint"] == ["deepspeed-operator"]
    root = operator.root
    read_only = f"mount --bind {root} {root} && mount -o remount,bind,ro {root}"
    as_it_runs = f"chroot --userspec=65532:65532 {root} {PYTHON} -c '{EVERY_MODULE}'"
    imported = run(["unshare", "--mount", "sh", "-c", f"{read_only} && {as_it_runs}"])
    assert "deepspeed_operator.api" in imported.split()


def test_the_operator_starts_without_compiling(operator: Opened) -> None:
    package = next(operator.root.glob("opt/deepspeed-operator/lib/python3.*/site-packages"))
    sources = list(package.glob("deepspeed_operator/**/*.py")) + list(package.glob("kopf/**/*.py"))
    assert len(sources) > 100
    for source in sources:
        (bytecode,) = source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc")
        # Bit 0: checked by hash, not by time, which a copy may change; bit 1 unset: not even by hash.
        assert bytecode.read_bytes()[4:8] == b"\1\0\0\0", source


def test_the_operator_has_the_locked_dependencies_and_nothing_of_training(operator: Opened) -> None:
    metadata = next(operator.root.glob("opt/deepspeed-operator/lib/python3.*/site-packages"))
    installed = {path.name.partition("-")[0].lower() for path in metadata.glob("*.dist-info")}
    assert {"kopf", "kubernetes", "pydantic", "deepspeed_operator"} <= installed
    assert not installed & {"deepspeed", "torch", "numpy", "pytest", "pip", "setuptools"}
    assert not operator.has("pip3")


def test_the_worker_trains_without_a_compiler(worker: Opened) -> None:
    assert worker.config["User"] == "1000"
    assert not any(worker.has(compiler) for compiler in ("cc", "c++", "gcc", "g++", "clang", "nvcc", "as"))
    mounted = ("--volume", f"{STEPS}:/steps.py:ro")
    alone = worker.run(
        "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29871 python3 /steps.py", *mounted
    )
    assert len(re.findall(r"\.so$", alone, re.MULTILINE)) == 6
    assert re.findall(r"stepped (\w+)", alone) == ["FusedAdam", "DeepSpeedCPUAdam"]
    both = worker.run(
        "export WORLD_SIZE=2 LOCAL_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29872\n"
        "RANK=1 LOCAL_RANK=1 python3 /steps.py >/dev/null & RANK=0 LOCAL_RANK=0 python3 /steps.py && wait $!",
        *mounted,
    )
    assert re.findall("stepped.*", both) == re.findall("stepped.*", alone)


def test_torchrun_starts_ranks_in_the_worker_without_being_told_to_do_without_libuv(worker: Opened) -> None:
    # One word each, since unbuffered ranks write between each other's. A group that is left open may abort at the end.
    told = "print('ranks' + str(all.get_world_size())); all.destroy_process_group()"
    program = f"import torch.distributed as all; all.init_process_group('gloo'); {told}"
    torchrun = "torchrun --nproc-per-node 2 --master-port 29873 /tmp/ranks.py"
    both = worker.run(f'unset USE_LIBUV; echo "{program}" > /tmp/ranks.py && {torchrun}')
    assert re.findall(r"ranks(\d)", both) == ["2", "2"]


def test_the_worker_keeps_nothing_of_the_machine_that_built_it(worker: Opened) -> None:
    assert not any(path.read_bytes() for path in (worker.root / "run" / "secrets").glob("*"))
    assert not (worker.root / "etc" / "pip.conf").exists()
    assert not any((worker.root / "root" / ".cache").glob("*"))


def test_dsjob_run_prints_in_the_worker_what_its_page_shows(worker: Opened, pytestconfig: pytest.Config) -> None:
    def printed(command: str) -> str:
        assert command.startswith("dsjob ")
        program = "PYTHONPATH=operator PYTHONDONTWRITEBYTECODE=1 python3 -m deepspeed_operator.cli.main"
        line = f"cd /checkout && {program} {command.removeprefix('dsjob ')} || true"
        said, mark, log = worker.run(line, f"--volume={ROOT}:/checkout:ro").partition("The last lines of ")
        return "\n".join([*filter(SHOWN.match, said.splitlines()), *(mark + log).splitlines()])

    assert hold("docs/run.md", printed, pytestconfig, varies=True) == 2


def test_the_example_of_checkpoints_goes_on_from_the_last_one(worker: Opened, tmp_path: Path) -> None:
    volumes = (f"--volume={ROOT}:/checkout:ro", f"--volume={tmp_path}:/data")
    tmp_path.chmod(0o777)
    program = "PYTHONPATH=operator PYTHONDONTWRITEBYTECODE=1 python3 -m deepspeed_operator.cli.main"
    first, second = (worker.run(f"cd /checkout && {program} run examples/resume.yaml", *volumes) for _ in range(2))
    assert "no checkpoint yet: starting at step 0" in first
    assert re.findall(r"^step (\d+) loss [\d.]+ saved", first, re.MULTILINE) == ["10", "20", "30", "40", "50", "60"]
    assert "going on from step 60, /data/checkpoints/global_step60" in second


def test_the_hugging_face_libraries_work_with_the_workers_pytorch() -> None:
    with container(images.local("worker-huggingface")) as hf:
        said = Opened(hf).run(
            "python3 -c 'from transformers import Trainer; import accelerate; print(Trainer.__name__)'"
        )
    assert said.splitlines()[-1] == "Trainer"


def test_other_images_have_python_only_or_not_even_that() -> None:
    for name, python in (("plain-python", True), ("no-python", False)):
        with container(images.local(name)) as image:
            assert Opened(image).has("python3") == python
    with container(images.local("plain-python")) as image, pytest.raises(CommandError, match="No module named"):
        Opened(image).run("python3 -c 'import torch'")


def test_an_image_that_is_there_is_not_built_again(worker: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    assert images.local("worker") == images.local("worker")
    assert "build" not in capsys.readouterr().err


def test_only_the_newest_images_are_kept(cluster: Cluster) -> None:
    repository, base = "pruned", bases.NO_PYTHON.make()
    registry.ensure_running()

    def left() -> list[list[str]]:
        local = buildah("images", "--format={{.Tag}}", f"--filter=reference=localhost/{repository}").split()
        names = cluster.exec_on_node(cluster.nodes[0], ["ctr", "--namespace=k8s.io", "images", "ls", "--quiet"]).split()
        pulled = [name.rpartition(":")[2] for name in names if f"/{repository}:" in name]
        return [sorted(tags) for tags in (local, registry.tags(repository), pulled)]

    try:
        for tag in "abcde":
            image = f"localhost/{repository}:{tag}"
            with container(base) as name:
                buildah("config", f"--label=tag={tag}", name)
                buildah("commit", "--quiet", name, image)
            registry.push(image, repository, tag)
            cluster.load_image(f"{repository}:{tag}")
        assert left() == [list("abcde")] * 3

        def pruned() -> bool:
            pruning.prune(repository)
            return left() == [list("cde")] * 3

        # What was built stays while anything is being built, such as a DeepSpeed version that a test needs.
        eventually(pruned, lambda: f"the newest three are left: {left()}", 300)
        assert registry.has(repository, "e")
        assert not registry.has(repository, "a")
    finally:
        registry.keep(repository, ())
        for tag in "abcde":
            buildah("rmi", f"localhost/{repository}:{tag}", check=False)
        cluster.keep_images(repository, ())
