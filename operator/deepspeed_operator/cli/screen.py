"""A terminal that is drawn again and again, until whoever looks has seen enough."""

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from types import FrameType
from typing import NoReturn

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from deepspeed_operator.cli.kubectl import ClusterError, GoneError

_TERMINATED = 128 + signal.SIGTERM


def can_draw() -> bool:
    """Whether standard output is a terminal on which a cursor can be moved."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def follow(look: Callable[[Console], RenderableType], seconds: float) -> int:
    """Draw what `look` returns every so many seconds until Ctrl-C, and leave the last of it on the terminal.

    A cluster that cannot be reached is told below what was seen last; only where nothing was seen yet it is raised,
    and so is GoneError where what is looked at is not there any more.
    """
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, _end)  # else the terminal would be left as it is drawn on
    shown = look(console)
    try:
        with Live(shown, console=console, screen=True, auto_refresh=False) as live:
            lost: datetime | None = None
            while True:
                time.sleep(seconds)
                try:
                    shown, lost = look(console), None
                    live.update(shown, refresh=True)
                except GoneError:
                    raise
                except ClusterError as error:
                    lost = lost or datetime.now()
                    live.update(Group(_trouble(error, lost), shown), refresh=True)
    except GoneError:
        console.print(shown)
        raise
    except KeyboardInterrupt:
        console.print(shown)
        return 0


def _trouble(error: ClusterError, since: datetime) -> Text:
    words = str(error).splitlines()[-1]
    text = f"No answer since {since:%H:%M:%S}, trying again: {words}"
    return Text(text, style="yellow", no_wrap=True, overflow="ellipsis")


def _end(_: int, __: FrameType | None) -> NoReturn:
    sys.exit(_TERMINATED)
