"""A job's configuration that is in a ConfigMap of the files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.status import Finding
from deepspeed_operator.cli.places import Embedded, embed
from deepspeed_operator.cli.report import Placed, problem_at
from deepspeed_operator.cli.sources import Content, SourceText, data_of, values

_FIELD: Final = "spec.dsConfigFrom"
_FIELDS_OF_IT: Final = frozenset({"configMap", "key"})


@dataclass(frozen=True, slots=True)
class Found:
    """The ConfigMap, and in it the text of the configuration, if its key is there."""

    source: SourceText
    data: Mapping[str, str]
    embedded: Embedded | None

    def placed(self, findings: Iterable[Finding]) -> tuple[list[Placed], list[Finding]]:
        """Give findings about the configuration their places in this file; return the others as they are."""
        here = self._problems()
        unreadable = bool(here)  # then all that the operator says about the content is the same, without its lines
        elsewhere: list[Finding] = []
        for finding in findings:
            inside = finding.path.removeprefix(_FIELD)
            if self.embedded is None or inside == finding.path or inside.removeprefix(".") in _FIELDS_OF_IT:
                elsewhere.append(finding)
            elif not unreadable:
                here.append(Placed(finding, (self.embedded.span(inside.removeprefix(".")),), self.source))
        return here, elsewhere

    def _problems(self) -> list[Placed]:
        if self.embedded is None or self.embedded.document is None:
            return []
        outside, document = self.embedded.outside, self.embedded.document
        return [
            problem_at(
                f"{_FIELD}.{self.embedded.path_at(problem.spans[-1][0])}",
                problem,
                self.source,
                tuple(outside(span) for span in problem.spans),
            )
            for problem in document.problems
        ]


def find(job: DeepSpeedJob, contents: Iterable[Content]) -> Found | None:
    """Return the ConfigMap that dsConfigFrom names, if a file has it."""
    wanted = job.spec.ds_config_from
    if wanted is None:
        return None
    for content in contents:
        node = data_of(content, job.metadata.namespace, wanted.config_map)
        if node is not None:
            data = values(node) if node.members is not None else {}
            member = (node.members or {}).get(wanted.key)
            embedded = embed(content.source.text, member) if member is not None else None
            return Found(content.source, {key: str(value) for key, value in data.items()}, embedded)
    return None


def not_in_files(job: DeepSpeedJob) -> Finding:
    """Say that nothing is known about the configuration."""
    assert job.spec.ds_config_from is not None, "only dsConfigFrom asks for a ConfigMap"
    return warning(
        f"{_FIELD}.configMap",
        Code.CONFIG_MAP_NOT_IN_FILES,
        f"ConfigMap {job.spec.ds_config_from.config_map} is in none of the files: its configuration was not judged.",
        "Name its file, too, or judge the ds_config.json by itself.",
    )
