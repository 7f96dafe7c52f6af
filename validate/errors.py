"""The exception tree: what stops us from having a verdict.

A failed gate is a result, not an exception. Each class carries the exit code
that the command line returns for it.
"""

__all__ = ["CaptureError", "IncomparableError", "InputError", "SuiteError", "ValidateError"]


class ValidateError(Exception):
    """Base of every error this package raises on purpose; uncaught it exits 70."""

    exit_code = 70


class InputError(ValidateError):
    """An argument, option, target or file given by the user is wrong; exits 2."""

    exit_code = 2


class SuiteError(InputError):
    """A suite, limits or waiver file is wrong; exits 2."""


class CaptureError(ValidateError):
    """A capture is damaged, incomplete or hostile, or could not be written; exits 4."""

    exit_code = 4


class IncomparableError(ValidateError):
    """Two captures cannot be paired, and every reason is named; exits 4."""

    exit_code = 4
