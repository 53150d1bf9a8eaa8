"""The agent's modules, which every job's pods get."""

from importlib.resources import files


def agent_files() -> dict[str, str]:
    """Return the text of each module by its file name."""
    directory = files("deepspeed_operator").joinpath("agent")
    modules = (each for each in directory.iterdir() if each.name.endswith(".py"))
    return {each.name: each.read_text(encoding="utf-8") for each in sorted(modules, key=lambda each: each.name)}
