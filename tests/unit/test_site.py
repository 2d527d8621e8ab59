"""The documentation as a site: every page is in it, every link leads somewhere, nothing is fetched from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocs", reason="mkdocs, of the dev packages, is not installed")


def test_the_site_is_whole(tmp_path: Path) -> None:
    """--strict: a page outside of the index, or a link or anchor that leads nowhere, ends the build."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pages = {page.stem for end in ("md", "ipynb") for page in (ROOT / "docs").glob(f"*.{end}")} - {"README"} | {
        "index",
        "404",
    }
    assert {page.stem for page in (tmp_path / "site").glob("*.html")} == pages
    text = (tmp_path / "site" / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?:https?:)?//(?!squidfunk|www\.mkdocs)[^"]*"', text)
    assert "Networks and congestion" in text and "<li>" in text


def test_lists_and_tables_begin_behind_an_empty_line() -> None:
    spec = spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
    assert spec and spec.loader
    ours = module_from_spec(spec)
    spec.loader.exec_module(ours)

    class Page:
        class file:
            src_uri = "a.md"

    made = ours.on_page_markdown("Text:\n- a\n- b\n\n```\nx\n- no list\n```\nText\n| a |\n|---|\n", page=Page)
    assert made == "Text:\n\n- a\n- b\n\n```\nx\n- no list\n```\nText\n\n| a |\n|---|\n"
