"""dsjob as one file, as a plugin of kubectl, and what krew is told of it."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.dsjob import archive
from dev.dsjob.krew import PROGRAM, Platform, here, manifest, write_archive

ROOT = Path(__file__).parents[2]
URL = "https://example.com/releases"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("delivery") / "dsjob.pyz"
    archive.write(path)
    return path


def run(program: Path, *arguments: object, cache: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run it with an interpreter that sees no packages but its own."""
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(cache), **more}
    command = [sys.executable, "-I", "-S", str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def cache(program: Path) -> Path:
    return program.parent / "cache"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--version",), "0.1.0"),
        (("validate", ROOT / "examples/quickstart.yaml"), "no findings"),
        (("plan", ROOT / "examples/llama-7b.yaml"), "61.9 of 80.0 GiB"),
        (("import", "--command", "deepspeed --num_gpus 8 train.py"), "kind: DeepSpeedJob"),
        (("run", "--help"), "usage: dsjob run"),
        (("watch", "--help"), "usage: dsjob watch"),
    ],
    ids=["version", "validate", "plan", "import", "run", "watch"],
)
def test_the_file_has_all_that_the_commands_need(
    arguments: tuple[object, ...], words: str, program: Path, cache: Path
) -> None:
    done = run(program, *arguments, cache=cache)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


def test_it_draws_without_what_rich_highlights_with(program: Path, cache: Path) -> None:
    kubectl = program.parent / "kubectl"
    kubectl.write_text("#!/bin/sh\necho '{\"items\": []}'\n")
    kubectl.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    terminal = f"script -qec 'timeout -s INT 20 {sys.executable} -I -S {program} top --interval 0.1' /dev/null"
    environment = {"PATH": path, "XDG_CACHE_HOME": str(cache), "TERM": "xterm"}
    with subprocess.Popen(["bash", "-c", terminal], stdout=subprocess.PIPE, env=environment, text=True) as drawing:
        assert drawing.stdout is not None
        assert any("RESTARTS" in line or "RST" in line for line in drawing.stdout)
        drawing.terminate()


def test_it_unpacks_itself_once(program: Path, cache: Path) -> None:
    run(program, "--version", cache=cache)
    [home] = (cache / "dsjob").iterdir()
    assert (home / "deepspeed_operator").is_dir()
    assert run(program, "--version", cache=cache).returncode == 0
    assert list((cache / "dsjob").iterdir()) == [home]


def test_where_it_cannot_unpack_itself_it_says_what_to_do(program: Path) -> None:
    done = run(program, "--version", cache=Path("/proc/nowhere"))
    assert done.returncode == 1
    assert done.stderr.startswith("dsjob: cannot unpack itself (set XDG_CACHE_HOME")


def test_under_the_plugins_name_it_is_a_program(program: Path, cache: Path) -> None:
    plugin = program.with_name(PROGRAM)
    plugin.symlink_to(program)
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([plugin, "--version"], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "0.1.0\n"


def test_the_same_content_is_the_same_file(program: Path, tmp_path: Path) -> None:
    archive.write(tmp_path / "again.pyz")
    assert (tmp_path / "again.pyz").read_bytes() == program.read_bytes()


@pytest.fixture
def told(program: Path, tmp_path: Path) -> tuple[dict[str, Any], Path]:
    packed = tmp_path / "kubectl-dsj.tar.gz"
    write_archive(program, packed)
    made = manifest("0.1.0", "https://example.com", {here(): (f"{URL}/{packed.name}", packed)})
    return yaml.safe_load(yaml.safe_dump(made)), packed  # pyright: ignore[reportUnknownMemberType]


def test_krew_finds_in_the_archive_what_the_manifest_names(told: tuple[dict[str, Any], Path]) -> None:
    made, packed = told
    [platform] = made["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert platform["uri"] == f"{URL}/{packed.name}"
    with tarfile.open(packed) as archived:
        modes = {entry.name: entry.mode for entry in archived}
    assert modes == {platform["bin"]: 0o755, "LICENSE": 0o644}


def test_the_manifest_holds_krews_rules(told: tuple[dict[str, Any], Path]) -> None:
    """Those of its validation and of its index's style guide."""
    made, _ = told
    assert (made["apiVersion"], made["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[a-z\d]+(-[a-z\d]+)*", made["metadata"]["name"])
    spec = made["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    assert "\n" not in spec["shortDescription"]
    assert all(len(line) <= 80 for field in ("description", "caveats") for line in spec[field].splitlines())
    for platform in spec["platforms"]:
        assert set(platform["selector"]["matchLabels"]) == {"os", "arch"}
        assert re.fullmatch(r"[0-9a-f]{64}", platform["sha256"])
        assert platform["uri"].endswith(".tar.gz")
    assert here() in {Platform(os, arch) for os in ("linux", "darwin") for arch in ("amd64", "arm64")}
