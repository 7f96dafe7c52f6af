"""Which tensors of a prompt are what, by the naming rules of a capture."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["MODES", "Place", "hiddens", "outputs", "routers", "states", "with_mode"]

MODES = ("prefill", "decode")

_OUTPUT = re.compile(r"^(prefill|decode)\.(mla|kda)\.(\d+)\.out$")
_HIDDEN = re.compile(r"^(prefill|decode)\.(hidden)\.(\d+)$")
_ROUTER = re.compile(r"^(prefill|decode)\.(router)\.(\d+)\.ids$")
_STATE = re.compile(r"^state\.(oneshot|chunked|decode)\.(kda|conv|kv)\.(\d+)$")


class Place(NamedTuple):
    """One tensor of a layer."""

    layer: int
    mode: str
    """``prefill`` or ``decode``; for states ``oneshot``, ``chunked`` or ``decode``."""
    kind: str
    """``mla``, ``kda``, ``hidden``, ``router``; for states ``kda``, ``conv``, ``kv``."""
    name: str
    """The tensor's name; for routers the common prefix of scores, ids and weights."""


def outputs(names: Iterable[str]) -> list[Place]:
    """Attention outputs, by layer, prefill before decode."""
    return _found(_OUTPUT, names)


def hiddens(names: Iterable[str]) -> list[Place]:
    """Hidden states, by layer, prefill before decode."""
    return _found(_HIDDEN, names)


def routers(names: Iterable[str]) -> list[Place]:
    """Routers, by layer; ``name`` is the common prefix of scores, ids and weights."""
    return [
        place._replace(name=place.name.removesuffix(".ids")) for place in _found(_ROUTER, names)
    ]


def states(names: Iterable[str]) -> list[Place]:
    """States, by layer."""
    return _found(_STATE, names)


def with_mode(names: Iterable[str]) -> Iterator[str]:
    """Names of all tensors taken inside a forward pass, prefill or decode."""
    return (name for name in names if name.startswith(("prefill.", "decode.")))


def _found(pattern: re.Pattern[str], names: Iterable[str]) -> list[Place]:
    order = {mode: rank for rank, mode in enumerate((*MODES, "oneshot", "chunked"))}
    places = []
    for name in names:
        match = pattern.match(name)
        if match is not None:
            mode, kind, layer = match.groups()
            places.append(Place(int(layer), mode, kind, name))
    return sorted(places, key=lambda place: (place.layer, order[place.mode], place.kind))
