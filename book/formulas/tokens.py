r"""The tokens of a displayed formula: LaTeX without its typography.

Spaces, sizes of brackets and alignment vanish. What TeX leaves to the eye becomes explicit: an
argument without braces gets them, `|` is an opening or a closing bar, a comma before a wide space
separates statements, a word in `\\text` is a name and a phrase is prose. Every token keeps its
place in the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


class FormulaError(ValueError):
    """A formula that cannot be read or has no value: says which, and at which character."""

    def __init__(self, message: str, at: int | None = None) -> None:
        super().__init__(message if at is None else f"{message} (at character {at})")
        self.at = at


@dataclass
class Token:
    """A token of `kind` that stands at `start` to `end` of the source."""

    kind: str
    text: str
    start: int
    end: int
    # A condition printed over a relation sign, as its own source and place.
    over: tuple[str, int] | None = None


FUNCTIONS = {
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "exp",
    "ln",
    "log",
    "det",
    "arctan",
    "arcsin",
    "arccos",
}  # these mean the same everywhere; all others are bound
BIG = {"sum", "prod", "max", "min", "sup", "inf"}
RELATIONS = {
    "=": "=", ":=": "=", "<": "<", ">": ">", "\\le": "<=", "\\leq": "<=", "\\ge": ">=",
    "\\geq": ">=", "\\ne": "!=", "\\neq": "!=", "\\approx": "~", "\\in": "in", "\\to": "to",
    "\\nmid": "nmid", "\\equiv": "=",
}  # fmt: skip
IMPLIES = {
    "\\iff": "iff", "\\Longleftrightarrow": "iff", "\\Leftrightarrow": "iff",
    "\\Longrightarrow": "implies", "\\Rightarrow": "implies", "\\implies": "implies",
}  # fmt: skip
BRACKETS = {
    "(": "LPAR", ")": "RPAR", "[": "LBRACK", "]": "RBRACK", "\\{": "LSET", "\\}": "RSET",
    "\\lVert": "LNORM", "\\rVert": "RNORM", "\\lvert": "LABS", "\\rvert": "RABS",
    "\\lfloor": "LFLOOR", "\\rfloor": "RFLOOR", "\\lceil": "LCEIL", "\\rceil": "RCEIL",
    "\\langle": "LANGLE", "\\rangle": "RANGLE",
}  # fmt: skip
CLOSES = {
    "RPAR": "LPAR", "RBRACK": "LBRACK", "RSET": "LSET", "RNORM": "LNORM", "RABS": "LABS",
    "RFLOOR": "LFLOOR", "RCEIL": "LCEIL", "RANGLE": "LANGLE", "RBRACE": "LBRACE",
    "END": "MATRIX",
}  # fmt: skip
ACCENTS = {"hat", "bar", "tilde", "underline", "widehat", "widetilde", "overline", "vec", "dot"}
FONTS = {"mathbf", "mathbb", "mathcal", "mathrm", "mathsf", "mathit", "boldsymbol", "mathfrak"}
SIZES = {"left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl",
         "biggr", "Biggl", "Biggr", "middle", "displaystyle", "textstyle", "limits", "mathbin",
         "mathrel", "nolimits"}  # fmt: skip
SPACES = {",", ";", "!", ":", " ", ">"}
WIDE = {"quad", "qquad"}
DOTS = {"dots", "cdots", "ldots", "vdots", "ddots"}
OPERATORS = {"cdot": "cdot", "times": "cdot", "odot": "odot", "bmod": "mod"}
MATRICES = {"pmatrix", "bmatrix", "matrix"}
# Words in \text that are no names.
CONDITION = re.compile(r"(for|if|when|whenever|provided)\b")
OTHERWISE = {"otherwise", "else"}
PROSE = {"hence", "with", "where", "so", "and", "then", "thus", "because", "therefore", "becomes"}
_LEX = re.compile(
    r"(?P<space>\s+|~)|(?P<command>\\[a-zA-Z]+\*?|\\.)|(?P<number>\d+(?:\.\d+)?)|(?P<other>.)", re.S
)


def tokens(source: str, offset: int = 0) -> list[Token]:
    """The tokens of a formula.

    Raises:
        FormulaError: at a bracket that is not closed or a command that the book's formulas lack.
    """
    return _Reader(source, offset).read()


class _Reader:
    def __init__(self, source: str, offset: int) -> None:
        self.source, self.offset = source, offset
        self.raw = [
            (m.lastgroup or "", m[0], m.start() + offset, m.end() + offset)
            for m in _LEX.finditer(source)
        ]
        self.at = 0
        self.out: list[Token] = []
        self.open: list[Token] = []
        self.environments: list[str] = []

    # ------------------------------------------------ raw pieces

    def _skip_space(self) -> None:
        while self.at < len(self.raw) and self.raw[self.at][0] == "space":
            self.at += 1

    def _group(self) -> tuple[str, int, int]:
        """The text of the next TeX argument, with its place; moves behind it."""
        self._skip_space()
        if self.at >= len(self.raw):
            raise FormulaError("an argument is missing at the end", len(self.source) + self.offset)
        kind, text, start, end = self.raw[self.at]
        self.at += 1
        if text != "{":
            if kind == "number":  # TeX takes one digit
                first = (kind, text[0], start, start + 1)
                if len(text) > 1:
                    self.at -= 1
                    self.raw[self.at] = (kind, text[1:], start + 1, end)
                return first[1], first[2], first[3]
            if kind == "command" and text[1:] in {
                "text",
                "frac",
                "tfrac",
                "sqrt",
                *FONTS,
                *ACCENTS,
            }:
                count = 2 if text.endswith("frac") else 1
                for _ in range(count):
                    self._group()
                end = self.raw[self.at - 1][3]
            return self.source[start - self.offset : end - self.offset], start, end
        depth, begin = 1, end
        while depth:
            if self.at >= len(self.raw):
                raise FormulaError("this brace is never closed", start)
            text, stop = self.raw[self.at][1], self.raw[self.at][2]
            depth += (text == "{") - (text == "}")
            self.at += 1
        return self.source[begin - self.offset : stop - self.offset], begin, stop

    # ------------------------------------------------ out

    def _put(self, kind: str, text: str, start: int, end: int) -> Token:
        token = Token(kind, text, start, end)
        self.out.append(token)
        return token

    def _opened(self, token: Token) -> None:
        self.open.append(token)

    def _closed(self, kind: str, start: int) -> None:
        wanted = CLOSES[kind]
        if not self.open or self.open[-1].kind != wanted:
            raise FormulaError("this bracket closes none", start)
        self.open.pop()

    def _inside(self, text: str, start: int) -> None:
        """The tokens of an argument between braces."""
        end = start + len(text)
        self._put("LBRACE", "{", start, start)
        self.out += tokens(text, start)
        self._put("RBRACE", "}", end, end)

    def _separate(self, start: int, end: int) -> None:
        """A separator of statements, unless a relation, a sign or another one stands here."""
        if self.open or not self.out:
            return
        if self.out[-1].kind == "COMMA":
            self.out.pop()
        if self.out and self.out[-1].kind not in ("SEP", "REL", "IMPLIES", "SIGN", "COND"):
            self._put("SEP", "", start, end)

    # ------------------------------------------------ reading

    def read(self) -> list[Token]:
        while self.at < len(self.raw):
            kind, text, start, end = self.raw[self.at]
            self.at += 1
            if kind == "number":
                self._put("NUMBER", text, start, end)
            elif kind == "command":
                self._command(text, start, end)
            elif kind == "other":
                self._character(text, start, end)
        if self.open:
            raise FormulaError("this bracket is never closed", self.open[-1].start)
        while self.out and self.out[-1].kind in ("SEP", "COMMA"):
            self.out.pop()
        return [
            t
            for t, after in zip(self.out, [*self.out[1:], None], strict=False)
            if t.kind != "SEP" or (after and after.kind not in ("REL", "IMPLIES", "SEP"))
        ]

    def _character(self, text: str, start: int, end: int) -> None:
        if text == "{":
            self._opened(self._put("LBRACE", text, start, end))
            self.out[-1].text = "group"
        elif text in "_^":
            self._script(text, start, end)
        elif text == "}":
            self._closed("RBRACE", start)
            self._put("RBRACE", text, start, end)
        elif text in BRACKETS:
            self._bracket(BRACKETS[text], text, start, end)
        elif text == "|":
            closing = self.open and self.open[-1].kind == "LABS"
            self._bracket("RABS" if closing else "LABS", text, start, end)
        elif text == "'":
            self._put("PRIME", text, start, end)
        elif text in "+-":
            self._put("SIGN", text, start, end)
        elif text == "/":
            self._put("OPERATOR", "/", start, end)
        elif text in ",;":
            self._put("COMMA", text, start, end)
            self._skip_space()
            after = self.raw[self.at][1] if self.at < len(self.raw) else ""
            if not self.open and after in ("\\ ", "\\quad", "\\qquad", "\\text", "\\\\"):
                self._separate(start, end)
        elif text == ":" and self.at < len(self.raw) and self.raw[self.at][1] == "=":
            self._put("REL", "=", start, end + 1)
            self.at += 1
        elif text == ":":
            alone = not self.out or self.out[-1].kind == "COMMA"
            self._put("ALL" if alone else "COLON", text, start, end)
        elif text in RELATIONS:
            self._put("REL", RELATIONS[text], start, end)
        elif text == "&":
            if self.environments and self.environments[-1] not in ("aligned", "align"):
                self._put("AMP", text, start, end)
        elif text == "*":
            self._put("NAME", "*", start, end)
        elif text.isalpha() or text == "∞":
            self._put("NAME", text, start, end)
        else:
            raise FormulaError(f"the character {text!r} has no meaning in a formula", start)

    def _script(self, text: str, start: int, end: int) -> None:
        self._put("UNDER" if text == "_" else "CARET", text, start, end)
        inside, begin, _ = self._group()
        self._inside(inside, begin)

    def _bracket(self, kind: str, text: str, start: int, end: int) -> None:
        if kind in CLOSES:
            self._closed(kind, start)
            self._put(kind, text, start, end)
        else:
            self._opened(self._put(kind, text, start, end))

    def _command(self, text: str, start: int, end: int) -> None:
        name = text[1:]
        if name in SPACES or name in SIZES:
            if name in SIZES:
                self._skip_space()
                if self.at < len(self.raw) and self.raw[self.at][1] == ".":
                    self.at += 1
        elif name in WIDE:
            self._separate(start, end)
        elif name == "\\":
            self._row_end(start, end)
        elif text in BRACKETS:
            self._bracket(BRACKETS[text], text, start, end)
        elif name == "|":
            closing = self.open and self.open[-1].kind == "LNORM"
            self._bracket("RNORM" if closing else "LNORM", text, start, end)
        elif text in RELATIONS:
            self._put("REL", RELATIONS[text], start, end)
        elif text in IMPLIES:
            if self.out and self.out[-1].kind in ("SEP", "COMMA"):
                self.out.pop()
            self._put("IMPLIES", IMPLIES[text], start, end)
        elif name in ("frac", "tfrac", "dfrac", "binom"):
            self._put("BINOM" if name == "binom" else "FRAC", text, start, end)
            for _ in range(2):
                inside, begin, _stop = self._group()
                self._inside(inside, begin)
        elif name == "sqrt":
            self._root(text, start, end)
        elif name in ("text", "mathrm", "operatorname", "operatorname*") or name in FONTS:
            self._word(name, start)
        elif name in ACCENTS:
            self._accent(text, start)
        elif name in ("underbrace", "boxed", "overset", "xrightarrow"):
            self._decoration(name, start)
        elif name in ("begin", "end"):
            self._environment(name, start)
        elif name in OPERATORS:
            self._put("OPERATOR", OPERATORS[name], start, end)
        elif name in ("pm", "mp"):
            self._put("SIGN", "±" if name == "pm" else "∓", start, end)
        elif name in BIG:
            self._put("BIG", name, start, end)
        elif name in FUNCTIONS:
            self._put("FUNC", name, start, end)
        elif name in DOTS:
            self._put("DOTS", text, start, end)
        elif name in ("mid", "Vert", "parallel"):
            self._put("COMMA", text, start, end)
        elif name == "%":
            self._put("NUMBER", "0.01", start, end)
        elif name.isalpha():
            self._put("NAME", text, start, end)
        else:
            raise FormulaError(f"{text} has no meaning in a formula", start)

    def _row_end(self, start: int, end: int) -> None:
        if self.environments and self.environments[-1] not in ("aligned", "align"):
            self._put("ROWSEP", "\\\\", start, end)
            return
        self._skip_space()
        while self.at < len(self.raw) and self.raw[self.at][1] in ("&", "\\", "\\,", "\\;", "\\ "):
            self.at += 1
            self._skip_space()
        after = self.raw[self.at][1] if self.at < len(self.raw) else ""
        if after not in RELATIONS and after not in IMPLIES and after not in ("+", "-"):
            self._separate(start, end)

    def _root(self, text: str, start: int, end: int) -> None:
        self._put("SQRT", text, start, end)
        self._skip_space()
        if self.at < len(self.raw) and self.raw[self.at][1] == "[":
            self.at += 1
            begin = self.raw[self.at][2]
            while self.raw[self.at][1] != "]":
                self.at += 1
            stop = self.raw[self.at][2]
            self._put("LBRACK", "[", begin, begin)
            self.out += tokens(self.source[begin - self.offset : stop - self.offset], begin)
            self._put("RBRACK", "]", stop, stop)
            self.at += 1
        inside, begin, _stop = self._group()
        self._inside(inside, begin)

    def _word(self, name: str, start: int) -> None:
        inside, begin, stop = self._group()
        end = stop + (1 if self.source[begin - 1 - self.offset] == "{" else 0)
        word = inside.strip().strip(",:;.")
        if name != "text":
            plain = re.sub(r"\\[,;! ]", "", inside).replace(" ", "")
            if name.startswith("operatorname") and plain in FUNCTIONS | BIG:
                self._put("BIG" if plain in BIG else "FUNC", plain, start, end)
            elif plain.replace("\\", "") in ("argmin", "argmax"):
                self._put("BIG", plain.replace("\\", ""), start, end)
            else:
                font = "operatorname" if name.startswith("operatorname") else name
                self._put("NAME", f"\\{font}{{{plain}}}", start, end)
        elif word in OTHERWISE:
            self._put("OTHERWISE", word, start, end)
        elif word in ("or", "and") and "cases" in self.environments:
            self._put("LOGIC", word, start, end)
        elif CONDITION.match(word):
            self._separate(start, end)
            self._put("COND", word, start, end)
        elif re.fullmatch(r"[\w\-]+", word) and word not in PROSE:
            self._put("NAME", f"\\text{{{word}}}", start, end)
        else:
            self._separate(start, end)

    def _accent(self, text: str, start: int) -> None:
        inside, begin, stop = self._group()
        end = stop + (1 if self.source[begin - 1 - self.offset] == "{" else 0)
        inner = tokens(inside, begin)
        if len(inner) == 1 and inner[0].kind in ("NAME", "NUMBER"):
            self._put("NAME", f"{text}{{{inner[0].text}}}", start, end)
            return
        self._put("ACCENT", text, start, start + len(text))
        self._put("LBRACE", "{", begin, begin)
        self.out += inner
        self._put("RBRACE", "}", stop, stop)

    def _decoration(self, name: str, start: int) -> None:
        inside, begin, _stop = self._group()
        if name == "boxed":
            self.out += tokens(inside, begin)
        elif name == "underbrace":
            token = self._put("LBRACE", "group", begin, begin)
            self.out += tokens(inside, begin)
            self._put("RBRACE", "}", begin + len(inside), begin + len(inside))
            del token
            self._skip_space()
            if self.at < len(self.raw) and self.raw[self.at][1] == "_":
                self.at += 1
                self._group()
        elif name == "xrightarrow":
            token = self._put("REL", "limit", start, begin + len(inside))
            token.over = (inside, begin)
        else:  # overset: the condition under which this relation holds
            sign, at, stop = self._group()
            if sign.strip() not in RELATIONS:
                raise FormulaError("\\overset stands over a relation only", at)
            token = self._put("REL", RELATIONS[sign.strip()], start, stop)
            token.over = (inside, begin)

    def _environment(self, name: str, start: int) -> None:
        which, _, stop = self._group()
        kind = which.rstrip("*")
        if name == "begin":
            self.environments.append(kind)
            if kind in MATRICES or kind == "cases":
                self._put("CASES" if kind == "cases" else "MATRIX", kind, start, stop)
                self.open.append(Token("MATRIX", kind, start, stop))
            elif kind not in ("aligned", "align"):
                raise FormulaError(f"the environment {which} has no meaning here", start)
            return
        if not self.environments or self.environments.pop() != kind:
            raise FormulaError(f"\\end{{{which}}} closes nothing", start)
        if kind in MATRICES or kind == "cases":
            self._closed("END", start)
            if self.out[-1].kind == "ROWSEP":
                self.out.pop()
            self._put("END", kind, start, stop)
