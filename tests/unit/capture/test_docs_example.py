"""docs/capture-format.md: its writer writes a capture, and its tables name what the code names."""

import re
from pathlib import Path
from typing import get_args

import ml_dtypes
import numpy as np
import pytest

from validate.capture import artifact_of, open_capture
from validate.capture.format import DTYPES, SHARD_PROMPTS
from validate.schema import ArtifactFile, Manifest, ModelIdentity, Prompt, Provenance, Stream

PAGE = (Path(__file__).parents[3] / "docs" / "capture-format.md").read_text()
WRITER, CALL = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
def test_the_example_writes_a_capture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(WRITER + CALL, scope)

    reader = open_capture(tmp_path / "my-engine", label="my-engine")

    assert reader.names("p-0") == ("logits", "logits.positions")
    assert reader.tensor("p-0", "logits").dtype == ml_dtypes.bfloat16
    assert reader.tensor("p-0", "logits.positions").tolist() == [0, 1, 2]
    assert np.isfinite(reader.tensor("p-0", "logits").astype(np.float64)).all()
    assert reader.manifest.evidence == "hardware"


def test_the_writer_takes_thirty_lines_and_not_this_package():
    lines = [line for line in WRITER.splitlines() if line.strip()]

    assert len(lines) <= 31
    assert "validate" not in WRITER + CALL


def test_every_field_is_described():
    fields = {
        *Manifest.model_fields,
        *ModelIdentity.model_fields,
        *Provenance.model_fields,
        *Prompt.model_fields,
        *Stream.model_fields,
        *(name for name in ArtifactFile.model_fields),
        *get_args(ArtifactFile.model_fields["artifact"].annotation),
        *DTYPES,
        *(f.code for f in DTYPES.values()),
    }

    assert sorted(field for field in fields if f"`{field}`" not in PAGE) == []


def test_the_table_of_tensors_names_their_artifacts():
    rows = re.findall(r"^\| `(logits\S*|stream\.logits)` \| [^|]* \| (\w+) \|", PAGE, re.MULTILINE)

    assert len(rows) == 3
    assert all(artifact_of(name) == artifact for name, artifact in rows)


def test_numbers_on_the_page_are_those_of_the_code():
    from validate.capture.files import WINDOW
    from validate.capture.format import MANIFEST_CAP, SHARD_BYTES

    assert f"ours end at {SHARD_BYTES >> 20} MiB or {SHARD_PROMPTS} prompts" in PAGE
    assert f"At most {MANIFEST_CAP >> 20} MiB." in PAGE
    assert f"windows of {WINDOW >> 20} MiB" in PAGE
