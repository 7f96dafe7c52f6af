"""Folders that other tools wrote, read as sides of a comparison."""

from validate.capture.importers._folder import EvalFolder, manifest_of
from validate.capture.importers.lm_eval import is_lm_eval_folder, open_lm_eval

__all__ = ["IMPORTERS", "EvalFolder", "is_lm_eval_folder", "manifest_of", "open_lm_eval"]

IMPORTERS = {
    "lm-eval": "output folder of lm-eval --log_samples: results_*.json and samples_<task>_*.jsonl",
}
"""What can be read beside captures, with one line each."""
