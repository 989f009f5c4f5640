"""The X-ray page at work: texts to give it, its numbers as tensors, its script with a fault."""

import base64
import random
import re

import numpy as np
import torch
from visiting import Visitor

from book import xray
from book.stories import VOCABULARY, stories

PAGE = "book/pages/xray.html"
LOAD = re.compile("Load the model")
AGREED = 1e-4


def ready(page):
    """The page with the model loaded."""
    page.get_by_role("button", name=LOAD).click()
    page.wait_for_selector(".tp-xray textarea")
    return page


def at_work(browser, served, built, **options):
    """A page with the model loaded, which at its end has asked for nothing from elsewhere."""
    one = Visitor(browser, served, built)
    yield ready(one.open(PAGE, **options))
    heard = one.heard()
    one.close()
    assert heard == []


def texts(number):
    """Stories, beginnings of stories, and random words, of many lengths; with a head to put off."""
    rng = random.Random("X-ray")
    known = stories("X-ray")
    for n in range(number):
        if n % 2:
            words = rng.choices(VOCABULARY[3:], k=rng.randint(1, 60))
        else:
            words = list(next(known).words[1:])
            words = words if n % 4 else words[: rng.randint(1, len(words))]
        yield words, (rng.randrange(2), rng.randrange(4))


# Numbers travel as bytes.
PACKED = """
  const asText = (bytes) => {
    const parts = [];
    for (let i = 0; i < bytes.length; i += 30000) {
      parts.push(String.fromCharCode(...bytes.subarray(i, i + 30000)));
    }
    return btoa(parts.join(""));
  };
  const packed = (data) => asText(new Uint8Array(new Float32Array(data).buffer));
"""


def unpacked(text, *shape):
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), "<f4").copy()).view(*shape)


def plainly(text):
    """What the page writes, with signs and powers as Python reads them."""
    raised = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    text = re.sub("·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda m: f"e{m[1].translate(raised)}", text)
    return text.replace("−", "-")


def with_faults(page, *changes):
    """Give this page the script with some of its text changed, without showing anything."""
    script = xray.script()
    for before, after in changes:
        assert script.count(before) >= 1, before
        script = script.replace(before, after)
    page.evaluate(script)
