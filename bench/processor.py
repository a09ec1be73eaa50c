"""Processor time by process: what a figure costs, whatever else the machine does."""

from __future__ import annotations

import contextlib

import psutil

from bench.environment import Setting

BROKER = "broker"


def processor_s(setting: Setting) -> dict[str, float]:
    """Seconds of processor time until now, the kernel's for a process among them; by ``broker``
    (its bookie and metadata with it), ``Spark's JVM``, ``Python workers``, ``Python driver``."""
    driver = psutil.Process()
    found = {BROKER: 0.0, "Spark's JVM": 0.0, "Python workers": 0.0, "Python driver": 0.0}
    for process in (driver, *driver.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            if process.pid == setting.broker.pid:
                who = BROKER
            elif process == driver:
                who = "Python driver"
            else:
                who = "Spark's JVM" if "java" in process.name() else "Python workers"
            found[who] += used.user + used.system
    return found
