"""An implementation behind guards: what every contract demands, whatever the operation.

``direct`` runs in this process; ``guarded`` (in ``isolation``) in a child that is killed
at the time limit and replaced when it dies. Both raise ``Broke`` with the clause that was
broken; nothing an implementation does ends the sweep.
"""

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from validate.conformance.arrays import dtype_name, to_numpy
from validate.conformance.banded import bytes_of, overlaps, place_inputs, poisoned_memory
from validate.conformance.records import Breach, Call, Operation, OutputSpec, Settings

__all__ = ["GENERAL", "Broke", "direct"]

GENERAL: Mapping[str, str] = {
    "returns": "It returns what the signature names; it neither raises nor ends the process.",
    "time": "It returns within the time limit of a call.",
    "shape": "Each output has the shape that the inputs imply.",
    "dtype": "Each output has the dtype that the contract names.",
    "device": "Each output lies on the device of the inputs.",
    "inputs-unchanged": "No byte of an input, nor of the memory round it, is written.",
    "own-memory": "No output shares memory with an input, with another output, or with what "
    "an earlier or a later call gives.",
}
"""Clauses of every contract."""
_POISON = 0xFF
"""Byte that fills outputs once they are copied: whoever writes there again is seen."""


class Broke(Exception):
    """An implementation broke a general clause; carries the breach."""

    def __init__(self, breach: Breach) -> None:
        super().__init__(f"{breach.clause}: {breach.what}")
        self.breach = breach


@dataclass
class _Direct:
    """The state of one guarded implementation: the outputs of its last call, poisoned."""

    function: Callable[..., Any]
    operation: Operation
    settings: Settings
    device: str
    time_limit: float | None
    calls: int = 0
    held: dict[str, torch.Tensor] = field(default_factory=dict)

    def __call__(self, inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        self.calls += 1
        found = self._once(inputs)
        if self.calls & (self.calls - 1) == 0:
            # The same call once more: an output that is a view into scratch is written again.
            # Later calls are held against the one before them at no cost; this one makes a
            # single case reproducible by itself.
            self._once(inputs)
        return found

    def _once(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        specs = self.operation.outputs(inputs, self.settings)
        arguments, guarded = place_inputs(inputs, device=self.device)
        started = time.monotonic()
        outputs = _named(_run(self.function, arguments, self.device), specs)
        took = time.monotonic() - started
        if self.time_limit is not None and not took <= self.time_limit:
            raise Broke(_slow(took, self.time_limit))
        for name, banded in guarded.items():
            written = banded.written()
            if written is not None:
                raise Broke(Breach(clause="inputs-unchanged", what=f"input '{name}': {written}"))
        for name, tensor in outputs.items():
            _check_form(name, tensor, specs[name], device=self.device)
        self._check_memory(outputs, {name: one.buffer for name, one in guarded.items()})
        copies = {
            # A conjugate or negative view is its memory read in another way.
            name: to_numpy(tensor.resolve_conj().resolve_neg())
            for name, tensor in outputs.items()
        }
        for tensor in outputs.values():
            bytes_of(tensor).fill_(_POISON)
        self.held = outputs
        return copies

    def _check_memory(
        self, outputs: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]
    ) -> None:
        names = list(outputs)
        for place, name in enumerate(names):
            for other, buffer in inputs.items():
                if overlaps(outputs[name], buffer):
                    raise Broke(_shared(name, f"input '{other}'"))
            for other in names[place + 1 :]:
                if overlaps(outputs[name], outputs[other]):
                    raise Broke(_shared(name, f"output '{other}'"))
        for earlier, old in self.held.items():
            for name, tensor in outputs.items():
                if overlaps(tensor, old):
                    raise Broke(_shared(name, f"output '{earlier}' of the call before"))
            if bool((bytes_of(old) != _POISON).any()):
                what = f"output '{earlier}' of the call before changed during this call"
                raise Broke(Breach(clause="own-memory", what=what))


def direct(
    function: Callable[..., Any],
    operation: Operation,
    settings: Settings,
    *,
    device: str = "cpu",
    time_limit: float | None = None,
) -> Call:
    """An implementation behind the general clauses, in this process.

    Args:
        function: Takes torch tensors and scalars by the argument names of the contract.
        operation: Says what the outputs must look like.
        settings: Contract settings, every key present.
        device: ``cpu`` or ``cuda``: where the inputs are put and outputs must lie.
        time_limit: Seconds a call may take; a longer one breaks ``time`` once it is
            over (nobody can end it in this process; ``guarded`` can).

    Returns:
        A call that takes NumPy inputs by name and gives NumPy outputs by name; it
        raises ``Broke`` for a general clause. It runs the implementation twice at the
        1st, 2nd, 4th, ... call, to see who owns the outputs' memory.
    """
    return _Direct(function, operation, settings, device, time_limit)


def _run(function: Callable[..., Any], arguments: Mapping[str, Any], device: str) -> Any:
    dtype = torch.get_default_dtype()
    try:
        with torch.no_grad(), poisoned_memory():
            found = function(**arguments)
            if device != "cpu":
                torch.cuda.synchronize()
    except (Exception, SystemExit) as error:
        raise Broke(Breach(clause="returns", what=_raised(error))) from error
    finally:
        torch.set_default_dtype(dtype)
    return found


def _raised(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    inner = [frame for frame in frames if "validate/conformance/guard" not in frame.filename]
    where = ""
    if inner:
        name = inner[-1].filename.rpartition("/")[2]
        where = f" ({name}:{inner[-1].lineno} in {inner[-1].name})"
    text = " ".join(_message(error).split())
    return f"it raised {type(error).__name__}: {text[:300] or '(no message)'}{where}"


def _message(error: BaseException) -> str:
    """What an error says; even that is code of the implementation."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode("utf-8")
    except (Exception, SystemExit) as second:  # noqa: BLE001  whatever it does, it is told
        return f"(its message raised {type(second).__name__})"


def _slow(took: float, limit: float) -> Breach:
    return Breach(
        clause="time",
        what=f"a call took {took:.4g} s, limit {limit:.4g} s",
        ratio=took / limit,
    )


def _shared(name: str, other: str) -> Breach:
    return Breach(clause="own-memory", what=f"output '{name}' shares memory with {other}")


def _named(found: Any, specs: Mapping[str, OutputSpec]) -> dict[str, torch.Tensor]:
    """Outputs by name, each a strided tensor."""
    names = list(specs)
    if isinstance(found, Mapping):
        values: Sequence[Any] = [found.get(name) for name in names]
        count = len(found)
    elif isinstance(found, tuple | list):
        values, count = found, len(found)
    else:
        values, count = [found], 1
    if count != len(names) or len(values) != len(names):
        wanted = ", ".join(f"'{name}'" for name in names)
        what = f"it returned {_kind(found)}, expected {len(names)} output(s): {wanted}"
        raise Broke(Breach(clause="returns", what=what))
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            what = f"output '{name}' is {_kind(value)}, expected a strided tensor"
            raise Broke(Breach(clause="returns", what=what))
    return {name: _held(value.detach()) for name, value in zip(names, values, strict=True)}


def _held(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with memory of its own where it is a zero that has none."""
    return torch.zeros_like(tensor, device=tensor.device) if tensor._is_zerotensor() else tensor


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, tuple | list | Mapping):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, torch.Tensor):
        return f"a tensor of layout {value.layout}, shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def _check_form(name: str, tensor: torch.Tensor, spec: OutputSpec, *, device: str) -> None:
    if tensor.device.type != torch.device(device).type:
        what = f"output '{name}' lies on {tensor.device.type}, the inputs on {device}"
        raise Broke(Breach(clause="device", what=what))
    if tuple(tensor.shape) != tuple(spec.shape):
        what = f"output '{name}' has shape {tuple(tensor.shape)}, expected {tuple(spec.shape)}"
        raise Broke(Breach(clause="shape", what=what))
    if dtype_name(tensor) != spec.dtype:
        what = f"output '{name}' is {dtype_name(tensor)}, expected {spec.dtype}"
        raise Broke(Breach(clause="dtype", what=what))
