"""Chapter 22: what its exercises and questions print, and from where it is known."""

from .texts import Entries, Formula, LeftOut


def widening():
    """A distance after three wider buckets of a ratio: e times the ratio, three times over."""
    exact, n, ratio = 8, 14, 1.5
    far = exact * ratio ** (n - exact)
    return {"e": exact, "n": n, "f": far, "a": exact * ratio**3, "b": exact + 3}


ENTRIES: Entries = {
    ("ex-families-buckets", "e=n/2"): Formula(lambda: {"e": 8, "n": 16}),
    ("ex-families-buckets", r"a\ge e"): LeftOut("says for which distances the next formula is"),
    ("ex-families-buckets", r"e+(n-e)\log(a/e)/\log(f/e)"): Formula(widening, "b=@0"),
}
