"""What the container of a pod does from its start to its end, and with which code it exits."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

from kubernetes.client import Json
from kubernetes.kubelets import pods
from kubernetes.kubelets.training import WORK

if TYPE_CHECKING:
    from kubernetes.kubelets.life import Life

TERMINATED, KILLED = 143, 137
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_FIELD = re.compile(r"metadata\.(annotations|labels)\['(.*)'\]")


async def run(life: Life) -> int:
    """The exit code."""
    if pods.notes_of(life.pod).get("horae.test/real") == "true":
        return await _process(life)
    await life.first(life.trainings.job_seen(life.pod))
    if WORK in life.trainings.notes(life.pod):
        return await _train(life)
    if not await life.stops_within(life.seconds("horae.test/fails-after")):
        return _failure(life)
    return await _linger(life)


async def _linger(life: Life) -> int:
    """Between SIGTERM and the end."""
    grace, stated = pods.grace_of(life.pod), life.seconds("horae.test/stops-after")
    if stated is None:
        scaled = grace * life.options.scale
        await asyncio.sleep(scaled * life.options.draw(pods.uid_of(life.pod), "stop"))
        return TERMINATED
    await asyncio.sleep(min(stated, grace))
    return TERMINATED if stated <= grace else KILLED


def _failure(life: Life) -> int:
    return int(pods.notes_of(life.pod).get("horae.test/exit-code", "1"))


async def _train(life: Life) -> int:
    gang = life.trainings.join(life.pod, life.node)
    await life.first(gang.is_done, life.seconds("horae.test/fails-after"))
    life.trainings.leave(life.pod)
    if gang.is_done.is_set() or life.stop.is_set():
        await life.annotate({"horae.io/saved-steps": f"{life.trainings.save(life.pod):.3f}"})
    if gang.is_done.is_set():
        return 0
    return await _linger(life) if life.stop.is_set() else _failure(life)


async def _process(life: Life) -> int:
    container = life.pod["spec"]["containers"][0]
    environment = {"PATH": os.environ["PATH"], **_environment(life.pod, container)}
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    with _output(life) as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *(_expanded(word, environment) for word in words),
                env=environment,
                cwd=container.get("workingDir"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        except OSError as error:
            output.write(f"{error}\n".encode())
            return 127
    return await _supervise(life, process)


async def _supervise(life: Life, process: asyncio.subprocess.Process) -> int:
    ending = asyncio.create_task(process.wait())
    told = asyncio.create_task(life.stop.wait())
    await asyncio.wait({ending, told}, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not ending.done():
        process.terminate()
        await asyncio.wait({ending}, timeout=pods.grace_of(life.pod))
    with contextlib.suppress(ProcessLookupError):  # what it has started ends with it, as in a container
        os.killpg(process.pid, signal.SIGKILL)
    code = await ending
    return code if code >= 0 else 128 - code


def _output(life: Life) -> BinaryIO:
    folder = life.options.containers
    if folder is None:
        return open(os.devnull, "ab")  # noqa: PTH123
    return (folder / f"{life.pod['metadata']['namespace']}_{life.pod['metadata']['name']}.log").open("ab")


def _environment(pod: Json, container: Json) -> dict[str, str]:
    """Plain values, and those that refer to fields of the pod."""
    found: dict[str, str] = {}
    for each in container.get("env") or ():
        if "valueFrom" in each:
            found[each["name"]] = _field(pod, each["valueFrom"]["fieldRef"]["fieldPath"])
        else:
            found[each["name"]] = _expanded(each.get("value", ""), found)
    return found


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: environment.get(match[1], match[0]), text)


def _field(pod: Json, path: str) -> str:
    if match := _FIELD.fullmatch(path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    found = pod
    for name in path.split("."):
        found = found.get(name, {})
    return str(found or "")


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
