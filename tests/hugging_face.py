"""The reference of the tests that compare with Hugging Face.

Without `transformers` or `safetensors` a file that imports this one is skipped, unless
REQUIRE_HUGGING_FACE=1 says that they ought to be there.
"""

import os
import warnings

import pytest
import torch
from torch.overrides import TorchFunctionMode

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


class InDouble(TorchFunctionMode):
    """No tensor of float64 becomes one of float32; how often one would have is counted.

    Their detours through float32 would hide all that is smaller than 1e-7.
    """

    def __init__(self):
        super().__init__()
        self.detours = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if args and getattr(args[0], "dtype", None) == torch.float64:
            to_single = func is torch.Tensor.float or (
                func is torch.Tensor.type and args[1:] == (torch.float32,)
            )
            if to_single:
                self.detours += 1
                return args[0]
            if kwargs.get("dtype") == torch.float32:
                self.detours += 1
                kwargs["dtype"] = torch.float64
            if func is torch.Tensor.to and torch.float32 in args[1:]:
                self.detours += 1
                args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        return func(*args, **kwargs)


__all__ = [
    "WITHOUT_THEIR_WARNINGS",
    "InDouble",
    "load_file",
    "safetensors",
    "save_file",
    "transformers",
]
