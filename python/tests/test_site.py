"""The documentation: its links lead somewhere, the site has each page, and each verb can be found."""

from __future__ import annotations

import html.parser
import re
import shutil
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, run

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SOURCES = [
    *PAGES,
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
]
LINK = re.compile(r'\]\((?!https?:|mailto:)([^)\s]*)(?:\s+"[^"]*")?\)')


def prose(path: Path) -> str:
    """The text of a page without its code."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text())
    return re.sub(r"`[^`\n]*`", lambda code: "x" * len(code[0]), text)


def anchors(path: Path) -> set[str]:
    """The names of the headings of a page, as mdBook and the hosts of repositories make them."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text())
    found: set[str] = set()
    for heading in re.findall(r"(?m)^#+ (.*)$", text):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        found.add(words.strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        target, _, part = link.partition("#")
        file = (page.parent / urllib.parse.unquote(target)).resolve() if target else page
        is_heading = not part or file.suffix != ".md" or (file.is_file() and part in anchors(file))
        if (target or part) and not (file.exists() and is_heading):
            broken.append(link)
    assert broken == []


def test_the_contents_name_every_page_once() -> None:
    named = [link for link in LINK.findall((DOCS / "SUMMARY.md").read_text()) if link]
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in PAGES if page.name != "SUMMARY.md")


def test_the_page_of_verbs_names_every_verb(binary: str) -> None:
    overview = run(binary, "-h").split("A drive:\n")[1].split("Options:\n")[0]
    verbs = set(re.findall(r"(?m)^  (\w+) ", overview)) - {"help"}
    page = (DOCS / "guide/which-verb.md").read_text()
    assert len(verbs) > 25 and {verb for verb in verbs if not re.search(rf"`{verb}\b", page)} == set()


class Links(html.parser.HTMLParser):
    """The links of a page of the site, and the names within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("href", "src") and value:
                self.links.append(value)
            elif key in ("id", "name") and value:
                self.names.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site."""
    mdbook = shutil.which("mdbook") or shutil.which("mdbook", path=str(Path(sys.executable).parent))
    if mdbook is None:
        pytest.skip("needs mdbook (scripts/python-env installs it)")
    made = tmp_path_factory.mktemp("site")
    run(mdbook, "build", ROOT, "--dest-dir", made)
    return made


def pages(site: Path) -> Iterator[tuple[Path, Links]]:
    # The page for printing has all of the others, with their headings.
    for path in sorted(site.rglob("*.html")):
        if path.name not in ("print.html", "404.html", "toc.html"):
            yield path, Links(path.read_text())


def test_every_link_of_the_site_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    names = {path: links.names for path, links in pages(site)}
    broken = []
    for path, page in pages(site):
        for link in page.links:
            address = urllib.parse.urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(address.path)).resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            place = urllib.parse.unquote(address.fragment)
            if not target.is_file() or (place and target in names and place not in names[target]):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == [] and len(names) > 50


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r'(?:<script[^>]* src|<link[^>]*rel="(?:stylesheet|preload)"[^>]* href|<img[^>]* src)="(https?:[^"]*)"'
    )
    assert {
        path.name: loaded.findall(path.read_text()) for path, _ in pages(site) if loaded.search(path.read_text())
    } == {}
