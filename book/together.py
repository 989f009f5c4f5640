"""Several processes that work on one model, as several devices would.

`together(work, size, *args)` starts them, lets each call `work(team, *args)`, and returns what they
returned. They talk by torch.distributed with gloo, through a file, so no port is opened.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.multiprocessing.spawn import ProcessRaisedException

from transformer_parts.decoder import DecoderOnlyTransformer, ModelConfig
from transformer_parts.serving import Team, pipeline_step, tensor_parallel

__all__ = ["in_one_piece", "split", "together"]

Model = tuple[ModelConfig, dict[str, torch.Tensor]]


def together(work: Callable[..., Any], size: int, *args: Any) -> list[Any]:
    """What `size` processes return, in the order of their ranks.

    Args:
        work: a function of a module, called with a `Team` and `args`.
        size: how many processes.
        args: what can be sent to another process.

    Raises:
        RuntimeError: if a process fails; it says with what.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.start_processes(  # type: ignore[attr-defined, no-untyped-call]
                _one, (size, folder, work, args), nprocs=size, start_method=_method()
            )
        except ProcessRaisedException as failed:
            raise RuntimeError(f"a process failed: {failed}") from failed
        return [torch.load(Path(folder) / str(rank)) for rank in range(size)]


def _method() -> str:
    """How processes are started: from one that has imported everything, where that is possible."""
    if "forkserver" not in mp.get_all_start_methods():
        return "spawn"
    mp.set_forkserver_preload(["book.together"])
    return "forkserver"


def _one(rank: int, size: int, folder: str, work: Callable[..., Any], args: Any) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    try:
        torch.save(work(Team(), *args), Path(folder) / str(rank))
    finally:
        dist.destroy_process_group()


def _built(model: Model) -> DecoderOnlyTransformer:
    config, weights = model
    built = DecoderOnlyTransformer(config).to(next(iter(weights.values())).dtype)
    built.load_state_dict(weights)
    return built


def _found(model: DecoderOnlyTransformer, loss: torch.Tensor) -> dict[str, Any]:
    gradients = {
        name: p.grad for name, p in model.named_parameters() if p.grad is not None
    }  # fmt: skip
    return {"loss": loss.detach(), "gradients": gradients}


def in_one_piece(model: Model, tokens: torch.Tensor) -> dict[str, Any]:
    """Logits, loss and gradients of next-token prediction, by one process."""
    whole = _built(model)
    logits = whole(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    torch.autograd.backward(loss)
    return {**_found(whole, loss), "logits": logits.detach()}


def split(team: Team, models: list[Model], tokens: torch.Tensor, pieces: int) -> list[Any]:
    """The same by a team: for each model, cut inside its layers, and between them."""
    found = []
    for model in models:
        before, passed = team.reduced, team.passed
        cut = tensor_parallel(_built(model), team)
        logits = cut(tokens[:, :-1])
        forwards = team.reduced - before
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        torch.autograd.backward(loss)
        tensor = {**_found(cut, loss), "logits": logits.detach(), "forwards": forwards,
                  "reduced": team.reduced - before, "passed": team.passed - passed}  # fmt: skip
        staged = _built(model)
        passed, before = team.passed, team.reduced
        loss = pipeline_step(staged, tokens, pieces, team)
        found.append(
            {
                "tensor": tensor,
                "pipeline": {**_found(staged, loss), "passed": team.passed - passed,
                             "reduced": team.reduced - before},
            }
        )  # fmt: skip
    return found
