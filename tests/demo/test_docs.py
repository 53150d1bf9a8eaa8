"""The documentation keeps up with the code."""

import re
from pathlib import Path

import pytest

from deepspeed_operator.reconcile.conditions import Reason

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained(reason: Reason) -> None:
    assert f"`{reason}`" in (ROOT / "docs/failures.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert not missing


def test_readme_shows_the_quickstart_job() -> None:
    job = (ROOT / "examples/quickstart.yaml").read_text().partition("---\n")[0].partition("\n")[2]
    assert f"```yaml\n{job}```\n" in (ROOT / "README.md").read_text()
