"""Chapter 10: what its exercises and questions print, and from where it is known."""

from book.formulas.relations import Call

from .texts import Entries, Formula

ENTRIES: Entries = {
    ("ex-transformer-exact", r"0.87^{10}\approx0.25"): Formula(lambda: Call({}, approx=0.01)),
}
