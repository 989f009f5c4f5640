"""A package, because tests/parts has modules of the same subjects."""
