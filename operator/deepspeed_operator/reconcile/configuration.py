"""The configuration of a run: where it comes from, and that later attempts get the same one."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from deepspeed_operator.api.names import CONFIG_FILE, config_map_name
from deepspeed_operator.api.status import Finding, Level, State
from deepspeed_operator.dsconfig.source import parse_config
from deepspeed_operator.plan.digest import config_digest
from deepspeed_operator.reconcile.actions import ReadConfigMap
from deepspeed_operator.reconcile.conditions import Reason, Verdict
from deepspeed_operator.reconcile.observed import Observed

SOURCE_REREAD: Final = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A ds_config: the text that the ranks read, and what it says."""

    text: str
    values: dict[str, Any]

    @property
    def digest(self) -> str:
        return config_digest(self.values)


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why there is no configuration although the job names one."""

    reason: Reason
    findings: tuple[Finding, ...]


def configuration(observed: Observed) -> Configuration | ReadConfigMap | Unusable | None:
    """Return the configuration as its source has it now, or the question to ask first; None if the job has none."""
    spec, facts = observed.job.spec, observed.facts
    if spec.ds_config is not None:
        return Configuration(json.dumps(spec.ds_config, indent=2, ensure_ascii=False) + "\n", spec.ds_config)
    if spec.ds_config_from is None:
        return None
    source = spec.ds_config_from
    content = facts.config_maps.get(source.config_map)
    if content is None or observed.now - content.read_at >= SOURCE_REREAD:
        return ReadConfigMap(source.config_map)
    again = "it is looked for again every 15 seconds"
    if content.data is None:
        where = f"namespace {observed.job.metadata.namespace}"
        return _not_found("configMap", f"there is no ConfigMap {source.config_map} in {where}", f"create it; {again}")
    if source.key not in content.data:
        present = ", ".join(sorted(content.data)) or "no keys"
        missing = f"ConfigMap {source.config_map} has no key {source.key}; it has {present}"
        return _not_found("key", missing, f"name one of its keys, or add this one; {again}")
    return parsed(content.data[source.key], f"ConfigMap {source.config_map}, key {source.key}")


def parsed(text: str, whose: str) -> Configuration | Unusable:
    """Return the configuration that a text of dsConfigFrom says; a finding names whose text it is."""
    values = parse_config(text, "spec.dsConfigFrom")
    if isinstance(values, list):
        named = (finding.model_copy(update={"message": f"{whose}: {finding.message}"}) for finding in values)
        return Unusable(Reason.INVALID_CONFIG, tuple(named))
    return Configuration(text, values)


def run_configuration(observed: Observed) -> Configuration | ReadConfigMap | Verdict | None:
    """Return the configuration that the run was accepted with, whatever its source says now.

    Where the source has changed, the ConfigMaps of this attempt and of the one before it still have it.
    """
    status, job = observed.job.status, observed.job.metadata.name
    if status.config_digest is None:
        return None
    now = configuration(observed)
    if isinstance(now, ReadConfigMap) or (isinstance(now, Configuration) and now.digest == status.config_digest):
        return now
    assert status.attempt is not None, "a digest is recorded together with an attempt"
    for attempt in range(status.attempt, max(status.attempt - 2, 0), -1):
        kept = observed.facts.config_maps.get(config_map_name(job, attempt))
        if kept is None:
            return ReadConfigMap(config_map_name(job, attempt))
        text = (kept.data or {}).get(CONFIG_FILE)
        then = parsed(text, f"attempt {attempt}") if text is not None else None
        if isinstance(then, Configuration) and then.digest == status.config_digest:
            return then
    return Verdict(
        State.STARTING,
        Reason.CONFIG_UNAVAILABLE,
        "The configuration that this run was accepted with is gone: its source has changed, and the attempt's "
        "ConfigMap was deleted. Change spec.runId to begin a run with the configuration as it is now.",
    )


def _not_found(field: str, message: str, fix: str) -> Unusable:
    path = f"spec.dsConfigFrom.{field}"
    return Unusable(Reason.CONFIG_NOT_FOUND, (Finding(level=Level.ERROR, path=path, message=message, fix=fix),))
