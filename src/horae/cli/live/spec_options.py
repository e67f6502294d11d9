"""The options of `horae submit` and `horae run` as fields of a job file."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from horae.cli.live.arguments import key_values
from horae.model.errors import InputError
from horae.service.models import RANDOM, STOP
from horae.traces.yaml_files import read_tree

Gpus = Annotated[str | None, typer.Option(help="How many GPUs; as 2-16 for a job that runs with any number of them.")]
Types = Annotated[
    list[str] | None, typer.Option("--type", help="A GPU type. Repeat, or use commas, in order of preference.")
]
TenantOfJob = Annotated[str | None, typer.Option(help="The tenant that the job counts for, if not your own.")]
JobName = Annotated[str | None, typer.Option(help="The name of the job.")]
WorkDir = Annotated[Path | None, typer.Option(help="The folder in which it runs.")]
Env = Annotated[
    list[str] | None, typer.Option(help="A variable for the job: NAME=VALUE, or NAME to pass on its present value.")
]


def chosen(
    gpus: str | None,
    types: list[str] | None,
    tenant: str | None,
    name: str | None,
    workdir: Path | None,
    env: list[str] | None,
) -> dict[str, object]:
    """The options above as fields of a job file, those that are given."""
    fields = {
        "gpus": gpu_count(gpus),
        "gpu_type": gpu_types(types),
        "tenant": tenant,
        "name": name,
        "workdir": None if workdir is None else str(workdir.expanduser().absolute()),
        "env": environment(env),
    }
    return {key: value for key, value in fields.items() if value is not None}


def gpu_count(text: str | None) -> int | dict[str, int] | None:
    """8, or the range 2-16."""
    if text is None:
        return None
    least, dash, most = text.partition("-")
    if not least.isascii() or not least.isdigit() or (dash and not most.isdigit()):
        raise InputError(f"is {text!r}", field="--gpus", remedy="give a number, or a range such as 2-16")
    return {"min": int(least), "max": int(most)} if dash else int(least)


def gpu_types(words: list[str] | None) -> list[str] | None:
    return None if words is None else [name.strip() for word in words for name in word.split(",") if name.strip()]


def environment(words: list[str] | None) -> dict[str, str] | None:
    if words is None:
        return None
    known = [word if "=" in word else f"{word}={os.environ.get(word, '')}" for word in words]
    return key_values(known, "--env", "NAME=VALUE")


def sweep_values(words: list[str] | None) -> dict[str, Any] | None:
    """Parameters with their values: lr=0.1,0.01; a word without = is a file with the fields of `sweep:`."""
    if words is None:
        return None
    found: dict[str, Any] = {}
    for word in words:
        if "=" not in word:
            found |= _sweep_file(Path(word))
    for name, text in key_values([word for word in words if "=" in word], "--sweep", "lr=0.1,0.01").items():
        values = [_value(part) for part in text.split(",") if part]
        if not values:
            raise InputError(f"{name!r} has no values", field="--sweep", remedy="write lr=0.1,0.01")
        found[name] = values[0] if name in (STOP, RANDOM) else values
    return found


def _sweep_file(path: Path) -> dict[str, Any]:
    _, plain = read_tree(path, "lr: [0.1, 0.01]")
    if not isinstance(plain, dict):
        raise InputError("is no mapping", file=str(path), remedy="give parameters with their values, lr: [0.1, 0.01]")
    inside = plain.get("sweep", plain)
    return dict(inside) if isinstance(inside, dict) else {}


def value_of(text: str) -> object:
    """A value as in YAML: a number, true or false, a list, or else text."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _value(text: str) -> object:
    """A value of a sweep, as it is written into a command."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def command_fields(words: list[str]) -> dict[str, object]:
    """The fields of a job that runs a command: its words are quoted, so that the job gets them as they are here."""
    return {"run": shlex.join(words), "name": _name(words), "workdir": str(Path.cwd())}


def _name(words: list[str]) -> str:
    """The name of the script that a command runs, else of the command."""
    scripts = [word for word in words if word.endswith((".py", ".sh")) and not word.startswith("-")]
    name = "".join(letter for letter in Path((scripts or words)[0]).stem if letter.isprintable())
    return name[:60] or "job"
