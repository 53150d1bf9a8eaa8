"""The configuration of a run: where it comes from, and that later attempts get the same one."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from deepspeed_operator.api.bounds import too_large
from deepspeed_operator.api.names import CONFIG_FILE, content_name
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding, Level, State
from deepspeed_operator.dsconfig.source import parse_config
from deepspeed_operator.job.digest import config_digest
from deepspeed_operator.reconcile.actions import ReadConfigMap
from deepspeed_operator.reconcile.observe.observed import ConfigMapContent, Observed
from deepspeed_operator.reconcile.report.conditions import Reason, Verdict

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


def configuration(observed: Observed) -> Configuration | ReadConfigMap | Unusable | None:
    """Return the configuration as its source has it now, or the question to ask first; None if the job has none."""
    spec = observed.job.spec
    if spec.ds_config is not None:
        return _inline(spec.ds_config)
    if spec.ds_config_from is None:
        return None
    source = spec.ds_config_from
    content = as_of_now(observed, source.config_map, source.key)
    if isinstance(content, ReadConfigMap):
        return content
    if content.keys is None:
        fix = f"create it with key {source.key}"
        absent = _no_config_map(observed, f"{_SOURCE}.configMap", source.config_map, fix)
        return Unusable(Reason.CONFIG_NOT_FOUND, (absent,))
    if content.digest is None:
        present = ", ".join(content.keys) or "no keys"
        missing = f"ConfigMap {source.config_map} has no key {source.key}; it has {present}"
        fix = f"name one of its keys, or add this one; {_AGAIN}"
        finding = Finding(level=Level.ERROR, path=f"{_SOURCE}.key", message=missing, fix=fix)
        return Unusable(Reason.CONFIG_NOT_FOUND, (finding,))
    if content.forgotten:
        return ReadConfigMap(source.config_map, source.key)
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


def run_configuration(observed: Observed) -> Configuration | ReadConfigMap | Verdict | None:
    """Return the configuration that the run was accepted with, whatever its source says now.

    Where the source has changed, the ConfigMap of this attempt has it, or that of the last one that made any.
    """
    status, job = observed.job.status, observed.job.metadata
    if status.config_digest is None:
        return None
    now = _source_of_run(observed, status.config_digest)
    if now is not None:
        return now
    assert status.attempt is not None, "a digest is recorded together with an attempt"
    for attempt in range(status.attempt, (status.kept_from or 1) - 1, -1):
        name = content_name(job.name, job.uid, attempt)
        kept = observed.facts.config_maps.get(name)
        if kept is None:
            return ReadConfigMap(name, CONFIG_FILE)
        if kept.config_digest == status.config_digest:
            return _content(kept, name, CONFIG_FILE, status.config_digest)
    return Verdict(
        State.STARTING,
        Reason.CONFIG_UNAVAILABLE,
        "The configuration that this run was accepted with is gone: its source has changed, and the attempt's "
        "ConfigMap was deleted. Change spec.runId to begin a run with the configuration as it is now.",
    )


def _source_of_run(observed: Observed, digest: str) -> Configuration | ReadConfigMap | None:
    """Return the configuration as the job's source has it now; None if that is another one than this."""
    spec = observed.job.spec
    if spec.ds_config is not None:
        now = _inline(spec.ds_config)
        return now if now.digest == digest else None
    if spec.ds_config_from is None:
        return None
    name, key = spec.ds_config_from.config_map, spec.ds_config_from.key
    content = as_of_now(observed, name, key)
    if isinstance(content, ReadConfigMap):
        return content
    return _content(content, name, key, digest) if content.config_digest == digest else None


def _content(content: ConfigMapContent, name: str, key: str, digest: str) -> Configuration | ReadConfigMap:
    return Configuration(content.text, digest) if content.text is not None else ReadConfigMap(name, key)


def _inline(config: dict[str, Any]) -> Configuration:
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    return Configuration(text, config_digest(config), config)


def named_config_maps(spec: DeepSpeedJobSpec) -> dict[str, str | None]:
    """Return the ConfigMaps by which a run is judged, each with the key that has its configuration."""
    source, files = spec.ds_config_from, spec.training.files
    return {
        **({files.config_map: None} if files is not None else {}),
        **({source.config_map: source.key} if source is not None else {}),
    }


def unread(observed: Observed) -> ReadConfigMap | None:
    """Return the question whose answer judging a run needs, None if it needs none."""
    asked = (as_of_now(observed, *each) for each in named_config_maps(observed.job.spec).items())
    return next((each for each in asked if isinstance(each, ReadConfigMap)), None)


def forgotten(observed: Observed) -> ReadConfigMap | None:
    """Return the question whose answer judging a run anew needs besides, None if it needs none."""
    known = observed.facts.config_maps
    named = named_config_maps(observed.job.spec).items()
    return next((ReadConfigMap(name, key) for name, key in named if known[name].forgotten), None)


def settling(observed: Observed) -> bool:
    """Whether the job has only just been created."""
    created = observed.job.metadata.creation_timestamp
    return created is not None and abs(observed.now - datetime.fromisoformat(created)) < _SETTLING


def missing_files(observed: Observed) -> ReadConfigMap | Finding | None:
    """Return what is wrong where training.files names no ConfigMap, or the question to ask first.

    The kubelet would wait for it without end, in an Event alone.
    """
    files = observed.job.spec.training.files
    if files is None:
        return None
    content = as_of_now(observed, files.config_map)
    if isinstance(content, ReadConfigMap):
        return content
    if content.keys is None:
        return _no_config_map(observed, "spec.training.files.configMap", files.config_map, "create it")
    return None


def as_of_now(observed: Observed, config_map: str, key: str | None = None) -> ConfigMapContent | ReadConfigMap:
    """Return what the ConfigMap has, as seconds ago at most, or the question to ask first.

    `key`: the one whose value is needed, None where it is enough that the ConfigMap exists.
    """
    content = observed.facts.config_maps.get(config_map)
    if content is None or key not in {None, content.key}:
        return ReadConfigMap(config_map, key)
    lasts = SETTLING_REREAD if content.keys is None and settling(observed) else SOURCE_REREAD
    return ReadConfigMap(config_map, content.key) if observed.now - content.read_at >= lasts else content


def _no_config_map(observed: Observed, path: str, name: str, fix: str) -> Finding:
    message = f"there is no ConfigMap {name} in namespace {observed.job.metadata.namespace}"
    return Finding(level=Level.ERROR, path=path, message=message, fix=f"{fix}; {_AGAIN}")
