"""Makes a site of docs/ and of the pages beside it: a hook of mkdocs, named in mkdocs.yml."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Pages that stand outside docs/, where people and forges look for them.
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}

_LINK = re.compile(r"\[((?:[^][]|\[[^][]*\])*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add those pages, and every other file of the repository that a page links to."""
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    for page in files.documentation_pages():
        for _, link, _ in _LINK.findall(page.content_string):
            path = _in_repository(page, link)
            if (ROOT / path).is_file() and _on_site(path) == path and path not in files.src_uris:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between places of the repository into links between places of the site."""

    def on_site(link: re.Match[str]) -> str:
        path = _in_repository(page.file, link[2])
        if (ROOT / path).is_dir():
            return link[1]
        target = posixpath.relpath(_on_site(path), posixpath.dirname(page.file.src_uri))
        return f"[{link[1]}]({target}{link[3] or ''})"

    return _LINK.sub(on_site, markdown)


def _in_repository(page: File, link: str) -> str:
    """Return the path that a page links to, from the repository's root."""
    outside = {target: source for source, target in OUTSIDE.items()}
    source = outside.get(page.src_uri) or f"docs/{page.src_uri}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _on_site(path: str) -> str:
    return OUTSIDE.get(path) or path.removeprefix("docs/")
