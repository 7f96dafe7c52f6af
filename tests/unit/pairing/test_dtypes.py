"""Each side holds the dtypes that its own manifest and the format tell."""

import ml_dtypes
import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest
from validate.errors import IncomparableError
from validate.pairing import pair
from validate.pairing._dtypes import dtype_reasons
from validate.schema import PathProof

F32 = np.float32
NATIVE = {
    "logits": ml_dtypes.bfloat16,
    "prefill.mla.3.out": ml_dtypes.bfloat16,
    "prefill.mla.3.lse": F32,
    "prefill.router.1.scores": F32,
    "prefill.router.1.weights": F32,
    "state.oneshot.kda.0": F32,
    "state.oneshot.conv.0": ml_dtypes.bfloat16,
    "spec.spec-sampled.p": F32,
    "spec.spec-sampled.verify.logits": ml_dtypes.bfloat16,
}


def side(label, *, dtype="bfloat16", path="reference", **other):
    """A side with tensors of bfloat16 and float32 as the format tells, ``other`` apart."""
    kinds = NATIVE | {name.replace("__", "."): kind for name, kind in other.items()}
    held = {name: np.ones((3, 2, 2), kind) for name, kind in kinds.items()}
    held["prefill.positions"] = np.arange(3, dtype=np.int32)
    proof = PathProof(path=path, branches={"a": 1})
    manifest = make_manifest(label, tensors={"p-0": held}, dtype=dtype, path_proof=proof)
    return FakeSide(label, {"p-0": held}, manifest=manifest)


def all_of(kind):
    return {name.replace(".", "__"): kind for name in NATIVE}


def paired(cand, oracle=None, ref=None):
    return pair(ref or side("cuda"), cand, oracle=oracle, near_tie=0.0, route_gap=0.0)


@pytest.mark.parametrize("kind", ["float32", "float16", "float64"])
@pytest.mark.parametrize("name", ["logits", "prefill__mla__3__out", "state__oneshot__conv__0"])
def test_a_tensor_of_another_dtype_than_its_manifest_is_named(kind, name):
    with pytest.raises(IncomparableError) as caught:
        paired(side("rocm", **{name: np.dtype(kind)}))
    text = str(caught.value)
    assert text.startswith(
        "ref 'cuda' and cand 'rocm' hold 1 tensors in another dtype than their manifest tells"
    )
    told = name.replace("__", ".")
    assert f"p-0/{told}: cand holds {kind}, its manifest's dtype bfloat16 asks for bfloat16" in text


@pytest.mark.parametrize("name", [n for n, kind in NATIVE.items() if kind is F32])
def test_what_the_format_stores_in_float32_is_float32(name):
    with pytest.raises(IncomparableError, match=r"cand holds bfloat16, .* asks for float32"):
        paired(side("rocm", **{name.replace(".", "__"): ml_dtypes.bfloat16}))


def test_ref_is_looked_at_too():
    with pytest.raises(IncomparableError, match="p-0/logits: ref holds float32"):
        paired(side("rocm"), ref=side("cuda", logits=F32))


def test_a_path_of_another_working_dtype_is_compared():
    paired(side("rocm"))
    paired(side("reference", dtype="float32", **all_of(F32)))
    wide = all_of(np.float64) | {"spec__spec-sampled__p": F32}  # p of each token stays float32
    paired(side("reference", dtype="float64", **wide))


def test_an_oracle_stores_float32():
    paired(side("rocm"), oracle=side("oracle", dtype="float64", path="oracle", **all_of(F32)))
    bent = side("oracle", dtype="float64", path="oracle", **all_of(np.float16))
    with pytest.raises(IncomparableError, match=r"oracle holds float16, .* for float32 or float64"):
        paired(side("rocm"), oracle=bent)


def test_an_oracle_that_works_in_float32_is_asked_for_nothing_else():
    bent = side("oracle", dtype="float32", path="oracle", **all_of(np.float16))
    with pytest.raises(IncomparableError) as caught:
        paired(side("rocm"), oracle=bent)
    assert (
        "p-0/logits: oracle holds float16, its manifest's dtype float32 asks for float32;"
        in str(caught.value)
    )


@pytest.mark.parametrize("name", [n for n, kind in NATIVE.items() if kind is F32])
def test_float64_where_a_path_of_bfloat16_works_in_float32_is_named(name):
    """A log-sum-exp or a state kept wider than the path made it hides the path's own error."""
    cand = side("rocm", **{name.replace(".", "__"): np.float64})

    (reason,) = dtype_reasons(side("cuda"), cand, name="cand")

    assert reason.facts == (
        f"p-0/{name}: cand holds float64, its manifest's dtype bfloat16 asks for float32",
    )


def test_only_what_works_wide_may_be_float32_beside_float64():
    """A path of float64 that stores its logits in float32 has rounded them."""
    wide = all_of(np.float64) | {"spec__spec-sampled__p": F32, "prefill__mla__3__lse": F32}
    paired(side("reference", dtype="float64", **wide))
    with pytest.raises(IncomparableError, match=r"p-0/logits: cand holds float32, .* for float64"):
        paired(side("reference", dtype="float64", **(wide | {"logits": F32})))


def test_scores_and_loglikelihoods_of_evals_are_free():
    """Float32 by the format, beside a path of bfloat16."""
    names = ("evals/0.scores", "evals/12.loglikelihoods")
    held = {"p-0": {"logits": np.ones((1, 3), F32)}}
    manifest = make_manifest("rocm", tensors=held)
    (file,) = [one for one in manifest.artifacts if one.tensors]
    entries = tuple(file.tensors[0].model_copy(update={"name": name}) for name in names)
    named = file.model_copy(update={"tensors": entries})
    cand = FakeSide("rocm", {}, manifest=manifest.model_copy(update={"artifacts": (named,)}))

    assert dtype_reasons(side("cuda"), cand, name="cand") == []
