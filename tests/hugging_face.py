"""The reference of the tests that compare with Hugging Face.

Without `transformers` or `safetensors` a file that imports this one is skipped, unless
REQUIRE_HUGGING_FACE=1 says that they ought to be there.
"""

import os
import warnings

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of their dependencies, at import
        import safetensors
        import transformers
        from safetensors.torch import load_file, save_file
except ImportError as error:
    if os.environ.get("REQUIRE_HUGGING_FACE") == "1":
        raise
    pytest.skip(f"optional packages are not installed: {error}", allow_module_level=True)

transformers.logging.set_verbosity_error()
# What these packages warn of is none of the book's business: the `pytestmark` of such a file.
WITHOUT_THEIR_WARNINGS = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning"
)

__all__ = ["WITHOUT_THEIR_WARNINGS", "load_file", "safetensors", "save_file", "transformers"]
