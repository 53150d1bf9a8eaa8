"""JSON and hjson with positions: read exactly as the `hjson` package does, by which DeepSpeed reads its files.

That package is quadratic on some texts, recurses without a limit and forgets where things stood.
"""

import re
from typing import Final, NoReturn

from deepspeed_operator.dsconfig.tree import DEEPEST, Document, Node, ObjectMember, Problems, Scalar, UnreadableError
from deepspeed_operator.dsconfig.wording import quoted

_SPACE: Final = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*|//[^\r\n]*|/\*(?s:.)*?\*/)*+")
_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?[\t ]*")
_QUOTELESS_END: Final = re.compile(r"[\r\n,}\]#]|//|/\*|\Z")
_KEY_END: Final = re.compile(r"[:{}\[\],]")
_CHUNKS: Final = {quote: re.compile(rf"([^{quote}\\\x00-\x1f]*+)([{quote}\\\x00-\x1f])") for quote in "\"'"}
_ESCAPES: Final = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_KEYWORDS: Final[dict[str, Scalar]] = {"null": None, "true": True, "false": False}
_NOT_NUMBERS: Final = frozenset({"NaN", "nan", "NAN", "Infinity", "-Infinity", "+Infinity", "inf", "-inf", "+inf"})
_WORD: Final = re.compile(r"[^\s,}\]]{0,40}")
# What Python writes → what JSON does.
PYTHONIC: Final = {"True": "true", "False": "false", "None": "null"}
_MOST_DIGITS: Final = 4300  # what Python converts to an integer
_INTEGER_BELOW: Final = 1e10  # the package makes whole floats below this integers
_PLAIN: Final = "Check quotes, commas and brackets."


def parse_hjson(text: str) -> Document:
    """Return the document, or raise UnreadableError."""
    parser = _Parser(text)
    try:
        return parser.document()
    except UnreadableError:
        if parser.swallowed is None:
            raise
        # The parser fails lines later: the cause is the word that it took for text, with the bracket after it.
        raise _not_a_value(text, parser.swallowed) from None


def _not_a_value(text: str, position: int) -> UnreadableError:
    found = _WORD.match(text, position)
    word = found.group() if found is not None else ""
    if word in _NOT_NUMBERS:
        return UnreadableError(
            f"{word} is not a number that JSON or DeepSpeed knows", position, "Write a finite number."
        )
    if word in PYTHONIC:
        return UnreadableError(f"{word} is Python, not JSON", position, f"Write {PYTHONIC[word]}.")
    message = f"{quoted(word)} has no quotes, so that it goes on to the end of the line, with the bracket in it"
    return UnreadableError(message, position, f"Write {quoted(word)}.")


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 1 if text.startswith("\ufeff") else 0
        self.problems = Problems()
        self.swallowed: int | None = None  # where a text begins that has a bracket which closes nothing in it

    def document(self) -> Document:
        begin = self._skip()
        opening = self._peek()
        if opening in {"{", "["}:
            root = self._value(1)
        elif opening == "":
            root = Node(begin, begin, members={})
        else:
            root = self._root_without_braces(begin)
        if self._skip() < len(self.text):
            raise UnreadableError("there is more text after the end of the configuration", self.at, _PLAIN)
        return Document(root, self.problems)

    def _root_without_braces(self, begin: int) -> Node:
        try:
            return self._object(begin, 1, braces=False)
        except UnreadableError as error:
            self.at, self.problems = begin, Problems()
            try:
                node = self._value(1)
            except UnreadableError:
                raise error from None
            if self._skip() < len(self.text) or isinstance(node.value, str):
                raise error from None
            return node

    def _skip(self) -> int:
        """Pass over white space and comments."""
        found = _SPACE.match(self.text, self.at)
        assert found is not None, "the pattern matches nothing, too"
        self.at = found.end()
        if self.text.startswith("/*", self.at):
            self._fail("a comment begins here and never ends", self.at)
        return self.at

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _fail(self, message: str, position: int) -> NoReturn:
        raise UnreadableError(message, position, _PLAIN)

    def _value(self, depth: int) -> Node:
        begin, character = self.at, self._peek()
        if depth > DEEPEST:
            raise UnreadableError("nested too deeply to be a DeepSpeed configuration", begin, "Check its brackets.")
        if character == "{":
            self.at += 1
            return self._object(begin, depth, braces=True)
        if character == "[":
            self.at += 1
            return self._list(begin, depth)
        if self.text.startswith("'''", begin):
            value: Scalar = self._multiline()
        elif character in {'"', "'"}:
            value = self._string()
        elif character == "":
            self._fail("the text ends where a value is expected", begin)
        else:
            value = self._quoteless()
        return Node(begin, self.at, value)

    def _object(self, begin: int, depth: int, *, braces: bool) -> Node:
        members: dict[str, ObjectMember] = {}
        repeated: dict[str, list[tuple[int, int]]] = {}
        self._skip()
        while self._peek() != "}" or not braces:
            start = self._skip()
            key = self._key()
            end = self.at
            self._skip()
            if self._peek() != ":":
                self._fail("a colon is expected after the key", self.at)
            self.at += 1
            self._skip()
            node = self._value(depth + 1)
            if key in members:
                repeated.setdefault(key, [(members[key].start, members[key].end)]).append((start, end))
            members[key] = ObjectMember(key, start, end, node)
            self._skip()
            if self._peek() == ",":
                self.at += 1
                self._skip()
            if not braces and self._peek() == "":
                break
        self.at += braces
        self.problems.repeated(repeated, ". DeepSpeed refuses that.")
        return Node(begin, self.at, members=members)

    def _list(self, begin: int, depth: int) -> Node:
        items: list[Node] = []
        self._skip()
        while self._peek() != "]":
            if self._peek() == "":
                self._fail("the list that begins here never ends", begin)
            items.append(self._value(depth + 1))
            self._skip()
            if self._peek() == ",":
                self.at += 1
                self._skip()
        self.at += 1
        return Node(begin, self.at, items=items)

    def _key(self) -> str:
        if self._peek() in {'"', "'"}:
            return self._string()
        begin = self.at
        found = _KEY_END.search(self.text, begin)
        if found is None:
            self._fail("the text ends where a key is expected", begin)
        if found.group() != ":" or found.start() == begin:
            self._fail(f"found {found.group()} where a key is expected", found.start())
        key = self.text[begin : found.start()].rstrip(" \t\r\n")
        if any(space in key for space in " \t\r\n"):
            self._fail("a key with white space needs quotes", begin)
        self.at = begin + len(key)
        return key

    def _string(self) -> str:
        begin, quote = self.at, self._peek()
        self.at += 1
        pieces: list[str] = []
        while True:
            found = _CHUNKS[quote].match(self.text, self.at)
            if found is None:
                self._fail("the string that begins here never ends", begin)
            piece, last = found.groups()
            pieces.append(piece)
            self.at = found.end()
            if last == quote:
                return "".join(pieces)
            if last == "\\":
                pieces.append(self._escape(begin))
            else:
                self._fail("the string that begins here may not run over the end of a line", begin)

    def _escape(self, begin: int) -> str:
        letter = self._peek()
        if letter == "":
            self._fail("the string that begins here never ends", begin)
        self.at += 1
        if letter != "u":
            if letter not in _ESCAPES:
                shown = (
                    f"\\{letter}"
                    if letter.isprintable()
                    else "a backslash before the end of a line or a control character"
                )
                self._fail(f"{shown} is no escape of JSON", self.at - 2)
            return _ESCAPES[letter]
        code = self._hexadecimal()
        if code & 0xFC00 == 0xD800 and self.text.startswith("\\u", self.at):
            resume = self.at
            self.at += 2
            low = self._hexadecimal()
            if low & 0xFC00 == 0xDC00:
                return chr(0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00)))
            self.at = resume
        if code & 0xF800 == 0xD800:
            self.problems.note("half of a character.", "Write the character itself.", (self.at - 6, self.at))
            return "\ufffd"
        return chr(code)

    def _hexadecimal(self) -> int:
        digits = self.text[self.at : self.at + 4]
        if re.fullmatch("[0-9a-fA-F]{4}", digits) is None:
            self._fail("\\u needs four hexadecimal digits", self.at - 2)
        self.at += 4
        return int(digits, 16)

    def _multiline(self) -> str:
        begin = self.at
        indent = begin - (self.text.rfind("\n", 0, begin) + 1)
        end = self.text.find("'''", begin + 3)
        if end < 0:
            self._fail("the text that begins here with ''' never ends", begin)
        self.at = end + 3
        first, *rest = self.text[begin + 3 : end].replace("\r", "").split("\n")
        lines = [first.lstrip(" \t")] if first.strip(" \t") or not rest else []
        strip = re.compile(f"[ \t]{{0,{indent}}}")
        return "\n".join([*lines, *(strip.sub("", line, count=1) for line in rest)]).removesuffix("\n")

    def _quoteless(self) -> Scalar:
        """A number, true, false or null before the next punctuation; else a string to the end of the line."""
        text, begin = self.text, self.at
        if text[begin] in "{}[],:":
            self._fail(f"found {text[begin]} where a value is expected", begin)
        number = _NUMBER.match(text, begin)
        end = begin
        while True:
            found = _QUOTELESS_END.search(text, end)
            assert found is not None, "a text has an end"
            end = found.start()
            if number is not None and number.end() == end:
                self.at = end
                return self._number(number, begin)
            if end - begin < 100 and text[begin:end].strip() in _KEYWORDS:
                self.at = end
                return _KEYWORDS[text[begin:end].strip()]
            if found.group() in {"\r", "\n", ""}:
                self.at = end
                return self._quoteless_text(begin, end)
            end += 1

    def _number(self, number: re.Match[str], begin: int) -> int | float:
        integer, fraction, exponent = number.groups()
        if len(integer) > _MOST_DIGITS:
            self._fail("a number of more digits than anything could hold", begin)
        if fraction is None and exponent is None:
            return int(integer)
        value = float(number.group().strip())
        if value in {float("inf"), float("-inf")}:
            message = f"{number.group().strip()[:40]} is too large for a number."
            self.problems.note(message, "Write a finite number.", (begin, self.at))
        elif value == value // 1 and abs(value) < _INTEGER_BELOW:
            return int(value)
        return value

    def _quoteless_text(self, begin: int, end: int) -> str:
        value = self.text[begin:end].strip()
        if self.swallowed is None and any(value.count(last) > value.count(first) for first, last in ("{}", "[]")):
            self.swallowed = begin
        word = value.rstrip(",}] \t")
        if word in _NOT_NUMBERS:
            message = f"{word} is not a number that JSON or DeepSpeed knows."
            self.problems.note(message, "Write a finite number.", (begin, begin + len(word)))
        return value
