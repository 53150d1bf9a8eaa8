"""The `dsjob` command. A subcommand is loaded when it is called, and nothing is loaded that it does without: an answer
takes as long as its imports.
"""

import argparse
import gc
import io
import signal
import sys
from importlib import import_module
from typing import Final, cast

_COMMANDS: Final = {
    "validate": "Judge DeepSpeedJobs and DeepSpeed configurations as the operator would.",
    "migrate": "Rewrite configurations for a newer DeepSpeed, and say what each change means.",
    "plan": "Say what a step costs in traffic, memory and time, and which change would cost less.",
    "run": "Run a DeepSpeedJob on this machine, without Kubernetes: one agent a node, on loopback.",
}


def main(arguments: list[str]) -> int:
    """Run a command, and return how it ends; a wrong command line ends with SystemExit 2."""
    parser = argparse.ArgumentParser("dsjob", description="Judges, plans and runs DeepSpeed training offline.")
    parser.add_argument("--version", action="store_true", help="show the version and end")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:
            module = import_module(f"deepspeed_operator.cli.{name}")
            module.define(command)
            command.set_defaults(run=module.run)
    parsed = parser.parse_args(arguments)
    if parsed.version:
        print(import_module("importlib.metadata").version("deepspeed-operator"))
        return 0
    if chosen is None:
        parser.print_help()
        return 2
    return parsed.run(parsed)


def entry() -> None:
    """Run as a program."""
    gc.disable()  # it would only look again and again at what imports have made
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `dsjob … | head` ends, without a traceback
    # A terminal without × is no reason to fail.
    cast(io.TextIOWrapper, sys.stdout).reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
