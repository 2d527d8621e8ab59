"""An entry names everything: code that is there, what ranks do without what they ask for, and its line in the docs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from workloads import reference
from workloads.base.entry import Algorithm, named
from workloads.base.vocabulary import AUTO, DTYPES, OPS
from workloads.parts.part import Part
from workloads.registry import ALGORITHMS, COLLECTIVES, UnknownCollective, algorithms, any_of, choices, find, heeding


@pytest.mark.parametrize("entry", ALGORITHMS.values(), ids=str)
def test_what_an_entry_names_is_there(entry: Algorithm) -> None:
    assert issubclass(entry.load(), Part)
    for place in filter(None, (entry.schedule, entry.time)):
        assert callable(named(place)), place
    assert set(entry.defaults) <= set(entry.extra)
    assert set(entry.ops) <= set(entry.collective.ops) <= set(OPS) and set(entry.dtypes) <= set(DTYPES)


@pytest.mark.parametrize("entry", [e for e in ALGORITHMS.values() if e.accelerators or e.engines], ids=str)
def test_without_what_it_asks_for_the_ranks_do_it_by_themselves(entry: Algorithm) -> None:
    alone = entry.instead
    assert alone is not None and alone.collective is entry.collective
    assert not (alone.accelerators or alone.engines)
    assert set(entry.ops) <= set(alone.ops) and set(entry.dtypes) <= set(alone.dtypes)


def test_the_page_is_as_the_entries() -> None:
    page = reference.DOCUMENT.read_text()
    assert reference.written(page) == page, "python -m workloads.reference writes it anew"
    assert all(f"| `{name}` |" in page for name in COLLECTIVES)


def test_a_name_that_is_none_says_what_there_is() -> None:
    assert find("all_reduce").name == "ring" and any_of("all_gather", AUTO) in choices("all_gather")
    with pytest.raises(UnknownCollective, match="no collective called 'all'.*all_reduce, reduce_scatter"):
        algorithms("all")
    with pytest.raises(UnknownCollective, match="reduce has no algorithm called 'ring'.*it has binomial_tree, chain"):
        find("reduce", "ring")
    with pytest.raises(UnknownCollective, match="nothing|no algorithms to choose from"):
        any_of("ping_pong", AUTO)


def test_who_heeds_a_key_is_said_as_shortly_as_it_can_be() -> None:
    assert heeding("skew") == "all_to_all_v, reduce_scatter_v, all_gather_v, scatter_v, gather_v, m2n, n2m"
    assert heeding("cutoff") == "multicast" and heeding("chains") == "all_gather by multicast"
    assert heeding("optimizer") == "optimizer_step" and heeding("nothing") == ""


LOADED = "import sys; had = set(sys.modules); {}; print(*{{m.partition('.')[0] for m in set(sys.modules) - had}})"


def foreign(statements: str) -> set[str]:
    """What a fresh Python loads for these, beside Python's own."""
    ran = subprocess.run([sys.executable, "-c", LOADED.format(statements)], capture_output=True, text=True, check=True)
    return set(ran.stdout.split()) - sys.stdlib_module_names


def test_a_worker_needs_no_more_than_its_container_has() -> None:
    """Where an image is the root file system, of the sources there is only workloads/."""
    assert foreign("import workloads.verbs") == {"workloads"}
    parts = "import workloads.worker, workloads.registry as r; [e.load() for e in r.ALGORITHMS.values()]"
    own = {"workloads", "numpy", "ml_dtypes"}
    assert {name for name in foreign(parts) - own if not name.startswith("_")} == set()
