"""The configuration of a run: where it comes from, and that later attempts get the same one."""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from deepspeed_operator.api.attempt_status import Obstacle
from deepspeed_operator.api.bounds import too_large
from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.names import CONFIG_FILE, RUN_CONFIG_FILE, content_name
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding, Run
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.elastic_sizes import with_accumulation
from deepspeed_operator.dsconfig.source import parse_config
from deepspeed_operator.job.digest import config_digest
from deepspeed_operator.reconcile.actions import ReadConfigMap
from deepspeed_operator.reconcile.observe.observed import Observed

SOURCE_REREAD: Final = timedelta(seconds=15)
# What was applied beside a job arrives within moments of it: until then its absence is no verdict.
_SETTLING: Final = timedelta(seconds=5)
SETTLING_REREAD: Final = timedelta(seconds=1)
_SOURCE: Final = "spec.dsConfigFrom"
_AGAIN: Final = "it is looked for again every 15 seconds"


@dataclass(frozen=True)
class Configuration:
    """A ds_config: the text that the ranks read, and what it says. Two of the same text are the same.

    `given`: the values; None: they are read from the text by who asks for them, which few do, since it takes long.
    """

    text: str
    digest: str = field(compare=False)
    given: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def values(self) -> dict[str, Any]:
        read = self.given if self.given is not None else parse_config(self.text)
        assert isinstance(read, dict), "its digest is known"
        return read


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why there is no configuration although the job names one."""

    reason: Reason
    findings: tuple[Finding, ...]


def configuration(observed: Observed) -> Configuration | Unusable | None:
    """Return the configuration as its source has it now, None if the job has none; raise Unanswered to read it."""
    spec = observed.job.spec
    if spec.ds_config is not None:
        return _inline(spec.ds_config)
    if spec.ds_config_from is None:
        return None
    source = spec.ds_config_from
    content = observed.facts.get(read_now(observed, source.config_map, source.key, text=True))
    if content.keys is None:
        fix = f"create it with key {source.key}"
        absent = _no_config_map(observed, f"{_SOURCE}.configMap", source.config_map, fix)
        return Unusable(Reason.CONFIG_NOT_FOUND, (absent,))
    if content.digest is None:
        present = ", ".join(content.keys) or "no keys"
        missing = f"ConfigMap {source.config_map} has no key {source.key}; it has {present}"
        fix = f"name one of its keys, or add this one; {_AGAIN}"
        finding = error(f"{_SOURCE}.key", Code.MISSING_CONFIG_MAP_KEY, missing, fix)
        return Unusable(Reason.CONFIG_NOT_FOUND, (finding,))
    whose = f"ConfigMap {source.config_map}, key {source.key}"
    if content.text is None:
        large = too_large(_SOURCE, content.size)
        return Unusable(Reason.INVALID_CONFIG, (large.model_copy(update={"message": f"{whose}, {large.message}"}),))
    return parsed(content.text, whose)


def parsed(text: str, whose: str) -> Configuration | Unusable:
    """Return the configuration that a text of dsConfigFrom says; a finding names whose text it is."""
    values = parse_config(text, _SOURCE)
    if isinstance(values, list):
        named = (finding.model_copy(update={"message": f"{whose}: {finding.message}"}) for finding in values)
        return Unusable(Reason.INVALID_CONFIG, tuple(named))
    return Configuration(text, config_digest(values), values)


def digest_of(text: str) -> str | None:
    """Return the digest of the configuration that a text says; None if it says none. A large text takes long."""
    values = parse_config(text, _SOURCE)
    return config_digest(values) if isinstance(values, dict) else None


def run_configuration(observed: Observed) -> Configuration | Obstacle | None:
    """Return the configuration that the run was accepted with, whatever its source says now.

    Where the source has changed, the ConfigMap of this attempt has it, or that of the last one that made any. An
    obstacle says that none has it any more; None is that of a run without one. Unanswered is raised to read it.
    """
    job, digest = observed.job.metadata, observed.run.config_digest
    if digest is None:
        return None
    now = _source_of_run(observed, digest)
    if now is not None:
        return now
    for attempt in range(observed.attempt.number, (observed.job.status.oldest_config_map or 1) - 1, -1):
        name = content_name(job.name, job.uid, attempt)
        kept = ReadConfigMap(name, CONFIG_FILE if observed.run.elastic is None else RUN_CONFIG_FILE)
        if observed.facts.get(kept).config_digest == digest:
            return _content(observed, kept, digest)
    return Obstacle(
        reason=Reason.CONFIG_UNAVAILABLE,
        message="The configuration that this run was accepted with is gone: its source has changed, and the attempt's "
        "ConfigMap was deleted. Change spec.runId to begin a run with the configuration as it is now.",
    )


def attempt_text(source: Configuration, run: Run) -> str:
    """Return the configuration as the ranks of the run's current attempt read it."""
    elastic = run.elastic
    size = elastic.size_of(run.world.nodes) if elastic is not None else None
    if elastic is None or size is None or (size.accumulation is None and not elastic.loads_universal):
        return source.text
    values = with_accumulation(source.values, size.accumulation)
    if elastic.loads_universal:
        values |= {"checkpoint": {**object_at(values, "checkpoint"), "load_universal": True}}
    return _written(values)


def _source_of_run(observed: Observed, digest: str) -> Configuration | None:
    """Return the configuration as the job's source has it now; None if that is another one than this."""
    spec = observed.job.spec
    if spec.ds_config is not None:
        now = _inline(spec.ds_config)
        return now if now.digest == digest else None
    if spec.ds_config_from is None:
        return None
    question = read_now(observed, spec.ds_config_from.config_map, spec.ds_config_from.key)
    same = observed.facts.get(question).config_digest == digest
    return _content(observed, question, digest) if same else None


def _content(observed: Observed, question: ReadConfigMap, digest: str) -> Configuration:
    text = observed.facts.get(replace(question, text=True)).text
    assert text is not None, "a digest is that of a text"
    return Configuration(text, digest)


def _inline(config: dict[str, Any]) -> Configuration:
    return Configuration(_written(config), config_digest(config), config)


def _written(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def named_config_maps(spec: DeepSpeedJobSpec) -> dict[str, str | None]:
    """Return the ConfigMaps by which a run is judged, each with the key that has its configuration."""
    source, files = spec.ds_config_from, spec.training.files
    return {
        **({files.config_map: None} if files is not None else {}),
        **({source.config_map: source.key} if source is not None else {}),
    }


def questions_of_source(observed: Observed, *, text: bool) -> tuple[ReadConfigMap, ...]:
    """Return what judging a run asks of the ConfigMaps it names; with `text`, for the configuration itself."""
    named = named_config_maps(observed.job.spec).items()
    return tuple(read_now(observed, name, key, text=text) for name, key in named)


def settling(observed: Observed) -> bool:
    """Whether the job has only just been created."""
    created = observed.job.metadata.creation_timestamp
    return created is not None and abs(observed.now - datetime.fromisoformat(created)) < _SETTLING


def missing_files(observed: Observed) -> Finding | None:
    """Return what is wrong where training.files names no ConfigMap; raise Unanswered to read it.

    The kubelet would wait for it without end, in an Event alone.
    """
    files = observed.job.spec.training.files
    if files is None or observed.facts.get(read_now(observed, files.config_map)).keys is not None:
        return None
    return _no_config_map(observed, "spec.training.files.configMap", files.config_map, "create it")


def read_now(observed: Observed, config_map: str, key: str | None = None, *, text: bool = False) -> ReadConfigMap:
    """Return the question what the ConfigMap has, as seconds ago at most.

    `key`: the one whose value is needed, None where it is enough that the ConfigMap exists. `text`: whether the value
    itself is needed, not only its digest.
    """
    known = observed.facts.config_maps.get(config_map)
    if known is None:
        return ReadConfigMap(config_map, key, text)
    lasts = SETTLING_REREAD if known.keys is None and settling(observed) else SOURCE_REREAD
    # Whoever has asked for the value asks again: it is not forgotten for one who does not need it.
    return ReadConfigMap(config_map, known.key if key is None else key, text, observed.now - lasts)


def _no_config_map(observed: Observed, path: str, name: str, fix: str) -> Finding:
    message = f"there is no ConfigMap {name} in namespace {observed.job.metadata.namespace}"
    return error(path, Code.MISSING_CONFIG_MAP, message, f"{fix}; {_AGAIN}")
