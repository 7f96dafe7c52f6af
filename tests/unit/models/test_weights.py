"""Weights: initialisation that repeats, files in and out, and every refusal by its text."""

import re

import pytest
import torch
from safetensors.torch import save_file

from tests.unit.models.small import SMALL
from validate.errors import InputError
from validate.models import initialise, load_weights, save_weights, weight_shapes
from validate.models.weights import KEEP_FLOAT32

SHAPES = weight_shapes(SMALL)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.safetensors"


@pytest.fixture(scope="module")
def made():
    return initialise(SMALL, seed=4)


def test_the_same_seed_gives_the_same_bits(made):
    again, other = initialise(SMALL, seed=4), initialise(SMALL, seed=5)

    assert all(torch.equal(made[name], again[name]) for name in made)
    assert not torch.equal(made["embed.weight"], other["embed.weight"])


def test_initialisation_does_not_touch_the_global_generator(made):
    before = torch.get_rng_state()

    initialise(SMALL, seed=4)

    assert torch.equal(before, torch.get_rng_state())


def test_names_shapes_and_dtypes_are_those_of_the_architecture(made):
    assert {name: tuple(w.shape) for name, w in made.items()} == SHAPES
    assert {w.dtype for w in made.values()} == {torch.float32}


def test_what_starts_at_a_known_value(made):
    """Scores and biases at 0, norms at 1, decays of -0.005 to -1.3 a token (dt_bias -7 to -1)."""
    for name, w in made.items():
        if name.endswith(("A_log", "correction_bias", "_res.proj.weight")):
            assert torch.equal(w, torch.zeros_like(w)), name
        elif name.endswith("dt_bias"):
            assert (w >= -7).all(), name
            assert (w <= -1).all(), name
        elif name.endswith("norm.weight"):
            assert torch.equal(w, torch.ones_like(w)), name
        else:
            assert w.std() > 0, name


def test_layers_alone_can_be_initialised():
    """As the true dimensions need it: nothing of other layers is drawn."""
    some = initialise(SMALL, seed=4, layers=(1, 2))

    assert {name: tuple(w.shape) for name, w in some.items()} == weight_shapes(SMALL, layers=(1, 2))
    assert {name.split(".")[1] for name in some} == {"1", "2"}


def test_a_file_holds_bfloat16_and_float32_where_it_matters(made, path):
    save_weights(made, path, metadata={"name": "test"})

    narrow = load_weights(path, SMALL, dtype=torch.float64, device="cpu")
    for name, w in made.items():
        kept = w if name.endswith(KEEP_FLOAT32) else w.to(torch.bfloat16)
        assert torch.equal(narrow[name], kept.double()), name


@pytest.mark.parametrize(
    ("dtype", "held"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
    ids=["float64", "float32", "bfloat16-on-cpu"],
)
def test_weights_are_held_as_the_arithmetic_needs_them(made, path, dtype, held):
    save_weights(made, path, metadata={})

    loaded = load_weights(path, SMALL, dtype=dtype, device="cpu")

    assert {w.dtype for w in loaded.values()} == {held}
    assert loaded.keys() == SHAPES.keys()


def write(path, made, *, drop=(), add=(), reshape=()):
    tensors = {name: w.clone() for name, w in made.items() if name not in drop}
    tensors |= {name: torch.zeros(1) for name in add}
    tensors |= {name: torch.zeros(1, 2) for name in reshape}
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"drop": ("embed.weight",)},
            "1 missing ['embed.weight'], 0 extra [], 0 of another shape []",
        ),
        ({"add": ("b.x", "a.y")}, "0 missing [], 2 extra ['a.y', 'b.x'], 0 of another shape []"),
        (
            {"reshape": ("lm_head.weight",)},
            "0 missing [], 0 extra [], 1 of another shape ['lm_head.weight']",
        ),
        (
            {"drop": ("embed.weight",), "add": ("x",), "reshape": ("layers.0.kda.A_log",)},
            "1 missing ['embed.weight'], 1 extra ['x'], 1 of another shape ['layers.0.kda.A_log']",
        ),
    ],
    ids=["missing", "extra", "shape", "all"],
)
def test_weights_of_another_model_are_refused(made, path, changes, message):
    write(path, made, **changes)
    whole = re.escape(f"weights {path}: not those of small: {message}")

    with pytest.raises(InputError, match=f"^{whole}$"):
        load_weights(path, SMALL, dtype=torch.float32, device="cpu")


def test_only_three_names_of_a_kind_are_listed(made, path):
    names = sorted(SHAPES)[:5]
    write(path, made, drop=names)

    with pytest.raises(InputError, match=re.escape(f"5 missing {names[:3]}, 0 extra")):
        load_weights(path, SMALL, dtype=torch.float32, device="cpu")


@pytest.mark.parametrize(
    "content", [b"", b"no tensors here", b"\x08\x00\x00\x00\x00\x00\x00\x00[1, 2,3]"]
)
def test_what_is_no_safetensors_file_is_refused(path, content):
    path.write_bytes(content)

    with pytest.raises(
        InputError,
        match=r"^weights .*: cannot be read as safetensors \(.*\); check the file's sha256$",
    ):
        load_weights(path, SMALL, dtype=torch.float32, device="cpu")


def test_a_file_cut_short_is_refused(made, path):
    save_weights(made, path, metadata={})
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(InputError, match="cannot be read as safetensors"):
        load_weights(path, SMALL, dtype=torch.float32, device="cpu")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.safetensors: cannot be read .*No such file"):
        load_weights(tmp_path / "none.safetensors", SMALL, dtype=torch.float32, device="cpu")
