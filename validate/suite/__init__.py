"""Suites and limits: what is gated, by which numbers, and who spends how much alpha."""

from validate.suite.choice import (
    UNKEPT,
    Chosen,
    alpha_shares,
    check_limits,
    choose_limit,
    choose_setting,
    narrower,
    select_gates,
)
from validate.suite.files import (
    dump_limits,
    limits_digest,
    load_limits,
    load_prompts,
    load_rules,
    load_suite,
)
from validate.suite.published import suite_schema
from validate.suite.waivers import check_waivers, load_waivers

__all__ = [
    "UNKEPT",
    "Chosen",
    "alpha_shares",
    "check_limits",
    "check_waivers",
    "choose_limit",
    "choose_setting",
    "dump_limits",
    "limits_digest",
    "load_limits",
    "load_prompts",
    "load_rules",
    "load_suite",
    "load_waivers",
    "narrower",
    "select_gates",
    "suite_schema",
]
