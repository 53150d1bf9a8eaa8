"""The pages make a site in which every link leads somewhere."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

ROOT = Path(__file__).parents[2]


class Links(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.found += [value for name, value in attrs if name == "href" and value]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--quiet", "--site-dir", directory]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_every_link_of_every_page_leads_somewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for link in Links(page).found if page.name != "404.html" else []:
            target = urlsplit(urljoin(f"https://site/{page.relative_to(site)}", link))
            if target.netloc == "site":
                path = site / target.path.lstrip("/")
                assert (path / "index.html" if path.is_dir() else path).is_file(), f"{page}: {link}"


def test_what_pages_link_to_outside_docs_is_on_the_site(site: Path) -> None:
    assert (site / "examples/quickstart.yaml").read_text() == (ROOT / "examples/quickstart.yaml").read_text()
    assert "first-job/" in Links(site / "index.html").found, "the README is the home page"
