"""The commands of a shell script, as far as its text tells them apart, and where each of them stands in it.

It is read, never run: a word keeps its quotes, which expansion.py takes off.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

_OPENS: Final = {
    "if": "fi",
    "for": "done",
    "while": "done",
    "until": "done",
    "select": "done",
    "case": "esac",
    "{": "}",
}
_CLOSES: Final = frozenset(_OPENS.values())
_BEFORE_COMMANDS: Final = frozenset({"then", "do", "else", "elif", "!", "if", "while", "until", "{"})
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_HEREDOC: Final = re.compile(r"<<(-?)\s*\\?(['\"]?)([\w.!-]+)\2")
_REDIRECTION: Final = re.compile(r"\d*(?:>>|>&|&>>?|>\||<>|<<<|<&|>|<)")


_ARITHMETIC: Final = "(("
_FUNCTION: Final = re.compile(r"function\s|[^\s(){}]+\s*\(\s*\)")
_QUOTED: Final = re.compile(r"'[^'\n]*'")
_ARGUMENTS: Final = re.compile(r"(?<!\\)\$(?:[@*#1-9]|\{(?:[@*\d]|#\}))|\bgetopts\b|\bshift\b")
_TAKES_ARGUMENTS: Final = re.compile(r"(?<!\\)\$(?:#|\{#\})|\bgetopts\b|\bshift\b|\bin\s+\"?\$[@*]")
_TEST: Final = re.compile(r"\[\[(\s.*?\s)\]\](?=[\s;&|)]|\Z)", re.DOTALL)
_TESTING: Final = frozenset({"[", "[[", "command", "grep", "test", "type", "which"})
DECLARING: Final = frozenset({"export", "declare", "typeset", "local", "readonly"})
JOINTS: Final = frozenset({"&&", "||", "|"})
_NO_PARAMETERS: Final = re.compile(r"\(\s*\)")
_BEHIND: Final = re.compile(r"[ \t]*(&&|\|\||\||&(?!>)|)")


@dataclass(slots=True)
class Construct:
    """A loop, condition, function or parentheses, with all that is in it and its redirections, as it is written.

    `start`, `end`: its place in the text; `after`: the operator behind it, a newline where there is none.
    `opening`, `closing`: where its body begins and ends, -1 where it is a line of commands.
    """

    start: int
    end: int = -1
    opening: int = -1
    closing: int = -1
    text: str = ""
    after: str = "\n"

    @property
    def is_function(self) -> bool:
        return _FUNCTION.match(self.text) is not None

    @property
    def is_group(self) -> bool:
        """Whether all that is in it is run as it is written: in a function, braces or parentheses."""
        return self.opening >= 0 and self.text[self.opening - self.start] in "{("

    @property
    def reads_arguments(self) -> bool:
        """Whether it takes the script's own arguments apart, or ends the script for the lack of one."""
        text = _QUOTED.sub("", self.text)
        return bool(_TAKES_ARGUMENTS.search(text)) or (
            asks_for_arguments(text) and re.search(r"\b(exit|return)\b", text) is not None
        )


@dataclass(slots=True)
class ShellCommand:
    """A simple command: its words as written, without redirections.

    `start`, `end`: its place in the text, with a here-document of its.
    `construct`: the outermost construct that it stands in, None where it stands by itself.
    `heredoc`: the here-document that it reads, as a word in quotes.
    `before`, `after`: the operators on its sides, a newline where there is none.
    """

    words: list[str] = field(default_factory=list[str])
    start: int = -1
    end: int = -1
    construct: Construct | None = None
    before: str = "\n"
    after: str = "\n"
    heredoc: str | None = None

    def assignments(self) -> Iterator[tuple[str, str]]:
        """Yield the names and raw values of what is assigned in front of the command."""
        for word in self.words:
            pair = assignment(word)
            if pair is None:
                return
            yield pair

    @property
    def is_assignment(self) -> bool:
        return not self.argv or self.argv[0] in DECLARING

    @property
    def argv(self) -> list[str]:
        """The words behind the assignments."""
        return self.words[sum(1 for _ in self.assignments()) :]


def assignment(word: str) -> tuple[str, str] | None:
    """Return the name and the raw value that a word assigns: NAME+=VALUE is NAME="$NAME"VALUE. None: it does not."""
    match = _ASSIGNMENT.match(word)
    if match is None:
        return None
    name, appends, raw = match[1], match[2], word[match.end() :]
    if not appends:
        return name, raw
    return name, f'("${{{name}[@]}}" {raw[1:]}' if raw.startswith("(") else f'"${{{name}-}}"{raw}'


def asks_for_arguments(text: str) -> bool:
    """Whether a script asks for its own arguments, by number or all together."""
    return _ARGUMENTS.search(_QUOTED.sub("", text)) is not None


def shell_commands(text: str) -> list[ShellCommand]:
    """Return the simple commands of a script, in their order. What no shell would read is read as far as it goes."""
    commands = list(_Reader(text).commands())
    joined: list[ShellCommand] = []
    for command in commands:
        joined = [*joined, command] if joined and joined[-1].after in JOINTS else [command]
        if command.construct is None and command.is_assignment and _decides(text, joined[:-1]):
            start = joined[0].start
            condition = Construct(start, command.end, text=text[start : command.end], after=command.after)
            for each in joined:
                each.construct = condition
    return commands


def _decides(text: str, before: Sequence[ShellCommand]) -> bool:
    """Whether the commands before one in its line decide if it is run, and are not just to succeed."""
    return any(each.after == "||" or each.words[0] in _TESTING or text[each.start] in "!(" for each in before)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open: list[str] = []  # what ends the constructs that are open
        self.construct = Construct(-1)  # the outermost of them
        self.function = -1  # where the function begins whose body comes next
        self.heredocs: list[tuple[re.Match[str], ShellCommand]] = []
        self.command = ShellCommand()

    def commands(self) -> Iterator[ShellCommand]:
        while self.at < len(self.text):
            sign = self.text[self.at]
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif sign in " \t\r":
                self.at += 1
            elif sign == "#":
                self.at = _line_end(self.text, self.at)
            elif self._arithmetic_or_test():
                continue
            elif sign in "\n;&|()" and not self.text.startswith(("&>", "<(", ">("), self.at):
                yield from self._separator()
            else:
                self._word()
        yield from self._finish("\n")
        while self.open:
            self._close()

    def _arithmetic_or_test(self) -> bool:
        """Read ((…)) or [[ … ]] as words of the command that begins here; its signs are no operators of the shell."""
        words, start = self.command.words, self.at
        if self.text.startswith(_ARITHMETIC, start) and words in ([], ["for"]):
            end = bracket_end(self.text, start)
            if self.text[end - 2 : end] == "))":
                self.at = end
                self._add(self.text[start:end], start)
                return True
        test = _TEST.match(self.text, start)
        if test is None or words:
            return False
        self.at = test.end()
        for word in ("[[", test[1].strip(), "]]"):
            self._add(word, start)
        return True

    def _separator(self) -> Iterator[ShellCommand]:
        operator = next(each for each in ("&&", "||", ";;", self.text[self.at]) if self.text.startswith(each, self.at))
        words = self.command.words
        parameters = _NO_PARAMETERS.match(self.text, self.at)
        if parameters is not None and (len(words) == 1 or words[:1] == ["function"]):
            self._function()
            self.at = parameters.end()
            return
        if len(words) == 2 and words[0] == "function" and operator == "\n":
            self._function()
        yield from self._finish(operator)
        self.at += len(operator)
        if operator == "(":
            self._open(")", self.at - 1)
        elif operator == ")" and self.open and self.open[-1] == ")":
            self._close()
        elif operator == "\n":
            self._skip_heredocs()

    def _function(self) -> None:
        """Take what was read of a command for the name of a function."""
        if not self.open:
            self.function = self.command.start
        self.command = ShellCommand(before=self.command.before)

    def _finish(self, operator: str) -> Iterator[ShellCommand]:
        command = self.command
        self.command = ShellCommand(before=operator)
        if command.words:
            command.after = operator
            yield command
        elif operator == "\n":  # an empty line or a comment after an operator changes nothing
            self.command.before = command.before

    def _word(self) -> None:
        redirection = _REDIRECTION.match(self.text, self.at)
        heredoc = _HEREDOC.match(self.text, self.at)
        if heredoc is not None and not self.text.startswith("<<<", self.at):
            self.heredocs.append((heredoc, self.command))
            self.at = heredoc.end()
            return
        if redirection is not None and not self.text.startswith(("<(", ">("), self.at):
            self.at = redirection.end()
            while self.at < len(self.text) and self.text[self.at] in " \t":
                self.at += 1
            self.at = self.command.end = word_end(self.text, self.at)
            return
        start, self.at = self.at, word_end(self.text, self.at)
        if self.at == start:
            self.at += 1  # a sign that begins no word
            return
        self._add(self.text[start : self.at], start)

    def _add(self, word: str, start: int) -> None:
        if word == "{" and len(self.command.words) == 2 and self.command.words[0] == "function":
            self._function()
        command = self.command
        if not command.words:
            if self.open and word == self.open[-1] and word in _CLOSES:
                self._close()
                return
            if word in _OPENS:
                self._open(_OPENS[word], start)
            if word == "!":
                command.start = start
            if word in _BEFORE_COMMANDS:
                return
            command.start = start if command.start < 0 else command.start
            command.construct = self.construct if self.open else None
        command.words.append(word)
        command.end = self.at

    def _open(self, end: str, start: int) -> None:
        if not self.open:
            self.construct = Construct(start if self.function < 0 else self.function, opening=start)
            self.function = -1
        self.open.append(end)

    def _close(self) -> None:
        self.open.pop()
        if self.open:
            return
        end = self.at
        self.construct.closing = end - 1
        while (redirection := _REDIRECTION.match(self.text, _behind_spaces(self.text, end))) is not None:
            if _HEREDOC.match(self.text, redirection.start()) or redirection[0].endswith("<<<"):
                break
            end = word_end(self.text, _behind_spaces(self.text, redirection.end()))
        self.construct.end = end
        self.construct.text = self.text[self.construct.start : end]
        behind = _BEHIND.match(self.text, end)
        self.construct.after = (behind[1] if behind is not None else "") or "\n"

    def _skip_heredocs(self) -> None:
        for heredoc, command in self.heredocs:
            start = before = self.at
            while self.at < len(self.text):
                end = _line_end(self.text, self.at)
                line, before = self.text[self.at : end], self.at
                self.at = min(end + 1, len(self.text))
                command.end = max(command.end, end)
                if (line.lstrip("\t") if heredoc[1] else line) == heredoc[3]:
                    break
            body = self.text[start:before]
            is_plain = "\\" in heredoc[0] or heredoc[2]
            command.heredoc = "'" + body.replace("'", "'\\''") + "'" if is_plain else f'"{_quoted_body(body)}"'
        self.heredocs.clear()


def _quoted_body(body: str) -> str:
    """Return a here-document as it stands in double quotes, where a backslash takes off a quote's meaning, too."""
    return re.sub(r'\\[^"]|(\\?)"', lambda each: each[0] if each[1] is None else each[1] * 2 + '\\"', body)


def _behind_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    return at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def word_end(text: str, at: int) -> int:
    """Return where the word that begins here ends."""
    while at < len(text):
        sign = text[at]
        if sign == "\\":
            at += 2
        elif sign == "'":
            at = _behind(text, "'", at + 1)
        elif sign == '"':
            at = double_quote_end(text, at)
        elif sign == "`":
            at = _behind(text, "`", at + 1)
        elif text.startswith(("$(", "${", "<(", ">("), at):
            at = bracket_end(text, at + 1)
        elif sign == "(" and text[at - 1 : at] == "=":
            at = bracket_end(text, at)  # an array
        elif sign in " \t\r\n;&|()<>":
            break
        else:
            at += 1
    return min(at, len(text))


def double_quote_end(text: str, at: int) -> int:
    """Return the position behind the quotation that begins here."""
    at += 1
    while at < len(text) and text[at] != '"':
        if text[at] == "\\":
            at += 2
        elif text.startswith(("$(", "${"), at):
            at = bracket_end(text, at + 1)
        else:
            at += 1
    return min(at + 1, len(text))


def bracket_end(text: str, at: int) -> int:
    """Return the position behind the bracket that opens here, with what is quoted in it."""
    opening, depth = text[at], 0
    closing = {"(": ")", "{": "}"}[opening]
    while at < len(text):
        sign = text[at]
        if sign == "\\":
            at += 1
        elif sign == "'":
            at = _behind(text, "'", at + 1) - 1
        elif sign == '"':
            at = double_quote_end(text, at) - 1
        elif sign == "#" and opening == "(" and text[at - 1] in " \t\n(":
            at = _line_end(text, at)  # a comment
        elif sign == opening:
            depth += 1
        elif sign == closing:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(text)


def _behind(text: str, sign: str, at: int) -> int:
    end = text.find(sign, at)
    return len(text) if end < 0 else end + 1
