"""The one line of a program's output that tells why it ended: what real programs, launchers and shells print."""

import pytest

from tests.unit.agent.harness import load

words = load("dso_words")

ARGPARSE = """\
usage: train.py [-h] --lr LR [--local_rank LOCAL_RANK]
train.py: error: unrecognized arguments: --foo 1
"""
CLICK = """\
Usage: train.py [OPTIONS]
Try 'train.py --help' for help.

Error: No such option '--lx'. (Did you mean one of: '--help', '--lr'?)
"""
TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    step()
    ~~~~^^
  File "train.py", line 2, in step
    raise ValueError("loss is NaN")
ValueError: loss is NaN
"""
COLOURED = (
    "Traceback (most recent call last):\n"
    '  File \x1b[35m"train.py"\x1b[0m, line \x1b[35m3\x1b[0m, in \x1b[35m<module>\x1b[0m\n'
    "    \x1b[31mstep\x1b[0m\x1b[1;31m()\x1b[0m\n"
    "    \x1b[31m~~~~\x1b[0m\x1b[1;31m^^\x1b[0m\n"
    "\x1b[1;35mKeyError\x1b[0m: \x1b[35m'peer_id'\x1b[0m\n"
)
TORCHRUN = """\
E1016 20:57:38.1 99 elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: 1 (pid: 101)
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/usr/lib/python3/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2024-10-16_20:57:38
  host      : node1
  rank      : 2 (local_rank: 0)
  exitcode  : 1 (pid: 100)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-10-16_20:57:38
  host      : node1
  rank      : 3 (local_rank: 1)
  exitcode  : {code} (pid: 101)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""  # noqa: W291  as it is printed
RECORDED = (
    TORCHRUN.replace("{code}", "1").rpartition("  traceback :")[0]
    + """\
  traceback : Traceback (most recent call last):
    File "/usr/lib/python3/site-packages/torch/errors/__init__.py", line 355, in wrapper
      return f(*args, **kwargs)
  RuntimeError: no data in /data

============================================================
"""
)
OF_TWO_RANKS = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "train.py", line 3, in <module>
[rank3]: ValueError: loss is NaN
[rank2]: Traceback (most recent call last):
[rank2]:   File "train.py", line 9, in <module>
[rank2]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:1234
"""
ACCELERATE = """\
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/accelerate/commands/launch.py", line 785, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' returned non-zero exit status 1.
"""
DEEPSPEED = """\
[2024-01-03 01:00:00,001] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 123
[2024-01-03 01:00:00,002] [ERROR] [launch.py:325:sigkill_handler] ['train.py'] exits with return code = {code}
"""
HYDRA = """\
Error executing job with overrides: []
Traceback (most recent call last):
  File "train.py", line 9, in main
    raise ValueError("loss is NaN")
ValueError: loss is NaN

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
HYDRA_KEY = """\
Could not override 'perferences.trait'.
To append to your config use +perferences.trait=i_like_stars
Key 'perferences' is not in struct
    full_key: perferences
    object_type=dict

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
NCCL = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "train.py", line 3, in <module>
[rank3]: torch.distributed.DistBackendError: NCCL error in: /c10d/NCCL.cpp:1275, internal error, NCCL version 2.14.3
[rank3]: ncclInternalError: Internal check failed.
[rank3]: Last error:
[rank3]: Net : Connection closed by remote peer 10.0.0.7<50260>
"""
RICH = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ train.py:3 in <module>                                                       │
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: loss is NaN
"""


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        (2, ARGPARSE, "train.py: error: unrecognized arguments: --foo 1"),
        (2, ARGPARSE + DEEPSPEED.format(code=2), "train.py: error: unrecognized arguments: --foo 1"),
        (2, CLICK, "Error: No such option '--lx'. (Did you mean one of: '--help', '--lr'?)"),
        (1, "Error: no data in /data\n", "Error: no data in /data"),
        (1, TRACEBACK, "ValueError: loss is NaN"),
        (1, TRACEBACK + DEEPSPEED.format(code=1), "ValueError: loss is NaN"),
        (1, TRACEBACK + ACCELERATE, "ValueError: loss is NaN"),
        (1, COLOURED, "KeyError: 'peer_id'"),
        (1, RICH, "ValueError: loss is NaN"),
        (1, OF_TWO_RANKS + TORCHRUN.format(code=1), "ValueError: loss is NaN"),
        (1, RECORDED, "RuntimeError: no data in /data"),
        (1, TORCHRUN.format(code=7), "by torchrun's report rank 3 failed first and exited with code 7"),
        (1, TORCHRUN.format(code=-11), "by torchrun's report rank 3 failed first and was killed by signal 11"),
        (1, HYDRA, "ValueError: loss is NaN"),
        (1, HYDRA_KEY, "\"Key 'perferences' is not in struct\""),
        (1, "no data in /data\n", '"no data in /data"'),
        (
            1,
            NCCL,
            "torch.distributed.DistBackendError: NCCL error in: /c10d/NCCL.cpp:1275, internal error, NCCL "
            "version 2.14.3: Net : Connection closed by remote peer 10.0.0.7<50260>",
        ),
        (127, "train.sh: line 2: nosuchcmd: command not found\n", "train.sh: line 2: nosuchcmd: command not found"),
        (127, "train.sh: 2: nosuchcmd: not found\n", "train.sh: 2: nosuchcmd: not found"),
        (1, "bash: FOO: unbound variable\n", "bash: FOO: unbound variable"),
        (126, "bash: /opt/a.py: Permission denied\n", "bash: /opt/a.py: Permission denied"),
        (2, "sh: 1: cd: can't cd to /none\n", "sh: 1: cd: can't cd to /none"),
        (
            2,
            "/usr/bin/python3: can't open file '/none.py': [Errno 2] No such file or directory\n",
            "/usr/bin/python3: can't open file '/none.py': [Errno 2] No such file or directory",
        ),
        (4, TRACEBACK + "the loss is bad, giving up\n", '"the loss is bad, giving up"'),
        (7, "50%|#####     |\r100%|##########|\r\nlast words\n\n", '"last words"'),
        (7, "", ""),
    ],
)
def test_the_line_that_tells_why(code: int, output: str, expected: str) -> None:
    assert words.last_words(code, words.legible(output.encode())) == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no more memory\nmore\n"
            "Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n",
            "no more memory",
        ),
        ("terminate called without an active exception\n", "terminate called without an active exception"),
        ("Fatal Python error: Segmentation fault\n\nCurrent thread", "Fatal Python error: Segmentation fault"),
        ("step 1\n", ""),
    ],
)
def test_the_words_of_a_program_that_was_killed(output: str, expected: str) -> None:
    assert words.dying_words(output) == expected


def test_the_rank_that_torchrun_found_to_have_failed_first() -> None:
    assert words.rank_of(OF_TWO_RANKS + TORCHRUN.format(code=1)) == 3
    assert words.rank_of(OF_TWO_RANKS) == 2
    assert words.rank_of(TRACEBACK) is None


def test_the_rank_whose_words_were_found() -> None:
    assert words.rank_of(OF_TWO_RANKS, "ValueError: loss is NaN") == 3
    lost = (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:1234"
    )
    assert words.rank_of(OF_TWO_RANKS + TORCHRUN.format(code=1), lost) == 2
    assert words.rank_of("mpirun noticed that process rank 5 with PID 7 on node n exited on signal 9 (Killed).\n") == 5


@pytest.mark.parametrize("name", ["worker-1: ", "(Actor pid=12, ip=10.0.0.7) ", "[1,3]<stderr>:", "0: ", "box  | "])
def test_the_names_before_lines_that_a_launcher_passes_on(name: str) -> None:
    passed = "".join(f"{name}{line}\n" for line in f"step 1\n{OF_TWO_RANKS}end".splitlines())
    assert words.legible(passed.encode()) == f"step 1\n{OF_TWO_RANKS}end\n"
    assert words.legible(OF_TWO_RANKS.encode()) == OF_TWO_RANKS


def test_a_message_that_rich_breaks_is_whole_again() -> None:
    message = "ZeRORuntimeException: You are using ZeRO-Offload with a client provided"
    output = RICH.replace("ValueError: loss is NaN", f"{message} \noptimizer.") + "\n[INFO] Killing subprocess 12\n"
    assert words.last_words(1, output) == f"{message} optimizer."
    frame = output.partition("\n")[2]  # its head is lost
    assert words.last_words(1, frame) == f"{message} optimizer."


def test_a_log_is_what_a_terminal_would_show_without_colours_and_carets() -> None:
    assert "\x1b" not in words.legible(COLOURED.encode())
    assert words.legible(TRACEBACK.encode()) == TRACEBACK.replace("    ~~~~^^\n", "")
    assert words.legible(b" 10%|#\r 99%|###\r100%|####\nstep=1 \x1b[32mok\x1b[0m\r\n") == "100%|####\nstep=1 ok\n"
    assert words.legible("…".encode()[1:] + b"abc") == "abc"
