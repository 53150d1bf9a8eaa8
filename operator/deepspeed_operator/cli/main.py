"""The `dsjob` command. Its subcommands are loaded when they are called."""

from importlib import import_module
from typing import Final

import click

_COMMANDS: Final = {
    "validate": "Judge DeepSpeedJobs and DeepSpeed configurations.",
    "migrate": "Rewrite a configuration for a newer DeepSpeed.",
}


class _Commands(click.Group):  # its methods' arguments are click's to choose
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        return import_module(f"deepspeed_operator.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="deepspeed-operator", message="%(version)s")
def main() -> None:
    """Judge and rewrite DeepSpeedJobs and DeepSpeed configurations, without a cluster."""


if __name__ == "__main__":
    main()
