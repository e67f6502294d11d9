"""The folder with recorded cases of other systems: whatever it holds is checked, what it lacks is skipped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("HORAE_CONFORMANCE") or "none")
IS_NAMED = bool(os.environ.get("HORAE_CONFORMANCE"))


def missing(name: str) -> str:
    """Why there are no recorded cases in this file; empty if it is there."""
    if not IS_NAMED:
        return "set HORAE_CONFORMANCE to the folder with the recorded cases"
    return "" if (FOLDER / name).is_file() else f"HORAE_CONFORMANCE holds no {name}: {FOLDER}"


def read(name: str) -> Any:
    """The content of a JSON file, None if it is missing."""
    return None if missing(name) else json.loads((FOLDER / name).read_text())
