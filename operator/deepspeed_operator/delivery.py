"""The agent as every job's pods get it."""

import io
from base64 import b64encode
from importlib.resources import files
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo


def agent_archive() -> str:
    """Return the agent's modules as a zip archive in base64: the same bytes for the same modules.

    At most 48 KB, of the 1 MiB that a ConfigMap holds beside a hostfile of 10,000 nodes: a third of it reads NCCL's
    report and measures the network, which no image brings along.
    """
    directory = files("deepspeed_operator").joinpath("agent")
    modules = [each for each in directory.iterdir() if each.name.endswith(".py") and each.name != "__init__.py"]
    archive = io.BytesIO()
    with ZipFile(archive, "w") as writing:
        for module in sorted(modules, key=lambda each: each.name):
            # ZipInfo's own date is fixed, so that an immutable ConfigMap never seems to have changed.
            writing.writestr(ZipInfo(module.name), module.read_bytes(), ZIP_DEFLATED)
    return b64encode(archive.getvalue()).decode()
