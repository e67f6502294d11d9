"""Cluster files: what they mean, and what is said about wrong ones."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
from command_line import horae, horae_process

from horae import samples
from horae.cells.binding import CellBinding
from horae.model.setup import Cadence, PoolSpec, RoundRules, Setup
from horae.policies import registry
from horae.policies.registry import make_policy
from horae.traces.clusters.file import read_cluster

NODES = """\
nodes:
  - {name: "a[0-3]", gpu: A100, gpus: 8}
"""
POLICIES = f"choose one of {', '.join([*registry.POLICIES, *(point.name for point in registry.installed())])}"
ONE_POLICY = "name one: fifo, or {tiresias: {limits: [1, 3]}}"
TIMES = "give seconds, or a number with s, m, h or d"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "lab.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder: Path, text: str) -> Setup:
    return read_cluster(write(folder, text), make_policy, CellBinding)


def group(fields: str) -> str:
    """A file with a good group of nodes on line 2 and another one on line 3."""
    return f"{NODES}  - {{{fields}}}\n"


# Sentence, file, and all that is printed about it behind the file's name.
WRONG: dict[str, tuple[str | bytes, str]] = {
    # The file as a whole
    "a bracket is not closed": (
        "name: lab\nnodes: [\n  {name: a",
        ":3: not YAML: expected ',' or '}', but got '<stream end>'; fix the syntax",
    ),
    "a tab indents a line": (
        "nodes:\n\t- {name: a}",
        r":2: not YAML: found character '\t' that cannot start any token; fix the syntax",
    ),
    "there are two documents": (
        f"{NODES}---\n{NODES}",
        ":3: not YAML: but found another document; fix the syntax",
    ),
    "an alias has no anchor": ("nodes: [*x]\n", ":1: not YAML: found undefined alias 'x'; fix the syntax"),
    "a tag would run code": (
        "name: lab\nnodes: !!python/name:os.system x\n",
        ":2: not YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'; "
        "fix the syntax",
    ),
    "brackets are nested a thousand deep": (
        f"nodes: {'[' * 1000}",
        ": not YAML: maximum recursion depth exceeded; fix the syntax",
    ),
    "the file is empty": ("", ": is empty; give at least nodes"),
    "the file has comments only": ("# to be written\n", ": is empty; give at least nodes"),
    "the file is a list": ("- a\n- b\n", ":1: is ['a', 'b']; give each value a name: {name: value}"),
    "the file is one word": ("hello\n", ":1: is 'hello'; give each value a name: {name: value}"),
    "the file is binary": (b"\x7fELF\xff\xfe", ":1: is not UTF-8 text; name a YAML file in UTF-8"),
    "the file is Latin-1": (
        "name: lab\ngpu: \xe9".encode("latin-1"),
        ":2: is not UTF-8 text; name a YAML file in UTF-8",
    ),
    "there is a zero byte": (b"name: lab\n\x00", ":2: not YAML: special characters are not allowed; remove it"),
    # Fields
    "nodes are missing": ("# a lab\nname: lab\n", ":2: nodes: is missing; add it"),
    "nodes is an empty list": (
        "name: lab\nnodes: []\n",
        ":2: nodes: is []; give at least 1",
    ),
    "nodes contain themselves": (
        "nodes: &nodes\n  - *nodes\n",
        ":1: contains itself by an alias; write it out",
    ),
    "a field is unknown": (
        f"{NODES}colour: red\n",
        ":3: colour: is not a known field; remove it or check its spelling",
    ),
    "a field of a node is unknown": (
        "nodes:\n  - name: a\n    gpu: A100\n    gpus: 8\n    gpuz: 3\n",
        ":5: nodes.0.gpuz: is not a known field; remove it or check its spelling",
    ),
    "a field has a line break in its name": (
        f'{NODES}"a\\nb": 3\n',
        ":3: a b: is not a known field; remove it or check its spelling",
    ),
    "a field is given twice": (f"name: a\n{NODES}name: b\n", ":4: name: is given twice (line 1); give it once"),
    "a tenant is given twice": (
        f"{NODES}tenants:\n  nlp: {{weight: 1}}\n  vision: {{}}\n  nlp: {{weight: 3}}\n",
        ":6: nlp: is given twice (line 4); give it once",
    ),
    "the name is a number": (f"name: 5\n{NODES}", ":1: name: is 5; it should be a valid string"),
    "a restart takes soon": (f"{NODES}restart_seconds: soon\n", f":3: restart_seconds: 'soon' is no time; {TIMES}"),
    # Nodes
    "a node has no GPU type": (group("name: b, gpus: 8"), ":3: nodes.1.gpu: is missing; add it"),
    "a node has zero GPUs": (
        "nodes:\n  - name: a\n    gpu: A100\n    gpus: 0\n",
        ":4: nodes.0.gpus: is 0; it should be greater than 0",
    ),
    "a node has a negative number of GPUs": (
        group("name: b, gpu: A100, gpus: -8"),
        ":3: nodes.1.gpus: is -8; it should be greater than 0",
    ),
    "a node has seven and a half GPUs": (
        group("name: b, gpu: A100, gpus: 7.5"),
        ":3: nodes.1.gpus: is 7.5; it should be a valid integer",
    ),
    "a node has a word of GPUs": (
        group("name: b, gpu: A100, gpus: eight"),
        ":3: nodes.1.gpus: is 'eight'; it should be a valid integer",
    ),
    "a node has more GPUs than fit the memory": (
        group("name: b, gpu: A100, gpus: 100000000000"),
        ":3: nodes.1.gpus: is 100000000000; it should be less than or equal to 1024",
    ),
    "a node has endless CPUs": (
        group("name: b, gpu: A100, gpus: 8, cpus: .inf"),
        ":3: nodes.1.cpus: is inf; it should be a finite number",
    ),
    "memory has an unknown unit": (
        group("name: b, gpu: A100, gpus: 8, memory: 1XB"),
        ":3: nodes.1.memory: '1XB' is no amount of memory; "
        "give bytes, or a number with KB, MB, GB, TB, KiB, MiB, GiB or TiB",
    ),
    "a rack has a name": (
        group("name: b, gpu: A100, gpus: 8, rack: r1"),
        ":3: nodes.1.rack: is 'r1'; it should be a valid integer",
    ),
    "a node has no name": (
        group("name: '', gpu: A100, gpus: 8"),
        ":3: nodes.1.name: is ''; it should have at least 1 character",
    ),
    "a node is listed twice": (
        group("name: a2, gpu: V100, gpus: 4"),
        ":3: nodes.1: node 'a2' is listed twice; give each node its own name",
    ),
    "a range runs backwards": (
        group("name: 'b[3-1]', gpu: A100, gpus: 8"),
        ":3: nodes.1.name: 'b[3-1]' runs backwards; write the smaller number first",
    ),
    "a range is not closed": (
        group("name: 'b[3', gpu: A100, gpus: 8"),
        ":3: nodes.1.name: 'b[3' is no range of names; write it as a[00-15]",
    ),
    "two ranges stand for a hundred million names": (
        group("name: 'b[0-9999][0-9999]', gpu: A100, gpus: 8"),
        ":3: nodes.1.name: 'b[0-9999][0-9999]' stands for more than 1,000,000 names; split it",
    ),
    # Levels
    "a level does not divide the node": (
        f"{NODES}  - name: b\n    gpu: A100\n    gpus: 8\n    levels:\n      socket: 3\n",
        ":6: nodes.1.levels: 3 GPUs per socket do not divide node 'b' of 8 GPUs into equal cells; "
        "give the GPUs of one cell, e.g. {socket: 4, switch: 2} for a node of 8",
    ),
    "a level does not divide the next": (
        group("name: b, gpu: A100, gpus: 12, levels: {switch: 4, socket: 6}"),
        ":3: nodes.1.levels: 6 GPUs per socket do not divide node 'b' of 12 GPUs into equal cells; "
        "give the GPUs of one cell, e.g. {socket: 4, switch: 2} for a node of 8",
    ),
    "a level has cells of no GPUs": (
        group("name: b, gpu: A100, gpus: 8, levels: {socket: 0}"),
        ":3: nodes.1.levels.socket: is 0; it should be greater than 0",
    ),
    "a level has the name of one outside the node": (
        group("name: b, gpu: A100, gpus: 8, levels: {rack: 2}"),
        ":3: nodes.1.levels: 'rack' is not a level inside a node; choose another name",
    ),
    "a level above nodes has cells of no nodes": (
        group("name: b, gpu: A100, gpus: 8, above: {rack: 0}"),
        ":3: nodes.1.above.rack: 0 is no cell; give the nodes of one cell, or its name: {rack: 4, row: east}",
    ),
    "a row is not made of whole racks": (
        group("name: 'b[0-9]', gpu: A100, gpus: 8, above: {rack: 4, row: 10}"),
        ":3: nodes.1.above: row cells of 10 nodes are not made of whole rack cells of 4; "
        "list the finest first, each dividing the next: {rack: 4, row: 16}",
    ),
    "the coarse level comes first": (
        group("name: 'b[0-9]', gpu: A100, gpus: 8, above: {row: 16, rack: 4}"),
        ":3: nodes.1.above: rack cells of 4 nodes are not made of whole row cells of 16; "
        "list the finest first, each dividing the next: {rack: 4, row: 16}",
    ),
    "racks are given in two ways": (
        group("name: b, gpu: A100, gpus: 8, rack: 2, above: {row: 4}"),
        ":3: nodes.1: has both rack and above; put the rack into above: {rack: 4, row: 16}",
    ),
    "a rack is in two rows": (
        group("name: b, gpu: A100, gpus: 8, above: {rack: r1, row: east}")
        + "  - {name: c, gpu: V100, gpus: 8, above: {rack: r1, row: west}}\n",
        ":4: nodes.2.above: rack 'r1' is in row 'east' and, for node 'c', in row 'west'; "
        "give cells that differ names that differ",
    ),
    "a level above nodes is called node": (
        group("name: b, gpu: A100, gpus: 8, above: {node: 2}"),
        ":3: nodes.1.above: 'node' is not a level above a node; choose another name",
    ),
    "a level is inside nodes and above them": (
        group("name: b, gpu: A100, gpus: 8, levels: {row: 2}, above: {row: 2}"),
        ":3: nodes.1.levels: 'row' is not a level inside a node; choose another name",
    ),
    "two groups order their levels above nodes differently": (
        "nodes:\n"
        "  - {name: a, gpu: A100, gpus: 8, above: {rack: r, row: s}}\n"
        "  - {name: b, gpu: A100, gpus: 8, above: {row: t, rack: u}}\n",
        ":3: nodes.1.above: nodes disagree on which of rack, row is finer; use one order",
    ),
    "a tenant without nodes has a policy": (
        group("name: b, gpu: A100, gpus: 8") + "tenants:\n  nlp:\n    policy: fifo\n",
        ":6: tenants.nlp.policy: has no effect for a tenant without nodes or cells; give it some, or set it for spare",
    ),
    "two groups order their levels differently": (
        "nodes:\n"
        "  - {name: a, gpu: A100, gpus: 8, levels: {switch: 2, socket: 4}}\n"
        "  - {name: b, gpu: A100, gpus: 8, levels: {switch: 4, socket: 2}}\n"
        "  - {name: c, gpu: A100, gpus: 8}\n",
        ":3: nodes.1.levels: nodes disagree on which of socket, switch is finer; use one order",
    ),
    # Policies
    "the spare pool has an unknown policy": (
        f"{NODES}spare: {{policy: lottery}}\n",
        f":3: spare.policy: there is no policy 'lottery'; {POLICIES}",
    ),
    "a tenant has an unknown policy": (
        f"{NODES}tenants:\n  nlp:\n    nodes: a0\n    policy: lottery\n",
        f":6: tenants.nlp.policy: there is no policy 'lottery'; {POLICIES}",
    ),
    "a tenant without nodes has an unknown policy": (
        f"{NODES}tenants:\n  nlp:\n    policy: lottery\n",
        f":5: tenants.nlp.policy: there is no policy 'lottery'; {POLICIES}",
    ),
    "a policy has a bad option": (
        f"{NODES}spare:\n  policy:\n    tiresias:\n      promote_after: 8\n      limits: [3, 1]\n",
        ":7: spare.policy.tiresias.limits: limits [3.0, 1.0] are not increasing GPU-seconds; e.g. [3250, 18000]",
    ),
    "a policy has an unknown option": (
        f"{NODES}spare: {{policy: {{tiresias: {{speed: 1}}}}}}\n",
        ":3: spare.policy: policy 'tiresias' has no option 'speed'; it takes: limits, promote_after",
    ),
    "an option of a policy has the wrong type": (
        f"{NODES}spare: {{policy: {{fifo: {{backfill: 3}}}}}}\n",
        ":3: spare.policy: option 'backfill' of policy 'fifo' is 3; give true or false",
    ),
    "a pool has two policies": (
        f"{NODES}spare: {{policy: {{fifo: {{}}, sjf: {{}}}}}}\n",
        f":3: spare.policy: {{'fifo': {{}}, 'sjf': {{}}}} is no policy; {ONE_POLICY}",
    ),
    "a pool has a number for a policy": (
        f"{NODES}spare: {{policy: 3}}\n",
        f":3: spare.policy: 3 is no policy; {ONE_POLICY}",
    ),
    "a turn is negative": (
        f"{NODES}spare:\n  rules:\n    turn_rounds: -1\n",
        ":5: spare.rules.turn_rounds: is -1; it should be greater than or equal to 0",
    ),
    "restarts may take more than all of the time": (
        f"{NODES}spare: {{rules: {{restart_share_max: 2}}}}\n",
        ":3: spare.rules.restart_share_max: is 2; it should be less than or equal to 1",
    ),
    "restarts may take none of the time": (
        f"{NODES}spare: {{rules: {{restart_share_max: 0}}}}\n",
        ":3: spare.rules.restart_share_max: is 0; it should be greater than 0",
    ),
    "shares stand for a while": (
        f"{NODES}spare: {{rules: {{reconsider_seconds: a while}}}}\n",
        f":3: spare.rules.reconsider_seconds: 'a while' is no time; {TIMES}",
    ),
    "fill is a number": (
        f"{NODES}spare: {{rules: {{fill: 1}}}}\n",
        ":3: spare.rules.fill: is 1; it should be a valid boolean",
    ),
    "a rule is unknown": (
        f"{NODES}spare: {{rules: {{turns: 4}}}}\n",
        ":3: spare.rules.turns: is not a known field; remove it or check its spelling",
    ),
    "types are given out in an order that names another": (
        f"{NODES}spare: {{rules: {{type_order: [A100, V100]}}}}\n",
        ":3: spare.rules.type_order: there is no GPU type 'V100'; use A100",
    ),
    "types are given out in an order that names one twice": (
        f"{NODES}tenants:\n  nlp: {{nodes: a0, rules: {{type_order: [A100, A100]}}}}\n",
        ":4: tenants.nlp.rules.type_order: names 'A100' twice; name each GPU type once",
    ),
    "a tenant without nodes has rules": (
        f"{NODES}tenants: {{nlp: {{rules: {{fill: true}}}}}}\n",
        ":3: tenants.nlp.rules: has no effect for a tenant without nodes or cells; give it some, or set it for spare",
    ),
    "the cadence is unknown": (
        f"{NODES}spare: {{cadence: weekly}}\n",
        ":3: spare.cadence: is 'weekly'; it should be 'events' or 'rounds'",
    ),
    "rounds have a negative length": (
        f"{NODES}spare:\n  cadence: rounds\n  round_seconds: -5\n",
        f":5: spare.round_seconds: -5 is no time; {TIMES}",
    ),
    "rounds have no length": (
        f"{NODES}spare: {{round_seconds: 0}}\n",
        ":3: spare.round_seconds: is 0; it should be greater than 0",
    ),
    # Tenants
    "tenants are a list": (
        f"{NODES}tenants: [nlp]\n",
        ":3: tenants: is ['nlp']; give each value a name: {name: value}",
    ),
    "a tenant has a weight that is no number": (
        f"{NODES}tenants:\n  nlp: {{weight: .nan}}\n",
        ":4: tenants.nlp.weight: is nan; it should be a finite number",
    ),
    "a tenant owns an unknown node": (
        f'{NODES}tenants:\n  nlp: {{}}\n  vision:\n    weight: 2\n    nodes: ["a[0-1]", b1]\n',
        ":7: tenants.vision.nodes: there is no node 'b1'; name nodes that are listed",
    ),
    "a tenant owns a range that is not closed": (
        f'{NODES}tenants:\n  nlp:\n    nodes:\n      - "a[0-1]"\n      - "a[2"\n',
        ":7: tenants.nlp.nodes.1: 'a[2' is no range of names; write it as a[00-15]",
    ),
    "two tenants own one node": (
        f'{NODES}tenants:\n  nlp: {{nodes: "a[0-1]"}}\n  vision: {{nodes: "a[1-2]"}}\n',
        ":5: tenants.vision.nodes: node 'a1' belongs to 'nlp' already; give it to one, once",
    ),
    "a tenant owns a node twice": (
        f'{NODES}tenants:\n  nlp: {{nodes: ["a[0-2]", a1]}}\n',
        ":4: tenants.nlp.nodes: node 'a1' belongs to 'nlp' already; give it to one, once",
    ),
    "a tenant has the name of the spare pool": (
        f"{NODES}tenants:\n  spare: {{nodes: a0}}\n",
        ":4: tenants.spare: this is what the pool of all other nodes is called; choose another name",
    ),
    "a tenant wants cells of a level that does not exist": (
        f"{NODES}tenants:\n  nlp:\n    cells: {{a100.socket: 1}}\n",
        ":5: tenants.nlp.cells: tenant 'nlp' reserves 'a100.socket', which does not exist; use A100.{gpu, node}",
    ),
    "two tenants together want more cells than there are": (
        f"{NODES}tenants:\n  nlp: {{cells: {{a100.node: 3}}}}\n  vision: {{cells: {{a100.gpu: 9}}}}\n",
        ":5: tenants.vision.cells: the tenants' cells exceed chain A100 at level gpu by 1: 33 are promised, "
        "32 are there; promise fewer cells, or add hardware",
    ),
    "a tenant pins an unknown node": (
        f"{NODES}tenants:\n  nlp:\n    pinned: {{gold: b7}}\n",
        ":5: tenants.nlp.pinned: tenant 'nlp' pins 'b7' as 'gold', which does not exist; "
        "name a node (n07), a cell above nodes (r2 or rack/r2), or one inside a node (n07/socket/1)",
    ),
    "a tenant pins a cell of a level that its node has not": (
        f"{NODES}tenants: {{nlp: {{pinned: {{gold: a1/socket/0}}}}}}\n",
        ":3: tenants.nlp.pinned: tenant 'nlp' pins 'a1/socket/0' as 'gold', but that node has no level 'socket'; "
        "use gpu",
    ),
    "a tenant pins a ninth GPU": (
        f"{NODES}tenants: {{nlp: {{pinned: {{gold: a1/gpu/8}}}}}}\n",
        ":3: tenants.nlp.pinned: tenant 'nlp' pins 'a1/gpu/8' as 'gold', but that node has 8 of gpu; "
        "give a number from 0 to 7",
    ),
    "two tenants pin cells that overlap": (
        f"{NODES}tenants:\n  nlp: {{pinned: {{gold: a1}}}}\n  vision: {{pinned: {{x: a2, y: a1/gpu/3}}}}\n",
        ":5: tenants.vision.pinned: tenant 'vision' pins 'a1/gpu/3' as 'y', which overlaps nlp/gold (a1); "
        "pin cells that are apart",
    ),
    "a rack and a row have one name": (
        "nodes:\n  - {name: 'a[0-3]', gpu: A100, gpus: 8, above: {rack: x, row: x}}\n"
        "tenants: {nlp: {pinned: {g: x}}}\n",
        ":3: tenants.nlp.pinned: tenant 'nlp' pins 'x' as 'g', of which there are several; use rack/x or row/x",
    ),
    "a pinned rack has nodes of two kinds": (
        "nodes:\n  - {name: a, gpu: A100, gpus: 8, above: {rack: x}}\n"
        "  - {name: b, gpu: A100, gpus: 4, above: {rack: x}}\n"
        "tenants: {nlp: {pinned: {g: x}}}\n",
        ":4: tenants.nlp.pinned: tenant 'nlp' pins 'x' as 'g', whose nodes are not all alike, so that it is no cell; "
        "pin cells or nodes inside it",
    ),
    "cells no longer fit beside a pinned one": (
        f"{NODES}tenants:\n  nlp: {{cells: {{a100.node: 4}}}}\n  vision: {{pinned: {{x: a2/gpu/0}}}}\n",
        ":5: tenants.vision.pinned: the tenants' cells exceed chain A100 at level node by 1: 4 are promised, "
        "3 are there beside the pinned cells; promise fewer cells, or add hardware",
    ),
    "cells of all chains are more than there are": (
        group("name: 'b[0-3]', gpu: A100, gpus: 8, rack: 2") + "tenants: {nlp: {cells: {a100.node: 9}}}\n",
        ":4: tenants.nlp.cells: tenant 'nlp' reserves 9 of 'a100.node', of which 4 in A100x8r0, 4 in A100x8r2 "
        "are left; promise fewer cells, or add hardware",
    ),
    "a tenant without cells shall borrow": (
        f"{NODES}tenants: {{nlp: {{borrow: false}}}}\n",
        ":3: tenants.nlp.borrow: has no effect for a tenant without cells; reserve some, or leave it out",
    ),
    "one tenant owns nodes where another reserves cells": (
        f"{NODES}tenants:\n  nlp: {{cells: {{a100.node: 3}}}}\n  vision: {{nodes: a3}}\n",
        ":5: tenants.vision.nodes: no tenant can own nodes if others reserve cells; reserve node cells for it",
    ),
    "a tenant wants more cells than there are": (
        f"{NODES}tenants:\n  nlp:\n    weight: 2\n    cells: {{a100.node: 600}}\n",
        ":6: tenants.nlp.cells: the tenants' cells exceed chain A100 at level node by 596: 600 are promised, "
        "4 are there; promise fewer cells, or add hardware",
    ),
}


@pytest.mark.parametrize(("text", "want"), WRONG.values(), ids=WRONG)
def test_wrong_file_is_one_line_with_its_place_and_a_remedy(tmp_path: Path, text: str | bytes, want: str) -> None:
    path = write(tmp_path, text)
    assert horae("cluster", "show", path).complaint == f"{path}{want}"


@pytest.mark.parametrize(
    "sentence",
    [
        "a bracket is not closed",
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in ("the file is binary", "a level does not divide the node", "two tenants own one node")
        ),
    ],
)
def test_a_real_process_says_the_same_and_runs_nothing(tmp_path: Path, sentence: str) -> None:
    text, want = WRONG[sentence]
    path, journal = write(tmp_path, text), tmp_path / "run.jsonl"
    outcome = horae_process("simulate", "--cluster", path, "--journal", journal)
    assert outcome.complaint == f"{path}{want}"
    assert not journal.exists()


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    assert horae("cluster", "show", path).complaint == f"{path}: No such file or directory; name a YAML file in UTF-8"


def test_a_folder_is_no_cluster_file(tmp_path: Path) -> None:
    assert horae("cluster", "show", tmp_path).complaint == f"{tmp_path}: Is a directory; name a YAML file in UTF-8"


def test_sample_has_all_that_its_file_says() -> None:
    setup = read_cluster(samples.CLUSTER, make_policy, CellBinding, seed=3)
    cluster = setup.cluster
    assert (cluster.name, cluster.gpu_count, cluster.restart_seconds, setup.seed) == ("lab", 64, 45.0, 3)
    assert cluster.accelerators == ("A100", "V100")
    first = cluster.nodes[0]
    assert (first.name, first.gpus, first.cpus, first.memory_bytes) == ("a0", 8, 96.0, 1e12)
    assert (first.levels, first.rack, first.price_per_hour) == ((("switch", 2), ("socket", 4)), "a[0-3]/0", 2.1)
    assert [node.rack for node in cluster.nodes[:4]] == ["a[0-3]/0", "a[0-3]/0", "a[0-3]/1", "a[0-3]/1"]
    assert setup.pools == (PoolSpec("all", "fifo"),)


def test_levels_above_nodes_are_counted_or_named(tmp_path: Path) -> None:
    setup = read(
        tmp_path,
        "nodes:\n"
        "  - {name: 'a[0-7]', gpu: A100, gpus: 8, above: {rack: 2, row: 4, hall: north}}\n"
        "  - {name: b, gpu: A100, gpus: 8, above: {rack: r7, hall: north}}\n",
    )
    assert setup.cluster.levels == ("gpu", "node", "rack", "row", "hall", "cluster")
    groups = {node.name: node.groups for node in setup.cluster.nodes}
    assert groups["a5"] == (("rack", "a[0-7]/2"), ("row", "a[0-7]/row1"), ("hall", "north"))
    assert groups["b"] == (("rack", "r7"), ("hall", "north"))


def test_a_tenant_may_have_pinned_cells_and_no_others(tmp_path: Path) -> None:
    setup = read(tmp_path, f"{NODES}tenants: {{nlp: {{pinned: {{gold: a2, chip: a1/gpu/3}}}}}}\n")
    assert [pool.name for pool in setup.pools] == ["nlp", "spare"]
    assert (setup.pools[0].pinned, setup.pools[0].cells) == ({"gold": "a2", "chip": "a1/gpu/3"}, {})


def test_cluster_show_prints_divisions_and_pins(tmp_path: Path) -> None:
    text = group("name: 'b[0-7]', gpu: A100, gpus: 8, above: {rack: 2, row: 4}")
    path = write(tmp_path, f"{text}tenants: {{nlp: {{cells: {{a100.node: 6}}, pinned: {{gold: 'b[0-7]/3'}}}}}}\n")
    out = horae("cluster", "show", path).out
    assert "pool nlp: fifo, 6 x a100.node (2 of A100x8r0, 4 of A100x8r4), pinned gold (b[0-7]/3)" in out
    assert "2 x row of 32 GPUs (b[0-7]/row0 … b[0-7]/row1)" in out
    assert "2 x rack of 16 GPUs (b[0-7]/0 … b[0-7]/1)" in out


def test_what_is_left_out_has_no_limit_and_costs_nothing(tmp_path: Path) -> None:
    node = read(tmp_path, NODES).cluster.nodes[0]
    assert (node.cpus, node.memory_bytes, node.levels, node.rack, node.price_per_hour) == (inf, inf, (), "", 0.0)


def test_a_tenant_with_nodes_has_a_pool_and_the_others_share_the_rest(tmp_path: Path) -> None:
    setup = read(
        tmp_path,
        f"{NODES}tenants:\n"
        '  nlp: {nodes: ["a[0-1]", a3], policy: {tiresias: {limits: [60, 600]}}, cadence: rounds, round_seconds: 10m}\n'
        "  vision: {weight: 2}\n"
        "spare: {policy: sjf}\n",
    )
    assert setup.pools == (
        PoolSpec("nlp", "tiresias", {"limits": [60, 600]}, Cadence.ROUNDS, 600.0, ("nlp",), ("a0", "a1", "a3")),
        PoolSpec("spare", "sjf"),
    )


def test_a_pool_may_have_rules_for_its_rounds(tmp_path: Path) -> None:
    setup = read(
        tmp_path,
        f"{NODES}tenants:\n"
        "  nlp: {nodes: a0, policy: max-min, rules: {turn_rounds: 0, fill: true, type_order: A100}}\n"
        "spare: {policy: max-min, rules: {reconsider_seconds: 32m, restart_share_max: 0.05}}\n",
    )
    assert [pool.rules for pool in setup.pools] == [
        RoundRules(type_order=("A100",), fill=True, turn_rounds=0.0),
        RoundRules(reconsider_seconds=1920.0, restart_share_max=0.05),
    ]


def test_where_all_nodes_are_owned_there_is_no_spare_pool(tmp_path: Path) -> None:
    setup = read(tmp_path, f'{NODES}tenants: {{nlp: {{nodes: "a[0-3]"}}}}\n')
    assert [pool.name for pool in setup.pools] == ["nlp"]


def test_a_byte_order_mark_and_windows_line_ends_are_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf" + NODES.replace("\n", "\r\n").encode())
    assert read_cluster(path, make_policy, CellBinding).cluster.gpu_count == 32


def test_anchors_save_typing(tmp_path: Path) -> None:
    setup = read(
        tmp_path,
        "nodes:\n  - &a {name: a, gpu: A100, gpus: 8, cpus: 96}\n  - {<<: *a, name: b}\n",
    )
    assert [(node.name, node.cpus) for node in setup.cluster.nodes] == [("a", 96.0), ("b", 96.0)]


def test_a_tenant_with_cells_borrows_unless_it_says_otherwise(tmp_path: Path) -> None:
    setup = read(
        tmp_path, f"{NODES}tenants: {{nlp: {{cells: {{a100.node: 1}}}}, cv: {{cells: {{a100.node: 1}}, borrow: no}}}}\n"
    )
    assert [(pool.name, pool.borrow) for pool in setup.pools if pool.cells] == [("nlp", True), ("cv", False)]
