"""A few hundred bytes of YAML that stand for billions of values are refused at once, by all commands."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from command_line import horae

from horae.model.errors import InputError, JobError
from horae.model.safe_text import SHOWN_MAX, brief
from horae.traces.readers.hived_pod import read_pod
from horae.traces.yaml_files import load


def bomb(indent: str = "  ") -> str:
    """Lines of a mapping: ten values, ten times these, and so on; the last alias is called `last`."""
    names = [*"abcdefgh", "last"]
    lines = [f"{indent}a: &a [{', '.join('0123456789')}]"]
    for before, name in pairwise(names):
        lines.append(f"{indent}{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    return "\n".join(lines)


FLAT = "{" + ", ".join(line.strip() for line in bomb("").splitlines()) + "}"
CLUSTER = f"name:\n{bomb()}\nnodes: *last\n"
JOBS = f"jobs:\n{bomb()}\n"
HIVED = f"physicalCluster:\n{bomb()}\nvirtualClusters: *last\n"
FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "cluster show": (CLUSTER, ("cluster", "show", "FILE")),
    "simulate --cluster": (CLUSTER, ("simulate", "--cluster", "FILE")),
    "simulate --jobs": (JOBS, ("simulate", "--jobs", "FILE")),
    "compare --cluster": (CLUSTER, ("compare", "FILE", "--cluster", "FILE", "--policy", "fifo")),
    "compare --jobs": (JOBS, ("compare", "FILE", "--nodes", "1x8", "--policy", "fifo")),
    "trace info": (JOBS, ("trace", "info", "FILE")),
    "trace convert": (JOBS, ("trace", "convert", "FILE", "OUT")),
    "cluster convert": (HIVED, ("cluster", "convert", "FILE")),
    "cluster show of HiveD's file": (HIVED, ("cluster", "show", "FILE")),
    "tenants plan": (JOBS, ("tenants", "plan", "FILE", "--nodes", "1x8")),
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "simulate --policy": ("simulate", "--policy", f"tiresias={FLAT}"),
    "compare --policy": ("compare", "none.csv", "--nodes", "1x8", "--policy", f"tiresias={FLAT}"),
    "trace generate": ("trace", "generate", f"poisson={FLAT}", "none.csv"),
}


@pytest.mark.parametrize(("text", "arguments"), FILES.values(), ids=FILES)
def test_a_file_of_nested_aliases_is_refused(tmp_path: Path, text: str, arguments: tuple[str, ...]) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(text)
    named = {"FILE": file, "OUT": tmp_path / "out.csv"}
    complaint = horae(*(named.get(each, each) for each in arguments)).complaint
    assert complaint.startswith(f"{file}:")
    assert "its aliases stand for more than" in complaint
    assert complaint.endswith("values; use fewer aliases, or write the values out")


@pytest.mark.parametrize("arguments", OPTIONS.values(), ids=OPTIONS)
def test_options_of_nested_aliases_are_refused(arguments: tuple[str, ...]) -> None:
    complaint = horae(*arguments).complaint
    assert "its aliases stand for more than" in complaint
    assert len(complaint) < 200


def test_an_annotation_of_nested_aliases_is_refused() -> None:
    with pytest.raises(JobError, match=r"^pod a: .*: its aliases stand for more than [0-9,]+ values; use fewer"):
        read_pod("a", FLAT)


REFUSED = {
    "it contains itself": ("a: &a [*a]", "contains itself by an alias; write it out"),
    "merged keys contain themselves": ("a: &a {<<: *a}", "contains itself by an alias; write it out"),
    "a number is endless": ("a: " + "1:1" * 5000, "a number has 15,000 characters; give at most 100"),
    "half a character": (r'a: "\ud800"', r"a text has half a character; write \U0001F600, not \uD83D\uDE00"),
    "a key is given twice": ("{a: 1, a: 2}", "a: is given twice (line 1); give it once"),
}


@pytest.mark.parametrize(("text", "want"), REFUSED.values(), ids=REFUSED)
def test_what_no_value_should_be_made_of_is_refused(text: str, want: str) -> None:
    with pytest.raises(InputError) as raised:
        load(text)
    assert str(raised.value) == want


def test_honest_aliases_are_welcome() -> None:
    rows = "\n".join("- {<<: *a, c: 3}" for _ in range(5000))
    loaded = load(f"- &a {{a: 1, b: 2}}\n{rows}\n")
    assert isinstance(loaded, list)
    assert loaded[-1] == {"a": 1, "b": 2, "c": 3}


def test_options_nested_a_thousand_deep_are_one_line() -> None:
    assert horae("simulate", "--policy", "las=" + "[" * 1000).complaint.endswith(
        "are no options; write {limits: [1, 3]}"
    )


ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)
VALUES: dict[str, tuple[object, str]] = {
    "a small one whole": ({"a": [1, 2.5, None], "b": (True, "x")}, "{'a': [1, 2.5, None], 'b': (True, 'x')}"),
    "one without an end": (ENDLESS, "[" * (SHOWN_MAX - 3) + "..."),
    "a long list": ([7] * 10**6, "[7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,..."),
    "a long text": ("a" * 10**6, "'" + "a" * (SHOWN_MAX - 4) + "..."),
    "a number too long for decimal digits": (16**10_000, "0x1" + "0" * (SHOWN_MAX - 6) + "..."),
}


@pytest.mark.parametrize(("value", "want"), VALUES.values(), ids=VALUES)
def test_a_message_shows_the_beginning_of_a_value(value: object, want: str) -> None:
    assert brief(value) == want


def test_no_part_of_a_message_is_endless() -> None:
    error = InputError("a" * 10**6, file="f", field="b" * 10**6, remedy="c" * 10**6)
    assert len(str(error)) < 7000
    assert error.problem == "a" * 10**6
