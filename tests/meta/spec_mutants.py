"""The faults that ``test_metric_mutation`` plants in the metrics of drawn streams."""

from collections.abc import Mapping, Sequence

from tests.meta.metric_mutants import Mutant

__all__ = ["SPEC_MUTANTS"]

READ = "metrics._spec_read"
BOOKS = "metrics._spec_books"
STREAMS = "metrics._spec_streams"
TESTS = "metrics._spec_tests"
UNIFORM = "metrics.speculative_uniform"
SURPRISAL = "metrics.speculative_surprisal"
SERIAL = "metrics.speculative_serial"
COUNT = "metrics.speculative_acceptance_z"
DELTA = "metrics.speculative_acceptance_delta"
SUPPORT = "metrics.speculative_support"
BAD = "metrics.speculative_nonfinite"
INSIDE = "metrics._spec_inside"
KL = "metrics.speculative_verify_kl"
HEALTH = "metrics.speculative_health"
GREEDY = "metrics.speculative_greedy_unexplained"
REPLAY = "metrics.speculative_replay"
AUDIT = "metrics.speculative_audit"
LOGPROB = "metrics.speculative_logprob"

# One fault a line.
# fmt: off
SPEC_MUTANTS: Mapping[str, Sequence[Mutant]] = {
    "test_spec_contradictions": [
        Mutant("negative distance passes", BAD, "~(tokens.edge >= 0.0)", "tokens.token < 0"),
        Mutant("any variance passes", BAD, "~(tokens.variance <= most**2 + 1.0)", "(tokens.token < 0)"),
        Mutant("any entropy passes", BAD, "~(tokens.entropy <= most + ROUNDING)", "(tokens.token < 0)"),
        Mutant("another chance than its mass", BAD, "np.abs(mass - tokens.p) <= ROUNDING", "np.abs(mass - tokens.p) <= 1.0"),
        Mutant("before the likeliest", BAD, "below >= tokens.top - ROUNDING", "below >= 0.0"),
        Mutant("negative audit passes", AUDIT, "np.where(audit < 0, np.nan, audit)", "audit"),
        Mutant("another drafter compared", DELTA, "if digests[0] != digests[1]:", "if False:"),
        Mutant("copied stream let through", READ, "if not (surprisal >= FREE):", "if True:"),
        Mutant("other parameters let through", STREAMS, "if asked[0][place] != asked[1][place]:", "if False:"),
    ],
    "test_spec_cut": [
        Mutant("columns not counted", BOOKS, "if held != shape:", "if False:"),
        Mutant("a prompt without its books passes", BOOKS, "if not any(owner.holds(name) for name in STEP_NAMES):", "if False:"),
        Mutant("other blocks pass", BOOKS, "of_steps | of_drafts", "{name: owner.column(name).shape for name in STEP_NAMES}"),
        Mutant("a prompt without steps passes", BOOKS, "if drafted and why is None:", 'if owner.holds("count") and why is None:'),
        Mutant("steps cut at the end", BOOKS, "step[0] != 0 or step[-1] >= len(place)", "False"),
        Mutant("anchors not looked at", BOOKS, "position != place[step] + 1 + row", "position != position"),
        Mutant("another q", BOOKS, "for name in (\"q\", \"p\"):", "for name in (\"p\",):"),
        Mutant("another p", BOOKS, "for name in (\"q\", \"p\"):", "for name in (\"q\",):"),
        Mutant("no rounding", BOOKS, "eps * np.maximum(a, b)", "0.0 * np.maximum(a, b)"),
        Mutant("a thousand roundings", BOOKS, "eps * np.maximum(a, b)", "1e3 * eps * np.maximum(a, b)"),
        Mutant("q of tokens drawn anew", BOOKS, "own = own[owner.whole(\"tokens\")[at[own]] == drafts[step[own], row[own]]]", "own = own[:]"),
        Mutant("missing q contradicts", BOOKS, "chances & ~(np.abs(a - b)", "~(np.abs(a - b)"),
        Mutant("fewer rows pass", INSIDE, "if held >= wanted:", "if held >= 1:"),
        Mutant("no row passes", INSIDE, "if held >= wanted:", "if True:"),
        Mutant("ref's rows not asked for", INSIDE, "here = {*pair.cand.names(prompt), *pair.ref.names(prompt)}", "here = {*pair.cand.names(prompt)}"),
        Mutant("tags not looked at", INSIDE, "TAG in pair.cand.prompts[prompt].tags or bool(here & {*names})", "bool(here & {*names})"),
        Mutant("rows of fewer ids", INSIDE, "forced.shape[1:] == (side.vocab,) and", ""),
        Mutant("refused rows passed over", LOGPROB, 'if rows.kind == "unlike":', "if False:"),
        Mutant("other states", AUDIT, "if audit.shape[1] != states:", "if False:"),
        Mutant("states of cand alone", AUDIT, "for side in (pair.ref, pair.cand)", "for side in (pair.cand,)"),
        Mutant("streams cut before their replay", REPLAY, "if again > own:", "if False:"),
        Mutant("a replay that parted is cut", REPLAY, "if not unlike.size and (", "if ("),
        Mutant("columns of ref not named", BAD, "for side in (ref, cand):", "for side in (cand,):"),
    ],
    "test_speculative_bad_input": [
        Mutant("tests rest on damaged numbers", TESTS, "return side if why is None else Reason(why)", "return side"),
        Mutant("damaged ref let through", DELTA, "why = damage(ref)", "why = None"),
        Mutant("acceptance without q compared", DELTA, "if len(drawn.steps) and not np.isfinite(drawn.steps.expected).any():", "if False:"),
        Mutant("number needed left out", TESTS, "n_needed=MIN_PAIRS if n < MIN_PAIRS else None", "n_needed=None"),
        Mutant("moments pass unseen", BAD, "_no_size(tokens.entropy) | ~(tokens.entropy <= most + ROUNDING)", "tokens.token < 0"),
        Mutant("sampled ids beyond the tokenizer unseen", BAD, "count = int(np.count_nonzero((held >= length) & (held < side.vocab)))", "count = 0"),
        Mutant("greedy ids beyond the tokenizer pass", BAD, "drawn.tokens.token[drawn.tokens.temperature == 0]", "drawn.tokens.token[:0]"),
    ],
    "test_speculative_laws": [
        Mutant("equal seeds let through", READ, "if seed is not None and seed in seen:", "if False:"),
        Mutant("stripped stop token let through", READ, 'if stream.finish_reason == "stop" and', "if False and"),
        Mutant("dropped positions let through", BOOKS, "if row[0] == 0 and follows.all():", "if True:"),
        Mutant("simulated acceptance let through", READ, "if bare in RELAXED and", "if False and"),
        Mutant("relaxed acceptance let through", READ, "if bare in THRESHOLDS and", "if False and"),
        Mutant("settings that are off refuse", READ, "str(value).lower() not in OFF", "True"),
        Mutant("refusal not looked at", TESTS, "if side.refusal is not None:", "if False:"),
        Mutant("refusal is no data", TESTS, 'return Reason(side.refusal, "unlike")', "return Reason(side.refusal)"),
        Mutant("greedy requests enter", STREAMS, "drawn.tokens.where(drawn.tokens.temperature > 0)", "drawn.tokens.where(drawn.tokens.temperature >= 0)"),
        Mutant("V left out", STREAMS, "below + v * mass", "below + 0.0 * v * mass"),
        Mutant("strongest kind tells the power", TESTS, "weakest = max(seen", "weakest = min(seen"),
        Mutant("power at another level", TESTS, "alpha=1.0 - levels.low", "alpha=0.05"),
        Mutant("strata skipped", UNIFORM, "made += family(strata / len(ways), part)", "pass"),
        Mutant("power of the whole level", UNIFORM, "alpha = (1.0 - levels.low) * weight * share", "alpha = (1.0 - levels.low)"),
        Mutant("power from cand", UNIFORM, "reference.get(drawn.kind, drawn)", "drawn"),
        Mutant("no information is all of it", UNIFORM, "shift / scale if scale > 0 else math.inf", "shift / scale if scale > 0 else 0.0"),
        Mutant("greedy by most tokens", UNIFORM, "_greedy_hits(tokens).all()", "_greedy_hits(tokens).mean() > 0.9"),
        Mutant("the argmax counted as it is", UNIFORM, "np.sin(math.pi * top) / (math.pi * top)", "1.0 / (math.pi * top)"),
        Mutant("certain tokens enter", UNIFORM, "drawn.tokens.entropy >= INFORMATIVE", "drawn.tokens.entropy >= -1.0"),
        Mutant("surprisal's sign turned", SURPRISAL, "moved = np.log(tokens.p) + tokens.entropy", "moved = -np.log(tokens.p) - tokens.entropy"),
        Mutant("entropy forgotten", SURPRISAL, "moved = np.log(tokens.p) + tokens.entropy", "moved = np.log(tokens.p)"),
        Mutant("words turned", SURPRISAL, "(worst.test.statistic or 0.0) > 0 else", "(worst.test.statistic or 0.0) < 0 else"),
        Mutant("power without variance", SURPRISAL, "shift / math.sqrt(total) if", "shift / total if"),
        Mutant("shared numbers not looked for", SERIAL, "*_shared(tokens, u, drawn.kind)", "*[]"),
        Mutant("neighbours across streams", SERIAL, "here = (tokens.prompt[lag:] == tokens.prompt[:-lag]) & (", "here = (tokens.prompt[lag:] == tokens.prompt[lag:]) | ("),
        Mutant("behind the first rejection too", STREAMS, "last = np.minimum(self.count + 1, self.limit)", "last = self.limit + 1"),
        Mutant("impossible decisions let through", COUNT, "if not wrong.any():", "if True:"),
        Mutant("only too many", COUNT, "| ((expected == 1.0) & ~accepted)", "| ((expected == 2.0) & ~accepted)"),
        Mutant("only too few", COUNT, "((expected == 0.0) & accepted)", "((expected == 2.0) & accepted)"),
        Mutant("variance of one half", COUNT, "return name, skewed_z(moved, spread,", "return name, skewed_z(moved, spread * 4.0,"),
        Mutant("direction turned", COUNT, 'way = "more" if', 'way = "fewer" if'),
        Mutant("tokens per forward without the last", "metrics._spec_figures", "float(np.mean(steps.count)) + 1.0", "float(np.mean(steps.count))"),
    ],
    "test_speculative_inside": [
        Mutant("NaN chances pass", BAD, "~((values >= 0.0) & (values <= 1.0 + ROUNDING))", "(values < 0.0) | (values > 1.0 + ROUNDING)"),
        Mutant("ref not looked at", BAD, '(("ref", ref), ("cand", cand))', '(("cand", cand),)'),
        Mutant("the vocabulary's end is an id", BAD, "(tokens.token >= side.vocab)", "(tokens.token > side.vocab)"),
        Mutant("q not asked for", BAD, "drafted & _no_chance(tokens.q)", "drafted & False"),
        Mutant("band not over the temperature", SUPPORT, "near_tie / scale", "near_tie * scale"),
        Mutant("NaN distance passes", SUPPORT, "~(tokens.edge <= near_tie / scale)", "tokens.edge > near_tie / scale"),
        Mutant("ties count", SUPPORT, "(tokens.p > 0) & ~unknown", "~unknown"),
        Mutant("impossible outcomes let through", SUPPORT, "wrong = outside | _impossible(drawn)", "wrong = outside | (_impossible(drawn) & False)"),
        Mutant("unknown q counts", SUPPORT, "unknown = np.isnan(mass) & np.isnan(tokens.q)", "unknown = np.isnan(mass) & False"),
        Mutant("signed mean", DELTA, "value=abs(signed)", "value=signed"),
        Mutant("rows weigh alike", DELTA, "signed = float(np.median(means))", "signed = float(np.mean(held.delta))"),
        Mutant("mean for median", DELTA, "signed = float(np.median(means))", "signed = float(np.mean(means))"),
        Mutant("other prefixes compared", DELTA, "held = two.place[j] < shared", "held = two.place[j] >= 0"),
        Mutant("one token too far", DELTA, "held = two.place[j] < shared", "held = two.place[j] <= shared"),
        Mutant("sides turned", DELTA, "delta = right[at, row] - left[at, row]", "delta = left[at, row] - right[at, row]"),
        Mutant("other rules compared as they are", DELTA, "if common_rule:", "if True:"),
        Mutant("other proposals compared", DELTA, "if said[0] != said[1]:", "if False:"),
        Mutant("KL turned", INSIDE, "kl = np.sum(p * (a - b), axis=1)", "kl = np.sum(np.exp(b) * (b - a), axis=1)"),
        Mutant("NaN rows are 0", INSIDE, "column[bad] = np.nan", "column[bad] = 0.0"),
        Mutant("unlikely ids count", INSIDE, "p >= LIKELY", "p >= 0.0"),
        Mutant("returned value not looked at", INSIDE, "np.abs(logprob - a[", "np.abs(0.0 * logprob + 0.0 * a["),
        Mutant("maximum for mean", KL, "float(np.mean(rows.kl[rows.window == r]))", "float(np.max(rows.kl[rows.window == r]))"),
        Mutant("smallest row index", KL, "index = max(means", "index = min(means"),
        Mutant("constant values not named", LOGPROB, "np.ptp(drawn.tokens.logprob) == 0.0", "False"),
        Mutant("every temperature", LOGPROB, "held = np.isin(drawn.tokens.group, plain) &", "held ="),
        Mutant("mean state", AUDIT, "per_step = np.max(audit, axis=1)", "per_step = np.mean(audit, axis=1)"),
        Mutant("NaN state passes", AUDIT, "per_step = np.max(audit, axis=1)", "per_step = np.nanmax(audit, axis=1)"),
        Mutant("steps not counted", AUDIT, "len(audit) != len(steps) or", "False or"),
        Mutant("nothing accepted is healthy", HEALTH, "if judged.any() and not (steps.accepts[judged] > 0).any():", "if False:"),
        Mutant("constant drafts are healthy", HEALTH, "if (steps.drafts == steps.drafts.flat[0]).all():", "if False:"),
        Mutant("clamped counts let through", HEALTH, "if off:", "if False:"),
        Mutant("foreign tokens let through", HEALTH, "if strange:", "if False:"),
        Mutant("shift turned", HEALTH, "table[first + rows + shift]", "table[first + rows - shift]"),
        Mutant("NaN gap passes", GREEDY, "if gap <= pair.near_tie:", "if not gap > pair.near_tie:"),
        Mutant("gap turned", GREEDY, "row[plain.token_ids[at]] - row[int(own[at])]", "row[int(own[at])] - row[plain.token_ids[at]]"),
        Mutant("every parting counts", GREEDY, "if gap <= pair.near_tie:", "if False:"),
        Mutant("replay not compared", REPLAY, "own[:shared] != again[:shared]", "own[:shared] != own[:shared]"),
        Mutant("all prompts counted", REPLAY, "value=parted / n", "value=parted / len(pair.prompts) / 2"),
    ],
}
