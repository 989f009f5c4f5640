"""Files of data: YAML, read by libyaml where PyYAML has it, which is ten times as fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> Any:
    """What the file at `path` holds; None if it is empty.

    Raises:
        yaml.YAMLError: if it is no YAML. The message names the line.
    """
    with path.open(encoding="utf-8") as stream:
        return yaml.load(stream, _LOADER)
