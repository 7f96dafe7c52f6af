"""The faults that ``test_metric_mutation`` plants in the renorm metrics."""

from collections.abc import Mapping, Sequence

from tests.meta.metric_mutants import Mutant

__all__ = ["RENORM_MUTANTS"]

ROW = "metrics._renorm_judge"
ROWS = "metrics._renorm_rows"
ALL = "metrics._renorm"
ASKED = "metrics._renorm_asked"
TIED = "metrics._renorm_tie"
KEPT = "metrics.renorm_kept_set"
BAD = "metrics.renorm_nonfinite"
INPUT = "metrics.renorm_input_unchanged"

# One fault a line.
# fmt: off
RENORM_MUTANTS: Mapping[str, Sequence[Mutant]] = {
    "test_renorm": [
        Mutant("rows of ref for cand's", ALL, "    rows = found.cand.rows\n", "    rows = found.ref.rows\n"),
        Mutant("ref is not looked at", ALL, "    if fault is not None:", "    if False:"),
        Mutant("ref's input is not looked at", ALL, "    if side.changed:", "    if False:"),
        Mutant("ref's kept sets are not looked at", ALL, "        if found.wrong is not None:", "        if False:"),
        Mutant("ref's sums are not looked at", ALL, "            if not number <= bound:", "            if False:"),
        Mutant("rows of other prompts", ALL, "    if ref.prompts != cand.prompts:", "    if False:"),
        Mutant("other questions pass", ASKED, "            if _counts(", "            if False and _counts("),
        Mutant("idle filters pass", ALL, "row.judged.low < row.judged.entries", "row.judged.low <= row.judged.entries"),
        Mutant("rows of any logits", TIED, "        if off.any():", "        if False:"),
        Mutant("values that are no probabilities pass", ALL, "    if not bad:", "    if True:"),
        Mutant("smallest for largest", ALL, "top = int(np.argmax(values))", "top = int(np.argmin(values))"),
        Mutant("negative values let through", ROW, "np.count_nonzero(~np.isfinite(side) | (side < 0))", "np.count_nonzero(~np.isfinite(side))"),
        Mutant("non-finite values let through", ROW, "np.count_nonzero(~np.isfinite(side) | (side < 0))", "np.count_nonzero(side < 0)"),
        Mutant("input not looked at", ROW, "for side in (row.given, row.out)", "for side in (row.out,)"),
        Mutant("output not looked at", ROW, "for side in (row.given, row.out)", "for side in (row.given,)"),
        Mutant("band as wide as p", ROW, "(6 * math.sqrt(entries) + 4) * U", "(6 * math.sqrt(entries) + 4) * 0.01"),
        Mutant("no band", ROW, "(6 * math.sqrt(entries) + 4) * U", "0.0 * math.sqrt(entries)"),
        Mutant("a band at p = 1", ROW, "    if p == 1:", "    if p > 1:"),
        Mutant("too many pass", ROW, "    if not low <= count <= high:", "    if not low <= count:"),
        Mutant("too few pass", ROW, "    if not low <= count <= high:", "    if not count <= high:"),
        Mutant("which entries is not asked", ROW, "    if most > least or (", "    if ("),
        Mutant("ties may be cut", ROW, '(row.ties == "all" and most == least)', "False"),
        Mutant("created entries pass", ROW, "    if made.size:", "    if False:"),
        Mutant("declared rule not heard", ROWS, "RULES.get(side.manifest.options.get(DECLARED, \"\"))", "RULES[\"all\"]"),
        Mutant("zero rows may be filled", ROW, "wrong = None if total == 0 else", "wrong = None if total >= 0 else"),
        Mutant("sum without its one", ROW, "sum_error=abs(total - 1.0)", "sum_error=abs(total)"),
        Mutant("sign kept", ROW, "sum_error=abs(total - 1.0)", "sum_error=total - 1.0"),
        Mutant("shares of the whole row", ROW, "    held = math.fsum(row.given[kept])\n", "    held = math.fsum(row.given)\n"),
        Mutant("mass of the whole row", ROW, "    mass = math.fsum(row.given[within])\n", "    mass = math.fsum(row.given) * 1.2\n"),
        Mutant("shortfall turned", ROW, "np.clip(row.p, 0.0, 1.0) - held / mass", "held / mass - np.clip(row.p, 0.0, 1.0)"),
        Mutant("empty row has no error", ROW, "        return math.inf\n", "        return 0.0\n"),
        Mutant("mean value error", ROW, "float(np.max(np.abs(row.out[kept] / expected - 1.0)))", "float(np.mean(np.abs(row.out[kept] / expected - 1.0)))"),
        Mutant("signed value error", ROW, "float(np.max(np.abs(row.out[kept] / expected - 1.0)))", "float(np.max(row.out[kept] / expected - 1.0)) * 0"),
        Mutant("narrow outputs get no room", ROW, "    return (entries + 4) * U + (u_out if u_out > U else 0.0)", "    return (entries + 4) * U"),
        Mutant("digest taken as given", ROWS, "tobytes()) != before", "tobytes()) == before and False"),
        Mutant("lacking tensors skipped", ROWS, "        if lacking:", "        if False:"),
        Mutant("parameters of the first row", ROWS, 'k = int(held["top_k"][index])', 'k = int(held["top_k"][0])'),
        Mutant("right rows counted", KEPT, "if row.judged.wrong is not None]", "if row.judged.wrong is None]"),
        Mutant("pattern without others", KEPT, "    if len(kinds) != 1 or not others:", "    if len(kinds) != 1:"),
        Mutant("rows for values", BAD, "value=float(sum(counts))", "value=float(len(rows))"),
        Mutant("unchanged counted", INPUT, "value=float(len(changed))", "value=float(len(found.cand.prompts) - len(changed)) * 0"),
    ],
}
