"""What a report draws: short tables of numbers that a run has made, aggregated, never a point a token."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["MOST_COLUMNS", "Series", "SeriesAxis", "SeriesLine", "TokenChoice", "WorstCase"]

MOST_COLUMNS = 200
"""Places along the first axis; whoever has more aggregates before it comes here."""
MOST_LINES = 200

Number = Annotated[float, Field(allow_inf_nan=False)]
Values = Annotated[tuple[Number | None, ...], Field(max_length=MOST_COLUMNS)]
SeriesKind = Literal["lines", "steps", "bars", "heat", "ratios"]
"""``heat``: a line is a row of cells. ``ratios``: a place is a ratio with its interval."""
LineRole = Literal["ref", "cand", "floor", "expected", "other"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SeriesAxis(_Record):
    """One axis."""

    label: str
    unit: str = ""
    places: Annotated[tuple[str, ...], Field(max_length=MOST_COLUMNS)] = ()
    """Name of each place of the first axis: a bucket, a head, a quantile. Empty for values."""
    at: Values = ()
    """Where each place lies, where places are numbers; empty: evenly spaced."""
    scale: Literal["linear", "log"] = "linear"


class SeriesLine(_Record):
    """One value a place, and what lies around it."""

    name: str
    role: LineRole
    values: Values
    """In the unit of the value axis; null where there is none."""
    low: Values = ()
    """Lower end of the band or interval; empty: there is none."""
    high: Values = ()


class Series(_Record):
    """One plot."""

    name: str
    """``area.words``."""
    title: str
    reading: str
    """How to read it, in a sentence or two."""
    kind: SeriesKind
    x: SeriesAxis
    y: SeriesAxis
    lines: Annotated[tuple[SeriesLine, ...], Field(min_length=1, max_length=MOST_LINES)]
    n: int
    """How many units were aggregated."""
    n_of: str

    @property
    def area(self) -> str:
        """Area of the gates that it stands beside."""
        return self.name.partition(".")[0]

    @model_validator(mode="after")
    def _places_agree(self) -> "Series":
        places = len(self.x.places)
        lengths = {len(line.values) for line in self.lines}
        around = {len(ends) for line in self.lines for ends in (line.low, line.high) if ends}
        at = {len(self.x.at)} if self.x.at else set()
        if (lengths | around | at) - {places}:
            msg = f"series {self.name}: {places} places, lines of {sorted(lengths | around | at)}"
            raise ValueError(msg)
        return self


class TokenChoice(_Record):
    """One id among the first choices of a side."""

    id: int
    text: str | None
    """Decoded; null where the tokenizer is not at hand."""
    ref: Number | None
    """Probability on ref's side; null where it was not stored."""
    cand: Number | None


class WorstCase(_Record):
    """The row that gates point at, with its surroundings."""

    gates: tuple[str, ...]
    """Gates whose worst place it is."""
    prompt: str
    position: int
    """The row at this position predicts the next token."""
    section: str
    """``logits``, ``decode.logits`` or ``stream.logits``."""
    before: str
    """The tokens up to and including ``position``, decoded or as ids; the last ones where there are many."""
    cut: int = 0
    """Tokens left out in front."""
    target: int | None = None
    """Id of the token that followed; null where there is none."""
    target_text: str | None = None
    ref: tuple[TokenChoice, ...] = ()
    """First choices of ref, the most probable first."""
    cand: tuple[TokenChoice, ...] = ()
