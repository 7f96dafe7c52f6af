"""A breakdown is computed at the first look, once, and equals the plain one."""

from validate.metrics._later import Later


def test_later_is_a_mapping_that_is_made_once():
    calls: list[int] = []

    def make() -> dict[str, float]:
        calls.append(1)
        return {"a": 1.0, "b": 2.0}

    held = Later(make)

    assert not calls
    assert (held["a"], len(held), list(held)) == (1.0, 2, ["a", "b"])
    assert held == {"a": 1.0, "b": 2.0}
    assert {**held} == {"a": 1.0, "b": 2.0}
    assert repr(held) == "{'a': 1.0, 'b': 2.0}"
    assert len(calls) == 1
