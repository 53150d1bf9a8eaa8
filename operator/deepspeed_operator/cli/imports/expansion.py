"""Words of a shell → the arguments that they become. What only a running shell knows stays in them, marked."""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from deepspeed_operator.cli.imports.shell import bracket_end, double_quote_end, shell_commands

# Around a piece of shell whose value only a running shell knows.
MARK: Final = "\0"
MARKED: Final = re.compile(f"{MARK}([^{MARK}]*){MARK}")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_DEFAULT: Final = re.compile(r"([A-Za-z_]\w*)(?::?([-=])(.*))?", re.DOTALL)
_ALTERNATIVE: Final = re.compile(r"([A-Za-z_]\w*):?\+(.*)", re.DOTALL)
_ARGUMENT: Final = re.compile(r"(\d+|[@*])(?::?[-=](.*))?", re.DOTALL)
_WHICH: Final = re.compile(r"\$\((?:which|command -v) ([\w./-]+)\)")
_OF_THE_SHELL: Final = frozenset(
    {"HOME", "PWD", "OLDPWD", "RANDOM", "SECONDS", "UID", "EUID", "BASHPID", "BASH_SOURCE"}
)
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_GLOB: Final = re.compile(r"[*?]|\[[^\]]+\]")
_ARRAY: Final = re.compile(r"\"?\$\{([A-Za-z_]\w*)\[[@*]\]\}\"?")
_ARGUMENTS: Final = re.compile(r"\"\$@\"|\"?\$\{@(?::(\d+))?\}\"?|\$[@*]|\$\{\*\}")  # all of them, as words
_LARGEST: Final = 10**9
_OPERATIONS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda one, other: one // other,
    ast.Div: lambda one, other: one // other,
}


@dataclass(slots=True)
class Variables:
    """What is known of the variables of a script.

    `values`: texts that they stand for, in which $(NAME) refers to another one and MARK stands around shell.
    `present`: those of the pods' environment, to which an argument can refer.
    `arrays`: the words of arrays.
    `conditional`: those that are assigned under a condition, and whose value there nobody knows.
    `options`: those of them that are options there, or several words.
    `doubtful`: those that have a value, and another one under a condition.
    `used`: those that were asked for; `undefined`: those of them that nothing is seen to set.
    `unknown_arrays`: arrays that were asked for, or filled, with words that nobody knows.
    `asks_for_arguments`: whether the script's own arguments were asked for.
    """

    values: dict[str, str] = field(default_factory=dict[str, str])
    present: set[str] = field(default_factory=set[str])
    arrays: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    conditional: set[str] = field(default_factory=set[str])
    options: set[str] = field(default_factory=set[str])
    doubtful: set[str] = field(default_factory=set[str])
    used: set[str] = field(default_factory=set[str])
    undefined: set[str] = field(default_factory=set[str])
    unknown_arrays: set[str] = field(default_factory=set[str])
    asks_for_arguments: bool = False

    def copy(self) -> "Variables":
        return Variables(dict(self.values), set(self.present), dict(self.arrays), set(self.conditional))

    def arguments(self) -> list[str]:
        """Return the script's own arguments, from $1 on, as far as they are known."""
        known = list[str]()
        while (value := self.values.get(str(len(known) + 1))) is not None:
            known.append(value)
        self.asks_for_arguments |= "0" not in self.values
        return known

    def text(self, name: str, *, splits: bool) -> str:
        """Return a variable's value, or a reference to it; `splits`: spaces in it divide words."""
        value = self.values.get(name)
        self.used.add(name)
        if name in self.present and (value is None or not splits or len(value.split()) == 1):
            return f"$({name})"
        if value is None and (name in self.conditional or name in _OF_THE_SHELL):
            return f"{MARK}${{{name}}}{MARK}"
        if value is None:
            self.undefined.add(name)
            return f"$({name})"
        return value

    def assign(self, name: str, raw: str) -> str:
        """Note what a script assigns, and return it."""
        if raw.startswith("("):
            self.arrays.setdefault(name, [])  # NAME+=(…) of none
            words = [word for command in shell_commands(raw[1:-1]) for word in command.words]
            self.arrays[name] = [each for word in words for each in expanded(word, self)]
            return " ".join(self.arrays[name])
        value = "".join(_Expansion(raw, self).pieces_of_text())
        self.values[name] = value
        return value

    def known(self, word: str) -> str:
        """Return a word with its references replaced, as far as values are known: what an option says."""
        for _ in range(3):  # a value may refer to others
            word = _REFERENCE.sub(lambda match: self.values.get(match[1], match[0]), word)
        return word


def expanded(raw: str, variables: Variables) -> list[str]:
    """Return the arguments that a word becomes."""
    array = _ARRAY.fullmatch(raw)
    if array is not None:
        name = array[1]
        variables.used.add(name)
        if name not in variables.arrays and name not in variables.values:
            variables.unknown_arrays.add(name)
        return list(variables.arrays.get(name) or filter(None, [variables.values.get(name)]))
    arguments = _ARGUMENTS.fullmatch(raw)
    if arguments is not None:
        return variables.arguments()[max(int(arguments[1] or 1), 1) - 1 :]
    return _Expansion(raw, variables).words()


def shell_text(raw: str, variables: Variables) -> str:
    """Return the script that a word is, to be read again as one: what is not known stays as it is written."""
    return "".join(_Expansion(raw, variables, keep=True).pieces_of_text())


def escaped(text: str) -> str:
    """Return how a text is to be written among arguments in which $(NAME) is replaced."""
    return re.sub(r"\$(?=[$(])", "$$", text)


class _Expansion:
    def __init__(self, raw: str, variables: Variables, *, keep: bool = False) -> None:
        self.raw = raw
        self.variables = variables
        self.keep = keep
        self.at = 0
        self.pieces: list[tuple[str, bool]] = []  # text, and whether its spaces divide words

    def pieces_of_text(self) -> list[str]:
        while self.at < len(self.raw):
            self._next()
        return [text for text, _ in self.pieces]

    def words(self) -> list[str]:
        self.pieces_of_text()
        result, current, begun = list[str](), "", False
        for text, divides in self.pieces:
            parts = _split(text) if divides else [text]
            for number, part in enumerate(parts):
                if number and begun:
                    result.append(current)
                    current, begun = "", False
                if part or not divides:
                    current, begun = current + part, True
        return [*result, current] if begun else result

    def _next(self) -> None:
        sign = self.raw[self.at]
        if sign == "'":
            end = self.raw.find("'", self.at + 1)
            end = len(self.raw) if end < 0 else end
            self._put(self._literal(self.raw[self.at + 1 : end]))
            self.at = end + 1
        elif sign == '"':
            end = double_quote_end(self.raw, self.at)
            self._quoted(self.at + 1, end - 1)
            self.at = end
        elif sign == "\\":
            following = self.raw[self.at + 1 : self.at + 2]
            self._put("" if following == "\n" else self._literal(following))
            self.at += 2
        elif sign == "~" and self.at == 0 and re.match(r"~(/|\Z)", self.raw) and not self.keep:
            self.pieces.append((f"{MARK}${{HOME}}{MARK}", False))
            self.at = 1
        elif sign in "$`":
            self._variable(splits=True)
        elif sign in "*?[" and not self.keep and _GLOB.match(self.raw, self.at):
            self.pieces, self.at = [], len(self.raw)
            self._unknown(0)
        else:
            self._put(sign)
            self.at += 1

    def _quoted(self, start: int, end: int) -> None:
        self._put("")
        self.at = start
        while self.at < end:
            if self.raw[self.at] == "\\" and self.raw[self.at + 1] in '"\\$`\n':
                following = self.raw[self.at + 1]
                self._put("" if following == "\n" else self._literal(following))
                self.at += 2
            elif self.raw[self.at] in "$`":
                self._variable(splits=False)
            else:
                self._put(self.raw[self.at])
                self.at += 1

    def _variable(self, *, splits: bool) -> None:
        start = self.at
        following = self.raw[start + 1 : start + 2]
        name = _NAME.match(self.raw, start + 1)
        if self.raw[start] == "`":
            end = self.raw.find("`", start + 1)
            self.at = len(self.raw) if end < 0 else end + 1
            self._unknown(start)
        elif self.raw.startswith("$((", start):
            self.at = bracket_end(self.raw, start + 1)
            self._arithmetic(start)
        elif following and following in "({":
            self._bracketed(start, splits=splits)
        elif name is not None:
            self.at = name.end()
            self._value(name[0], None, splits=splits)
        elif following and following in "@*123456789":
            self.at = start + 2
            self._argument(following, "")
        elif following and following in "#?$!-0":
            self.at = start + 2
            self._unknown(start)
        else:
            self.at = start + 1
            self._put("$")

    def _bracketed(self, start: int, *, splits: bool) -> None:
        """Read ${…} or $(…)."""
        self.at = bracket_end(self.raw, start + 1)
        inner = self.raw[start + 2 : self.at - 1]
        if self.raw[start + 1] == "(":
            if inner in self.variables.present:
                self._value(inner, None, splits=splits)
            else:
                self._unknown(start)
            return
        argument, match, alternative = (each.fullmatch(inner) for each in (_ARGUMENT, _DEFAULT, _ALTERNATIVE))
        if argument is not None:
            self._argument(argument[1], argument[2] or "")
        elif alternative is not None and not self._depends(alternative[1]):
            if self.variables.values.get(alternative[1]):
                self._among(alternative[2], splits=splits)
        elif match is None:
            self._unknown(start)
        else:
            if match[2] == "=" and match[1] not in self.variables.values | dict.fromkeys(self.variables.present):
                self.variables.assign(match[1], f'"{match[3]}"')
            self._value(match[1], match[3], splits=splits)

    def _argument(self, position: str, default: str) -> None:
        """Put one of the script's own arguments, or its default, since they are none where nobody says them."""
        given = self.variables.arguments()
        value = " ".join(given) if position in {"@", "*"} else self.variables.values.get(position)
        self.pieces.append((value or default, True))

    def _depends(self, name: str) -> bool:
        """Whether only a running shell knows if a variable has a value."""
        known = self.variables
        return name in known.conditional or (name in known.present and name not in known.values)

    def _among(self, raw: str, *, splits: bool) -> None:
        """Put the pieces of the word that stands in ${NAME:+WORD}."""
        inner = _Expansion(raw if splits else f'"{raw}"', self.variables, keep=self.keep)
        inner.pieces_of_text()
        self.pieces += [(text, splits and (divides or not text.strip())) for text, divides in inner.pieces]

    def _value(self, name: str, default: str | None, *, splits: bool) -> None:
        known = self.variables
        if default is not None and name not in known.values and name not in known.present:
            if name in known.conditional:
                known.doubtful.add(name)
            inner = _Expansion(f'"{default}"', known, keep=self.keep)
            self.pieces.append(("".join(inner.pieces_of_text()), splits))
        elif self.keep and (name not in known.values or name in known.present):
            self._put(f"${{{name}}}")
        else:
            value = known.text(name, splits=splits)
            self.pieces.append((_as_shell(value) if self.keep else value, splits))

    def _arithmetic(self, start: int) -> None:
        inner = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", r"$(\1)", self.raw[start + 3 : self.at - 2])
        try:
            self._put(str(_computed(self.variables.known(inner))))
        except (ValueError, SyntaxError, ZeroDivisionError):
            self._unknown(start)

    def _unknown(self, start: int) -> None:
        raw = self.raw[start : self.at]
        which = _WHICH.fullmatch(raw)
        if which is not None:
            self._put(which[1])
            return
        self._put(raw if self.keep else f"{MARK}{raw}{MARK}")

    def _literal(self, text: str) -> str:
        return text if self.keep else escaped(text)

    def _put(self, text: str) -> None:
        self.pieces.append((text, False))


def _split(text: str) -> list[str]:
    """Divide a text at its spaces, but for those of marked pieces."""
    parts = [""]
    for number, piece in enumerate(text.split(MARK)):
        if number % 2:
            parts[-1] += f"{MARK}{piece}{MARK}"
            continue
        first, *others = re.split(r"\s+", piece)
        parts[-1] += first
        parts += others
    return parts


def _as_shell(value: str) -> str:
    pieces = value.split(MARK)  # every other one is of a shell already
    return "".join(piece if at % 2 else _REFERENCE.sub(r"${\1}", piece) for at, piece in enumerate(pieces))


def _computed(text: str) -> int:
    def walk(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            value = _OPERATIONS[type(node.op)](walk(node.left), walk(node.right))
            if abs(value) <= _LARGEST:
                return value
        raise ValueError(text)

    return walk(ast.parse(text.strip(), mode="eval").body)
