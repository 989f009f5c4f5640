"""`python -m book.xray` computes the first frame of the X-ray page and writes first.json."""

import json

from book.xray import FIRST, examples
from book.xray.compute import frame

if __name__ == "__main__":
    told = examples()[0]
    content = frame(told["text"].split(), told["at"])
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    FIRST.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
