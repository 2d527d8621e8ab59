"""The site that mkdocs.yml makes of these pages: `./setup.sh docs`.

Its order is that of README.md's lists, so there is no second one. A link that leads out of this folder, to an
experiment or a source, gets a page that shows that file. A notebook is a page with the outputs that are stored in it,
so that nothing is run here.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathspec.gitignore import GitIgnoreSpec

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
SHOWN = "files"
"""Where pages of files from outside are."""
_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]+)(?=[)#])")
_TO_A_PAGE = re.compile(r"\[([^\]]+)\]\(([a-z0-9-]+\.(?:md|ipynb))\)")
_NOTEBOOK = re.compile(r"(?<=\]\()([a-z0-9-]+)\.ipynb(?=[)#])")
_STYLE = re.compile(r"<style.*?</style>\s*", re.DOTALL)
_OWN_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")
_BEGINS = re.compile(r"(- |\d+\. |\|)")
_WITHIN = re.compile(r"(\s*- |\s*\d+\. |\||\s)")
_HEADING = re.compile(r"(?:\*\*|## )([^*:.,(]+)")
_LANGUAGES = {".yaml": "yaml", ".toml": "toml", ".h": "c", ".c": "c", ".py": "python", ".csv": "text", ".def": "c"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The pages in the order in which the index names them, under its headings."""
    index = (ROOT / "docs" / "README.md").read_text()
    parts: list[dict[str, Any]] = []
    named: set[str] = set()
    for paragraph in re.split(r"\n\n+", index):
        heading = _HEADING.match(paragraph)
        found = [page for page in _TO_A_PAGE.findall(paragraph) if page[1] not in named]
        named |= {page for _, page in found}
        if heading and found:
            entries = [
                {_title(page): page.replace(".ipynb", ".md")} for page in dict.fromkeys(page for _, page in found)
            ]
            parts.append({heading[1].strip(): entries})
    config.nav = [{"All of it": "README.md"}, *parts]
    config.not_in_nav = GitIgnoreSpec.from_lines([f"/{SHOWN}/"])
    return config


def _title(page: str) -> str:
    """A page's first heading, short."""
    path = ROOT / "docs" / page
    text = _of_notebook(path) if path.suffix == ".ipynb" else path.read_text()
    first = text.partition("\n")[0].removeprefix("# ")
    return first.partition(":")[0]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages of what is linked to outside, and of notebooks."""
    from mkdocs.structure.files import File

    for path in sorted((ROOT / "docs").glob("*.ipynb")):
        files.append(File.generated(config, f"{path.stem}.md", content=_of_notebook(path)))

    for target in sorted(_outside()):
        path = (ROOT / "docs" / target).resolve()
        if path.is_relative_to(ROOT) and path.exists():
            files.append(File.generated(config, _page_of(target), content=_shown(path)))
    return files


def _of_notebook(path: Path) -> str:
    """Its cells, each with what came out."""
    parts: list[str] = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        parts += [_output(output.get("data") or {"text/plain": output["text"]}) for output in cell.get("outputs", ())]
    return "\n\n".join(parts) + "\n"


def _output(data: dict[str, list[str]]) -> str:
    if "image/png" in data:
        return f'<img alt="picture" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    if "text/html" in data:
        html = _STYLE.sub("", "".join(data["text/html"]))
        html = re.sub(r"^- ", "&#45; ", html, flags=re.MULTILINE)  # of a text as it is: no list of the page
        return f'<div class="output" style="overflow-x: auto">{html}</div>'
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"


def _outside() -> set[str]:
    """What the pages link to beside this folder, and what those of it that are pages link to."""
    found = {link for page in (ROOT / "docs").glob("*.md") for link in _LINK.findall(page.read_text())}
    for page in [target for target in found if target.endswith(".md")]:
        links = _OWN_LINK.findall((ROOT / "docs" / page).resolve().read_text())
        found |= {f"../{link}" for link in links if not link.startswith("docs/")}
    return found


def _page_of(target: str) -> str:
    name = posixpath.normpath(target.removeprefix("../"))
    return f"{SHOWN}/{name}" if name.endswith(".md") else f"{SHOWN}/{name}.md"


def _shown(path: Path) -> str:
    name = path.relative_to(ROOT)
    if path.is_dir():
        return f"# {name}\n\n" + "".join(f"- `{one.name}`\n" for one in sorted(path.iterdir()))
    if path.suffix == ".md":
        return _OWN_LINK.sub(lambda match: _from_outside(match[1]), path.read_text())
    return f"# {name}\n\n```{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}```\n"


def _from_outside(target: str) -> str:
    """A link of a file beside docs/, as its page has it."""
    return (
        f"../{target.removeprefix('docs/')}"
        if target.startswith("docs/")
        else _page_of(target).removeprefix(f"{SHOWN}/")
    )


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links that lead out of the folder lead to those pages; lists and tables begin behind an empty line."""
    if not page.file.src_uri.startswith(f"{SHOWN}/"):
        markdown = _LINK.sub(lambda match: _page_of(match[1]), markdown)
    markdown = _NOTEBOOK.sub(r"\1.md", markdown)
    lines: list[str] = []
    fence = False
    for line in markdown.split("\n"):
        before = lines[-1] if lines else ""
        if not fence and _BEGINS.match(line) and before.strip() and not _WITHIN.match(before):
            lines.append("")
        fence ^= line.lstrip().startswith("```")
        lines.append(line)
    return "\n".join(lines)
