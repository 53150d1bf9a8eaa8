"""dsjob as a program: it starts fast, because it loads little, and it gets on with any terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = {"click", "kopf", "kubernetes", "aiohttp", "asyncio", "prometheus_client", "rich", "hjson"}


def python(code: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    environment.pop("PYDANTIC_DISABLE_PLUGINS", None)
    return subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).split()


def loaded(code: str) -> set[str]:
    return {name.partition(".")[0] for name in python(f"{code}; import sys; print(*sys.modules)")}


def test_the_commands_load_nothing_of_the_controllers() -> None:
    modules = loaded("import deepspeed_operator.cli.validate, deepspeed_operator.cli.migrate")
    assert "pydantic" in modules
    assert not modules & HEAVY


def test_run_needs_pydantic_and_yaml_and_nothing_else() -> None:
    code = (
        "import sys, deepspeed_operator.cli.run, deepspeed_operator.cli.kube_yaml\n"
        "files = {name: str(getattr(module, '__file__', '')) for name, module in sys.modules.items()}\n"
        "print(*{name.partition('.')[0] for name, file in files.items() if 'site-packages' in file})"
    )
    packages = set(python(code))
    of_pydantic = {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
    assert packages - {"_yaml"} == {"pydantic", "yaml", *of_pydantic}


def test_help_loads_no_command() -> None:
    assert "pydantic" not in loaded("from deepspeed_operator.cli.main import main; main([])")


def test_a_configuration_in_json_needs_no_yaml() -> None:
    code = "import sys; from deepspeed_operator.cli.main import main; main(['validate', '/dev/null'])"
    assert not loaded(code) & {"yaml", "_yaml"}


def test_judging_a_job_loads_no_planner() -> None:
    modules = python("import sys, deepspeed_operator.cli.validate, deepspeed_operator.cli.jobs; print(*sys.modules)")
    assert not [name for name in modules if name.startswith("deepspeed_operator.plan")]


@pytest.mark.parametrize(("command", "disabled"), [("validate", "__all__"), ("run", "None")])
def test_pydantic_looks_for_plugins_only_where_the_users_program_may_have_some(command: str, disabled: str) -> None:
    code = (
        "import contextlib, os, sys; from deepspeed_operator.cli.main import main\n"
        f"with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr): main(['{command}', '--help'])\n"
        "print(os.environ.get('PYDANTIC_DISABLE_PLUGINS'))"
    )
    assert python(code) == [disabled]


MAIN = "deepspeed_operator.cli.main"
VALIDATE = f"env PYTHONPATH={ROOT / 'operator'} {sys.executable} -m {MAIN} validate {ROOT / 'examples/article.yaml'}"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)


def test_a_checkout_that_is_not_installed_has_no_version_and_says_so() -> None:
    done = shell(f"env PYTHONPATH={ROOT / 'operator'} {sys.executable} -S -m {MAIN} --version")
    assert (done.returncode, done.stdout) == (0, "of a checkout that is not installed\n")


def test_a_terminal_gets_colours_and_a_pipe_none() -> None:
    assert "\x1b[1;31merror" in shell(f"script -qec '{VALIDATE}' /dev/null").stdout
    assert "\x1b" not in shell(f"NO_COLOR=1 script -qec '{VALIDATE}' /dev/null").stdout
    assert "\x1b" not in shell(VALIDATE).stdout


def test_the_exit_code_is_the_programs() -> None:
    assert shell(VALIDATE).returncode == 1


def test_a_reader_that_leaves_is_no_error() -> None:
    assert shell(f"{VALIDATE} | true").stderr == ""


def test_a_terminal_that_knows_no_signs_gets_their_numbers() -> None:
    result = shell(f"PYTHONIOENCODING=ascii {VALIDATE}")
    assert "32 \\u2260 4 \\xd7 8" in result.stdout
    assert result.stderr == ""


def test_the_version_is_the_packages() -> None:
    assert shell(VALIDATE.partition(" validate")[0] + " --version").stdout.strip().count(".") == 2


def test_a_dumb_terminal_gets_no_colours() -> None:
    assert "\x1b" not in shell(f"TERM=dumb script -qec '{VALIDATE}' /dev/null").stdout


def test_a_narrow_terminal_gets_lines_that_fit_beside_their_marks() -> None:
    shown = shell(f"NO_COLOR=1 COLUMNS=40 script -qec '{VALIDATE}' /dev/null").stdout.splitlines()
    excerpts = [line for line in shown if line[6:9].strip() == "|" or line[7:10] == " | "]
    assert len(excerpts) > 4
    assert max(map(len, excerpts)) <= 40


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (f"{VALIDATE} > /dev/full", 2, "dsjob: [Errno 28] No space left on device\n"),
        (f"{VALIDATE} >&-", 1, ""),
        (f"{VALIDATE.partition(str(ROOT / 'examples'))[0]} - <&- >/dev/null", 2, ""),
    ],
    ids=["a full disk", "no output", "no input"],
)
def test_without_somewhere_to_read_or_write_the_command_still_ends_in_words(
    command: str, code: int, message: str
) -> None:
    result = shell(command)
    assert (result.returncode, result.stderr) == (code, message)
