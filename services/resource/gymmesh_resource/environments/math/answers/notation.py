r"""One spelling for answers: what Unicode, LaTeX's layout and Markdown write in many ways. Pure.

Invariant: cleaning changes how an answer is written, never what it denotes. Roman and bold text
keeps its end: ``\mathrm{e}`` is e, and ``\text{ cm}`` stays for the reader of units.
"""

from __future__ import annotations

import re
import unicodedata

_SYMBOLS = {
    "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{FULLWIDTH HYPHEN-MINUS}": "-",
    "\N{HYPHEN}": "-", "\N{NON-BREAKING HYPHEN}": "-",
    "\N{MULTIPLICATION SIGN}": r"\times ", "\N{MIDDLE DOT}": r"\cdot ",
    "\N{DOT OPERATOR}": r"\cdot ",
    "\N{DIVISION SIGN}": "/", "\N{FRACTION SLASH}": "/", "\N{DIVISION SLASH}": "/",
    "\N{SQUARE ROOT}": r"\sqrt ", "\N{INFINITY}": r"\infty ",
    "\N{LESS-THAN OR EQUAL TO}": r"\le ", "\N{GREATER-THAN OR EQUAL TO}": r"\ge ",
    "\N{NOT EQUAL TO}": r"\ne ", "\N{ALMOST EQUAL TO}": r"\approx ",
    "\N{RIGHTWARDS ARROW}": r"\to ", "\N{RIGHTWARDS DOUBLE ARROW}": r"\Rightarrow ",
    "\N{UNION}": r"\cup ", "\N{ELEMENT OF}": r"\in ", "\N{EMPTY SET}": r"\emptyset ",
    "\N{IDEOGRAPHIC FULL STOP}": ".", "\N{DEGREE SIGN}": r"^{\circ}",
    "\N{PLUS-MINUS SIGN}": r"\pm ", "\N{SET MINUS}": r"\setminus ",
    "\N{DOUBLE-STRUCK CAPITAL R}": r"\mathbb{R}",
    "\N{VULGAR FRACTION ONE HALF}": r"\frac{1}{2}",
    "\N{VULGAR FRACTION ONE QUARTER}": r"\frac{1}{4}",
    "\N{VULGAR FRACTION THREE QUARTERS}": r"\frac{3}{4}",
    "\N{VULGAR FRACTION ONE THIRD}": r"\frac{1}{3}",
    "\N{VULGAR FRACTION TWO THIRDS}": r"\frac{2}{3}",
}  # fmt: skip
_GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
    "lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi",
    "omega",
)  # fmt: skip
_SYMBOLS |= {
    unicodedata.lookup(f"GREEK SMALL LETTER {name.replace('lambda', 'lamda')}"): rf"\{name} "
    for name in _GREEK
}
_SYMBOLS |= {
    "≡": r"\equiv ", "≢": r"\not \equiv ", "∼": r"\sim ", "≅": r"\cong ", "∝": r"\propto ",
    "⊂": r"\subset ", "⊆": r"\subseteq ", "⊃": r"\supset ", "⊇": r"\supseteq ", "∉": r"\notin ",
    "∋": r"\ni ", "≪": r"\ll ", "≫": r"\gg ", "≦": r"\le ", "≧": r"\ge ", "⩽": r"\le ",
    "⩾": r"\ge ", "≮": r"\nless ", "≯": r"\ngtr ", "≰": r"\nleq ", "≱": r"\ngeq ", "≺": r"\prec ",
    "≻": r"\succ ", "¬": r"\neg ", "∤": r"\nmid ", "≃": r"\approx ",
}  # fmt: skip
_TRANSLATED = str.maketrans(_SYMBOLS)
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_SUPERSCRIPT_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
# Commands that change the layout alone, and those with another name here.
_LAYOUT = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|limits|bigl?|bigr|Bigl?|Bigr|biggl?|biggr|nolimits"
    r"|tiny|small|normalsize|large|Large|LARGE|huge|Huge|bf|it|rm)"
    r"(?![a-zA-Z])"
)
_SPACES = re.compile(r"\\[,;:! ]|\\(?:quad|qquad|thinspace|enspace)(?![a-zA-Z])|~|[\s\u200b]+")
_RENAMED = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom",
    "leqslant": "le", "geqslant": "ge", "leq": "le", "geq": "ge", "lt": "<", "gt": ">",
    "neq": "ne", "leqq": "le", "geqq": "ge",
    "rightarrow": "to", "longrightarrow": "to", "implies": "Rightarrow",
    "Longrightarrow": "Rightarrow", "simeq": "approx", "varnothing": "emptyset",
    "lbrace": "{", "rbrace": "}", "lvert": "|", "rvert": "|", "vert": "|", "mid": "|",
    "reals": "mathbb{R}", "R": "mathbb{R}", "div": "/", "ast": "*",
    "infin": "infty", "colon": ":",
    "bmod": "mod", "textrm": "text", "textnormal": "text", "mbox": "text",
    "textbf": "text", "textit": "text", "emph": "text", "mathit": "mathrm", "textsf": "text",
    "texttt": "text", "mathsf": "mathrm", "mathtt": "mathrm", "operatorname": "mathrm",
}  # fmt: skip
# Relations that give nothing a value; denied ones, too.
RELATIONS = frozenset((
    "ne", "in", "ni", "notin", "equiv", "sim", "nsim", "propto", "cong", "ncong", "subset",
    "subseteq", "supset", "supseteq", "nsubseteq", "nsupseteq", "subsetneq", "supsetneq",
    "sqsubset", "sqsubseteq", "sqsupset", "sqsupseteq", "ll", "gg", "lll", "ggg", "prec", "succ",
    "preceq", "succeq", "nmid", "parallel", "nparallel", "perp", "asymp", "nless", "ngtr", "nleq",
    "ngeq", "nleqslant", "ngeqslant", "lneq", "gneq", "lneqq", "gneqq", "lesssim", "gtrsim",
    "lessapprox", "gtrapprox", "lessgtr", "gtrless", "nprec", "nsucc", "vdash", "models", "not",
    "neg", "lnot", "vartriangleleft", "vartriangleright", "trianglelefteq", "trianglerighteq",
))  # fmt: skip
_SUBSCRIPT = re.compile(r"[_^]\s?\{[^{}]*\}")
_RELATION = re.compile(
    rf"[<>]|\\(?:le|ge|setminus|{'|'.join(sorted(RELATIONS, key=len, reverse=True))})(?![a-zA-Z])"
)
# Of code; right behind a number or letter the mark is a factorial's.
_UNEQUAL = re.compile(r"(?:(?<=\s)|^)!=")
_DENIED = re.compile(r"\\not\s?(=|\\in(?![a-zA-Z]))")
_DEGREE = re.compile(r"(?:\^\s?)?\\degree(?![a-zA-Z])")
# A backslash that was escaped once too often; between rows of a matrix it is meant.
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z{}%$])")
_PLAIN = frozenset("</*:>|")
_COMMAND = re.compile(r"\\([a-zA-Z]+)\*?")
_ROMAN = re.compile(r"\\mathrm\s?\{((?:[^{}]|\{[^{}]*\})*)\}")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\{,\}|\\,)\d{3})+(?!\d)")
_DECIMAL_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
_TIMES = re.compile(r"(?<=[\d.])\s?[xX]\s?(?=10\s?\^)")
_COLOR = re.compile(r"\\(?:text)?color\s?\{[^{}]*\}")
_BOLD = re.compile(r"\\(?:mathbf|boldsymbol|bm)\s?\{([^{}]*[\d,+=][^{}]*)\}")
_DIGITS_AS_TEXT = re.compile(r"\\text\s?\{([\s\d.,]*\d[\s\d.,]*)\}")
# A full stop as text, or a space that was cut at the end of the answer.
_POINT = re.compile(r"(?:\\text\s?\{\s*[.,;]\s*\}|(?<!\\)\\\.?)$")
_OUTER = (
    ("$$", "$$"),
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("**", "**"),
    ("`", "`"),
    ("*", "*"),
    ('"', '"'),
    ("\N{LEFT DOUBLE QUOTATION MARK}", "\N{RIGHT DOUBLE QUOTATION MARK}"),
    ("'", "'"),
)
_OVER = re.compile(r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}")
_NAMES = {
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "ln", "log", "exp", "max", "min", "gcd", "lcm", "mod",
}  # fmt: skip


def clean(text: str) -> str:
    """The answer in one spelling: the same mathematics, without layout."""
    text = _DOUBLED.sub(r"\\", text).replace(r"\\", r"\row ")
    text = _SUPERSCRIPT.sub(
        lambda found: "^{" + found.group().translate(_SUPERSCRIPT_DIGITS) + "}", text
    )
    text = unicodedata.normalize("NFKC", text.translate(_TRANSLATED)).translate(_TRANSLATED)
    text = _without_delimiters(_UNEQUAL.sub(r"\\ne ", text))
    text = _THOUSANDS.sub(lambda found: re.sub(r"\{,\}|\\,", "", found.group()), text)
    text = _DECIMAL_COMMA.sub(".", text)
    text = _SPACES.sub(" ", _LAYOUT.sub(" ", _COLOR.sub("", text)))
    if "\\over" in text:
        text = _OVER.sub(r"\\frac{\1}{\2}", text)
    text = _DEGREE.sub(r"^{\\circ}", text)
    text = _DENIED.sub(lambda found: r"\ne " if found[1] == "=" else r"\notin ", text)
    text = _TIMES.sub(r" \\times ", text)
    text = _COMMAND.sub(_renamed, text).replace("\\%", "%").replace("\\$", "$")
    text = text.replace("\\&", "&").replace("\\_", "_").replace("\\#", "#")
    text = _DIGITS_AS_TEXT.sub(r"\1", _BOLD.sub(r" \1 ", _ROMAN.sub(_roman, text)))
    return _without_delimiters(text)


def has_relation(text: str) -> bool:
    r"""Whether a cleaned text has a relation, other than in a subscript (``\sum_{n \ge 1}``)."""
    return _RELATION.search(_SUBSCRIPT.sub("", text)) is not None


def _renamed(found: re.Match[str]) -> str:
    name = found.group(1)
    new = _RENAMED.get(name, name)
    return f" {new} " if new in _PLAIN else f"\\{new}"


def _roman(found: re.Match[str]) -> str:
    r"""A letter or a function by itself; more is text: ``\mathrm{cm}``."""
    held = found.group(1).strip()
    if held in _NAMES:
        return f"\\{held} "
    return f" {held} " if len(held) == 1 else f"\\text{{{found.group(1)}}}"


def _without_delimiters(text: str) -> str:
    """Without the marks around the whole of it, and the full stop after it."""
    while True:
        before = text
        text = text.strip()
        text = _POINT.sub("", text)
        if text.endswith((".", ",", ";")) and not text.endswith(".."):
            text = text[:-1].rstrip()
        for start, end in _OUTER:
            inside = text[len(start) : len(text) - len(end)]
            if (
                len(text) >= len(start) + len(end)
                and text.startswith(start)
                and text.endswith(end)
                and start not in inside
                and not inside.endswith("\\")
            ):
                text = inside
        if text == before:
            return text
