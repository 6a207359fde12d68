"""Versions and machine, for results that others shall be able to place."""

import os
import platform
from importlib import metadata
from pathlib import Path

import fairseq_tn

_DISTRIBUTIONS = ("fairseq", "ve-fairseq", "torch", "numpy")


def versions() -> dict[str, str]:
    """Versions of this package, Python and the libraries that results depend on; nothing is imported."""
    found = {"fairseq_tn": fairseq_tn.__version__, "Python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str]:
    """Operating system, processor, cores that this process may use, and memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = {"system": platform.platform(), "processor": _processor(), "cores": str(cores)}
    if "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found["memory"] = f"{memory / 2**30:.1f} GiB"
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
