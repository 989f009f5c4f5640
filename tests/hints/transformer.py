"""Chapter 10: its exercises and questions print no formula, so far."""

from .texts import Entries

ENTRIES: Entries = {}
