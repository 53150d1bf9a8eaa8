"""The `dsjob` command. A subcommand is loaded when it is called, and nothing is loaded that it does without: an answer
takes as long as its imports.
"""

import argparse
import gc
import io
import os
import signal
import sys
from importlib import import_module
from typing import Final, cast

CANNOT: Final = 2  # the exit code of every command that cannot read or write what it should

_COMMANDS: Final = {
    "init": "Write a first DeepSpeedJob, with the stage and the micro batch that fit and are the fastest.",
    "validate": "Judge DeepSpeedJobs and DeepSpeed configurations as the operator would.",
    "migrate": "Rewrite configurations for a newer DeepSpeed, and say what each change means.",
    "plan": "Say what a step costs in traffic, memory and time, and which change would cost less.",
    "import": "Convert jobs of other kinds, batch scripts and command lines into DeepSpeedJobs.",
    "run": "Run a DeepSpeedJob on this machine, without Kubernetes: one agent a node, on loopback.",
    "wait": "Wait until a DeepSpeedJob of a cluster has come to its end, and end as it did.",
    "top": "Show all DeepSpeedJobs of a namespace or cluster: how far they are, and when they will be done.",
    "watch": "Show one DeepSpeedJob of a cluster as it runs: progress, loss, ranks, events and last lines.",
    "why": "Say where a DeepSpeedJob of a cluster is, why, and what happened before.",
    "logs": "Print the logs of all ranks of a DeepSpeedJob of a cluster, through its restarts.",
    "debug": "Say where every thread of every rank of a DeepSpeedJob of a cluster is.",
    "suspend": "Stop a DeepSpeedJob of a cluster for now: it saves, and gives its GPUs back.",
    "resume": "Let a suspended DeepSpeedJob of a cluster go on.",
    "rerun": "Run a DeepSpeedJob of a cluster again.",
}


def main(arguments: list[str]) -> int:
    """Run a command, and return how it ends; a wrong command line ends with SystemExit 2."""
    parser = argparse.ArgumentParser("dsjob", description="Judges, plans, runs and follows DeepSpeed training.")
    parser.add_argument("--version", action="store_true", help="show the version and end")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:
            if name != "run":  # the ranks that it starts may want their pydantic's plugins
                os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it looks through all packages
            # `import` is a word of Python's own.
            module = import_module(f"deepspeed_operator.cli.{'importing' if name == 'import' else name}")
            module.define(command)
            command.set_defaults(run=module.run)
    parsed = parser.parse_args(arguments)
    if parsed.version:
        packages = import_module("importlib.metadata")
        try:
            print(packages.version("deepspeed-operator"))
        except packages.PackageNotFoundError:
            print("of a checkout that is not installed")
        return 0
    if chosen is None:
        parser.print_help()
        return 2
    return parsed.run(parsed)


def entry() -> None:
    """Run as a program."""
    gc.disable()  # it would only look again and again at what imports have made
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `dsjob … | head` ends, without a traceback
    if sys.stdout is None:  # closed by who called: the exit code is still an answer
        sys.stdout = io.TextIOWrapper(io.BytesIO())
    # A terminal without × is no reason to fail.
    cast(io.TextIOWrapper, sys.stdout).reconfigure(errors="backslashreplace")
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:  # of writing: what cannot be read is told by the commands
        print(f"dsjob: {error}", file=sys.stderr)
        code = CANNOT
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    os._exit(code)  # nothing is left to do, and an interpreter takes long to take itself apart


if __name__ == "__main__":
    entry()
