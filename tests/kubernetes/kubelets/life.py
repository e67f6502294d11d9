"""The life of one pod on one node: what its containers do, and what the API server is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kubernetes.client import Json
from kubernetes.kubelets import containers, pods, statuses
from kubernetes.kubelets.api import Api
from kubernetes.kubelets.nodes import Node
from kubernetes.kubelets.options import Options
from kubernetes.kubelets.training import Trainings

_START_SECONDS = (5.0, 120.0)
_PULL_SECONDS = 10.0  # until a failed pull is tried again


class Life:
    """Whatever the API server loses or forgets, the containers did what they did: the status is theirs, and is written
    again until the API server has it."""

    def __init__(self, pod: Json, node: Node, api: Api, options: Options, trainings: Trainings) -> None:
        self.pod = pod  # as last seen
        self.node = node
        self.options = options
        self.trainings = trainings
        self.stop = asyncio.Event()
        self.has_ended = False  # its containers use nothing any more
        self._is_known = True
        self._api = api
        self._status: Json | None = None
        self._change = asyncio.Event()
        self.see(pod)

    def see(self, pod: Json) -> None:
        """The pod as the API server has it."""
        self.pod = pod
        self._is_known = True
        if pods.is_stopping(pod) or pods.is_terminal(pod):
            self.stop.set()
        self._change.set()

    def forget(self) -> None:
        """The API server no longer has the pod on this node."""
        self._is_known = False
        self.stop.set()

    async def live(self, refusal: pods.Refusal | None) -> None:
        if refusal is not None:
            self._end(statuses.rejected(refusal))
        elif pods.is_terminal(self.pod):  # it was before this process
            self.has_ended = True
        elif pods.phase_of(self.pod) == "Running":
            self._end(await self._run())
        elif await self._start():
            self._set(statuses.running(self.pod))
            self._end(await self._run())
        else:
            self._end(statuses.ended(self.pod, containers.KILLED, "ContainerStatusUnknown"))

    async def report(self) -> None:
        """Writes what the API server does not have, for ever."""
        while True:
            await self._change.wait()
            self._change.clear()
            await self.node.is_served.wait()
            pod, status = self.pod, self._status
            if not self._is_known:
                continue
            if status is not None and not pods.is_terminal(pod) and not statuses.is_reported(pod, status):
                body = {"metadata": {"uid": pods.uid_of(pod)}, "status": status}
                await self._api.patch(f"{pods.path_of(pod)}/status", body)
            is_removed = pod["metadata"].get("deletionGracePeriodSeconds") == 0
            if self.has_ended and status is self._status and pods.is_stopping(pod) and not is_removed:
                await self._api.delete(pods.path_of(pod), pods.uid_of(pod))

    async def annotate(self, notes: Mapping[str, str]) -> None:
        await self.node.is_served.wait()
        metadata = {"uid": pods.uid_of(self.pod), "annotations": dict(notes)}
        await self._api.patch(pods.path_of(self.pod), {"metadata": metadata})

    async def stops_within(self, seconds: float | None) -> bool:
        """Waits until the pod is told to stop, or for so long; None: for ever."""
        try:
            async with asyncio.timeout(seconds):
                await self.stop.wait()
        except TimeoutError:
            return False
        return True

    async def first(self, event: asyncio.Event, seconds: float | None = None) -> None:
        """Waits for an event, or until the pod is told to stop, or for so long."""
        waits = {asyncio.create_task(each.wait()) for each in (event, self.stop)}
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    def seconds(self, annotation: str) -> float | None:
        stated = pods.notes_of(self.pod).get(annotation)
        return None if stated is None else float(stated.removesuffix("s"))

    async def _start(self) -> bool:
        """Whether the container has started before the pod is told to stop."""
        self._set(statuses.waiting(self.pod, "ContainerCreating"))
        scale, pod = self.options.scale, self.pod
        image = next((each["image"] for each in pod["spec"]["containers"] if "missing" in each["image"]), None)
        if image is not None:
            self._set(statuses.waiting(pod, "ErrImagePull", f'failed to pull image "{image}": not found'))
            if not await self.stops_within(_PULL_SECONDS * scale):
                self._set(statuses.waiting(pod, "ImagePullBackOff", f'Back-off pulling image "{image}"'))
            await self.stop.wait()
            return False
        least, most = _START_SECONDS
        drawn = scale * (least + (most - least) * self.options.draw(pods.uid_of(pod), "start"))
        stated = self.seconds("horae.test/starts-after")
        return not await self.stops_within(drawn if stated is None else stated)

    async def _run(self) -> Json:
        return statuses.ended(self.pod, await containers.run(self))

    def _set(self, status: Json) -> None:
        self._status = status
        self._change.set()

    def _end(self, status: Json) -> None:
        self.has_ended = True
        self._set(status)
