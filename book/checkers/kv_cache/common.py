"""What the files of this folder share."""

from __future__ import annotations

EXACT = 1e-11
