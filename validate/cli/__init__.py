"""The command line: parses, calls ``run``, prints, returns an exit code."""

from validate.cli.app import main

__all__ = ["main"]
