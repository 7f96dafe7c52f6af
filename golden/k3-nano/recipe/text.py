"""Training and held-out text from two Debian packages; whole books and whole pages are held out.

    apt-get install bible-kjv bible-kjv-text python3.11-doc
    python golden/k3-nano/recipe/text.py build/text

King James text: copyright expired (public domain). Python documentation
sources: PSF licence. Nothing of either is committed beyond the prompt set's
short excerpts of the former.
"""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

HELD_OUT_BOOKS = ("Ruth", "Est", "Jonah", "Hos", "Phi", "Jas")
DOCS = Path("/usr/share/doc/python3.11/html/_sources")
HELD_OUT_PAGES = (
    "tutorial/classes.rst.txt",
    "tutorial/errors.rst.txt",
    "howto/sorting.rst.txt",
    "howto/regex.rst.txt",
    "library/json.rst.txt",
    "library/heapq.rst.txt",
    "library/csv.rst.txt",
    "faq/design.rst.txt",
)


def books() -> dict[str, str]:
    """Book name -> its verses, one a line, without the verse marks."""
    command = ["bible", "-f", "gen1:1-rev22:21"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    for line in out.splitlines():
        match = re.match(r"(\d?[A-Za-z]+)\d+:\d+ (.*)", line)
        if match is None:
            message = f"unexpected line {line!r}"
            raise ValueError(message)
        found.setdefault(match[1], []).append(match[2])
    return {name: "\n".join(verses) + "\n" for name, verses in found.items()}


def pages() -> dict[str, str]:
    """Page path -> its source text."""
    return {
        str(p.relative_to(DOCS)): p.read_text(encoding="utf-8")
        for p in sorted(DOCS.rglob("*.rst.txt"))
    }


def main(out: Path) -> None:
    """Write train.bin, heldout-books.bin, heldout-pages.bin and a digest of each."""
    out.mkdir(parents=True, exist_ok=True)
    bible, docs = books(), pages()
    for known, held in ((bible, HELD_OUT_BOOKS), (docs, HELD_OUT_PAGES)):
        missing = [name for name in held if name not in known]
        if missing:
            message = f"held-out names {missing} are not among {sorted(known)[:80]}"
            raise ValueError(message)
    parts = {
        "train": [t for n, t in bible.items() if n not in HELD_OUT_BOOKS]
        + [t for n, t in docs.items() if n not in HELD_OUT_PAGES],
        "heldout-books": [bible[n] for n in HELD_OUT_BOOKS],
        "heldout-pages": [docs[n] for n in HELD_OUT_PAGES],
    }
    digests = {}
    for name, texts in parts.items():
        data = "\n".join(texts).encode("utf-8")
        (out / f"{name}.bin").write_bytes(data)
        digests[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (out / "digests.json").write_text(json.dumps(digests, indent=2) + "\n")
    print(json.dumps(digests, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
