"""What the documentation site is made of: the repository's own pages, its notebook, and a reference of public names.

Pages keep the paths that they have in the repository, so that a link between two of them works everywhere.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PICTURES = (".png", ".svg")
FETCHED = re.compile(r"""<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//""")


def on_config(config: MkDocsConfig) -> None:
    """Pages that are made when the site is built join the navigation."""
    config.nav = json.loads(json.dumps(config.nav).replace(".ipynb", ".md"))
    config.nav.append({"Reference": [{title: uri} for title, uri, _ in _reference()]})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's own files stay; the pages are the repository's."""
    named = (ROOT / uri for uri in re.findall(r'"([^"]+\.md)"', json.dumps(config.nav)))
    pages = {path for path in (*named, *(ROOT / "docs").rglob("*")) if path.is_file()}
    found = Files([file for file in files if file.src_dir != config.docs_dir])
    for uri in sorted(path.relative_to(ROOT).as_posix() for path in pages):
        if uri.endswith((".md", *PICTURES)):
            found.append(File(uri, str(ROOT), config.site_dir, config.use_directory_urls))
        elif uri.endswith(".ipynb"):
            found.append(File.generated(config, _as_page(uri), content=_notebook(ROOT / uri)))
    for _, uri, content in _reference():
        found.append(File.generated(config, uri, content=content))
    return found


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to a notebook lead to its page; those to a folder of the repository are its name only."""

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        uri = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
        if (ROOT / uri).is_dir():
            return text
        return f"[{text}]({_as_page(target)})"

    return re.sub(r"\[([^\]]*)\]\(((?!https?:|#)[^)]+)\)", link, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Reading the documentation tells nobody that one does."""
    if found := FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri}: the page fetches something from elsewhere: {found.group()}...")


def _as_page(uri: str) -> str:
    return uri.removesuffix(".ipynb") + ".md" if uri.endswith(".ipynb") else uri


def _notebook(file: Path) -> str:
    cells = json.loads(file.read_text())["cells"]
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n\n".join(f"```python\n{text}\n```" if kind == "code" else text for kind, text in texts)


def _reference() -> Iterator[tuple[str, str, str]]:
    """Title, path and text of each page of the API reference: one per package that public names come from."""
    collegium = griffe.load("collegium", search_paths=[ROOT / "src"])
    packages: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module, name in {*_public_names(collegium), *_public_names(collegium["core"])}:
        packages[module.split(".")[1]][module].add(name)
    for package, modules in sorted(packages.items()):
        source = "collegium.core" if package == "core" else "collegium"
        parts = [f"# {package.capitalize()}", f"Import these names from `{source}`."]
        parts += [_entry(module, sorted(names)) for module, names in sorted(modules.items())]
        yield package.capitalize(), f"reference/{package}.md", "\n\n".join(parts)


def _public_names(package: griffe.Module) -> Iterator[tuple[str, str]]:
    """What the package gives out but defines elsewhere in Collegium: defining module and name."""
    for member in package.members.values():
        if member.is_alias and member.target_path.startswith("collegium."):
            module, _, name = member.target_path.rpartition(".")
            yield module, name


def _entry(module: str, names: list[str]) -> str:
    options = {"heading": module, "heading_level": 2, "members": names}
    return f"::: {module}\n    options: {json.dumps(options)}"
