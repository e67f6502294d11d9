"""The command line, from the outside: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Outcome, horae, horae_in_one_process, horae_process

from horae import __version__, samples
from horae.cli.workload import EQUALLY_FAST
from horae.policies import registry

GOLDEN = Path(__file__).parent.parent / "golden"
NUMBERS = [
    "jobs",
    "finished",
    "refused",
    "completion_mean_seconds",
    "completion_median_seconds",
    "completion_p99_seconds",
    "queueing_mean_seconds",
    "makespan_seconds",
    "utilisation",
    "restarts",
]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def few_jobs(folder: Path, count: int) -> Path:
    """The first of the sample's jobs."""
    lines = samples.JOBS.read_text().splitlines(keepends=True)
    return write(folder / "few.csv", "".join(lines[: count + 1]))


def rows(table: str) -> list[list[str]]:
    """The cells of a printed table, without its header."""
    return [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in table.splitlines()
        if line[:2] == "│ " and line[-1] == "│"
    ]


def strict_json(text: str) -> dict[str, dict[str, float | None]]:
    """JSON as the standard has it: without NaN."""

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not JSON")

    value = json.loads(text, parse_constant=refuse)
    assert isinstance(value, dict)
    return value


# What is shown


def test_cluster_show_draws_the_sample() -> None:
    outcome = horae_process("cluster", "show", samples.CLUSTER)
    assert outcome == Outcome(0, (GOLDEN / "cluster_show.txt").read_text(), "")


def test_cluster_show_says_who_owns_what(tmp_path: Path) -> None:
    nodes = 'nodes: [{name: "a[0-3]", gpu: A100, gpus: 2}]\n'
    path = write(tmp_path / "lab.yaml", f'{nodes}tenants: {{nlp: {{nodes: "a[0-2]", policy: las}}}}\n')
    outcome = horae("cluster", "show", path)
    assert outcome.out.splitlines()[-2:] == ["pool nlp: las, 3 nodes of its own", "pool spare: fifo, all other nodes"]


def test_the_simulated_demo_compares_four_policies() -> None:
    outcome = horae("demo", "--simulated")
    assert (outcome.code, outcome.err) == (0, "")
    table = rows(outcome.out)
    assert [row[0] for row in table] == ["fifo", "sjf *", "las", "tiresias"]
    assert all(row[1] == "300/300" for row in table)


def test_the_command_line_imports_nothing_that_few_commands_use() -> None:
    heavy = {"scipy", "numba", "matplotlib"}
    script = f"import sys, horae.cli.main; print({heavy!r} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


def test_version() -> None:
    assert horae("version") == Outcome(0, f"{__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("cluster",), ("reproduce",)])
def test_without_a_command_there_is_help(arguments: tuple[str, ...]) -> None:
    outcome = horae(*arguments)
    assert (outcome.code, outcome.err) == (2, "")
    assert "Usage: horae" in outcome.out


def test_simulate_prints_json_with_units_in_its_names(tmp_path: Path) -> None:
    outcome = horae("simulate", "--jobs", few_jobs(tmp_path, 30), "--policy", "sjf", "-o", "json")
    assert (outcome.code, outcome.err) == (0, "")
    result = strict_json(outcome.out)
    assert list(result) == ["sjf"]
    assert set(NUMBERS) <= set(result["sjf"])
    assert (result["sjf"]["jobs"], result["sjf"]["finished"], result["sjf"]["refused"]) == (30, 30, 0)


def test_one_policy_with_different_options_is_two_results(tmp_path: Path) -> None:
    policies = ["fifo", "fifo={backfill: true}", "tiresias={limits: [60, 600]}"]
    options = [word for policy in policies for word in ("--policy", policy)]
    arguments = ("simulate", "--jobs", few_jobs(tmp_path, 60), *options)
    result = strict_json(horae(*arguments, "-o", "json").out)
    assert list(result) == policies
    assert result["fifo"] != result["fifo={backfill: true}"]
    assert [row[0] for row in rows(horae(*arguments).out)] == policies


# Jobs that can never run


@pytest.fixture
def three_jobs(tmp_path: Path) -> Path:
    """One is larger than the cluster, and the others come after it."""
    return write(tmp_path / "jobs.csv", "id,submit,gpus,duration\nhuge,0,99,60\nsmall,10,1,60\nlate,20,1,60\n")


NEVER = (
    "refused huge: never: 99 x A100 in one cluster does not exist in pool 'all' even when it is empty; "
    "the largest gang of that kind is 32"
)


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "equal-share", "highest-rho"])
def test_a_gang_that_can_never_fit_is_refused_and_the_others_finish(three_jobs: Path, policy: str) -> None:
    outcome = horae("simulate", "--jobs", three_jobs, "--policy", policy, "--cadence", "rounds", "-o", "json")
    numbers = strict_json(outcome.out)[policy]
    assert (numbers["jobs"], numbers["finished"], numbers["refused"]) == (3, 2, 1)
    assert (outcome.code, outcome.err) == (0, f"{EQUALLY_FAST}\n{NEVER}\n")


def test_the_reason_stands_below_the_table_once(three_jobs: Path) -> None:
    outcome = horae("simulate", "--jobs", three_jobs, "--policy", "fifo", "--policy", "sjf")
    assert (outcome.code, outcome.err) == (0, f"{EQUALLY_FAST}\n")
    assert [row[:2] for row in rows(outcome.out)] == [["fifo", "2/3"], ["sjf *", "2/3"]]
    assert outcome.out.splitlines()[-1] == NEVER
    assert outcome.out.count("refused huge") == 1


def test_a_tenant_without_a_pool_is_refused(tmp_path: Path, three_jobs: Path) -> None:
    cluster = write(
        tmp_path / "lab.yaml",
        "nodes: [{name: a, gpu: A100, gpus: 8}]\ntenants: {nlp: {nodes: a}}\n",
    )
    outcome = horae("simulate", "--cluster", cluster, "--jobs", three_jobs, "-o", "json")
    numbers = strict_json(outcome.out)["fifo"]
    assert (numbers["jobs"], numbers["finished"], numbers["refused"]) == (3, 0, 3)
    assert numbers["completion_mean_seconds"] is None
    want = [
        f"refused {name}: never: tenant 'default' has no pool in this cluster" for name in ("huge", "small", "late")
    ]
    told = ["no jobs of tenant nlp in the trace", "1 of the trace's tenants are not in the cluster: default"]
    assert outcome.err.splitlines() == [*told, *want]
    assert outcome.code == 1
    (row,) = rows(horae("simulate", "--cluster", cluster, "--jobs", three_jobs).out)
    assert row == ["fifo", "0/3", *["-"] * 4, "0.00 h", "0.0%", "0", *["-"] * 5]


def test_of_many_reasons_ten_are_told(tmp_path: Path) -> None:
    huge = "".join(f"j{index},0,99,60\n" for index in range(13))
    jobs = write(tmp_path / "jobs.csv", f"id,submit,gpus,duration\n{huge}ok,0,1,60\n")
    outcome = horae("simulate", "--jobs", jobs, "-o", "json")
    equal, *lines = outcome.err.splitlines()
    assert equal == EQUALLY_FAST
    assert [line.partition(":")[0] for line in lines[:-1]] == [f"refused j{index}" for index in range(10)]
    assert lines[-1] == "and 3 more"
    assert strict_json(outcome.out)["fifo"]["refused"] == 13


# Wrong options

JOURNAL_REMEDY = "name a file in a folder of yours"
POLICIES = f"choose one of {', '.join([*registry.POLICIES, *(point.name for point in registry.installed())])}"
HELP = "add --help to see what there is"
WRONG = {
    "a policy is unknown": (["--policy", "lottery"], f"--policy: there is no policy 'lottery'; {POLICIES}"),
    "an option of a policy is unknown": (
        ["--policy", "tiresias={speed: 1}"],
        "--policy: policy 'tiresias' has no option 'speed'; it takes: limits, promote_after",
    ),
    "an option of a policy is wrong": (
        ["--policy", "tiresias={limits: [3, 1]}"],
        "--policy: limits [3.0, 1.0] are not increasing GPU-seconds; e.g. [3250, 18000]",
    ),
    "options are no mapping": (["--policy", "las=fast"], "--policy: 'fast' are no options; write {limits: [1, 3]}"),
    "options are no YAML": (["--policy", "las={"], "--policy: '{' are no options; write {limits: [1, 3]}"),
    "rounds have no length": (["--round-seconds", "0"], "--round-seconds: is 0; give a positive number"),
    "rounds have a negative length": (["--round-seconds", "-5"], "--round-seconds: is -5; give a positive number"),
    "rounds are endless": (["--round-seconds", "inf"], "--round-seconds: is inf; give a positive number"),
    "rounds have a length that is no number": (
        ["--round-seconds", "nan"],
        "--round-seconds: is nan; give a positive number",
    ),
    "rounds have a word for a length": (
        ["--round-seconds", "x"],
        "Invalid value for '--round-seconds': Input should be a valid number, unable to parse string as a number; "
        f"{HELP}",
    ),
    "the cadence is unknown": (
        ["--cadence", "weekly"],
        f"Invalid value for '--cadence': Value error, 'weekly' is not one of 'events', 'rounds'; {HELP}",
    ),
    "the output is unknown": (
        ["-o", "xml"],
        f"Invalid value for '-o' / '--output': Value error, 'xml' is not one of 'table', 'json'; {HELP}",
    ),
    "an option is unknown": (["--bogus"], f"No such option: --bogus (Possible options: --jobs); {HELP}"),
    "an option lacks its value": (["--jobs"], f"Option '--jobs' requires an argument; {HELP}"),
    "there is an argument too many": (["a.csv", "b.csv"], f"Got unexpected extra argument(s) (b.csv); {HELP}"),
    "one journal is to hold two runs": (
        ["--policy", "fifo", "--policy", "sjf", "--journal", "run.jsonl"],
        "--journal: one journal cannot hold several runs; give one --policy",
    ),
    "the journal's folder is missing": (
        ["--journal", "/none/run.jsonl"],
        f"/none/run.jsonl: cannot be written: No such file or directory; {JOURNAL_REMEDY}",
    ),
    "the journal is a folder": (["--journal", "/"], f"/: cannot be written: Is a directory; {JOURNAL_REMEDY}"),
    "the journal's disk is full": (
        ["--journal", "/dev/full"],
        "/dev/full: cannot be written: No space left on device; make room for it, or write elsewhere",
    ),
}


@pytest.mark.parametrize(("options", "want"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_one_line_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], want: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert horae("simulate", *options).complaint == want
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("bogus",), f"No such command 'bogus'; {HELP}"),
        (("replay",), f"Missing argument 'journal'; {HELP}"),
        (("cluster", "show"), f"Missing argument 'file'; {HELP}"),
    ],
)
def test_a_wrong_command_is_one_line(arguments: tuple[str, ...], want: str) -> None:
    assert horae(*arguments).complaint == want


@pytest.mark.parametrize(
    "sentence", ["an option is unknown", pytest.param("a policy is unknown", marks=pytest.mark.nightly)]
)
def test_a_real_process_says_the_same(sentence: str) -> None:
    options, want = WRONG[sentence]
    assert horae_process("simulate", *options).complaint == want


# Journals

RUNS = {
    "fifo": ["--policy", "fifo"],
    "tiresias in rounds": ["--policy", "tiresias", "--cadence", "rounds"],
    "equal share in rounds": ["--policy", "equal-share", "--cadence", "rounds"],
    "highest rho in rounds": ["--policy", "highest-rho", "--cadence", "rounds"],
    "las": ["--policy", "las"],
}


def test_runs_are_the_same_to_the_last_byte_in_every_process_and_replay(tmp_path: Path) -> None:
    jobs = few_jobs(tmp_path, 90)
    for seed in ("0", "12345"):
        commands = [
            ("simulate", "--jobs", jobs, *options, "--journal", tmp_path / f"{name} {seed}.jsonl")
            for name, options in RUNS.items()
        ]
        for outcome in horae_in_one_process(commands, PYTHONHASHSEED=seed):
            assert (outcome.code, outcome.err) == (0, "")
    for name in RUNS:
        journal = tmp_path / f"{name} 0.jsonl"
        assert journal.read_bytes() == (tmp_path / f"{name} 12345.jsonl").read_bytes(), name
        replayed = horae("replay", journal)
        kinds = [next(iter(json.loads(line))) for line in journal.read_text().splitlines()]
        counted = f"{kinds.count('event')} events and {kinds.count('command')} commands"
        assert replayed == Outcome(0, f"{journal}: {counted}, all the same\n", "")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "run.jsonl"
    assert horae("simulate", "--jobs", few_jobs(tmp_path, 20), "--journal", path).code == 0
    yield path


def test_a_command_that_was_tampered_with_is_found(journal: Path) -> None:
    lines = journal.read_text().splitlines(keepends=True)
    index = [number for number, line in enumerate(lines) if line.startswith('{"command":"Start"')][3]
    command = json.loads(lines[index])
    node, number = command["gpus"][0].rsplit("/", 1)
    command["gpus"][0] = f"{node}/{int(number) + 1}"
    lines[index] = json.dumps(command, separators=(",", ":")) + "\n"
    journal.write_text("".join(lines))
    outcome = horae("replay", journal)
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.out.startswith(f"{journal}: differs at line {index + 1}: recorded {lines[index].strip()}, replayed ")
    assert len(outcome.out.splitlines()) == 1


def test_a_journal_that_was_cut_in_its_last_line_replays(journal: Path) -> None:
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-20])
    outcome = horae("replay", journal)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.endswith("all the same\n")


def test_garbage_in_the_middle_of_a_journal_is_named_with_its_line(journal: Path) -> None:
    lines = journal.read_text().splitlines(keepends=True)
    lines[10] = "%%%\n"
    journal.write_text("".join(lines))
    want = f"{journal}:11: not a JSON object; the journal is damaged here: take a whole copy of it"
    assert horae("replay", journal).complaint == want


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("none.jsonl", ": No such file or directory; name a file made with --journal"),
        (".", ": Is a directory; name a file made with --journal"),
    ],
)
def test_what_is_no_journal_is_named(tmp_path: Path, name: str, want: str) -> None:
    path = tmp_path / name
    assert horae("replay", path).complaint == f"{path}{want}"


def test_a_table_is_no_journal() -> None:
    want = ":1: is no journal; name a file made with --journal"
    assert horae("replay", samples.JOBS).complaint == f"{samples.JOBS}{want}"
