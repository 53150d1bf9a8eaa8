"""Console blocks of the documentation, held against what their commands print now. `--update-golden` writes them.

A block marked ```console gpus shows what was recorded on GPUs, which no machine that tests has.
"""

import re
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(?<=^```console\n)\$ .*?(?=^```$)", re.DOTALL | re.MULTILINE)
_SHOWS_OUTPUT = re.compile(r"^```console *(.*)\n(?:\$ .*\n)+(?!\$ |#|```)", re.MULTILINE)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
# What two runs of the same command may print differently.
_VARIES = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:]+Z"  # when
    r"|\b(?:\d+[dhms])+\b|\b\d+\.\d s\b|(?<=step for )\d+ s\b"  # how long
    r"|\bpid \d+|\bport \d+|\bnode\d+\b|/tmp/dsjob-\w+|(?<= on )[-.\w]+(?=: cpu)"  # where
    r"|\bloss 0\.\d+|\bLoss: +[-\d.e]+"  # CPUs round in their own ways
    r"|\b(?:Step|Learning Rate|Samples Per Second|Median|p95): +[-\d.e]+"  # how fast
    r"|\b(?:Productive|Starting|Restarting|Repeated|Saving|Hung|Queued|Suspended|Unobserved|Ettr Percent): +[\d.]+"
    r"|\bPercent: +[\d.]+(?=\n +(?:Reached|Seconds))"  # goodput
)


def hold(page: str, printed: Callable[[str], str], config: pytest.Config, *, varies: bool = False) -> int:
    """Compare each command's output on the page with what it prints now, and return how many commands there were.

    With `varies` words count, but not their order, as several ranks write them, nor times, places, spaces and lines.
    """
    path, commands = ROOT / page, 0
    text = path.read_text()

    def shown_again(found: re.Match[str]) -> str:
        nonlocal commands
        commands += 1
        shown = found[2].rstrip("\n")
        now = re.sub(r" +$", "", printed(found[1]), flags=re.MULTILINE).rstrip("\n")
        same = _words(now) == _words(shown) if varies else now == shown
        end = found[2][len(shown) :] or "\n"
        return found[0] if same else f"$ {found[1]}\n{now}{end}"

    now = _BLOCK.sub(lambda block: _COMMAND.sub(shown_again, block[0]), text)
    if config.getoption("update_golden"):
        path.write_text(now)
    elif now != text:
        pytest.fail("\n".join(unified_diff(text.splitlines(), now.splitlines(), page, "now", lineterm="", n=1)))
    return commands


def marks(page: Path) -> set[str]:
    """Return how the blocks that show output are marked; those of hold() are not."""
    return set(_SHOWS_OUTPUT.findall(page.read_text()))


def _words(text: str) -> list[str]:
    return sorted(_VARIES.sub("…", text).split())
