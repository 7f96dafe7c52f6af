"""Contracts of the number formats: ours keep them, and what each clause says by hand."""

import pytest
import torch

from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.engines.torch_sampling import IMPLEMENTATIONS
from validate.conformance.ops import float8_e4m3fn, float8_e4m3fnuz, mxfp4
from validate.conformance.records import Effort

BY_OP = {
    module.OPERATION.contract.op: module.OPERATION
    for module in (float8_e4m3fn, float8_e4m3fnuz, mxfp4)
}
OURS = [one for one in IMPLEMENTATIONS if one.op in BY_OP]
FN, MX = BY_OP["float8_e4m3fn"], BY_OP["mxfp4"]


def ours_of(op, name):
    return next(one for one in OURS if (one.op, one.name) == (op, name)).function


@pytest.mark.parametrize("one", OURS, ids=[f"{one.op}-{one.name}" for one in OURS])
def test_ours_keep_the_contract(one):
    assert sweep(BY_OP[one.op], one.function, **one.settings) == {}


@pytest.mark.parametrize("op", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_overflow_is_a_choice(op):
    found = sweep(BY_OP[op], ours_of(op, "torch:cast"), overflow="nan")
    assert clauses(found) == {"overflow"}
    found = sweep(BY_OP[op], ours_of(op, "torch:cast_nan"))
    assert clauses(found) == {"overflow"}


def test_every_code_is_decoded_in_every_row():
    for case in FN.cases(Effort.QUICK, settings_of(FN)):
        assert all(sorted(row) == list(range(256)) for row in case.inputs["codes"].tolist())
    scales = {
        label for case in FN.cases(Effort.QUICK, settings_of(FN)) for label in [case.axes["scales"]]
    }
    assert scales == {"one", "powers", "any", "mixed"}


def test_one_wrong_code_of_256_is_named():
    cast = ours_of("float8_e4m3fn", "torch:cast")

    def wrong(x, scale, codes):
        encoded, decoded = cast(x, scale, codes)
        return encoded, torch.where(codes == 0x81, -decoded, decoded)  # the smallest, sign lost

    found = sweep(FN, wrong)
    breach = next(iter(found.values()))[0]
    assert (breach.clause, breach.wrong) == ("decoded", {"code": (0x81,)})
    assert "code 0x81 is 0.00195312, oracle -0.00195312" in breach.what


def test_ties_away_from_zero_are_seen_at_powers_of_two_alone():
    """Where the quotient is exact a midpoint is no matter of taste."""
    cast = ours_of("float8_e4m3fn", "torch:cast")

    def away(x, scale, codes):
        lifted = (x.double() / scale.double().unsqueeze(1) * (1 + 1e-7)).float()
        return cast(lifted, torch.ones_like(scale), codes)[0], cast(x, scale, codes)[1]

    found = sweep(FN, away)
    assert clauses(found) == {"encoded"}
    assert any(name.startswith("ties-") for name in found)
    assert not any("-any-" in name for name in found)


def test_nan_must_stay_nan():
    cast = ours_of("float8_e4m3fn", "torch:cast")

    def cleaned(x, scale, codes):
        return cast(torch.nan_to_num(x, nan=0.0), scale, codes)

    found = sweep(FN, cleaned)
    assert set(found) == {name for name in found if name.startswith("damaged-")}
    assert clauses(found) == {"overflow"}


def test_fp4_scale_rules_differ():
    assert clauses(sweep(MX, ours_of("mxfp4", "torch:floor"), scale_rule="nearest")) == {"scales"}
    assert clauses(sweep(MX, ours_of("mxfp4", "torch:nearest"))) == {"scales"}


def test_fp4_ties_and_saturation():
    floor = ours_of("mxfp4", "torch:floor")

    def up(x, packed, scales):
        # Midpoints away from zero: 2.5 becomes 3, where the even code is 2.
        return floor(x.float() * (1 + 1e-6), packed, scales)

    found = sweep(MX, up)
    assert "elements" in clauses({name: bs for name, bs in found.items() if "ties" in name})


def test_nan_scale_makes_its_block_nan():
    floor = ours_of("mxfp4", "torch:floor")

    def finite(x, packed, scales):
        encoded, own, decoded = floor(x, packed, scales)
        return encoded, own, torch.nan_to_num(decoded, nan=0.0)

    breach = next(iter(sweep(MX, finite).values()))[0]
    assert (breach.clause, breach.wrong) == ("decoded", {"scale": (255,)})


@pytest.mark.parametrize("operation", BY_OP.values(), ids=BY_OP)
def test_rows_reversed_and_unique_points(operation):
    cases = list(operation.cases(Effort.QUICK, settings_of(operation)))
    assert len({case.id for case in cases}) == len(cases)

    held: dict[str, torch.Tensor] = {}
    ours = next(one for one in OURS if one.op == operation.contract.op).function

    def first_row_scale(**inputs):
        # Every row's values follow row 0 of the call.
        held.update(inputs)
        outputs = list(ours(**inputs))
        outputs[-1] = outputs[-1] * (1 + 1e-7 * (inputs["x"][0, 0] > inputs["x"][-1, 0]))
        return tuple(outputs)

    several = [case for case in cases if len(case.inputs["x"]) == 3][:1]
    assert clauses(sweep(operation, first_row_scale, cases=several)) <= {"row-order", "decoded"}
