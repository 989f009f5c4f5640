"""Chapter 22: what its exercises and questions print, and from where it is known."""

from .texts import Entries

ENTRIES: Entries = {}
