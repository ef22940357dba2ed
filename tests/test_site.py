"""The site of the documentation: it is built without a warning, has every page, and needs nothing
from elsewhere."""

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import fedmap

ROOT = Path(__file__).parent.parent
# What a browser fetches by itself; a link to click on is none of these.
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A warning ends the build."""
    folder = tmp_path_factory.mktemp("site")
    words = ["build", "--strict", "--site-dir", str(folder)]  # quiet, it would not count
    command = [sys.executable, "-m", "mkdocs", *words]
    known = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=known)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Seen(HTMLParser):
    """What a page fetches, which places it has, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        if found.get(FETCHED.get(tag, "")) and found.get("rel") not in (
            "canonical",
            "next",
            "prev",
        ):
            self.fetched.append(found[FETCHED[tag]])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Seen]:
    return {path: Seen(path.read_text()) for path in sorted(site.rglob("*.html"))}


def test_every_page_of_the_docs_is_there(site: Path) -> None:
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(sources) > 50
    for source in sources:
        name = "index.html" if source.name == "README.md" else f"{source.stem}.html"
        expected = source.name != "reasons.md"  # its parts stand on the pages of the studies
        assert (site / source.parent / name).exists() == expected, source


def test_pages_at_the_root_of_the_project_are_there(site: Path) -> None:
    for name in ("index", "changelog", "contributing"):
        assert (site / f"{name}.html").exists()


def test_a_page_fetches_nothing_from_elsewhere(pages: dict[Path, Seen]) -> None:
    for path, page in pages.items():
        assert page.fetched
        for address in page.fetched:
            assert not re.match(r"(\w+:)?//", address), f"{path.name} fetches {address}"


def test_what_a_page_fetches_is_there(site: Path, pages: dict[Path, Seen]) -> None:
    for path, page in pages.items():
        base = site if path.name == "404.html" else path.parent
        for address in page.fetched:
            if not address.startswith("data:"):
                local = unquote(address.partition("?")[0]).lstrip("/")
                assert (base / local).exists(), f"{path.name} lacks {address}"


def test_style_sheets_fetch_nothing_from_elsewhere(site: Path) -> None:
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        assert not re.search(r"url\(\s*[\"']?(https?:)?//|@import", sheet.read_text()), sheet.name


def test_links_lead_to_pages_and_to_places_on_them(pages: dict[Path, Seen]) -> None:
    for path, page in pages.items():
        for link in page.links:
            if path.name == "404.html" or re.match(r"(\w+:|//|\.$)", link):
                continue
            target, _, place = unquote(link).partition("#")
            to = (path.parent / target).resolve() if target else path
            assert to.exists(), f"{path.name}: {link}"
            if place and to in pages:
                assert place in pages[to].places, f"{path.name}: {link}"


def test_no_code_block_and_no_equation_is_left_as_it_was_written(pages: dict[Path, Seen]) -> None:
    for path in pages:
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
        assert "```" not in text, path.name
        assert "\\(" not in text, path.name


def test_equations_are_drawn_with_their_words(site: Path) -> None:
    text = (site / "methods/fedrs.html").read_text()
    assert text.count('<svg role="img" aria-label=') > 5
    assert 'aria-label="\\alpha \\le 1"' in text


def test_the_reference_has_every_public_name(pages: dict[Path, Seen], site: Path) -> None:
    reference = pages[site / "api.html"]
    missing = {name for name in fedmap.__all__ if f"fedmap.{name}" not in reference.places}
    assert not missing


def test_every_method_is_in_the_navigation(pages: dict[Path, Seen], site: Path) -> None:
    links = set(pages[site / "index.html"].links)
    for page in (ROOT / "docs/methods").glob("*.md"):
        name = "index" if page.name == "README.md" else page.stem
        assert f"methods/{name}.html" in links, page.name


def test_the_pages_fit_a_reader_of_the_citation_file() -> None:
    cited, page = (ROOT / "CITATION.cff").read_text(), (ROOT / "docs/citation.md").read_text()
    for name in re.findall(r"family-names: (.+)", cited):
        assert name in page
    for value in ("2404.09232", "2024", re.findall(r"^version: (.+)", cited, re.M)[0]):
        assert value in page


def test_an_equation_that_cannot_be_drawn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    hooks = importlib.import_module("site_hooks")
    with pytest.raises(Exception, match=r"cannot draw \$a \\nothing b\$"):
        hooks.drawn("span", r"a \nothing b")
