"""What a run must know of its captures before it measures: who they are and what they prove."""

import hashlib
from collections.abc import Collection, Sequence

from validate.schema.deviations import DEVIATION_BRANCHES
from validate.schema.manifest import Evidence, Manifest, supported_evidence
from validate.schema.pair import Side
from validate.schema.paths import (
    OPTION_BRANCHES,
    PAD_BRANCHES,
    PATHS,
    PROMPTED,
    TARGET_PATHS,
    UNDRAFTED,
)
from validate.schema.suite import Suite

__all__ = [
    "capture_digest",
    "content_digest",
    "deviation_gaps",
    "evidence_of",
    "fit_repeats",
    "proof_gaps",
    "proven_deviations",
    "refusals",
    "sameness",
]

ANY_MODEL = "*"
"""What a suite names whose limits hold for every model."""

NOT_CONTENT = ("timing",)
"""Artifacts that differ between two runs of the very same numbers."""


def capture_digest(side: Side) -> str:
    """Digest of a whole capture: its own, or that of its manifest."""
    digest = getattr(side, "digest", None)
    if isinstance(digest, str):
        return digest
    return hashlib.sha256(side.manifest.model_dump_json().encode()).hexdigest()


def content_digest(manifest: Manifest) -> str:
    """Digest of what was captured, whoever captured it when: every artifact but the timing."""
    files = sorted(
        f"{file.artifact} {file.sha256}"
        for file in manifest.artifacts
        if file.artifact not in NOT_CONTENT
    )
    return hashlib.sha256("\n".join(files).encode()).hexdigest()


def evidence_of(manifest: Manifest) -> Evidence:
    """What the path proof leaves of the evidence that the manifest claims."""
    return supported_evidence(
        manifest.evidence, device=manifest.provenance.device, proof=manifest.path_proof
    )


def refusals(ref: Side, cand: Side, *, suite: Suite) -> tuple[str, ...]:
    """Why this suite may not judge these two captures at all; empty when it may."""
    told = []
    for role, side in (("ref", ref), ("cand", cand)):
        manifest = side.manifest
        found = evidence_of(manifest)
        if found not in suite.evidence:
            claim = (
                "" if found == manifest.evidence else f" (its manifest claims {manifest.evidence})"
            )
            told.append(
                f"missing evidence: {role} '{side.label}' is {found}{claim}, suite "
                f"'{suite.name}' accepts {' or '.join(suite.evidence)} only; {_wanted(manifest)}"
            )
        if suite.model not in (ANY_MODEL, manifest.model.name):
            told.append(
                f"{role} '{side.label}' is a capture of {manifest.model.name}, suite "
                f"'{suite.name}' and its limits are for {suite.model}"
            )
    return tuple(told)


def _wanted(manifest: Manifest) -> str:
    if manifest.path_proof.path == "rocm":
        return "capture it on a ROCm device through AITER's kernels, counted in the path proof"
    return "capture it on a named CUDA card"


def sameness(ref: Side, cand: Side) -> tuple[str, ...]:
    """Sentences that say aloud that cand is ref, or holds the very same bytes."""
    told: list[str] = []
    if capture_digest(ref) == capture_digest(cand):
        told.append(
            f"ref and cand are one and the same capture (digest {capture_digest(ref)[:12]}): "
            "every difference is 0 by construction and says nothing about another path"
        )
    elif ref.manifest.artifacts and content_digest(ref.manifest) == content_digest(cand.manifest):
        told.append(
            f"cand '{cand.label}' holds byte for byte what ref '{ref.label}' holds, "
            "though their manifests differ"
        )
    return tuple(told)


def fit_repeats(
    ref: Side, cand: Side, repeats: Sequence[Side]
) -> tuple[tuple[Side, ...], tuple[str, ...]]:
    """The repeats a floor may rest on, and a sentence for each that is left out.

    Left out are the one under judgement, ref itself, and doubles.
    """
    seen: dict[str, str] = {
        content_digest(cand.manifest): "it is under judgement itself",
        capture_digest(cand): "it is under judgement itself",
        capture_digest(ref): "it is ref itself",
    }
    kept: list[Side] = []
    notes: list[str] = []
    for repeat in repeats:
        keys = (capture_digest(repeat), content_digest(repeat.manifest))
        why = next((seen[key] for key in keys if key in seen), None)
        if why is None:
            kept.append(repeat)
            seen[keys[0]] = f"it is '{repeat.label}' once more"
        else:
            notes.append(f"repeat '{repeat.label}' is left out of the noise floor: {why}")
    return tuple(kept), tuple(notes)


def proof_gaps(role: str, side: Side) -> tuple[str, ...]:
    """What a side's path proof lacks of what its target's name promises, or has too much.

    Args:
        role: ``ref`` or ``cand``.
        side: The capture.
    """
    manifest = side.manifest
    ran = _ran(manifest)
    known = _promised_path(manifest.target)
    if known is None:
        return (
            () if _any_ran(ran) else (f"{role} '{side.label}' proves no branch or kernel at all",)
        )
    gaps = []
    if manifest.path_proof.path != known:
        gaps.append(
            f"{role} '{side.label}' names the path {known}, its proof is of "
            f"{manifest.path_proof.path}"
        )
    required, forbidden = _promised_branches(manifest, known, prompted=bool(side.prompts))
    gaps += [
        f"{role} '{side.label}' lacks the branch {' or '.join(options)}"
        for options in required
        if not _any_ran({name: ran.get(name, 0) for name in options})
    ]
    gaps += [
        f"{role} '{side.label}' ran the branch {name}, which its target does not name"
        for name in forbidden
        if ran.get(name, 0) > 0
    ]
    return tuple(gaps)


def proven_deviations(side: Side) -> tuple[str, ...]:
    """Ids that a side declares and whose branch its path proof holds; only these have budgets."""
    ran = _ran(side.manifest)
    return tuple(
        one.id
        for one in side.manifest.deviations
        if one.id in DEVIATION_BRANCHES and ran.get(DEVIATION_BRANCHES[one.id], 0) > 0
    )


def deviation_gaps(role: str, side: Side) -> tuple[str, ...]:
    """Where a side's declared deviations and its path proof disagree, either way.

    Args:
        role: ``ref`` or ``cand``.
        side: The capture.
    """
    ran = _ran(side.manifest)
    declared = [one.id for one in side.manifest.deviations]
    gaps = []
    for name in declared:
        branch = DEVIATION_BRANCHES.get(name)
        if branch is None:
            gaps.append(
                f"{role} '{side.label}' declares the deviation {name}, which no branch is known to "
                f"prove (known: {', '.join(DEVIATION_BRANCHES)})"
            )
        elif not ran.get(branch, 0) > 0:
            gaps.append(
                f"{role} '{side.label}' declares the deviation {name}, but its path proof lacks "
                f"the branch {branch} that produces it"
            )
    gaps += [
        f"{role} '{side.label}' ran the branch {branch}: undeclared deviation {name}"
        for name, branch in DEVIATION_BRANCHES.items()
        if ran.get(branch, 0) > 0 and name not in declared
    ]
    return tuple(gaps)


def _ran(manifest: Manifest) -> dict[str, int]:
    return {**manifest.path_proof.branches, **manifest.path_proof.kernels}


def _any_ran(counts: dict[str, int]) -> bool:
    return any(count > 0 for count in counts.values())


def _promised_path(target: str) -> str | None:
    name = target.partition(":")[0]
    found = [known for known in TARGET_PATHS if name == known or name.startswith(f"{known}-")]
    return TARGET_PATHS[found[0]] if found else None


def _promised_branches(
    manifest: Manifest, path: str, *, prompted: bool
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Branches of which one must have run each, and branches that must not have run."""
    rule = PATHS[path]
    options = _options(manifest)
    required: list[tuple[str, ...]] = [
        (name,) for name in rule.requires if not _excused(name, options)
    ]
    forbidden = list(rule.forbids)
    undrafted = UNDRAFTED if options.get("draft") == "off" else ()
    off = {*undrafted, *(() if prompted else PROMPTED)}
    named = [
        branch
        for (key, value), branch in OPTION_BRANCHES.items()
        if options.get(key) == value and key not in off
    ]
    required += [(branch,) for branch in named]
    forbidden += [b for b in dict.fromkeys(OPTION_BRANCHES.values()) if b not in named]
    if path == "rocm":
        required += _pads(manifest, options)
    return required, forbidden


def _excused(branch: str, options: dict[str, str]) -> bool:
    """With a single split nothing is merged."""
    return branch == "lse_merge" and options.get("splits") == "1"


def _pads(manifest: Manifest, options: dict[str, str]) -> list[tuple[str, ...]]:
    pad = options.get("pad")
    if pad is None and manifest.fault is not None:
        return [_unique(branches) for branches in zip(*PAD_BRANCHES.values(), strict=True)]
    return [(branch,) for branch in PAD_BRANCHES.get(pad or "zero", PAD_BRANCHES["zero"])]


def _unique(branches: Collection[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(branches))


def _options(manifest: Manifest) -> dict[str, str]:
    """Options of the manifest, below those that the target itself names."""
    named = [part.partition("=") for part in manifest.target.partition(":")[2].split(",") if part]
    return {**manifest.options, **{key: value for key, _, value in named}}
