"""Reading safetensors by hand: dtypes, damage, and the fit to a configuration."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.unit.oracle.tiny import TINY, random_weights
from validate.errors import InputError
from validate.oracle import check_weights, load_weights, weight_shapes
from validate.schema import ModelConfig

GOLDEN = Path(__file__).parents[3] / "golden" / "k3-nano" / "config.json"


def _write(path, header, data=b""):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_widening_is_exact(tmp_path, dtype):
    """The writer is the safetensors library itself."""
    stored = {
        "a.weight": np.random.default_rng(0).standard_normal((3, 4)).astype(dtype),
        "b": np.array([1.5, -2.0], dtype=dtype),
    }
    save_file(stored, tmp_path / "w.safetensors", metadata={"made by": "a test"})

    loaded = load_weights(tmp_path / "w.safetensors")

    assert set(loaded) == {"a.weight", "b"}
    for name, array in stored.items():
        assert loaded[name].dtype == np.float64
        assert np.array_equal(loaded[name], array.astype(np.float64))
        assert np.array_equal(loaded[name].astype(dtype), array)


def test_bfloat16_bits_by_hand(tmp_path):
    """0x3F80 is 1.0, 0xC040 is -3.0 (sign, exponent 128, mantissa 1.5)."""
    header = {"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    path = _write(tmp_path / "w", header, bytes([0x80, 0x3F, 0x40, 0xC0]))

    assert load_weights(path)["x"].tolist() == [1.0, -3.0]


def test_a_scalar_and_an_empty_tensor(tmp_path):
    header = {
        "s": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
        "e": {"dtype": "F32", "shape": [0, 3], "data_offsets": [4, 4]},
    }
    path = _write(tmp_path / "w", header, np.float32(2.5).tobytes())

    loaded = load_weights(path)

    assert loaded["s"].shape == ()
    assert float(loaded["s"]) == 2.5
    assert loaded["e"].shape == (0, 3)


def test_a_missing_file_names_the_path(tmp_path):
    with pytest.raises(InputError, match=r"weights .*none: cannot be read: No such file"):
        load_weights(tmp_path / "none")


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data", "match"),
    [
        (b"{", b"", r"header is no JSON"),
        (b"\xff\xfe", b"", r"header is no JSON"),
        (b"[" * 100_000, b"", r"header is no JSON"),
        (b"[1]", b"", r"header is a list, not an object"),
        ({"x": ENTRY}, b"1234", r"'x'.*shape \(2,\) of F32 does not fit bytes 0\.\.8 of 4"),
        ({"x": {**ENTRY, "shape": [3]}}, bytes(8), r"shape \(3,\) of F32 does not fit"),
        ({"x": {**ENTRY, "shape": [-2]}}, bytes(8), r"does not fit"),
        ({"x": {**ENTRY, "data_offsets": [8, 0]}}, bytes(8), r"does not fit bytes 8\.\.0"),
        ({"x": {**ENTRY, "data_offsets": [-8, 0]}}, bytes(8), r"does not fit bytes -8\.\.0"),
        (
            {"x": {**ENTRY, "dtype": "F8_E4M3"}},
            bytes(8),
            r"has dtype F8_E4M3; the oracle reads F64",
        ),
        ({"x": {"dtype": "F32", "shape": [2]}}, bytes(8), r"'x'.*lacks dtype, shape or data_off"),
        ({"x": 3}, bytes(8), r"'x'.*lacks dtype, shape or data_offsets: 3"),
        ({"x": ENTRY}, np.array([1, np.nan], np.float32).tobytes(), r"'x' holds 1 NaN or infinite"),
        (
            {"x": ENTRY},
            np.array([np.inf, -np.inf], np.float32).tobytes(),
            r"'x' holds 2 NaN or inf",
        ),
    ],
)
def test_damage_is_refused_with_its_place(tmp_path, header, data, match):
    path = _write(tmp_path / "w.safetensors", header, data)

    with pytest.raises(InputError, match=match):
        load_weights(path)


@pytest.mark.parametrize(
    "raw", [b"", b"1234567", (2**63).to_bytes(8, "little"), b"\x09" + bytes(7)]
)
def test_a_short_or_lying_header_length_is_refused(tmp_path, raw):
    path = tmp_path / "w.safetensors"
    path.write_bytes(raw)

    with pytest.raises(
        InputError, match=rf"no safetensors file, or cut short.*file has {len(raw)}"
    ):
        load_weights(path)


def test_shapes_of_k3_nano_add_up():
    """Under the 8M parameters that the model may have; every name once."""
    config = ModelConfig.model_validate_json(GOLDEN.read_text(encoding="utf-8"))

    shapes = weight_shapes(config)

    total = sum(int(np.prod(shape)) for shape in shapes.values())
    assert 1_000_000 < total <= 8_000_000
    assert shapes["layers.3.mla.q_b.weight"] == (12 * (32 + 16), 96)
    assert shapes["layers.3.mla.kv_b.weight"] == (12 * (32 + 32), 64)
    assert shapes["layers.0.kda.q_conv.weight"] == (12 * 16, 4)
    assert shapes["layers.8.moe.experts.down"] == (16, 96, 48)
    assert "layers.0.moe.router.weight" not in shapes
    assert "layers.1.mlp.gate.weight" not in shapes


def test_fitting_weights_pass():
    check_weights(random_weights(), TINY)


def test_a_misfit_names_all_kinds():
    weights = random_weights()
    del weights["layers.0.kda.A_log"]
    weights["layers.9.kda.A_log"] = np.zeros(3)
    weights["final_norm.weight"] = np.zeros(11)

    match = (
        r"weights do not fit configuration 'tiny': 1 missing, 1 extra, 1 wrong shape of \d+\n"
        r"  missing    : layers\.0\.kda\.A_log\n"
        r"  extra      : layers\.9\.kda\.A_log\n"
        r"  wrong shape: final_norm\.weight \(11,\) not \(10,\)"
    )
    with pytest.raises(InputError, match=match):
        check_weights(weights, TINY)


def test_a_header_of_no_bytes_is_no_header(tmp_path):
    """Eight bytes that announce 0 are long enough; there is no JSON in none."""
    path = tmp_path / "w.safetensors"
    path.write_bytes(bytes(8))

    with pytest.raises(InputError, match="header is no JSON"):
        load_weights(path)


def test_a_header_one_byte_longer_than_the_file_is_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes((3).to_bytes(8, "little") + b"{}")

    with pytest.raises(InputError, match="announce a header of 3 bytes, the file has 10"):
        load_weights(path)


@pytest.mark.parametrize(
    "wrong", [{"data_offsets": [-1, 7]}, {"shape": [-1, -1, 2]}, {"shape": [-1, -2]}]
)
def test_counts_below_zero_are_refused_though_their_sizes_fit(tmp_path, wrong):
    path = _write(tmp_path / "w.safetensors", {"x": {**ENTRY, **wrong}}, bytes(8))

    with pytest.raises(InputError, match="does not fit bytes"):
        load_weights(path)
