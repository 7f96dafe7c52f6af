"""Saved cases: every bit back, and hostile folders refused."""

import hashlib
import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.unit.conformance import tiny
from validate.conformance.records import Breach, Case
from validate.conformance.stored import fit_case, load_case, save_case
from validate.errors import InputError

FORMATS = [
    np.float64,
    np.float32,
    np.float16,
    np.int64,
    np.uint8,
    np.bool_,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e8m0fnu,
]


def save(folder: Path, inputs=None, **changes) -> Path:
    inputs = {"x": np.ones((2, 3), np.float32), "shift": 1.0} if inputs is None else inputs
    case = Case(id="B2", axes={"batch": 2, "ties": True, "name": "a"}, inputs=inputs)
    told = {"op": "double", "implementation": "m:f", "settings": {"sign": "plus"}, "device": "cpu"}
    save_case(case, folder, **{**told, **changes})
    return folder


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: np.dtype(form).name)
def test_every_code_comes_back_bit_for_bit(form, tmp_path: Path) -> None:
    size = np.dtype(form).itemsize
    codes = np.arange(256, dtype=np.uint8) if form is not np.bool_ else np.array([0, 1], np.uint8)
    array = np.repeat(codes, size).view(form).reshape(2, -1)
    save(tmp_path / "case", {"x": array})

    _, case = load_case(tmp_path / "case")

    found = case.inputs["x"]
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()


def test_scalars_and_axes_come_back_with_their_kind(tmp_path: Path) -> None:
    inputs = {
        "x": np.ones((0, 3), np.float32),
        "count": 3,
        "scale": np.float64(0.5),
        "flag": True,
        "mode": "all",
        "none": None,
        "nan": math.nan,
        "least": -math.inf,
    }
    breach = Breach(clause="value", what="wrong")
    stored, case = load_case(save(tmp_path / "case", inputs, breaches=(breach,)))

    found = dict(case.inputs)
    assert math.isnan(found.pop("nan"))
    assert found.pop("x").shape == (0, 3)
    assert found == {
        "count": 3,
        "scale": 0.5,
        "flag": True,
        "mode": "all",
        "none": None,
        "least": -math.inf,
    }
    assert found["flag"] is True
    assert case.axes == {"batch": 2, "ties": True, "name": "a"}
    assert (stored.op, stored.clauses, stored.what) == ("double", ("value",), ("wrong",))


def test_saving_again_replaces_a_case_and_nothing_else(tmp_path: Path) -> None:
    folder = save(tmp_path / "case")
    save(folder, device="cuda")
    assert load_case(folder)[0].device == "cuda"

    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine", "utf-8")
    with pytest.raises(InputError, match="it exists and is no saved case"):
        save(other)
    assert (other / "thesis.txt").read_text("utf-8") == "mine"


def rewrite(folder: Path, **changes) -> None:
    path = folder / "case.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


def put(folder: Path, held: bytes) -> None:
    (folder / "inputs.safetensors").write_bytes(held)
    rewrite(folder, sha256=hashlib.sha256(held).hexdigest())


def swap_link(folder: Path) -> None:
    path = folder / "inputs.safetensors"
    path.rename(folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")


HOSTILE = {
    "changed bytes": (
        lambda folder: (folder / "inputs.safetensors").write_bytes(b"x"),
        "sha256 is",
    ),
    "no safetensors": (lambda folder: put(folder, b"\x80\x04pickle"), "no safetensors file"),
    "huge header": (lambda folder: put(folder, b"\xff" * 16), "no safetensors file"),
    "a link": (swap_link, "no such file"),
    "missing file": (lambda folder: (folder / "inputs.safetensors").unlink(), "no such file"),
    "no JSON": (lambda folder: (folder / "case.json").write_text("{", "utf-8"), "case.json: it: "),
    "bare NaN": (
        lambda folder: (folder / "case.json").write_text(
            (folder / "case.json").read_text("utf-8").replace("1.0", "NaN"), "utf-8"
        ),
        "case.json: scalars",
    ),
    "unknown key": (lambda folder: rewrite(folder, path="/etc/passwd"), "path: Extra inputs"),
    "later version": (lambda folder: rewrite(folder, schema_version=2), "schema_version"),
    "unknown dtype": (
        lambda folder: rewrite(folder, arrays={"x": {"dtype": "object", "shape": [2, 3]}}),
        "unknown dtype 'object'",
    ),
    "another shape": (
        lambda folder: rewrite(folder, arrays={"x": {"dtype": "float32", "shape": [3, 2]}}),
        "it is float32 (2, 3), case.json says float32 (3, 2)",
    ),
    "negative shape": (
        lambda folder: rewrite(folder, arrays={"x": {"dtype": "float32", "shape": [-2, 3]}}),
        "arrays.x.shape.0",
    ),
    "other names": (
        lambda folder: rewrite(folder, arrays={"../y": {"dtype": "float32", "shape": [2, 3]}}),
        "arrays are ['x'], case.json says ['../y']",
    ),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_folder_is_refused(how: str, tmp_path: Path) -> None:
    folder = save(tmp_path / "case")
    damage, text = HOSTILE[how]
    damage(folder)

    with pytest.raises(InputError) as caught:
        load_case(folder)

    assert text in str(caught.value)


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a saved case is a folder with"):
        load_case(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"y": np.ones(2, np.float32), "shift": 1.0}, "arguments are ['shift', 'y']"),
        ({"x": 3, "shift": 1.0}, "it is no input of double: AttributeError"),
    ],
)
def test_case_of_another_operation_does_not_fit(inputs, text: str, tmp_path: Path) -> None:
    case = Case(id="a", axes={}, inputs=inputs)
    with pytest.raises(InputError) as caught:
        fit_case(tiny.OPERATION, case, {"sign": "plus"}, place=tmp_path)

    assert text in str(caught.value)
