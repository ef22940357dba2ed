"""What the site needs besides mkdocs.yml, as hooks of MkDocs: pages that stand at the root of the
project, whole folders in the navigation, links that work on a code host too, and equations without
a script from elsewhere."""

import html
import os
import re
from pathlib import Path
from typing import Any

from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.textpath import TextPath
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
AT_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(
    r"(?P<code>^```.*?^```)|(?P<label>!?\[[^\]]*\])\((?P<path>[^)\s#]+)(?P<mark>#[^)\s]+)?\)",
    re.DOTALL | re.MULTILINE,
)
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# What matplotlib does not know, in words that it does.
WORDS = {
    re.compile(r"\\[lr]Vert(?![a-zA-Z])"): r"\\|",
    re.compile(r"\\[dt]frac(?![a-zA-Z])"): r"\\frac",
    re.compile(r"\\(le|ge|ne)(?![a-zA-Z])"): r"\\\1q",
    re.compile(r"\\[bB]igg?[lr]?(?![a-zA-Z])"): "",
}
EM = 100.0  # units of a drawn equation


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Folders of the navigation become their pages."""
    entries = config.nav or []
    config.nav = expanded(entries, Path(config.docs_dir), set(pages_of(entries)))
    return config


def pages_of(entry: Any) -> list[str]:
    """All paths below an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    below = entry.values() if isinstance(entry, dict) else entry
    return [path for one in below for path in pages_of(one)]


def expanded(entries: list[Any], docs: Path, named: set[str]) -> list[Any]:
    """The entries with each folder replaced by its pages, its README first."""
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            found.append(
                {
                    title: expanded(below, docs, named) if isinstance(below, list) else below
                    for title, below in entry.items()
                }
            )
        elif entry.endswith("/"):
            paths = sorted(
                (docs / entry).glob("*.md"), key=lambda p: (p.name != "README.md", p.name)
            )
            inside = [path.relative_to(docs).as_posix() for path in paths]
            found += [path for path in inside if path not in named and "reasons" not in path]
        else:
            found.append(entry)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what stands at the root of the project."""
    for source, page in AT_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead where they lead in the repository."""
    here = page.file.src_uri
    source = {to: name for name, to in AT_ROOT.items()}.get(here, f"docs/{here}")
    known = markdown.replace("```python no-run", "```python")  # a word for tests/test_docs.py
    return LINK.sub(lambda link: relinked(link, source, here), known)


def relinked(link: re.Match[str], source: str, here: str) -> str:
    """A link of the file `source`, as the page `here` needs it. Of a file that is no page, such as
    a module, only the words are left."""
    path = link["path"]
    if link["code"] or "://" in path:
        return link[0]
    target = os.path.normpath(os.path.join(os.path.dirname(source), path))
    if target in AT_ROOT:
        inside = AT_ROOT[target]
    elif target.startswith("docs/"):
        inside = target.removeprefix("docs/")
    else:
        return link["label"][1:-1]
    to = os.path.relpath(inside, os.path.dirname(here) or ".")
    return f"{link['label']}({to}{link['mark'] or ''})"


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Equations are drawn here and now."""
    return EQUATION.sub(lambda found: drawn(found[1], html.unescape(found[2]).strip()), content)


def drawn(kind: str, equation: str) -> str:
    """An equation as a picture that scales with the text, read aloud as its TeX."""
    text = f"${' '.join(equation.split())}$"
    for unknown, known in WORDS.items():
        text = unknown.sub(known, text)
    font = FontProperties(math_fontfamily="cm", size=EM)
    try:
        width, height, depth, *_ = MathTextParser("path").parse(text, 72, font)
    except ValueError as wrong:
        raise PluginError(f"matplotlib cannot draw ${equation}$: {wrong}") from None
    path = " ".join(svg_path(TextPath((0, 0), text, prop=font)))
    return (
        f'<{kind} class="arithmatex"><svg role="img" aria-label="{html.escape(equation)}" '
        f'viewBox="0 {-height:.0f} {width:.0f} {height + depth:.0f}" '
        f'style="width:{width / EM:.2f}em;height:{(height + depth) / EM:.2f}em;'
        f'vertical-align:{-depth / EM:.2f}em"><path d="{path}"/></svg></{kind}>'
    )


def svg_path(path: TextPath) -> list[str]:
    """A path of matplotlib in SVG's letters; y grows downwards there."""
    letters = {path.MOVETO: "M", path.LINETO: "L", path.CURVE3: "Q", path.CURVE4: "C"}
    found = []
    for points, code in path.iter_segments(simplify=False, curves=True):
        if code == path.CLOSEPOLY:
            found.append("Z")
        elif code in letters:
            pairs = [f"{x:.1f} {-y:.1f}" for x, y in points.reshape(-1, 2)]
            found.append(letters[code] + " ".join(pairs))
    return found
