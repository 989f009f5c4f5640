"""Settings for all tests."""

import os

from hypothesis import settings

# No deadline: a busy machine is not a fault. In CI the same examples every time, so that a change
# is judged by what it changed; elsewhere new ones, so that something is found.
settings.register_profile("book", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("book")
