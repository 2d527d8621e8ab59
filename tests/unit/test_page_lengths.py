"""No page has more than 300 lines to read. Tables, blocks and headings are not read, but looked into."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.parts.doc_examples import PAGES, prose

MOST = 300


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_not_too_long_to_read(page: Path) -> None:
    read = [line for _, line in prose(page) if line.strip() and not re.match(r"\||#|<!--", line)]
    assert len(read) <= MOST
