"""Makes nbval strict about what it skips: figures are compared by pixels, explorers by values."""

from nbval.plugin import IPyNbCell, IPyNbFile

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
