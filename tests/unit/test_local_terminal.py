"""The terminal of an interactive job, in its supervisor."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_jobs import Bench, a_bench, a_start
from patience import HANG_SECONDS, wait_until

from horae.engines.local.launch import Launch
from horae.model.commands import Stop
from horae.model.events import Ending
from horae.service import terminal_messages as messages
from horae.service.terminal_messages import Decoder


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with a_bench(tmp_path) as bench:
        yield bench


class Attached:
    """A program that is attached to the terminal of the job."""

    def __init__(self, bench: Bench, position: int = 0) -> None:
        path = bench.folder().lease(0).terminal
        wait_until(path.exists)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(HANG_SECONDS)
        folder = os.open(path.parent, os.O_PATH)
        self._socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        self._decoder = Decoder()
        self.text = b""
        self.position = -1
        self.status: int | None = None
        self.send(messages.attach(position))

    def send(self, message: bytes) -> None:
        self._socket.sendall(message)

    def type(self, text: str) -> None:
        self.send(messages.typed(text.encode()))

    def until(self, text: str) -> None:
        while text.encode() not in self.text:
            assert self._receive(), self.text

    def the_end(self) -> int | None:
        while self._receive():
            pass
        return self.status

    def _receive(self) -> bool:
        data = self._socket.recv(65536)
        for message in self._decoder.feed(data):
            if message.kind == messages.OUTPUT:
                self.text += message.content
            elif message.kind == messages.POSITION:
                self.position = message.number
            elif message.kind == messages.END:
                self.status = message.number
        return bool(data)

    def close(self) -> None:
        self._socket.close()


def interactive(command: str, detached_seconds: float = HANG_SECONDS) -> Launch:
    environment = {"PS1": "> ", "TERM": "dumb"}
    return Launch("job", command, environment=environment, has_terminal=True, detached_seconds=detached_seconds)


def test_a_shell_reads_what_is_typed_and_its_exit_code_is_told(bench: Bench) -> None:
    engine = bench.engine(interactive("exec sh"))
    engine.execute([a_start()])
    program = Attached(bench)
    program.until("> ")
    program.type("test -t 0 && test -t 1 && echo a terminal$((1+1))\n")
    program.until("a terminal2")
    program.type("exit 7\n")
    assert program.the_end() == 7
    end = bench.the_end(engine)
    assert (end.ending, end.message.partition(":")[0]) == (Ending.FAILED, "exit code 7")
    assert "a terminal2" in bench.output()


def test_the_window_has_the_size_of_the_programs_own(bench: Bench) -> None:
    engine = bench.engine(interactive("trap 'stty size; exit' WINCH; stty size; echo on; while :; do sleep 0.01; done"))
    engine.execute([a_start()])
    program = Attached(bench)
    program.until("24 80\r\non")
    program.send(messages.window(50, 132))
    program.until("50 132")
    assert program.the_end() == 0
    assert bench.the_end(engine).ending is Ending.FINISHED


def test_keys_interrupt_a_program_and_end_its_input(bench: Bench) -> None:
    sleeps = "sh -c 'trap \"exit 3\" INT; echo on; while :; do sleep 0.01; done'"
    engine = bench.engine(interactive(f"trap : INT; {sleeps}; echo got $?; cat; echo over"))
    engine.execute([a_start()])
    program = Attached(bench)
    program.until("on")
    program.type("\x03")
    program.until("got 3")
    program.type("\x04")
    program.until("over")
    assert program.the_end() == 0
    bench.the_end(engine)


def test_a_program_that_attaches_again_gets_what_it_has_missed(bench: Bench) -> None:
    engine = bench.engine(interactive("echo one; read line; echo two; read line; echo three"))
    engine.execute([a_start()])
    first = Attached(bench)
    first.until("one\r\n")
    first.close()
    second = Attached(bench, position=len("one\r\n"))
    second.type("x\n")
    second.until("two")
    assert (second.position, second.text[:1]) == (5, b"x")
    third = Attached(bench)  # beside the second one, from the beginning
    third.until("two")
    assert (third.position, third.text[:3]) == (0, b"one")
    second.type("y\n")
    assert (second.the_end(), third.the_end()) == (0, 0)
    bench.the_end(engine)


def test_a_job_whose_terminal_is_closed_ends_after_a_time(bench: Bench) -> None:
    engine = bench.engine(interactive("exec sh", detached_seconds=0.2))
    engine.execute([a_start()])
    program = Attached(bench)
    program.until("> ")
    program.close()
    end = bench.the_end(engine)
    assert (end.ending, end.message) == (Ending.FAILED, "its terminal was closed")


def test_an_interactive_shell_that_is_stopped_leaves_within_its_grace(bench: Bench) -> None:
    engine = bench.engine(interactive("exec bash --norc -i"))
    engine.execute([a_start()])
    program = Attached(bench)
    program.until("> ")
    engine.execute([Stop(0, "job", HANG_SECONDS)])
    assert program.the_end() is not None
    assert bench.the_end(engine).ending is Ending.STOPPED


def test_a_job_that_writes_more_than_is_read_waits_and_loses_nothing(bench: Bench) -> None:
    engine = bench.engine(interactive("stty -opost; seq 200000; echo over"))
    engine.execute([a_start()])
    program = Attached(bench)
    program.until("over")
    assert program.the_end() == 0
    assert program.text.split()[program.text.split().index(b"199999") :] == [b"199999", b"200000", b"over"]
    assert len(program.text.split()) == 200001
    bench.the_end(engine)
