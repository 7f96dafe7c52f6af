"""Faults of top-k and top-p of probability rows."""

from validate.schema.fault import Fault

__all__ = ["RENORM_FAULTS"]

RENORM_FAULTS = (
    Fault(
        id="SA-04",
        title="Scratch with a stride of 50 entries a row, whatever the row's own k",
        where="cand",
        expect="FAIL",
        gates=("renorm.kept_set", "renorm.kept_mass"),
        source=(
            "ROCm/aiter#5192 and #5191: with k given by row the scalar k is 0, so scratch falls "
            "back to 50 entries a row, while a row without top-k writes the whole vocabulary. "
            "Planted between torch.topk and the scatter of renorm=exactly_k: rows after one "
            "without top-k read its choice. Batches with one k, and rows alone, stay exact."
        ),
    ),
    Fault(
        id="SA-05",
        title="Top-p held against the mass before top-k's division",
        where="cand",
        expect="FAIL",
        gates=("renorm.kept_set",),
        source=(
            "sgl-project/sglang#36173, and the mirrored order of aiter's fused top-k and top-p: "
            "two places of one engine renormalise between the filters, two do not. The contract "
            "here is top-k, division, top-p; planted by handing top-p the undivided mass, so that "
            "more is kept where both filters bind and nothing changes where one does."
        ),
    ),
)
