"""Wrong versions of a printed formula, each of which its witness must refuse."""

SWITCH = "BOOK_MUTANTS"


def run(*_):
    """To come."""
