"""Faults of the machine, injected into the loop of a service that has this folder on its PYTHONPATH.

The file that HORAE_INJECTED names says what the loop finds when it starts: the boot id, and whether control groups may
be made. Python imports this module before any other; processes other than the loop are left as they are.
"""

from __future__ import annotations

import os
import sys

if "horae.service.loop" in sys.orig_argv and "HORAE_INJECTED" in os.environ:
    import json
    from pathlib import Path

    from horae.engines.local import cgroups, processes
    from horae.service import clock

    _found = json.loads(Path(os.environ["HORAE_INJECTED"]).read_text())
    _boot_id = Path(os.environ["HORAE_INJECTED"]).with_suffix(".boot_id")
    _boot_id.write_text(_found["boot_id"])
    clock._BOOT_ID = _boot_id
    processes.boot_id = _boot_id.read_text  # type: ignore[assignment]
    if not _found["cgroups"]:
        cgroups.own_cgroup = lambda: None
