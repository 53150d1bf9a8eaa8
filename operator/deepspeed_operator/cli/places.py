"""Where in a file a finding belongs."""

from dataclasses import dataclass

from deepspeed_operator.dsconfig.hjson import parse_hjson
from deepspeed_operator.dsconfig.tree import Document, Node, ObjectMember, Text, UnreadableError, located, path_at

Span = tuple[int, int]


@dataclass(frozen=True)
class Embedded:
    """A configuration that is a text within a document: the value of a ConfigMap's key."""

    text: Text  # of the file
    holder: ObjectMember
    content: str
    document: Document | None  # None where the text is no configuration

    def span(self, path: str) -> Span:
        """Return where the value at this path of the configuration stands in the file."""
        if self.document is None or not path:
            return self.holder.start, self.holder.end
        return self.outside(span_at(self.document.root, path))

    def path_at(self, position: int) -> str:
        """Return the path of the value at this position of the content."""
        return path_at(self.document.root, position) if self.document is not None else ""

    def outside(self, span: Span) -> Span:
        """Return where a span of the content stands in the file."""
        begin = self.block()
        if begin is None:
            return self.holder.start, self.holder.end
        first, indent = begin
        inner = Text(self.content)
        (line, column), (last, end_column) = inner.place(span[0]), inner.place(max(span[1] - 1, span[0]))
        start = self.text.start(first + line) + indent + column
        end = self.text.start(first + last) + indent + end_column + 1
        return start, max(end, start + 1)

    def block(self) -> tuple[int, int] | None:
        """Return first line and indentation of a `|` block, the only style whose lines are the content's; else None."""
        node = self.holder.node
        if not node.block or self.text.content[node.start] != "|":
            return None
        first = self.text.place(node.start)[0] + 1
        inner = self.content.split("\n")
        for number, line in enumerate(inner):
            if line:
                outer = self.text.line(first + number)
                return (first, len(outer) - len(line)) if outer.endswith(line) else None
        return None


def embed(text: Text, holder: ObjectMember) -> Embedded:
    """Return the configuration that a ConfigMap's key holds."""
    content = holder.node.value if isinstance(holder.node.value, str) else ""
    try:
        return Embedded(text, holder, content, parse_hjson(content))
    except UnreadableError:
        return Embedded(text, holder, content, None)


def span_at(root: Node, path: str) -> Span:
    """Return the key and value at a path; of a value over several lines, or one that is missing, only the key above."""
    node, member, rest = located(root, path)
    if member is None:
        return (node.start, node.end) if node is not root else (root.start, root.start + 1)
    scalar = node.members is None and node.items is None
    return (member.start, node.end) if scalar and not node.block and not rest else (member.start, member.end)
