"""Chapter 23: what its exercises and questions print, and from where it is known."""

import torch

from book.formulas.relations import Call

from .texts import Code, Entries, Formula, draw

ENTRIES: Entries = {}
