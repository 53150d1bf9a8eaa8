"""What `dsjob import` makes of the shell's ways to compose a command: appending, arguments, conditions, arrays."""

from pathlib import Path

import pytest

from tests.unit.cli.command import dsjob
from tests.unit.cli.test_import import indexed_job, job_of, line, told
from tests.unit.cli.test_import_scripts import START, batch, entrypoint


def arguments(script: str) -> list[str]:
    """Return what the program of this script is given."""
    return line(script)["training"].get("args", [])


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ('ARGS=(--a 1)\nARGS+=(--b 2)\nARGS+=("--c 3")', '"${ARGS[@]}"'),
        ('ARGS="--a 1"\nARGS+=" --b 2"\nARGS+=" --c\\ 3"', "$ARGS"),
        ("ARGS+=(--a 1)\ndeclare ARGS+=(--b 2)", '"${ARGS[@]}"'),
    ],
)
def test_what_a_script_appends_is_added(before: str, words: str) -> None:
    assert arguments(f"{before}\n{START} {words}")[:4] == ["--a", "1", "--b", "2"]


def test_what_a_batch_script_appends_to_a_variable_that_it_exports_is_added(tmp_path: Path) -> None:
    script = '#!/bin/bash\n#SBATCH -N 1\nexport FLAGS=a\nexport FLAGS+=,b\nS=--x\nS+=" 1"\n'
    spec = job_of(batch(tmp_path, f"{script}{START} $S"))
    assert spec["training"]["args"] == ["--x", "1"]
    assert {"name": "FLAGS", "value": "a,b"} in spec["template"]["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("words", ['"$@"', "$@", '"${@}"', "$*"])
def test_a_scripts_arguments_are_words_of_their_own(words: str) -> None:
    def given(own: list[str]) -> object:
        container = ["bash", "-c", f"{START} {words}", *own]
        return job_of(dsjob("import", "-", stdin=indexed_job(container, 1)))["training"].get("args")

    assert given(["sh", "--a", "--b"]) == ["--a", "--b"]
    assert given(["sh"]) is given([]) is None


def test_the_first_argument_of_a_script_is_not_the_script() -> None:
    written = f"cat > /w/run.sh <<'END'\n{START} --lr $1 --out $2\nEND\n"
    assert arguments(f"{written}bash /w/run.sh 1e-4 /out") == ["--lr", "1e-4", "--out", "/out"]
    eval_ = ["bash", "-c", f'eval "{START} --lr $1"', "sh", "3"]
    assert job_of(dsjob("import", "-", stdin=indexed_job(eval_, 1)))["training"]["args"] == ["--lr", "3"]


@pytest.mark.parametrize("test", ['[[ "$DEBUG" == 1 ]] &&', '[ "$DEBUG" != 1 ] ||', "! grep -q x /f &&"])
def test_an_assignment_behind_a_test_is_made_where_the_test_lets_it(test: str) -> None:
    result = dsjob("import", "--command", f'X=--a\n{test} X="--a --debug"\n{START} $X')
    assert job_of(result)["training"]["args"] == ["--a"]
    assert "X: a condition of the script decides it" in told(result, "warning")
    unset = f'{test} MORE="--debug"\nwget x\n{START} --more $MORE'
    assert arguments(unset) == ["--more", "$(MORE)"]
    assert entrypoint(unset) == f'{test} MORE="--debug"\nwget x\nexport MORE="${{MORE-}}"'
    assert "MORE: a condition decides it, and it is one argument" in told(
        dsjob("import", "--command", unset), "warning"
    )


@pytest.mark.parametrize("test", ['[ -z "$X" ] && X=1', '[ -n "$X" ] || X=1', '[[ -z "$X" ]] && export X=1'])
def test_a_test_that_gives_a_default_gives_it(test: str) -> None:
    spec = line(f"X=\n{test}\n{START} --x $X")
    assert spec["training"]["args"] == ["--x", "1"]


def test_what_only_has_to_succeed_before_an_assignment_decides_nothing() -> None:
    assert arguments(f"mkdir -p /w && cd /w && X=1 && {START} --x $X") == ["--x", "1"]


def test_no_test_stays_joined_to_what_comes_behind_what_it_was_for() -> None:
    assert entrypoint(f'[ -d /x ] && echo there && echo here\n[ "$A" ] || export B=1\nwget x\n{START}') == (
        '[ "$A" ] || export B=1\nwget x'
    )


def test_a_program_behind_env_trains() -> None:
    assert line(f"env X=1 {START} --a")["training"] == {"script": "t.py", "args": ["--a"]}
    assert entrypoint(f"env X=1 wget y\n{START}") == "env X=1 wget y"


def test_what_began_beside_the_script_has_ended_where_the_script_waits_for_it() -> None:
    assert entrypoint(f"wget a &\nwget b &\nwait\n{START}") == "wget a &\nwget b &\nwait"
    assert entrypoint(f"wget a\nwait\n{START}") == "wget a"


@pytest.mark.parametrize(
    ("before", "word", "needed"),
    [
        ("NGPU=$(nvidia-smi -L | wc -l)\nEACH=4", "$((EACH * NGPU))", ["EACH=4", "NGPU=$(nvidia-smi -L | wc -l)"]),
        ("X=$(cat /n)", "${#X}", ["X=$(cat /n)"]),
        ("Y=$(cat /n)\nX=Y", "${!X}", ["X=Y"]),
    ],
)
def test_what_the_kept_shell_asks_for_in_any_way_is_assigned_there(before: str, word: str, needed: list[str]) -> None:
    kept = entrypoint(f"{before}\n{START} --x {word}").splitlines()
    assert set(needed) < set(kept)
    assert kept[-1] == f"export ARGUMENT_1={word}"


@pytest.mark.parametrize("filled", ["mapfile -t MORE < /list", 'IFS=, read -ra MORE <<< "$LIST"', ""])
def test_an_array_that_nobody_knows_is_told(filled: str) -> None:
    result = dsjob("import", "--command", f'{filled}\n{START} "${{MORE[@]}}"')
    assert "args" not in job_of(result)["training"]
    assert "MORE: an array that nothing in the file says" in told(result, "warning")


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("A=(--a 1)\nif [ $X = big ]; then A+=(--b); fi", ["--a", "1"]),
        ("A=(--a 1)\n[ $X = big ] && A=(--b)", ["--a", "1"]),
        ("if [ $X = big ]; then A=(--a); else A=(--b); fi", ["--a"]),
    ],
)
def test_an_array_that_a_condition_decides_is_told(before: str, words: list[str]) -> None:
    result = dsjob("import", "--command", f'{before}\n{START} "${{A[@]}}"')
    assert job_of(result)["training"]["args"] == words
    assert f"A: a condition of the script decides it; here it is {' '.join(words)}" in told(result, "warning")


def test_words_that_a_variable_brings_with_it_are_there_with_it() -> None:
    assert arguments(f"X='/a b'\n{START} ${{X:+--resume \"$X\" --r}} --z") == ["--resume", "/a b", "--r", "--z"]
    assert arguments(f"X=/a\n{START} ${{X:+--resume $X}} --z") == ["--resume", "/a", "--z"]
    for before in ("X=", "Y=1"):
        assert arguments(f"{before}\n{START} ${{X:+--resume $X}} --z") == ["--z"]


def test_a_default_does_not_hide_what_a_condition_sets() -> None:
    script = f'if [ "$A" ]; then EXTRA=--x; fi\n{START} ${{EXTRA:-}} ${{EXTRA:---z}}'
    result = dsjob("import", "--command", script)
    assert job_of(result)["training"]["args"] == ["--z"]
    assert "EXTRA: a condition of the script decides it; here it is its default" in told(result, "warning")


@pytest.mark.parametrize(
    ("request_", "gpus"),
    [
        ("--gres=gpu:a100", 1),
        ("--gres=gpu:a100:8", 8),
        ("--gres=gpu:8", 8),
        ("--gres=nvme:2,gpu:h100:4(S:0-1)", 4),
        ("--gres=gpu:a100:2,gpu:l40s:2,tmp:100G", 4),
        ("--gpus-per-node=h100:8", 8),
        ("--gres=gpu", 1),
    ],
)
def test_slurms_gpus_are_counted_whatever_their_kind_is_named(tmp_path: Path, request_: str, gpus: int) -> None:
    spec = job_of(batch(tmp_path, f"#!/bin/bash\n#SBATCH -N 1 {request_}\n{START}\n"))
    assert spec["template"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": gpus}


INNER = "export NCCL_ALGO=Ring; cd /work/app; pip install x; LR=3"


@pytest.mark.parametrize(
    "script",
    [
        f'main() {{ {INNER}; {START} --lr $LR; }}; main "$@"',
        f"function main {{\n  {INNER}\n  {START} --lr $LR\n}}\nmain 2>&1 | tee log",
        f"({INNER}; {START} --lr $LR)",
        f"{{ {INNER}; {START} --lr $LR; }} > log",
        f'launch() {{\n{START} --lr $LR\n}}\nmain() {{\n{INNER}\nlaunch\n}}\nmain "$@"',
    ],
)
def test_what_stands_in_a_function_beside_the_program_runs_as_elsewhere(script: str) -> None:
    spec = line(script)
    assert spec["training"] == {"script": "t.py", "args": ["--lr", "3"]}
    assert spec["template"]["spec"]["containers"][0]["env"] == [{"name": "NCCL_ALGO", "value": "Ring"}]
    assert entrypoint(script) == "cd /work/app\npip install x"


def test_what_stands_in_a_loop_beside_the_program_is_told() -> None:
    script = f"for s in 1 2; do\n  export A=$s\n  pip install x\n  [ -d /x ] && echo\n  {START} --seed $s\ndone"
    left_out = told(dsjob("import", "--command", script), "left out")
    assert "export A=$s: it stands in the loop" in left_out
    assert "pip install x: it stands in the loop" in left_out
    assert left_out.count("it stands in") == 2


@pytest.mark.parametrize(
    "decides", ["case $MODEL in\n7b) LR=1e-4;;\n*) LR=3;;\nesac", "if [ $M = b ]; then LR=3; fi", "[ $M = b ] && LR=3"]
)
def test_what_a_batch_scripts_condition_decides_and_nobody_knows_is_told(tmp_path: Path, decides: str) -> None:
    result = batch(tmp_path, f"#!/bin/bash\n#SBATCH -N 1\n{decides}\nexport OUT=$LR\n{START} --lr $LR\n")
    assert "LR: a condition that is left out decides it, so that it is empty here" in told(result, "warning")


def test_the_script_that_is_run_knows_where_it_lies() -> None:
    kept = 'cd "$(dirname "$0")"; wget "$(dirname "${BASH_SOURCE[0]}")/x" | awk \'{print $0}\''
    written = f"cat > /w/run.sh <<'END'\n{kept}\n{START}\nEND\n"
    assert 'cd "$(dirname "/w/run.sh")"\nwget "$(dirname "/w/run.sh")/x" | awk \'{print $0}\'' in entrypoint(
        f"{written}bash /w/run.sh"
    )
    assert "$0, BASH_SOURCE: where the script lies" in told(dsjob("import", "--command", f"{kept}\n{START}"), "warning")


def test_quotes_of_a_here_document_and_apostrophes_of_comments_are_what_they_are_to_a_shell() -> None:
    script = f'cat > /w/run.sh <<END\n{START} --json "{{\\"a\\": 1}}" --b "c d"\nEND\nbash /w/run.sh'
    assert arguments(script) == ["--json", '{"a": 1}', "--b", "c d"]
    assert arguments(f'ARGS=(\n  --a 1 # don\'t\n  --b 2\n)\n{START} "${{ARGS[@]}}"') == ["--a", "1", "--b", "2"]


def test_a_function_is_given_the_arguments_of_its_call() -> None:
    body = f"wget x | awk '{{print $1}}'\n{START} --lr $1 --out \"${{2:-/o}}\" --n ${{3:-4}}"
    script = f"train() {{\n{body}\n}}\ntrain 1e-4 /out"
    assert arguments(script) == ["--lr", "1e-4", "--out", "/out", "--n", "4"]
    assert entrypoint(script) == "wget x | awk '{print $1}'"
