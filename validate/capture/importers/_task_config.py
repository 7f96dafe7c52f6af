"""Of a task's configuration in ``results_*.json`` what makes its prompts and scores."""

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["task_config"]

COMPARED = (
    "description",
    "doc_to_choice",
    "doc_to_target",
    "doc_to_text",
    "fewshot_config",
    "fewshot_delimiter",
    "fewshot_split",
    "filter_list",
    "gen_prefix",
    "metric_list",
    "process_docs",
    "process_results",
    "repeats",
    "target_delimiter",
)
"""Paths of data and sources are left out: two machines keep them in other places."""
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
"""Of a Python function in the text that lm-eval writes for it: other in every process."""
PLAIN = {"sampler": "default"}
"""What lm-eval fills in, so that older versions leave it out."""


def task_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Key to canonical JSON; what is empty counts as unset.

    Few-shot settings that repeat the task's own are left out: whether they are written depends on
    the version of lm-eval.
    """
    held = {key: config[key] for key in COMPARED if config.get(key) not in (None, "", [], {})}
    shots = held.get("fewshot_config")
    if isinstance(shots, dict):
        own = {
            key: value
            for key, value in shots.items()
            if value not in (None, "", config.get(key), PLAIN.get(key))
        }
        held.pop("fewshot_config")
        held |= {"fewshot_config": own} if own else {}
    return {
        key: ADDRESS.sub("0x", json.dumps(held[key], sort_keys=True, default=str))
        for key in sorted(held)
    }
