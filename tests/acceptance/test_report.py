"""`horae report` and `horae compare --report`: one page that needs nothing else, and says what its numbers say."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from command_line import Outcome, horae

from horae import samples

SECTIONS = [
    "The answer",
    "All numbers",
    "As recorded, and simulated",
    "How long jobs take and wait",
    "By tenant: rho and GPU-hours",
    "Utilisation and queue over time",
    "Cluster over time",
    "Assumptions",
    "Definitions",
]
EVIL = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "</title></style><b>", "a&amp;b")
EMPTY_ELEMENTS = {"meta", "br", "img", "link", "input", "hr"}
LOADS = ("src", "srcset", "data", "action", "poster", "background")


class Seen(HTMLParser):
    """The elements of a page, its text by element, its references and its tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes += [(name, value or "") for name, value in attributes]
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag in ("h1", "h2", "p", "li", "dt", "dd", "title"):
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes += [(name, value or "") for name, value in attributes]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        last = self.open[-1] if self.open else ""
        if last in ("td", "th"):
            self.rows[-1][-1] += data
        for each in self.open[-2:]:
            if each in self.texts:
                self.texts[each][-1] += data

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self.attributes if name in names]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def page(outcome: Outcome, path: Path) -> Seen:
    assert outcome.code == 0, outcome
    seen = Seen(path.read_text(encoding="utf-8"))
    assert seen.open == []  # every element is closed, in its order
    return seen


def is_by_itself(seen: Seen) -> None:
    """Fails if a browser would fetch anything, or run anything, for the page."""
    assert not {"script", "iframe", "object", "embed", "base", "form", "audio", "video", "img"} & seen.elements
    assert not seen.values(*LOADS)
    assert all(value.startswith(("#", "data:")) for value in seen.values("href", "xlink:href"))
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    (policy,) = [value for name, value in seen.attributes if name == "content" and "default-src" in value]
    assert policy.startswith("default-src 'none'")
    names = seen.values("id")
    assert len(names) == len(set(names))
    assert set(seen.values("aria-labelledby")) <= set(names)


def is_complete(seen: Seen) -> None:
    is_by_itself(seen)
    assert seen.texts["h2"] == SECTIONS


# The page of a comparison


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """A record of Slurm's, and what two policies would have done, with the numbers as Markdown beside."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    words = ("compare", samples.ACCOUNTING, "--nodes", "2x8:H100", "--nodes", "2x8:A100", "--no-cache", "--workers", 1)
    return horae(*words, "--policy", "slurm", "--policy", "tiresias", "--report", path, "-o", "md"), path


def test_a_comparison_as_a_page_has_everything_in_one_file(compared: tuple[Outcome, Path]) -> None:
    seen = page(*compared)
    is_complete(seen)
    assert [
        word for word in ("as recorded", "slurm", "tiresias") if not any(row[:1] == [word] for row in seen.rows)
    ] == []


def test_the_table_of_the_page_has_the_numbers_of_the_terminal(compared: tuple[Outcome, Path]) -> None:
    outcome, _ = compared
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in outcome.out.splitlines() if "|" in line]
    terminal = {line[0]: dict(zip(lines[0], line, strict=True)) for line in lines[2:] if len(line) == len(lines[0])}
    seen = page(*compared)
    (heading,) = [row for row in seen.rows if row[:2] == ["policy", "finished"]]
    rows = {row[0]: dict(zip(heading, row, strict=True)) for row in seen.rows if len(row) == len(heading)}
    for name in ("as recorded", "slurm", "tiresias"):
        told = {column: terminal[name][column] for column in heading}
        assert rows[name] == told


def test_the_answer_says_what_the_table_says(compared: tuple[Outcome, Path]) -> None:
    seen = page(*compared)
    (row,) = [row for row in seen.rows if row[0] == "tiresias" and "(" in row[3]]
    change = float(re.findall(r"[-+][\d.]+", row[3])[0])
    (lead,) = [text for text in seen.texts["p"] if text.startswith("tiresias finishes jobs")]
    (said,) = re.findall(r"(\d+)% sooner on average than slurm", lead)
    assert abs(-change - float(said)) <= 0.55  # both are rounded
    told = " ".join(seen.texts["li"])
    assert "As recorded, a job took" in told
    assert "No policy here knows run times in advance" in told
    assert "resuming takes 45 s" in told
    assert "562 rows of the trace left out: is a step of a job" in told


def test_times_have_dates_where_the_trace_has(compared: tuple[Outcome, Path]) -> None:
    _, path = compared
    text = path.read_text(encoding="utf-8")
    assert "submitted from 7 Sep 2026 to 11 Sep 2026" in text
    assert "date in 2026" in text


def test_the_same_comparison_gives_the_same_bytes(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", "id,submit,gpus,duration,user\na,0,4,100,x\nb,10,2,50,y\n")
    words = ("compare", jobs, "--nodes", "1x4", "--policy", "fifo", "--policy", "las", "--no-cache", "--workers", 1)
    texts = []
    for name in ("one.html", "two.html"):
        assert horae(*words, "--report", tmp_path / name).code == 0
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]


def test_a_best_policy_that_knows_run_times_is_said_to(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", "id,submit,gpus,duration\na,0,4,100\nb,1,4,50\nc,2,4,10\n")
    words = ("compare", jobs, "--nodes", "1x4", "--policy", "fifo", "--no-cache", "--workers", 1)
    for more, said in ((("sjf",), ""), (("sjf", "srtf"), "; so do all others that are compared with fifo")):
        policies = [word for name in more for word in ("--policy", name)]
        seen = page(horae(*words, *policies, "--report", tmp_path / "x.html"), tmp_path / "x.html")
        (told,) = [text for text in seen.texts["li"] if "knows run times in advance, which" in text]
        assert told.endswith(f"which a real cluster does not{said}.")


# The page of a run


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("journals")
    for policy in ("fifo", "tiresias"):
        assert horae("simulate", "--policy", policy, "--journal", folder / f"{policy}.jsonl").code == 0
    return folder / "fifo.jsonl", folder / "tiresias.jsonl"


def test_a_run_has_a_page_without_a_comparison(journals: tuple[Path, Path], tmp_path: Path) -> None:
    seen = page(horae("report", journals[0], "-o", tmp_path / "run.html"), tmp_path / "run.html")
    is_complete(seen)
    (lead,) = [text for text in seen.texts["p"] if text.startswith("Under fifo")]
    assert lead.startswith("Under fifo, 300 of 300 jobs finished")
    assert not any(cell.startswith("vs ") for row in seen.rows for cell in row)


def test_two_runs_are_compared_under_the_names_that_are_given(journals: tuple[Path, Path], tmp_path: Path) -> None:
    words = (f"before={journals[0]}", f"after={journals[1]}", "-o", tmp_path / "two.html", "--by", "tenant")
    seen = page(horae("report", *words), tmp_path / "two.html")
    is_complete(seen)
    assert {"before", "after"} <= {row[0] for row in seen.rows if row}
    tenants = {row[0]: row for row in seen.rows if row[0] in ("nlp", "vision")}
    assert sum(int(row[1]) for row in tenants.values()) == 300


def test_names_of_jobs_and_tenants_are_text(tmp_path: Path) -> None:
    quoted = [name.replace('"', '""') for name in EVIL]
    rows = "".join(f'"{name}",{index},"{name}",2,{100 + index}\n' for index, name in enumerate(quoted))
    jobs = write(tmp_path / "jobs.csv", f"id,submit,tenant,gpus,duration\n{rows}")
    assert horae("simulate", "--nodes", "1x4", "--jobs", jobs, "--journal", tmp_path / "<b>.jsonl").code == 0
    seen = page(horae("report", tmp_path / "<b>.jsonl", "-o", tmp_path / "run.html"), tmp_path / "run.html")
    is_complete(seen)
    assert set(EVIL) <= {row[0] for row in seen.rows if row}
    assert seen.texts["title"][:1] == ["A GPU cluster under one policy: <b>.jsonl"]


# Mistakes


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory; name a file made with --journal"),
        ("", ":1: the journal has no complete line; name a file made with --journal"),
        ("id,submit\n", ":1: is no journal; name a file made with --journal"),
        (
            '{"journal":99,"setup":{}}\n',
            ":1: a journal of version 99, and not a journal of version 2; run it again with this version of Horae",
        ),
        ('{"jobs":[]}\n', ":1: not a journal of version 2; name a file made with --journal"),
    ],
)
def test_what_is_no_journal_is_one_line(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "run.jsonl"
    if content is not None:
        write(path, content)
    complaint = horae("report", path, "-o", tmp_path / "run.html").complaint
    assert complaint.startswith(str(path))
    assert complaint.endswith(problem)
    assert not (tmp_path / "run.html").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("{fifo}", "-o", "{here}/x.pdf"), "--output: is no page; name it .html"),
        (("{fifo}", "-o", "{here}/none/x.html"), "name a file in a folder of yours"),
        (("{fifo}", "{fifo}"), "two runs are called 'fifo'; name them: before=one.jsonl after=two.jsonl"),
        (("{here}",), "is a folder; write the journal of a service with"),
        ((str(samples.JOBS),), "is a table, and not a run; name a journal"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    journals: tuple[Path, Path], tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    known = {"fifo": journals[0], "here": tmp_path}
    found = [word.format(**known) for word in words]
    assert problem in horae("report", *found, *(() if "-o" in found else ("-o", tmp_path / "x.html"))).complaint
    assert list(tmp_path.iterdir()) == []


def test_runs_of_other_jobs_are_not_compared(journals: tuple[Path, Path], tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", "id,submit,gpus,duration\na,0,2,100\n")
    assert horae("simulate", "--nodes", "1x4", "--jobs", jobs, "--journal", tmp_path / "other.jsonl").code == 0
    complaint = horae("report", journals[0], tmp_path / "other.jsonl", "-o", tmp_path / "x.html").complaint
    assert "has no job in common with" in complaint


# Size


def test_a_page_does_not_grow_with_the_number_of_jobs(tmp_path: Path) -> None:
    sizes = []
    for count in (500, 2_000):
        path = tmp_path / f"{count}.html"
        words = ("compare", f"poisson={{jobs: {count}}}", "--nodes", "25x8", "--policy", "fifo", "--report", path)
        assert horae(*words, "--no-cache", "--workers", 1).code == 0
        sizes.append(path.stat().st_size)
    assert sizes[1] < 1.5 * sizes[0]
    assert max(sizes) < 2_000_000
