"""Pods whose user the image does not know, and whose home cannot be written to."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.agent.harness import PRINT_ENVIRONMENT, Gang

Make = Callable[..., Gang]

# As OpenShift runs a pod: a uid without an entry in /etc/passwd.
STRANGER = ("unshare", "--user", "--map-user=1000680000", "--map-group=0", "--")
NOWHERE = "/proc/none"  # cannot be made, whoever one is
NEEDED = """
import getpass, pathlib, tempfile
print("user", getpass.getuser(), flush=True)
(pathlib.Path.home() / ".triton").mkdir()
tempfile.TemporaryFile()
"""


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    if subprocess.run([*STRANGER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine makes no user namespaces")


def test_a_user_id_that_the_image_does_not_know_gets_a_name_and_a_home(gang: Make) -> None:
    ended = gang(script=f"{NEEDED}\n{PRINT_ENVIRONMENT}").start(wrapper=STRANGER, HOME=NOWHERE).end()
    assert ended.code == 0, ended.output
    (given,) = ended.environments
    assert given["LOGNAME"] == given["USER"] == "uid1000680000"
    assert Path(given["HOME"]).parent == Path(given["TMPDIR"])
    assert f"uid 1000680000: HOME={given['HOME']} LOGNAME=uid1000680000 USER=uid1000680000\n" in ended.output


def test_a_home_that_can_be_read_stays_and_caches_go_elsewhere(gang: Make) -> None:
    ended = gang(script=PRINT_ENVIRONMENT).start(wrapper=STRANGER, HOME="/proc", HF_HOME="/models", USER="me").end()
    (given,) = ended.environments
    scratch = str(Path(given["TRITON_CACHE_DIR"]).parents[1])
    assert Path(scratch).parent == Path(given["TMPDIR"])
    expected = {"HOME": "/proc", "HF_HOME": "/models", "USER": "me", "LOGNAME": "me"}
    assert {name: given[name] for name in expected} == expected
    assert given["XDG_CACHE_HOME"] == f"{scratch}/.cache"
    assert "TORCH_HOME" not in given, "it is below XDG_CACHE_HOME"


def test_a_temporary_directory_that_is_none_is_replaced(gang: Make) -> None:
    ended = gang(script=f"{NEEDED}\n{PRINT_ENVIRONMENT}").start(wrapper=STRANGER, HOME=NOWHERE, TMPDIR=NOWHERE).end()
    assert ended.code == 0, ended.output
    (given,) = ended.environments
    shutil.rmtree(given["HOME"])
    assert given["TMPDIR"] == "/tmp"


def test_what_can_be_used_stays(gang: Make, tmp_path: Path) -> None:
    ended = gang(script=PRINT_ENVIRONMENT).start(HOME=str(tmp_path)).end()
    (given,) = ended.environments
    assert given["HOME"] == str(tmp_path)
    assert not given.keys() & {"USER", "LOGNAME", "XDG_CACHE_HOME", "HF_HOME", "TRITON_CACHE_DIR"}
    assert "the container lacks" not in ended.output
