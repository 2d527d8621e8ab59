"""A kind of topology: its parameters, how it is built, and its properties for ranks and routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

from topologies.graph.fabric import Fabric, TopologyError
from topologies.graph.params import Parameter, near


@dataclass(frozen=True)
class Kind:
    """A kind of topology: a frozen dataclass whose fields are its parameters, and `build`.

    Its other properties have defaults that suit a network of no particular shape.
    """

    name: ClassVar[str]
    summary: ClassVar[str]  # one line for help texts
    preset: ClassVar[str] = ""  # what `of_ranks` makes, for help texts; "": nothing
    dimension_order: ClassVar[bool] = False
    """Its switches are the places of the grid, too, and every dimension is a circle: frames take one after the other,
    each the shorter way round."""

    def check(self) -> None:
        """Raises TopologyError where the parameters do not fit each other, however large the fabric."""

    def build(self) -> Fabric:
        """The fabric, not yet validated.  Raises TopologyError where the parameters together go too far."""
        raise NotImplementedError

    @classmethod
    def scale_up(cls, params: Mapping[str, Any]) -> bool:
        """Whether its servers have scale-up domains.  `params` may be any, as a user has written them."""
        return False

    @classmethod
    def grid(cls, params: Mapping[str, Any]) -> tuple[int, ...]:
        """The dimensions of the grid whose places the ranks count row by row; (): they have no coordinates."""
        return ()

    @classmethod
    def axes(cls, params: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        """The same for people: what joins the ranks along each dimension, and its length; the outermost first."""
        return tuple((f"dim{k}", n) for k, n in enumerate(cls.grid(params)))

    @classmethod
    def of_ranks(cls, ranks: int) -> dict[str, Any] | None:
        """Parameters for so many ranks; None where no such fabric has so many, or nothing speaks for any shape."""
        return None

    @classmethod
    def in_words(cls, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters for a line of text: false ones are left out."""
        return {key: value for key, value in params.items() if value is not False}

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(
                name=f.name,
                required=f.default is MISSING,
                default=None if f.default is MISSING else f.default,
                **f.metadata,
            )
            for f in fields(cls)
        )

    @classmethod
    def parse(cls, params: Mapping[str, Any]) -> Self:
        """This kind with these parameters.  Raises TopologyError for unknown, missing and wrong ones."""
        known = {p.name: p for p in cls.parameters()}
        for name in params:
            if name not in known:
                raise TopologyError(str(name), f"{cls.name} has no such parameter", near(str(name), list(known)))
        for p in known.values():
            if p.required and p.name not in params:
                bounds = f", {p.least} to {p.most}" if p.most else ""
                raise TopologyError(p.name, f"{cls.name} needs it", f"{p.doc}: {p.type}{bounds}")
        return cls(**{name: known[name].parse(value) for name, value in params.items()})


def near_root(ranks: int) -> int:
    """The largest divisor that is not above the square root: `ranks` as a rectangle that is as square as can be."""
    return next(d for d in range(int(ranks**0.5), 0, -1) if ranks % d == 0)
