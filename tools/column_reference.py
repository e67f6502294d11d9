"""The columns of `view.jobs`, in Markdown, from the comments and docstrings of `horae.model.job_table`."""

from __future__ import annotations

import inspect
import re

from horae.model import job_table

BLOCKS = {"_INTS": "one per job", "_FLOATS": "one per job", "_OPTION_INTS": "by option", "_OPTION_FLOATS": "by option"}
COLUMN = re.compile(r'^    "(\w+)",(?:  # (.*))?$', re.MULTILINE)


def columns() -> dict[str, str]:
    """By name of a column: what it holds."""
    source = inspect.getsource(job_table)
    found: dict[str, str] = {}
    for block, kind in BLOCKS.items():
        (text,) = re.findall(rf"^{block} = \((.*?)^\)", source, re.MULTILINE | re.DOTALL)
        for name, comment in COLUMN.findall(text):
            found[name] = f"{comment} (by job and option)" if kind == "by option" else comment
    for name, value in vars(job_table.JobColumns).items():
        if name not in found and not name.startswith("_") and value.__doc__:
            found[name] = " ".join(value.__doc__.split())
    return found


def reference() -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in columns().items()]
    return "\n".join(["| column | what it holds |", "|---|---|", *rows])
