"""``attention.introduced_ratio``: does cand's attention itself err more than ref's?"""

from validate.errors import InputError
from validate.metrics._finite import why_undefined
from validate.metrics._introduced import introduced
from validate.metrics._places import outputs
from validate.metrics._tensors import Scan, scan
from validate.metrics._three_way import UNIT, measure_ways
from validate.metrics._unmeasured import no_tensors, undefined
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_introduced_ratio"]

METRIC = "attention.introduced_ratio"


def attention_introduced_ratio(pair: Pair, levels: Levels) -> Measurement:
    """Ratio of introduced errors: each side's attention on its own captured inputs, err(cand) / err(ref).

    Each side's captured layer inputs run through the float64 layer of the oracle; the distance
    of the side's captured output from that is what its kernel, and nothing upstream,
    introduced. A prompt's error is ``sqrt(mean over tensors of sum err^2 / sum truth^2)``.
    All rows count: routing does not touch a layer's own inputs.

    Args:
        pair: Ref and cand, with ``weights`` and ``config``.
        levels: Confidence levels of the interval.

    Returns:
        Third quartile over prompts with order-statistic limits; n = prompts;
        ``worst_value`` is the largest ratio of a unit, a unit being a head of one layer and
        mode, or the worst row of one (cand's largest over ref's largest); ``breakdown`` gives
        both sides' errors, ratio and limits by layer and head. Undefined without weights or
        inputs, with non-finite tensors, or where ref's error is exactly 0.

    Source:
        Formulas of the layer in ``validate.oracle``; a reference is itself judged against float64
        because it may be the broken side, as in intel/intel-xpu-backend-for-triton#7458 (TV-12).
    """
    why = _why_undefined(pair, scan(pair))
    if why is not None:
        return undefined(METRIC, why, unit=UNIT, n_of="prompts")
    try:
        found = introduced(pair)
    except InputError as error:
        return undefined(METRIC, str(error).splitlines()[0], unit=UNIT, n_of="prompts")
    extra = {"lse ref": float(found.lse[0]), "lse cand": float(found.lse[1])}
    return measure_ways(METRIC, found.ways, levels, shown={"": found.ways}, extra=extra)


def _why_undefined(pair: Pair, found: Scan) -> str | None:
    if pair.weights is None or pair.config is None:
        return "no weights are at hand for the oracle; put them where the manifest names them"
    read = [one for group in ("out", "lse") for one in found.bad.get(group, [])]
    read += [one for one in found.bad.get("other", []) if ".attn." in one.name]
    bad = why_undefined(read)
    if bad is not None:
        return bad
    if not found.outputs:
        return no_tensors("attention outputs")
    for prompt in pair.prompts:
        names = set(pair.ref.names(prompt))
        for place in outputs(names):
            for mode in {"prefill", place.mode}:
                needed = f"{mode}.attn.{place.layer}.in"
                if needed not in names:
                    return f"prompt {prompt} holds {place.name} but not {needed}"
    return None
