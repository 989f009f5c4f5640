"""Protects the reading of printed formulas: what is true holds, what is false fails, the rest errs.

A formula that cannot be evaluated must never pass: each way to be unreadable is an error that says
which symbol and at which character.
"""

import math

import pytest
import sympy as sp
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from book.formulas.call import Call, RelationError
from book.formulas.mutants import mutants, sample, verdict
from book.formulas.names import parsed
from book.formulas.reading import FormulaError, read, spell
from book.formulas.relations import holds
from book.formulas.values import Expectation, Over, signs


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


X, W, b = draw(4, 3), draw(3, 5), draw(5)
x, y, z = draw(3), draw(3, seed=1), draw(6)
A = draw(4, 4)
leaf = draw(5).requires_grad_()


def softmax(row):
    return row.softmax(-1)


TRUE = [
    # products by shape: rows, columns, matrices, numbers
    (r"XW+b=Y", {"X": X, "W": W, "b": b, "Y": F.linear(X, W.T, b)}),
    (r"xy^\top=s", {"x": x, "y": y, "s": (x * y).sum()}),
    (r"x^\top y=M", {"x": x, "y": y, "M": torch.outer(x, y)}),
    (r"(xW)^\top=W^\top x^\top", {"x": x, "W": W}),
    (r"A^{-1}A=I", {"A": A, "I": torch.eye(4, dtype=torch.float64)}),
    (r"A^{-\top}=B", {"A": A, "B": torch.linalg.inv(A).T}),
    (r"A^3=AAA", {"A": A}),
    (r"x\odot y=d", {"x": x, "y": y, "d": x * y}),
    (r"\gamma\odot X=Y", {r"\gamma": x, "X": X, "Y": x * X}),
    (r"1/2\,a=c", {"a": 4.0, "c": 0.125}),
    (r"a\cdot b/c=d", {"a": 3.0, "b": 5.0, "c": 4.0, "d": 3.75}),
    (r"\tfrac12a=c", {"a": 3.0, "c": 1.5}),
    (r"2^{-2k/d}=t", {"k": 3, "d": 4, "t": 2**-1.5}),
    # indices, sums and their ranges
    (r"y_j=\sum_kx_kW_{kj}", {"x": x, "W": W, "y": x @ W}),
    (r"s=\sum_{k=0}^{n-1}x_k", {"x": x, "n": 3, "s": x.sum()}),
    (r"c_i=\sum_{j\le i}x_j", {"x": x, "c": x.cumsum(0)}),
    (r"s=\sum_{k\in\mathcal B}z_k", {"z": z, r"\mathcal B": [1, 4], "s": z[1] + z[4]}),
    (r"r_j=\sum_{k\ne j}x_k", {"x": x, "r": x.sum() - x}),
    (
        r"e_v=\sum_{i:\,t_i=v}x_i",
        {"x": x, "t": torch.tensor([1, 0, 1]), "e": torch.stack([x[1], x[0] + x[2]])},
    ),
    (r"p=\prod_{k=0}^{2}x_k", {"x": x, "p": x.prod()}),
    (r"\prod_{k=2}^{0}B_k=P",
     {"B": draw(3, 2, 2), "P": torch.linalg.multi_dot([*draw(3, 2, 2).flip(0)])}),
    (r"m=\max_kx_k", {"x": x, "m": x.max()}),
    (r"m=\min(a,b)", {"a": 2.0, "b": -3.0, "m": -3.0}),
    (r"V_{1:3}=W", {"V": X, "W": X[1:3]}),
    (r"Z^{(h)}=X^{(h)}_0", {"Z": draw(2, 3), "X": draw(2, 3)[:, None]}),
    (r"w_{:,k}=W_{:,k}", {"w": W, "W": W.clone()}),
    # names with scripts, and functions
    (r"\sigma_i^2=v_i", {r"\sigma^2": x, "v": x.clone()}),
    (r"W_Q^{(h)}=\bar W_h", {"W_Q": draw(2, 3, 4), r"\bar W": draw(2, 3, 4)}),
    (r"dX=2\,d\,dY", {"dX": 6.0 * X, "d": 3, "dY": X}),
    (r"dW_\text{in}=2\,dW_\text{out}", {r"dW_\text{in}": 2 * W, r"dW_\text{out}": W}),
    (r"\operatorname{diag}(W_{:,k})=D^{(k)}",
     {"W": W, "D": torch.stack([torch.diag(c) for c in W.T])}),
    (r"e^{\mathrm i(m-n)\theta}=z", {
        "e": math.e, r"\mathrm i": 1j, "m": 5, "n": 2, r"\theta": 0.3,
        "z": complex(math.cos(0.9), math.sin(0.9))}),
    (r"\sin n\omega\,\cos n\omega=\tfrac12\sin 2n\omega", {"n": 3, r"\omega": 0.4}),
    (r"\ln\sum_ke^{z_k}=l", {"z": z, "e": math.e, "l": z.logsumexp(0)}),
    (r"\sin^2a+\cos^2a=1", {"a": 0.7}),
    (r"\operatorname{softmax}(z)_j=p_j",
     {r"\operatorname{softmax}": softmax, "z": z, "p": softmax(z)}),
    (r"\operatorname{Swish}_\beta(a)=s", {
        r"\operatorname{Swish}": lambda t, k: t * torch.sigmoid(k * t), r"\beta": 0.5, "a": 2.0,
        "s": 2 * torch.sigmoid(torch.tensor(1.0, dtype=torch.float64))}),
    (r"F_1(F_0(a))=c", {"F": [torch.exp, torch.log], "a": 2.5, "c": 2.5}),
    (r"[x,\,y]=v", {"x": x, "y": y, "v": torch.cat([x, y])}),
    (r"[Z^{(0)},Z^{(1)},\dots,Z^{(H-1)}]=M",
     {"Z": draw(4, 2, 3), "H": 4, "M": torch.cat([*draw(4, 2, 3)], -1)}),
    (r"\begin{pmatrix}a&0\\1&b\end{pmatrix}=M",
     {"a": 2.0, "b": 3.0, "M": torch.tensor([[2.0, 0], [1, 3]])}),
    (r"\begin{pmatrix}B_0\\\vdots\\B_{n-1}\end{pmatrix}=M", {
        "B": draw(3, 2, 4), "n": 3, "M": draw(3, 2, 4).reshape(6, 4)}),
    (r"[x_iy_j]_{ij}=M", {"x": x, "y": y, "M": torch.outer(x, y)}),
    (r"M_{ij}=\begin{cases}0&j\le i\\-\infty&\text{otherwise}\end{cases}",
     {"M": torch.full((3, 3), -torch.inf, dtype=torch.float64).triu(1)}),
    (r"s=\begin{cases}b&\text{if }a=1\text{ or }b=5\\a&\text{else}\end{cases}",
     {"a": 4, "b": 5, "s": 5}),
    (r"\left\lceil\frac7m\right\rceil=3,\qquad\lfloor7/m\rfloor=2,\qquad7\bmod m=1", {"m": 3}),
    (r"\lVert x\rVert=n,\qquad\lVert A\rVert_2=t,\qquad\|A\|_F=f", {
        "x": x, "n": x.norm(), "A": A, "t": torch.linalg.matrix_norm(A, 2), "f": A.norm()}),
    (r"\langle x,y\rangle=s", {"x": x, "y": y, "s": x @ y}),
    (r"\binom Lk=n", {"L": 5, "k": 2, "n": 10}),
    (r"f(\pm a)=\pm c", {"f": torch.tanh, "a": 0.5, "c": math.tanh(0.5)}),
    # derivatives, expectations
    (r"\frac{\partial p_j}{\partial z_k}=J_{jk}",
     {"p": softmax(leaf), "z": leaf, "J": torch.func.jacrev(softmax)(leaf.detach())}),
    (r"\frac{\partial}{\partial x_k}\sum_jx_j^2=2x_k", {"x": x}),
    (r"f'(a)=c,\qquad f''(a)=-s",
     {"f": torch.sin, "a": 0.3, "c": math.cos(0.3), "s": math.sin(0.3)}),
    (r"\tanh'(a)=1-\tanh^2(a)", {"a": 0.3}),
    (r"\operatorname{E}[q_c^2]=1,\qquad\operatorname{Var}(qk^\top)=d", {
        "q": x, "k": x, "d": 3,
        r"\operatorname{E}": Expectation({"q": signs(3)}),
        r"\operatorname{Var}": Expectation(
            {"q": signs(6)[:, :3], "k": signs(6)[:, 3:]}, variance=True)}),
    # shapes
    (r"X\in\mathbb R^{T\times d}", {"X": X, "T": 4, "d": 3}),
    (r"n\in\{1,2\}", {"n": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("latex", "symbols"), TRUE, ids=[latex for latex, _ in TRUE])
def test_what_is_printed_and_true_holds(latex, symbols):
    assert holds(latex, Call(symbols)).numbers >= 1


@pytest.mark.parametrize(
    ("latex", "symbols"),
    [
        (r"XW-b=Y", {"X": X, "W": W, "b": b, "Y": F.linear(X, W.T, b)}),
        (r"c_i=\sum_{j<i}x_j", {"x": x, "c": x.cumsum(0)}),
        (r"\sigma_i=v_i", {r"\sigma": x, "v": x**2}),
        (r"X\in\mathbb R^{T\times d}", {"X": X, "T": 4, "d": 5}),
        (r"\frac{\partial}{\partial x_k}\sum_jx_j^2=x_k", {"x": x}),
        (r"a\approx c", {"a": 1.0, "c": 1.2}),
        (r"n\in\{1,2\}", {"n": 3}),
    ],
)
def test_what_is_printed_and_false_fails(latex, symbols):
    with pytest.raises(RelationError):
        holds(latex, Call(symbols, approx=0.1))


@pytest.mark.parametrize(
    ("latex", "symbols", "said"),
    [
        (r"y=xW+b", {"x": x, "W": W, "y": x @ W}, "the symbol b is bound to nothing"),
        (r"y=Wx", {"x": x, "W": W, "y": x @ W}, r"shape \(3, 5\) times shape \(3,\) does not fit"),
        (r"y=x+X", {"x": draw(4), "X": X, "y": x}, "cannot be added"),
        (r"y=x+1", {"x": x, "y": x + 1}, "cannot be added"),
        (r"y_i=x_{i+1}", {"x": z, "y": z.roll(-1)}, "so none at 6"),
        (r"\sum_ix_iz_i=0", {"x": x, "z": z}, "dimensions of different size"),
        (r"\sum_kx_k=1", {"x": x, "k": 3}, "k is bound, so it is no running index"),
        (r"R_m=R_m^\top", {"R": lambda m: A}, "ranges="),
        (r"x=y,\qquad z", {"x": x, "y": x, "z": x}, "there is no relation"),
        (r"a=", {"a": 1.0}, "ends too early"),
        (r"a=(b", {"a": 1.0}, "never closed"),
        (r"a=b)", {"a": 1.0}, "closes none"),
        (r"a=\foo{b}{c}+", {"a": 1.0}, "ends too early"),
        (r"a=b\&c", {"a": 1.0}, "has no meaning in a formula"),
        (r"a=\frac12\cdot/b", {"a": 1.0, "b": 1.0}, "nothing stands between"),
        (r"a=1,\qquad b=2", {"a": 1.0, "b": 2.0, "c": 3.0}, "bound, but not in this formula: c"),
        (r"a\le b", {"a": 1.0, "b": 2.0}, "tight="),
        (r"a\approx b", {"a": 1.0, "b": 1.0}, "approx="),
        (r"a=b\iff c=d",
         {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, "seen only where both sides are True"),
        (r"a=b\quad\text{for }a>3", {"a": 1.0, "b": 1.0}, "never true"),
        (r"a=b+O(h^2)", {"a": 1.0, "b": 1.0, "h": 0.1}, "halving="),
        (r"a=f(b)", {"a": 1.0, "b": 1.0, "f": lambda v: v.nothing}, "fails with AttributeError"),
        (r"\frac{\partial a}{\partial x_k}=0", {"a": 1.0, "x": x}, "does not depend on x"),
        (r"f_k=0", {"f": [1.0, 2.0]}, None),
        (r"a=\begin{cases}1&b>2\\2&b>3\end{cases}", {"a": 1.0, "b": 0}, "none of these cases"),
        (r"x=[a,\dots,c,d]", {"x": x, "a": 1, "c": 1, "d": 1}, "first, second, dots, last"),
        (r"a=b", {"a": torch.tensor(math.nan), "b": 1.0}, "a is bound to nan"),
        (r"S=0,\qquad E=1", {"S": 0.0}, "the symbol E is bound to nothing"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_an_error_that_says_why(latex, symbols, said):
    wanted = FormulaError if said else RelationError
    with pytest.raises(wanted, match=said):
        holds(latex, Call(symbols))


def test_an_error_points_at_the_character():
    with pytest.raises(FormulaError) as caught:
        read(r"a=b+\unknown{\&}")
    assert caught.value.at == len(r"a=b+\unknown{")
    with pytest.raises(FormulaError, match="at character 4"):
        holds(r"y=x+z", Call({"x": x, "z": z, "y": x}))


def test_a_side_that_is_no_finite_number_is_named():
    with pytest.raises(FormulaError, match=r"`.ln a` is not a number here \(at character 2\)"):
        holds(r"b=\ln a", Call({"a": -1.0, "b": 2.0}))
    with pytest.raises(RelationError, match="one of them is not finite"):
        holds(r"b=\ln a", Call({"a": 0.0, "b": 2.0}))


def test_sympy_makes_the_check_exact():
    a, c = sp.symbols("a c", positive=True)
    report = holds(r"(a+c)^2=a^2+2ac+c^2", Call({"a": a, "c": c}))
    assert report.exact
    with pytest.raises(RelationError):
        holds(r"(a+c)^2=a^2+ac+c^2", Call({"a": a, "c": c}))
    row = sp.Matrix([[a, c]])
    holds(r"x^\top x=M,\qquad\frac{\partial s}{\partial a}=c", Call(
        {"x": row, "M": row.T * row, "s": a * c, "a": a, "c": c}))  # fmt: skip


def test_a_bound_is_shown_attained_by_the_same_expression():
    call = {"a": 1.0, "c": 2.0}
    holds(r"a\le c", Call(call, tight=[{"a": 2.0}]))
    with pytest.raises(RelationError, match="attained"):
        holds(r"a\le 3c", Call(call, tight=[{"a": 2.0}]))
    with pytest.raises(RelationError):
        holds(r"a\ge c", Call(call, tight=[{"a": 2.0}]))


def test_an_equivalence_is_seen_from_both_sides():
    two = [{"T": 10}]
    holds(r"2T=d\iff T=d/2", Call({"T": 3, "d": 6}, draws=two))
    with pytest.raises(RelationError, match="one side holds"):
        holds(r"2T=d\iff T=d/3", Call({"T": 3, "d": 6}, draws=two))
    holds(r"a=2\Longrightarrow a^2=4", Call({"a": 2}))
    with pytest.raises(RelationError, match="does not follow"):
        holds(r"a=2\Longrightarrow a^2=5", Call({"a": 2}))


def test_a_condition_restricts_the_statement_before_it():
    mask = torch.ones(3, 3).tril()
    holds(r"m_{ij}=0\quad\text{for }j>i", Call({"m": mask}))
    with pytest.raises(RelationError):
        holds(r"m_{ij}=0\quad\text{for }j\ge i", Call({"m": mask}))
    holds(r"|a|=-a\quad(a\le0)", Call({"a": -2.0}))


def test_a_printed_domain_is_the_one_over_which_the_index_runs():
    power = {k: 2.0**k for k in range(3)}
    call = Call({"w": power, "d": 6}, ranges={"k": range(3)})
    holds(r"w_k=2^k,\qquad0\le k<\tfrac d2", call)
    holds(r"w_k=2^k,\qquad k=0,\dots,\tfrac d2-1", call)
    for wrong in (r"0\le k\le\tfrac d2", r"0<k<\tfrac d2"):
        with pytest.raises(RelationError, match="printed to run over"):
            holds(rf"w_k=2^k,\qquad {wrong}", call)


def test_limits_and_remainders():
    series = {"t": [10.0, 20.0, 40.0]}
    holds(r"\tanh t\xrightarrow{t\to\infty}1", Call({"t": 1.0}, limit=series))
    with pytest.raises(RelationError, match="does not vanish"):
        holds(r"\tanh t\xrightarrow{t\to\infty}2", Call({"t": 1.0}, limit=series))
    with pytest.raises(FormulaError, match="does not go"):
        holds(r"\tanh t\xrightarrow{t\to0}1", Call({"t": 1.0}, limit=series))
    holds(r"\cos h=1-\frac{h^2}2+O(h^4)", Call({"h": 0.2}, halving="h"))
    for wrong in (r"\cos h=1+O(h^4)", r"\cos h=1-\frac{h^2}2+O(h^3)"):
        with pytest.raises(RelationError, match="order"):
            holds(wrong, Call({"h": 0.2}, halving="h"))


def test_what_the_formula_defines_is_used_by_another_statement():
    call = {"x": x, "v": (x - x.mean()).square().mean(), "d": 3}
    formula = r"v=\frac1d\sum_j(x_j-\mu)^2,\qquad\mu=\frac1d\sum_jx_j"
    holds(formula, Call(call, define=[r"\mu"]))
    with pytest.raises(RelationError):
        holds(formula.replace(r"\frac1d\sum_jx_j", r"\sum_jx_j"), Call(call, define=[r"\mu"]))
    with pytest.raises(FormulaError, match="used by nothing"):
        holds(r"d=3,\qquad c=4", Call({"d": 3}, define=["c"]))
    with pytest.raises(FormulaError, match="does not define"):
        holds(r"d=3", Call({"d": 3}, define=["c"]))


def test_only_some_statements_are_checked_where_the_call_says_so():
    holds(r"a=1,\qquad c=2", Call({"c": 2}, only=[1]))
    with pytest.raises(FormulaError, match="2 statements"):
        holds(r"a=1,\qquad c=2", Call({"c": 2}, only=[2]))


def test_softmax_over_a_named_index_runs_over_what_the_sum_leaves():
    s, v = draw(4, 4), draw(4, 3)
    mask = torch.full((4, 4), -torch.inf, dtype=torch.float64).triu(1)
    out = softmax(s + mask) @ v
    holds(
        r"o_i=\sum_{j\le i}\operatorname{softmax}_j(s_{ij})\,v_j",
        Call({"o": out, "s": s, "v": v, r"\operatorname{softmax}": Over(softmax)}),
    )


def test_the_place_of_a_minimum_is_found_from_a_start():
    points = draw(5, 3)
    call = Call({"m": points.mean(0), "p": points, "u": torch.zeros(3)})
    holds(r"m=\operatorname*{arg\,min}_{u}\sum_j\lVert p_j-u\rVert^2", call)
    with pytest.raises(RelationError):
        holds(r"2m=\operatorname*{arg\,min}_{u}\sum_j\lVert p_j-u\rVert^2", call)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac12", r"\frac{1}{2}"),
        (r"x_i", r"x_{i}"),
        (r"\left(a\right)", r"\bigl( a \bigr)"),
        (r"d_\text{head}", r"d_{\text{head}}"),
        (r"a\,b", "ab"),
        (r"\hat x", r"\hat{x}"),
    ],
)
def test_typography_makes_no_difference(one, other):
    assert spell(read(one)) == spell(read(other))


def test_a_key_that_is_no_name_is_refused():
    assert parsed("W_Q^{(h)}")[0] == "W"
    for key in ("a+b", "2", "f(x)"):
        with pytest.raises(FormulaError, match="name"):
            parsed(key)


# ---------------------------------------------------------------- mutants


def test_the_mutants_of_a_formula_are_refused_unless_they_say_the_same():
    latex = r"y_{ij}=\gamma_j\,\frac{x_{ij}-\mu_i}{\sqrt{\sigma_i^2+\varepsilon}}+\beta_j"
    data, gain, shift = draw(4, 6), draw(6), draw(6, seed=3)
    mean, var = data.mean(1), data.var(1, correction=0)
    call = Call({
        "y": F.layer_norm(data, (6,), gain, shift, 0.3), r"\gamma": gain, "x": data, r"\mu": mean,
        r"\sigma^2": var, r"\varepsilon": 0.3, r"\beta": shift,
    })  # fmt: skip
    holds(latex, call)
    made = mutants(latex, call)
    kinds = {m.kind for m in made}
    assert {"sign", "index", "root", "symbol", "factor", "fraction"} <= kinds
    assert len(made) > 20
    said = {m.latex: verdict(latex, m, call) for m in made}
    assert {k: v for k, v in said.items() if v in ("survived", "equivalent")} == {}
    assert sum(v == "value" for v in said.values()) > len(said) / 2


def test_a_mutant_that_passes_is_called_a_survivor_if_it_says_something_else():
    call = Call({"a": 2.0, "c": 2.0})
    said = {m.latex: verdict("a=c+0", m, call) for m in mutants("a=c+0", call)}
    assert said["a=c-0"] == "equivalent"
    assert {m.latex for m in mutants("a=c^2", Call({"a": 1.0, "c": 1.0}))} >= {"a=c"}
    weak = Call({"a": 1.0, "c": 1.0})  # a neutral value: the square cannot be seen
    [square] = [m for m in mutants("a=c^2", weak) if m.latex == "a=c"]
    assert verdict("a=c^2", square, weak) == "survived"


def test_the_sample_is_fixed_and_needs_no_luck():
    call = Call({"x": x, "W": W, "b": b, "y": x @ W + b})
    every = mutants("y=xW+b", call)
    assert sample("eq-some", every) == sample("eq-some", every[::-1])
    assert len(sample("eq-some", every)) == min(5, len(every))


names = st.sampled_from(["a", "c", r"\mu", r"\hat x"])
numbers = st.floats(0.5, 3.0)


@given(st.dictionaries(names, numbers, min_size=2, max_size=4), st.data())
def test_sums_and_products_of_numbers_have_the_value_that_python_gives(values, data):
    keys = sorted(values)
    picked = data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=5))
    flips = data.draw(st.lists(st.booleans(), min_size=len(picked), max_size=len(picked)))
    pairs = list(zip(picked, flips, strict=True))
    latex = "s=" + "".join(f"{'+' if f else '-'}{{{k}}}^2" for k, f in pairs)
    total = sum((1 if f else -1) * values[k] ** 2 for k, f in pairs)
    used = {k: values[k] for k in picked}
    holds(latex, Call({**used, "s": total}, tol=1e-9 if abs(total) > 1e-3 else 1.0))
    with pytest.raises(RelationError):
        holds(latex, Call({**used, "s": total + 1.0}))


def test_an_accent_may_be_a_function_of_what_stands_under_it():
    def pairs(row):
        return torch.complex(row[0::2], row[1::2])

    call = Call(
        {r"\underline": pairs, "q": z, "s": z.square().sum()},
        ranges={"k": range(3)},
    )
    holds(r"s=\operatorname{Re}\sum_k\underline q_k\,\underline q_k^*", call)
    holds(r"s=\lVert\underline{q}\rVert^2", Call({r"\underline": pairs, "q": z, "s": z @ z}))
    with pytest.raises(RelationError):
        holds(r"s=\operatorname{Re}\sum_k\underline q_k\,\underline q_k", call)
