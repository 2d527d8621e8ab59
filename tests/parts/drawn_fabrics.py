"""Fabrics of every kind, for hypothesis to draw from."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st

from tests.parts.custom_networks import networks
from topologies import Fabric, build

small = st.integers(1, 5)
sizes = st.lists(st.integers(2, 5), min_size=1, max_size=4).filter(lambda dims: prod(dims) <= 130)


@st.composite
def rails(draw: st.DrawFn) -> Fabric:
    gpus = draw(small)
    return build("rail", {"servers": draw(small), "gpus": gpus, "spines": draw(st.integers(int(gpus > 1), 4))})


@st.composite
def closes(draw: st.DrawFn) -> Fabric:
    pods = draw(st.integers(1, 4))
    params = {"leaves": draw(small), "spines": draw(small), "hosts_per_leaf": draw(small), "pods": pods}
    more = {"cores": draw(small) if pods > 1 else 0, "gpus": draw(st.integers(1, 3))}
    return build("clos", params | more)


rings = st.integers(2, 24).map(lambda n: build("ring", {"nodes": n}))
toruses = sizes.map(lambda dims: build("torus", {"dims": dims}))
stars = st.integers(1, 40).map(lambda n: build("star", {"hosts": n}))
directs = sizes.map(lambda dims: build("torus", {"dims": dims, "direct": True})) | st.integers(2, 24).map(
    lambda n: build("ring", {"nodes": n, "direct": True})
)
several = st.builds(lambda n, links: build("star", {"hosts": n, "links": links}), st.integers(1, 12), st.integers(2, 4))
several |= st.builds(
    lambda groups, links, hosts, spines, gpus: build(
        "clos", {"leaves": groups * links, "spines": spines, "hosts_per_leaf": hosts, "links": links, "gpus": gpus}
    ),
    st.integers(1, 3), st.integers(2, 3), st.integers(1, 3), small, st.integers(1, 2),
)  # fmt: skip
switched = rails() | closes() | rings | toruses | stars
fabrics = switched | directs | several | networks()
