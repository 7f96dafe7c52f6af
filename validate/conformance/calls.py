"""One Python call that judges a function; nothing heavy is imported before it is made."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from validate.schema.conformance import ConformanceResult

__all__ = ["check"]


def check(
    op: str,
    function: Callable[..., Any] | str,
    *,
    contract: Mapping[str, str] | None = None,
    device: str = "cpu",
    full: bool = False,
    time_limit: float = 30.0,
    save_to: Path | None = None,
) -> ConformanceResult:
    """Judge a function against the contract of an operation, in this process.

    Args:
        op: Name of an operation, e.g. ``top_k_renorm_prob``.
        function: Takes torch tensors and scalars by the argument names of the contract;
            a registered name or ``module:function`` runs in a process of its own, which
            alone can end a call that hangs or crashes.
        contract: Settings that differ from the contract's defaults, e.g. ``{"ties": "all"}``.
        device: ``cpu`` or ``cuda``.
        full: The whole cross of axes in place of the quick sweep.
        time_limit: Seconds a call may take.
        save_to: Folder for the smallest failing input; it is not saved when None.

    Returns:
        The result; ``verdict`` is PASS, FAIL, or INCONCLUSIVE when nothing could run here.

    Raises:
        InputError: The operation, a setting or the implementation is unknown.
    """
    from validate.conformance.engine import run_conformance
    from validate.conformance.records import Effort

    return run_conformance(
        op,
        function,
        settings=contract,
        effort=Effort.FULL if full else Effort.QUICK,
        device=device,
        time_limit=time_limit,
        save_to=save_to,
    )
