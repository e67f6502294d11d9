"""Commands about jobs: what they ask of the service, what they print, how they end."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from command_line import horae
from fake_service import World, status

from horae.service.models import Holder, LeaseView, Me, Why

FORMATS = ("table", "wide", "json", "csv")


@pytest.fixture(autouse=True)
def folder(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    del world
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(*arguments: object) -> str:
    """What a command prints that succeeds."""
    outcome = horae(*arguments)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    return outcome.out


def running(world: World, number: int = 1, **fields: object) -> None:
    places = ["n1/0", "n1/1", "n2/0"]
    now = {"started_at": 1_700_000_100.0, "first_started_at": 1_700_000_100.0, "rho": 1.257, "run_seconds": 200.0}
    state = {"state": "running", "reason": "", "held_gpus": 3, "gpus": 3, "places": places, **now}
    world.add(number=number, **{**state, **fields})


# ls


def test_ls_shows_live_jobs_of_the_callers_tenant(world: World) -> None:
    running(world, 1)
    world.add(number=2)
    world.add(number=3, tenant="vision")
    world.add(number=4, state="finished", ended_at=1_700_000_900.0)
    lines = answer("ls").splitlines()
    assert " ".join(lines[0].split()) == "ID NAME USER TENANT STATE GPUS TYPE RHO WAIT RUN WHERE(REASON)"
    assert [line.split()[0] for line in lines[1:]] == ["2", "1"]
    assert lines[1].endswith("0/8  A100     -  2h 05m      0s  (not now: 8 GPUs are held)")
    assert lines[2].endswith("3/3  A100  1.26  2h 05m  3m 20s  n1 n2")


def test_ls_all_goes_through_all_pages(world: World) -> None:
    for number in range(1, 9):
        world.add(number=number, tenant=f"t{number}", state="failed" if number % 2 else "pending")
    assert len(answer("ls", "--all").splitlines()) == 9
    assert len(world.requests("GET", "/jobs")) == 3
    failed = answer("ls", "--all", "--state", "failed", "-o", "json")
    assert [each["id"] for each in json.loads(failed)] == ["7", "5", "3", "1"]


def test_filters_are_passed_on(world: World) -> None:
    answer("ls", "--tenant", "x", "--user", "u", "--app", "a", "--name", "n", "--state", "pending,running")
    (asked,) = world.requests("GET", "/jobs")
    assert asked.query == "limit=500&tenant=x&user=u&app=a&name=n&state=pending&state=running"


@pytest.mark.parametrize(
    ("me", "query"),
    [
        (Me(user="ada", tenant="nlp", role="user", via="socket"), "tenant=nlp"),
        (Me(user="ada", tenant="", role="viewer", via="socket"), "user=ada"),
        (Me(user="root", tenant="", role="operator", via="socket"), ""),
    ],
)
def test_the_default_is_the_callers_own(world: World, me: Me, query: str) -> None:
    world.me = me
    assert answer("ls") == "no jobs; --all shows ended ones\n"
    (asked,) = world.requests("GET", "/jobs")
    assert asked.query.replace("limit=500", "").partition("state=")[0].strip("&") == query


def test_wide_has_dates_and_json_has_iso(world: World) -> None:
    running(world)
    assert "2023-11-14 22:15:00" in answer("ls", "-o", "wide")
    (plain,) = json.loads(answer("ls", "-o", "json"))
    assert (plain["started_at"], plain["ended_at"]) == ("2023-11-14T22:15:00.000Z", None)
    assert plain["run_seconds"] == 200.0
    (row,) = csv.DictReader(io.StringIO(answer("ls", "-o", "csv")))
    assert (row["started_at"], row["places"], row["guaranteed"]) == (
        "2023-11-14T22:15:00.000Z",
        "n1/0 n1/1 n2/0",
        "false",
    )


@pytest.mark.parametrize("output", FORMATS)
def test_an_empty_list_is_no_error(output: str) -> None:
    text = answer("ls", "-o", output)
    assert text.splitlines()[0][:2] in ("no", "[]", "id")


def test_names_with_escapes_are_shown_safely(world: World) -> None:
    evil = "a\x1b[31m\nb\u202e"
    world.add(name=evil, reason=evil, user=evil)
    for output in FORMATS:
        text = answer("ls", "-o", output)
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "a\\x1b[31m\\nb\\u202e" in answer("ls")
    assert "\x1b" not in answer("show", "1")


def test_wide_characters_keep_columns_aligned(world: World) -> None:
    world.add(number=1, name="模型训练")
    world.add(number=2, name="model")
    first, second = answer("ls").splitlines()[1:]
    assert first.index("ada") == second.index("ada") + 4


# show, why, logs


def test_show_tells_all_about_a_job(world: World) -> None:
    running(world, steps=500.0, steps_total=1000.0, steps_per_second=2.5, loss=0.25)
    world.leases["1"] = [
        LeaseView(
            job_id="1", epoch=0, granted_at=1_700_000_090.0, started_at=1_700_000_100.0, until=1_700_003_700.0,
            ended_at=1_700_000_160.0, gpu_type="A100", level="node", gpus=3, places=[], guaranteed=True,
            ending="preempted", reason="for nlp-2", steps=100.0,
        )
    ]  # fmt: skip
    text = answer("show", "bert")
    assert text.startswith("1 bert\n  state      running\n")
    for part in (
        "500 of 1,000 steps, 2.5 per second, loss 0.25",
        "3 x A100 in one node",
        "1m 00s",
        "preempted: for nlp-2",
    ):
        assert part in text
    assert json.loads(answer("show", "1", "-o", "json"))["name"] == "bert"


def test_why_has_the_words_and_layout_of_the_journal(world: World) -> None:
    world.add(number=7)
    holder = Holder(job_id="3", gpus=8, since=1_700_000_000.0, ends_at=1_700_003_600.0)
    world.whys["7"] = Why(
        job_id="7", state="pending", reason="not now: no room", pool="nlp", policy="fifo", ahead=["4"],
        holders=[holder], unblocked_by=[holder], next_decision_at=None, text="7 waits\n  share     none yet",
        story=["submitted"],
    )  # fmt: skip
    assert answer("why", "7").splitlines() == [
        "7 waits, in pool nlp under fifo",
        "  why       not now: no room",
        "  held by   3 (8 GPUs since 2023-11-14 22:13:20, believed until 2023-11-14 23:13:20)",
        "  ahead     1 job of the same queue: 4",
        "  share     none yet",
        "  unblocks  once 3 left (believed at 2023-11-14 23:13:20) and no other job comes before it",
        "  next look when something happens",
        "  submitted",
    ]
    assert json.loads(answer("why", "7", "-o", "json"))["holders"][0]["since"] == "2023-11-14T22:13:20.000Z"


def test_a_moment_needs_a_journal() -> None:
    assert horae("why", "7", "--at", "2h").complaint.startswith("--at: is given without --journal; ")


def test_logs_of_any_size(world: World) -> None:
    world.add()
    world.output["1"] = b"".join(b"line %d\n" % number for number in range(5000))
    assert answer("logs", "1").encode() == world.output["1"]
    assert answer("logs", "1", "--tail", "2") == "line 4998\nline 4999\n"
    assert answer("logs", "1", "--tail", "0") == ""
    assert horae("logs", "1", "--tail", "-1").complaint == "--tail: is -1; give a number of lines"


def test_logs_of_a_job_that_has_not_started(world: World) -> None:
    world.add()
    outcome = horae("logs", "1")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == "1 bert has no output: it is pending and has not started\n"


def test_logs_are_followed_to_the_end_of_the_job(world: World) -> None:
    world.add(state="finished")
    world.output["1"] = "Schritt für Schritt\n".encode() * 20
    outcome = horae("logs", "-f", "1")
    assert (outcome.code, outcome.out.encode()) == (0, world.output["1"])
    assert outcome.err.startswith("1 bert finished after 0s")
    assert horae("logs", "-f", "--tail", "1", "1").out == "Schritt für Schritt\n"


# stop, hold, release


@pytest.mark.parametrize(("verb", "state"), [("stop", "cancelled"), ("hold", "suspended"), ("release", "pending")])
def test_jobs_are_changed_by_id_and_by_name(world: World, verb: str, state: str) -> None:
    running(world, 1)
    running(world, 2, name="gpt")
    assert answer(verb, "1", "gpt").splitlines() == [
        f"1 bert: {verb} accepted, now {state}",
        f"2 gpt: {verb} accepted, now {state}",
    ]


def test_jobs_are_killed_at_once(world: World) -> None:
    running(world, 1)
    assert answer("stop", "1", "--now").splitlines() == ["1 bert: stop now accepted, now cancelled"]
    assert [each.query for each in world.requests("DELETE", "/jobs/1")] == ["grace=0.0"]


def test_nothing_is_stopped_if_one_name_is_unknown(world: World) -> None:
    running(world, 1)
    assert horae("stop", "1", "x").complaint == "there is no job 'x'; list jobs with `horae ls --all`"
    assert world.jobs["1"].state == "running"


def test_a_name_is_the_newest_job_of_one_tenant(world: World) -> None:
    world.add(number=1)
    world.add(number=2)
    assert answer("show", "bert").startswith("2 bert\n")
    world.add(number=3, tenant="vision")
    want = "'bert' is a job of several tenants; name one by its id: 3 (vision), 2 (nlp)"
    assert horae("show", "bert").complaint == want


# submit


def body(world: World) -> dict[str, object]:
    (asked,) = world.requests("POST", "/jobs")
    assert isinstance(asked.body, dict)
    return asked.body


def test_a_command_is_quoted_and_runs_in_this_folder(world: World, folder: Path) -> None:
    words = ["python", "train.py", "--name", "a b", "$HOME", "it's"]
    assert answer("submit", "--gpus", "2", "--", *words) == "1\n"
    assert body(world) == {
        "name": "train",
        "run": "python train.py --name 'a b' '$HOME' 'it'\"'\"'s'",
        "workdir": str(folder),
        "gpus": 2,
    }


def test_every_option_is_a_field(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED", "on")
    options = (
        "--gpus 2-8 --type H100,A100 --type V100 --tenant nlp --name x --workdir sub --env A=1 --env B= --env PASSED "
        "--app big --after 4 --after 5 --array 3 --sweep lr=0.1,0.01 --sweep opt=adam,sgd --max-duration 2h "
        "--checkpoint --priority high"
    )
    assert answer("submit", *options.split(), "--", "true") == "1\n2\n3\n"
    assert body(world) == {
        "name": "x", "run": "true", "workdir": str(folder / "sub"), "gpus": {"min": 2, "max": 8}, "tenant": "nlp",
        "gpu_type": ["H100", "A100", "V100"], "env": {"A": "1", "B": "", "PASSED": "on"}, "app": "big",
        "after": ["4", "5"], "array": 3, "sweep": {"lr": [0.1, 0.01], "opt": ["adam", "sgd"]},
        "max_duration": 7200.0, "checkpoint": {}, "priority": "high",
    }  # fmt: skip


def test_a_file_is_submitted_with_changes(world: World, folder: Path) -> None:
    (folder / "jobs").mkdir()
    (folder / "jobs/job.yaml").write_text("name: bert\nrun: python train.py\nworkdir: sub\nenv: {A: x, B: y}\n")
    assert answer("submit", "jobs/job.yaml", "--gpus", "4", "--env", "B=z") == "1\n"
    want = {"name": "bert", "run": "python train.py", "workdir": str(folder / "jobs/sub"), "gpus": 4}
    assert body(world) == {**want, "env": {"A": "x", "B": "z"}}


def test_a_list_of_jobs_is_one_request(world: World, folder: Path) -> None:
    (folder / "jobs.yaml").write_text("- {run: a}\n- {run: b}\n")
    assert answer("submit", "jobs.yaml") == "1\n2\n"
    (asked,) = world.requests("POST", "/jobs")
    assert [each["run"] for each in asked.body] == ["a", "b"]
    assert [each["id"] for each in json.loads(answer("submit", "jobs.yaml", "-o", "json"))] == ["3", "4"]


WRONG_FILES = {
    "run: x\ngpu: 2\n": "job.yaml:2: gpu: is not a known field; remove it or check its spelling",
    "- run: x\n- {name: y}\n": "job.yaml:2: 1.run: is missing; add it",
    "run: x\nmax_duration: soon\n": "job.yaml:2: max_duration: 'soon' is no time; give seconds",
    "[]": "job.yaml: has no jobs; give at least one",
    "": "job.yaml: is empty; give at least run",
    "{": "job.yaml:1: not YAML: ",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG_FILES)
def test_a_wrong_file_is_told_with_its_line(world: World, folder: Path, text: str) -> None:
    (folder / "job.yaml").write_text(text)
    assert horae("submit", "job.yaml").complaint.startswith(WRONG_FILES[text])
    assert not world.asked


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ([], "neither a job file nor a command is given; "),
        (["job.yaml", "--", "x"], "a job file and a command are given; "),
        (["--gpus", "many", "--", "x"], "--gpus: is 'many'; "),
        (["--gpus", "0", "--", "x"], "gpus: is 0; "),
        (["--priority", "urgent", "--", "x"], "priority: is 'urgent'; "),
        (["--env", "=1", "--", "x"], "--env: is '=1'; "),
        (["--sweep", "lr=", "--", "x"], "--sweep: 'lr' has no values; "),
        (["--follow", "--array", "3", "--", "x"], "--follow: follows one job; "),
        (["none.yaml"], "none.yaml: No such file or directory; "),
    ],
)
def test_wrong_options_of_submit(world: World, arguments: list[str], want: str) -> None:
    assert horae("submit", *arguments).complaint.startswith(want)
    assert not world.asked


@pytest.mark.parametrize(("end", "code"), [("finished", 0), ("failed", 1), ("refused", 1)])
@pytest.mark.parametrize("option", ["--wait", "--follow"])
def test_the_exit_code_says_whether_the_job_finished(world: World, end: str, code: int, option: str) -> None:
    world.outcome = end
    world.output["1"] = b"hello\n"
    outcome = horae("submit", option, "--", "x")
    assert outcome.code == code
    assert outcome.out == ("1\nhello\n" if option == "--follow" else "1\n")
    assert outcome.err == f"1 x {end} after 1m 05s\n"


def test_waiting_survives_a_service_that_is_started_anew(world: World) -> None:
    world.faults += [status(201, b'{"ids": ["1"]}'), status(503), status(503), status(502), status(503)]
    world.add(state="finished")
    assert horae("submit", "--wait", "--", "x").code == 0


# run


def test_run_is_an_interactive_job_of_limited_time(world: World) -> None:
    world.output["1"] = b"$ exit\n"
    outcome = horae("run", "--max-duration", "2h", "--type", "A100", "--", "bash")
    assert (outcome.code, outcome.out) == (0, "$ exit\n")
    sent = body(world)
    assert (sent["priority"], sent["max_duration"], sent["run"]) == ("interactive", 7200.0, "bash")
    assert horae("run").complaint == "no command is given; use `horae run -- COMMAND`, or --pty for a shell"
