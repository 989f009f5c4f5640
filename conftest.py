"""Makes nbval strict about what it skips: figures are compared by pixels, explorers by values.

And keeps what a run of the tests measures, for the page that shows how the book is checked.
"""

import os
import platform
import re
import time
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

from nbval.plugin import IPyNbCell, IPyNbFile

from book.chapters import ROOT
from book.formulas.mutants import SWITCH
from book.measured import counted, digest, fingerprint, is_chapter, record
from book.outputs import PICTURES, picture_differences

_text_agrees = IPyNbCell.compare_outputs


def _agrees(self, test, ref, skip_compare=None):
    """Compares what nbval compares, then the pictures it leaves out. Timing cells have no truth."""
    if "timing" in self.cell.metadata.get("tags", []):
        return True
    if not _text_agrees(self, test, ref, (*self.parent.skip_compare, *PICTURES)):
        return False
    self.comparison_traceback = picture_differences(ref, test)
    return not self.comparison_traceback


IPyNbCell.compare_outputs = _agrees
_collect = IPyNbFile.collect


def _collect_all(self):
    """Nbval passes over a cell that was never run; here it counts as one whose output is empty."""
    for item in _collect(self):
        if item.cell.execution_count is None:
            item.cell["execution_count"] = 0
        yield item


IPyNbFile.collect = _collect_all


# ---------------------------------------------------------------- what a run measures

_setup, _teardown = IPyNbFile.setup, IPyNbFile.teardown


def _start(self):
    self.started, self.reports = time.perf_counter(), {}
    self.file = fingerprint(Path(self.fspath))
    # In the kernel each witness also tries a fixed sample of wrong versions of its formula.
    with patch.dict(os.environ, {SWITCH: os.environ.get(SWITCH, "sample")}):
        _setup(self)


def _finish(self):
    seconds, peak = time.perf_counter() - self.started, _peak_mib(self)
    _teardown(self)
    path = Path(self.fspath)
    # A test that plants faults runs a harmed copy under a chapter's name: that is no measurement.
    if not is_chapter(path):
        return
    counts = counted(self.nb)
    values = {
        **counts,
        "file": self.file,
        "complete": len(self.reports) == counts["cells"],
        "failed": sum(not passed for passed in self.reports.values()),
        "seconds": seconds,
        "peak_mib": peak,
    }
    record("notebook", path.stem, values)


IPyNbFile.setup, IPyNbFile.teardown = _start, _finish


def _peak_mib(self):
    """The largest memory that the kernel has held so far; Linux tells, others do not."""
    try:
        pid = self.kernel.km.provisioner.process.pid
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (AttributeError, OSError):
        return None
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def pytest_runtest_makereport(item, call):
    """Count what became of each cell of a notebook."""
    if call.when == "call" and isinstance(item, IPyNbCell):
        item.parent.reports[item.cell_num] = call.excinfo is None


def pytest_configure(config):
    """Take the digest of the sources before anything runs: later somebody may have edited them."""
    digest()


def pytest_sessionfinish(session):
    """Keep the versions that the tests of this book ran with; a copy elsewhere has none."""
    if session.config.rootpath.resolve() != ROOT.resolve():
        return
    packages = ("torch", "numpy", "sympy", "matplotlib")
    found = {"Python": platform.python_version()} | {p: version(p) for p in packages}
    record("versions", "environment", found)
