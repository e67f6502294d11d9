"""Words that plain technical English avoids: `make check` fails where code or documentation uses one.

Subjects are jobs, apps and tenants, not persons; verbs are those of the field. The glossary has one noun per concept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BANNED = {
    "whoever": "name the job, app or tenant",
    "whom": "name the job, app or tenant",
    "nobody": "no job, no tenant, NONE",
    "somebody": "a job, a user",
    "reckon": "compute, estimate",
    "reckoned": "computed, estimated",
    "mend": "fix",
    "mended": "fixed",
    "heed": "take into account",
    "lest": "so that ... not",
}
PLACES = ("src", "evaluation/src", "sdk", "docs", "examples", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
WORD = re.compile(rf"\b({'|'.join(BANNED)})\b", re.IGNORECASE)


def files() -> Iterator[Path]:
    for place in PLACES:
        path = ROOT / place
        yield from [path] if path.is_file() else sorted(each for end in ("py", "md") for each in path.rglob(f"*.{end}"))


def main() -> int:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}: {BANNED[word.lower()]}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for word in WORD.findall(line)
    ]
    print("\n".join(found) if found else "words: none that plain English avoids")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
