r"""Reads one mathematical expression, in LaTeX or as plain text, into a tree. Pure, linear time.

The tree keeps how the expression was written: ``\frac{84}{2}``, 42.0 and 6·7 are three trees of
one value. Letters are one symbol each, e and i are constants, and words are not products of
letters: `Unreadable` says what cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, pairwise

from gymmesh_resource.environments.math.answers.nodes import Node, Unreadable

LONGEST, _TOKENS = 4_000, 600
_DEEPEST = 60
_DIGITS, _EXPONENT = 2_000, 4_000


FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "arccot", "arcsec",
    "arccsc", "sinh", "cosh", "tanh", "coth", "arcsinh", "arccosh", "arctanh", "asin", "acos",
    "atan", "ln", "log", "lg", "exp", "sqrt", "abs", "floor", "ceil", "Gamma", "Re", "Im", "arg",
}  # fmt: skip
_OF_SEVERAL = {"max", "min", "gcd", "lcm"}
_SAME = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "lg": "log", "Gamma": "gamma"}
_NAMES = FUNCTIONS | _OF_SEVERAL | {"binom"}
_PREFIXES = sorted(_NAMES - {"Re", "Im", "arg", "lg"}, key=len, reverse=True)
_LETTERS = {
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta",
    "iota", "kappa", "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi",
    "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi",
    "Omega", "ell", "hbar", "nabla",
}  # fmt: skip
_DECORATIONS = {"overline", "bar", "vec", "hat", "tilde", "mathbf", "mathcal", "mathbb", "dot"}
_CLOSED_BY = {"(": ")", "[": "]", "{": "}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_SHORT_WORDS = {
    "am", "an", "as", "at", "be", "by", "do", "go", "he", "if", "in", "is", "it", "me", "my", "no",
    "of", "oh", "ok", "on", "or", "so", "to", "up", "us", "we", "mm", "cm", "km", "kg", "hr",
}  # fmt: skip
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+(?![\w.]))?)"
    r"|(?P<command>\\[a-zA-Z]+|\\.)|(?P<name>[a-zA-Z]+)|(?P<power>\*\*)|(?P<other>\S))"
)
_SPACED_THOUSANDS = re.compile(r"(?<![\d.^_/])\d{1,3}(?: \d{3})+(?![\d./])")
_STARTS = {"(", "[", "{", "\\lfloor", "\\lceil"}


def read_expression(text: str) -> Node:
    """The tree of a whole text. Raises `Unreadable`."""
    text = _SPACED_THOUSANDS.sub(lambda found: found.group().replace(" ", ""), text)
    tokens = list(islice(_tokens(text), _TOKENS + 1))
    if len(tokens) > _TOKENS:
        raise Unreadable("it is too long")
    parser = _Parser(tokens)
    try:
        node = parser.sum()
    except RecursionError:
        raise Unreadable("the expression is nested too deeply") from None
    if parser.next is not None:
        raise Unreadable(f"{parser.next!r} is not expected there")
    return node


def is_product(letters: str) -> bool:
    """Whether a run of letters is a product of variables, rather than a word."""
    if len(letters) == 1:
        return True
    if len(letters) == 2:
        return letters.lower() not in _SHORT_WORDS
    ascending = all(first < second for first, second in pairwise(letters))
    return (
        ascending
        and not set(letters.lower()) & set("eiou")
        and ("a" not in letters or set(letters) <= set("abcdxyz"))
    )


def product_of(letters: str) -> Node:
    """The product of the symbols that letters are."""
    node = Node("symbol", name=letters[0])
    for letter in letters[1:]:
        node = Node("mul", (node, Node("symbol", name=letter)))
    return node


def number(text: str) -> Node:
    """The leaf of a number as it is written, such as 42, 0.50 or 1.5e3."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > _DIGITS or len(exponent) > 6 or abs(int(exponent or 0)) > _EXPONENT:
        raise Unreadable("a number has too many digits")
    whole, _, decimals = mantissa.partition(".")
    scale = Fraction(10) ** (int(exponent or 0) - len(decimals))
    value = int((whole + decimals) or 0) * scale
    return Node("number", name=text, value=value, place=scale if decimals else None)


def _tokens(text: str) -> Iterator[str]:
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise Unreadable("it ends with a backslash")
        at = found.end()
        token = found.group(found.lastgroup or 0)
        if found.lastgroup == "name":
            yield from _names(token)
        else:
            yield "^" if found.lastgroup == "power" else token


def _names(letters: str) -> Iterator[str]:
    """A run of letters: a function's name, which may have its argument's letters behind it."""
    while letters:
        if letters in _NAMES or letters in ("pi", "infinity", "inf", "oo"):
            yield "\\" + {"infinity": "infty", "inf": "infty", "oo": "infty"}.get(letters, letters)
            return
        prefix = next((name for name in _PREFIXES if letters.startswith(name)), None)
        if prefix is not None and is_product(letters[len(prefix) :]):
            yield "\\" + prefix
            letters = letters[len(prefix) :]
            continue
        if letters.endswith("pi") and is_product(letters[:-2]):
            yield from letters[:-2]
            yield "\\pi"
            return
        if not is_product(letters):
            raise Unreadable(f"{letters[:40]!r} is a word")
        yield from letters
        return


class _Parser:
    """Recursive descent over tokens; each method reads one level of precedence."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._bars = 0

    @property
    def next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _peek(self, ahead: int) -> str | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _take(self) -> str:
        token = self.next
        if token is None:
            raise Unreadable("it ends too early")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self.next != token:
            raise Unreadable(f"{token!r} is missing")
        self._at += 1

    def sum(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Unreadable("the expression is nested too deeply")
        node = self._product()
        while self.next in ("+", "-", "\\pm", "\\mp"):
            sign = self._take()
            term = self._product()
            node = Node({"+": "add", "-": "sub"}.get(sign, sign[1:]), (node, term))
        self._depth -= 1
        return node

    def _product(self) -> Node:
        node = self._unary()
        while True:
            if self.next in ("*", "\\cdot", "\\times"):
                self._take()
                node = Node("times", (node, self._unary()))
            elif self.next == "/":
                self._take()
                node = Node("frac", (node, self._unary()))
            elif self._starts_factor():
                node = self._beside(node)
            else:
                return node

    def _starts_factor(self) -> bool:
        token = self.next
        if token is None:
            return False
        if token == "|":
            return not self._bars
        return (
            token in _STARTS
            or token[0].isalnum()
            or (
                token[0] == "\\"
                and len(token) > 1
                and token[1].isalpha()
                and self._is_operand(token[1:])
            )
        )

    @staticmethod
    def _is_operand(name: str) -> bool:
        return name in _LETTERS | _DECORATIONS | _NAMES or name in (
            "frac", "pi", "infty", "sum", "prod", "text"
        )  # fmt: skip

    def _beside(self, left: Node) -> Node:
        """A factor without a sign before it: a product, or the fraction of a mixed number."""
        if self.next is not None and (self.next[0].isdigit() or self.next[0] == "."):
            right, over = self._take(), self.next
            if _is_whole(left) and over == "/":
                self._take()
                below = self._take()
                if right.isdigit() and below.isdigit() and int(right) < int(below):
                    return Node("mixed", (left, Node("frac", (number(right), number(below)))))
            raise Unreadable("two numbers are side by side")
        right_node = self._power()
        if _is_whole(left) and _is_proper(right_node):
            return Node("mixed", (left, right_node))
        if right_node.op == "percent" and _is_whole(left) and _is_proper(right_node.args[0]):
            return Node("percent", (Node("mixed", (left, right_node.args[0])),))
        if left.op == "apply":
            raise Unreadable("the end of the argument of a function is not clear")
        return Node("mul", (left, right_node))

    def _unary(self) -> Node:
        if self.next == "-":
            self._take()
            self._depth += 1
            if self._depth > _DEEPEST:
                raise Unreadable("the expression is nested too deeply")
            node = Node("neg", (self._unary_product(),))
            self._depth -= 1
            return node
        if self.next == "+":
            self._take()
            return self._power()
        if self.next in ("\\pm", "\\mp"):
            return Node(self._take()[1:], (self._unary_product(),))
        return self._power()

    def _unary_product(self) -> Node:
        """What a sign is before: a factor, with those beside it (-2x, -1 1/2)."""
        node = self._unary() if self.next == "-" else self._power()
        while self._starts_factor():
            node = self._beside(node)
        return node

    def _power(self) -> Node:
        node = self._postfix(self._primary())
        while self.next == "^":
            self._take()
            node = self._raised(node)
        return node

    def _raised(self, base: Node) -> Node:
        if self.next == "\\circ":
            self._take()
            return Node("deg", (base,))
        if self.next == "{" and self._peek(1) == "\\circ" and self._peek(2) == "}":
            self._at += 3
            return Node("deg", (base,))
        exponent = self._script()
        if self.next == "^":
            self._take()
            exponent = self._raised(exponent)
        return self._postfix(Node("pow", (base, exponent)))

    def _script(self) -> Node:
        """An exponent: a group, a signed factor, or one number or letter."""
        if self.next == "-":
            self._take()
            return Node("neg", (self._script(),))
        if self.next == "+":
            self._take()
        return self._primary()

    def _postfix(self, node: Node) -> Node:
        while self.next in ("!", "%", "'"):
            mark = self._take()
            if mark == "'":
                if node.op != "symbol":
                    raise Unreadable("a prime follows something that is not a symbol")
                node = Node("symbol", name=node.name + "'")
            elif mark == "!" and self.next == "!":
                self._take()
                node = Node("double_factorial", (node,))
            else:
                node = Node("factorial" if mark == "!" else "percent", (node,))
        return node

    def _primary(self) -> Node:
        token = self._take()
        if token[0].isdigit() or (token[0] == "." and len(token) > 1):
            return self._number(token)
        if token in _CLOSED_BY:
            return self._group(token)
        if token == "|":
            self._bars += 1
            node = self.sum()
            self._bars -= 1
            self._expect("|")
            return Node("abs", (node,))
        if token[0] == "\\":
            return self._command(token[1:])
        if token.isalpha():
            return self._symbol(token)
        raise Unreadable(f"{token!r} is not expected there")

    def _group(self, opening: str) -> Node:
        bars, self._bars = self._bars, 0
        node = self.sum()
        if self.next == "\\choose" and opening == "{":
            self._take()
            node = Node("binom", (node, self.sum()))
        self._expect(_CLOSED_BY[opening])
        self._bars = bars
        return (
            Node({"\\lfloor": "floor", "\\lceil": "ceil"}[opening], (node,))
            if (opening[0] == "\\")
            else node
        )

    def _number(self, token: str) -> Node:
        if self.next == "_":
            self._take()
            return in_base(token, self._subscript())
        if self.next == "\\overline" and "." in token:
            self._take()
            self._expect("{")
            period = self._take()
            self._expect("}")
            return _repeating(token, period)
        return number(token)

    def _symbol(self, name: str) -> Node:
        if self.next == "_":
            self._take()
            return Node("symbol", name=f"{name}_{self._subscript()}")
        if name in "fghFGH" and self.next == "(":
            return Node("apply", (self._primary(),), name=name)
        return Node("constant" if name in "ei" else "symbol", name=name)

    def _subscript(self) -> str:
        """The text of a subscript, without braces."""
        if self.next != "{":
            return self._take()
        self._take()
        depth = 1
        parts: list[str] = []
        while True:
            token = self._take()
            depth += (token == "{") - (token == "}")
            if not depth:
                return "".join(parts)
            parts.append(token)

    def _command(self, name: str) -> Node:
        if name == "frac":
            above, below = self._argument(), self._argument()
            if _is_differential(above) and _is_differential(below):
                raise Unreadable("it is a derivative")
            return Node("frac", (above, below))
        if name == "binom":
            return Node("binom", (self._argument(), self._argument()))
        if name in ("pi", "infty"):
            return Node("constant", name=name)
        if name in ("sum", "prod"):
            return self._series(name)
        if name in _OF_SEVERAL:
            return Node(name, self._list())
        if name == "sqrt":
            return self._root()
        if name in FUNCTIONS and (name != "Gamma" or self.next == "("):
            return self._function(_SAME.get(name, name))
        if name in _DECORATIONS:
            self._expect("{") if self.next == "{" else None
            self._at -= self._tokens[self._at - 1] == "{"
            return self._symbol(f"{name}{{{self._subscript()}}}")
        if name in _LETTERS:
            return self._symbol(name)
        raise Unreadable(f"\\{name} is not supported")

    def _argument(self) -> Node:
        r"""A group, or one digit or letter: ``\frac12`` is a half."""
        token = self.next
        if token is not None and token.isdigit() and len(token) > 1:
            self._tokens[self._at] = token[1:]
            return number(token[0])
        return self._primary()

    def _root(self) -> Node:
        if self.next != "[":
            return Node("sqrt", (self._primary(),))
        degree = self._primary()
        return Node("root", (self._primary(), degree))

    def _function(self, name: str) -> Node:
        base = exponent = None
        while self.next in ("_", "^"):
            if self._take() == "^":
                exponent = self._script()
            else:
                base = self._script()
        if self.next in _STARTS:
            argument = self._primary()
        else:
            argument = self._unary() if self.next == "-" else self._power()
            while self._starts_factor() and not self._at_function():
                argument = self._beside(argument)
        if base is not None and name not in ("log", "ln"):
            raise Unreadable("a function with a base is not supported")
        if exponent is not None and exponent.op == "neg":
            if name not in ("sin", "cos", "tan"):
                raise Unreadable("an inverse function is not supported")
            return Node("arc" + name, (argument,))
        node = Node(name, (argument,) if base is None else (argument, base))
        return node if exponent is None else Node("pow", (node, exponent))

    def _at_function(self) -> bool:
        return self.next is not None and self.next[0] == "\\" and self.next[1:] in _NAMES - {"sqrt"}

    def _list(self) -> tuple[Node, ...]:
        opening = self._take()
        if opening not in ("(", "\\{", "[", "{"):
            raise Unreadable("the arguments are missing")
        parts = [self.sum()]
        while self.next == ",":
            self._take()
            parts.append(self.sum())
        if self._take() not in (")", "\\}", "]", "}"):
            raise Unreadable("the arguments do not end")
        return tuple(parts)

    def _series(self, name: str) -> Node:
        r"""``\sum_{k=1}^{10} k^2``: the index, its bounds, the term."""
        self._expect("_")
        self._expect("{")
        index = self._symbol(self._take())
        self._expect("=")
        low = self.sum()
        self._expect("}")
        self._expect("^")
        high = self._script()
        return Node(name, (Node("symbol", name=index.name), low, high, self._product()))


def in_base(digits: str, base: str) -> Node:
    """A whole number written in a base of 2 to 36; `Unreadable` where a digit is not one."""
    if not base.isdigit() or not 2 <= int(base[:3]) <= 36 or len(digits) > _DIGITS:
        raise Unreadable("the base of a number is not supported")
    try:
        value = Fraction(int(digits, int(base)))
    except ValueError:
        raise Unreadable(f"{digits[:40]!r} is not a number in base {base}") from None
    return Node("number", name=f"{digits}_{base}", value=value)


def _repeating(start: str, period: str) -> Node:
    if not period.isdigit() or "e" in start.lower() or len(start + period) > _DIGITS:
        raise Unreadable(
            "a repeating decimal needs digits under \\overline, no exponent, and at most "
            f"{_DIGITS} characters in all"
        )
    decimals = len(start.partition(".")[2])
    shown = number(start).value
    value = shown + Fraction(int(period), 10**decimals * (10 ** len(period) - 1))
    return Node("number", name=f"{start}({period})", value=value)


def _is_differential(node: Node) -> bool:
    while node.op in ("mul", "pow"):
        node = node.args[0]
    return node.op == "symbol" and node.name == "d"


def _is_whole(node: Node) -> bool:
    return node.op == "number" and node.place is None and node.name.isdigit()


def _is_proper(node: Node) -> bool:
    return (
        node.op == "frac"
        and all(map(_is_whole, node.args))
        and 0 < node.args[0].value < node.args[1].value
    )
