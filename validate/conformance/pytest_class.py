"""A pytest class to inherit: one test a sweep point.

::

    from validate.conformance.pytest_class import ConformanceSuite


    class TestMyRenorm(ConformanceSuite):
        op = "top_k_renorm_prob"
        implementation = "my_kernels:renorm"
        contract = {"ties": "exactly_k"}
"""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from validate.conformance.engine import TIME_LIMIT, judge_case
from validate.conformance.guard import direct
from validate.conformance.isolation import guarded
from validate.conformance.records import Call, Case, Effort, Implementation, Operation, Settings
from validate.conformance.registry import find_implementation, find_operation, settle, unavailable
from validate.conformance.stored import save_case
from validate.errors import InputError, ValidateError

__all__ = ["ConformanceSuite"]


class ConformanceSuite:
    """Inherit, name ``op`` and ``implementation``, and every sweep point is a test."""

    op: ClassVar[str | Operation]
    """Name of an operation, e.g. ``top_k_renorm_prob``."""
    implementation: ClassVar[Any]
    """A function (judged in this process), or a registered name or ``module:function``
    (judged in a process of its own, which can be killed)."""
    contract: ClassVar[Mapping[str, str]] = {}
    """Settings that differ from the contract's defaults."""
    device: ClassVar[str] = "cpu"
    effort: ClassVar[str] = "quick"
    """``quick`` or ``full``."""
    time_limit: ClassVar[float] = TIME_LIMIT
    """Seconds a call may take."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make one test of each sweep point; a sweep without points is an error."""
        if "conformance_case" not in metafunc.fixturenames:
            return
        operation, _, settings = _judged(type(self))
        cases = list(operation.cases(Effort(self.effort), settings))
        if not cases:
            msg = f"{operation.contract.op}: the {self.effort} sweep has no point"
            raise ValidateError(msg)
        metafunc.parametrize("conformance_case", cases, ids=[case.id for case in cases])

    @pytest.fixture(scope="class")
    @classmethod
    def conformance_call(cls, request: pytest.FixtureRequest) -> Call:
        """The implementation behind guards, one for the whole class."""
        operation, record, settings = _judged(cls)
        why = unavailable(record, cls.device)
        if why is not None:
            pytest.skip(f"{record.name} on {cls.device}: {why}")
        where: dict[str, Any] = {"device": cls.device, "time_limit": cls.time_limit}
        if not isinstance(cls._given(), str):
            return direct(record.function, operation, settings, **where)
        op = cls.op if isinstance(cls.op, str) else operation.contract.op
        stack = contextlib.ExitStack()
        request.addfinalizer(stack.close)  # noqa: PT021  a wrapped generator is no fixture
        return stack.enter_context(guarded(record.name, op, settings, **where))

    def test_sweep_point(
        self, conformance_case: Case, conformance_call: Call, tmp_path: Path
    ) -> None:
        """The implementation keeps every clause of the contract at this point."""
        operation, record, settings = _judged(type(self))
        breaches = judge_case(operation, conformance_case, conformance_call, settings)
        if not breaches:
            return
        op, folder = operation.contract.op, tmp_path / "case"
        save_case(
            conformance_case,
            folder,
            op=op,
            implementation=record.name,
            settings=settings,
            device=self.device,
            breaches=breaches,
        )
        lines = [f"{op}, point {conformance_case.id}: {record.name} breaks"]
        lines += [f"  {breach.clause}: {breach.what}" for breach in breaches]
        lines.append(f"  rerun: validate conformance --case {folder} --impl {record.name}")
        pytest.fail("\n".join(lines), pytrace=False)

    @classmethod
    def _given(cls) -> Callable[..., Any] | str:
        given = inspect.getattr_static(cls, "implementation", None)
        found: Callable[..., Any] | str | None = (
            given.__func__ if isinstance(given, staticmethod) else given
        )
        if found is None:
            msg = f"{cls.__name__}: implementation is missing; next: name a function, or MODULE:FUNCTION"
            raise InputError(msg)
        return found


def _judged(cls: type[ConformanceSuite]) -> tuple[Operation, Implementation, Settings]:
    op = getattr(cls, "op", None)
    if op is None:
        msg = f"{cls.__name__}: op is missing; next: op = 'top_k_renorm_prob'"
        raise InputError(msg)
    operation = find_operation(op) if isinstance(op, str) else op
    given = cls._given()
    if isinstance(given, str):
        record = find_implementation(given, operation.contract.op, imports=False)
    else:
        name = f"{given.__module__}:{getattr(given, '__qualname__', type(given).__name__)}"
        record = Implementation(name=name, op=operation.contract.op, function=given, title=name)
    return operation, record, settle(operation, cls.contract, record)
