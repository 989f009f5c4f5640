"""Derivatives by a bound symbol, by autograd or by SymPy, and the place of an extreme."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sympy
import torch

from book.formulas import algebra
from book.formulas.algebra import Value
from book.formulas.names import symbol
from book.formulas.reading import FormulaError, Node
from book.formulas.scope import Scope, differential_sign, evaluate, take, whole


def differential_operator(node: Node) -> Node | None:
    """The denominator of an operator such as ∂/∂z before what it acts on."""
    sign = differential_sign(node)
    return node.kids[1] if sign and node.kids[0].kind != "term" else None


def derive(bottom: Node, body: Node, scope: Scope) -> Value:
    """The derivative of `body` by the symbol in the denominator: rows are outputs."""
    one = symbol(bottom.kids[1]) if bottom.kind == "term" and len(bottom.kids) == 2 else None
    found = scope.names.find(one) if one else None
    if one is None or found is None:
        raise FormulaError("the derivative by something that is no bound symbol", bottom.start)
    key, n, m = found
    scope.used.add(key)
    indices = [s for s in one.sups[m:] if s.kind == "paren"] + list(one.subs[n:])
    leaf = scope.values[key]
    if key in scope.defined:
        raise FormulaError(f"the derivative by {key}, which is only defined", bottom.start)
    while isinstance(leaf, list | tuple):
        leaf = leaf[whole(indices.pop(0), scope)]
    if algebra.exact(leaf):
        for index in indices:
            leaf = take(leaf, index, key, scope)
        return _derive_exactly(evaluate(body, scope), leaf, bottom.start)
    if not isinstance(leaf, torch.Tensor):
        leaf = torch.as_tensor(leaf, dtype=torch.float64)
    if not leaf.requires_grad:
        leaf = leaf.to(torch.float64).detach().clone().requires_grad_()
        scope = scope.at(values={**scope.values, key: leaf})
    value = torch.as_tensor(evaluate(body, scope))
    if not value.requires_grad:
        raise FormulaError(f"this does not depend on {key}", body.start)
    rows = []
    for entry in value.flatten():
        (row,) = torch.autograd.grad(entry, leaf, retain_graph=True, allow_unused=True)
        if row is None:
            raise FormulaError(f"this does not depend on {key}", body.start)
        rows.append(row)
    made = torch.stack(rows).reshape((*value.shape, *leaf.shape)).to(torch.float64)
    for index in indices:
        made = made.select(value.ndim, _checked(whole(index, scope), made.shape[value.ndim], index))
    return made


def _checked(i: int, size: int, node: Node) -> int:
    if not 0 <= i < size:
        raise FormulaError(f"there is no entry {i} of {size}", node.start)
    return i


def _derive_exactly(value: Value, leaf: Value, at: int) -> Value:
    by = list(leaf) if algebra.is_array(leaf) else [leaf]
    if not all(isinstance(s, sympy.Symbol) for s in by):
        raise FormulaError("the derivative by something that is no symbol", at)
    outputs = list(value) if algebra.is_array(value) else [value]
    made = np.array([[sympy.diff(v, s) for s in by] for v in outputs], dtype=object)
    made = made if algebra.is_array(value) else made[0]
    if not algebra.is_array(leaf):
        made = made[..., 0]
    return made.item() if isinstance(made, np.ndarray) and not made.ndim else made


def argument_of_extreme(sub: Node, body: Node, scope: Scope, largest: bool) -> Value:
    """Where the body is smallest or largest, by Newton's steps from the bound start."""
    one = symbol(sub)
    found = scope.names.find(one) if one else None
    if found is None:
        raise FormulaError("bind the variable of arg min to a start", sub.start)
    key = found[0]
    scope.used.add(key)
    start = torch.as_tensor(scope.values[key], dtype=torch.float64).detach()

    slope: Callable[..., torch.Tensor] = torch.autograd.functional.jacobian  # these carry no types
    bend: Callable[..., torch.Tensor] = torch.autograd.functional.hessian

    def objective(flat: torch.Tensor) -> torch.Tensor:
        inner = scope.at(values={**scope.values, key: flat.reshape(start.shape)})
        return torch.as_tensor(evaluate(body, inner))

    point = start.flatten().clone()
    for _ in range(30):
        gradient = slope(objective, point)
        hessian = bend(objective, point)
        step = torch.linalg.solve(hessian, gradient)
        point = point - step
        if step.norm() < 1e-13 * (1 + point.norm()):
            break
    curvature = torch.linalg.eigvalsh(bend(objective, point))
    if not ((curvature < 0) if largest else (curvature > 0)).all():
        raise FormulaError("the point found is no extreme of this kind", body.start)
    return point.reshape(start.shape)
