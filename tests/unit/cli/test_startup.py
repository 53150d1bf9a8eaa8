"""dsjob starts fast: it loads nothing that only the operator needs."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEAVY = {"kopf", "kubernetes", "aiohttp", "asyncio", "prometheus_client", "rich", "hjson"}


def loaded(code: str) -> set[str]:
    code = f"{code}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    return set(subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).split())


def test_the_commands_load_nothing_of_the_controllers() -> None:
    modules = loaded("import deepspeed_operator.cli.validate, deepspeed_operator.cli.migrate")
    assert "pydantic" in modules
    assert not modules & HEAVY


def test_help_loads_no_command() -> None:
    assert "pydantic" not in loaded("import deepspeed_operator.cli.main")
