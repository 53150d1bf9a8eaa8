"""Paths among a program's arguments: where checkpoints go, and where the DeepSpeed configuration lies."""

import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import isabs, normpath
from typing import Final

from deepspeed_operator.api.untyped import Json, list_at, objects_at
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.cli.imports.workload import mounted
from deepspeed_operator.job.template import PodTemplate

_CHECKPOINTS: Final = re.compile(
    r"--?(?:output[_-]?(?:dir|path)?|save|save[_-](?:dir|path|folder|interval_dir)|model[_-]dir|ckpt|checkpoints?"
    r"|(?:ckpt|checkpoints?)[_-]?(?:dir|path|folder|save|out)|save[_-]checkpoint|save[_-]ckpt|default[_-]root[_-]dir"
    r"|(?:trainer\.)?default_root_dir|save[_-]model|results?[_-]dir|out[_-]?dir)"
)
_CONFIGURATION: Final = re.compile(
    r"--(?:deepspeed|deepspeed[_-]config|ds[_-]config(?:[_-](?:file|path))?|deepspeed[_-]config[_-]file)"
)
_URI: Final = re.compile(r"[a-z][a-z0-9+]*://")


def checkpoint_warnings(training: Json, template: Json, remarks: Remarks) -> None:
    """Warn of places for checkpoints that are on no volume, where the next attempt does not find them."""
    trainer = PodTemplate.parse(template).trainer
    lasting = _lasting(template)
    for flag, path in _arguments(training):
        if not _CHECKPOINTS.fullmatch(flag) or _URI.match(path) or path.startswith("$("):
            continue
        if not re.search(r"[/.a-zA-Z]", path) or path in {
            "True",
            "False",
            "true",
            "false",
            "no",
            "steps",
            "epoch",
            "best",
        }:
            continue
        whole = path if isabs(path) else f"{trainer.get('workingDir') or '/'}/{path}"
        if not any(normpath(whole) == at or normpath(whole).startswith(f"{at.rstrip('/')}/") for at in lasting):
            remarks.warn(
                "args",
                f"{flag} {path} is on no volume: what is saved there is lost with the pod, and a restart begins "
                "at step 0. Mount a volume that all pods share there",
            )


def configuration_argument(
    training: Json, template: Json, trainer: Json, config_maps: Mapping[str, Mapping[str, str]], remarks: Remarks
) -> Json:
    """Return dsConfigFrom where an argument names a configuration that a ConfigMap of the files holds.

    The argument then names the file that the ranks find; one that lies in the image stays as it is.
    """
    args = list_at(training, "args")
    for flag, path in _arguments(training):
        if not _CONFIGURATION.fullmatch(flag) or path.startswith("-") or not re.search(r"\.(json|hjson)$", path):
            continue
        found = mounted(template, trainer, path)
        if found is None or found[1] not in config_maps.get(found[0], {}):
            remarks.left_out(
                "args",
                f"{flag} {path} lies in the image or on a volume, so that nothing judges it: write it into "
                "spec.dsConfig, and $(DEEPSPEED_CONFIG) here",
            )
            return {}
        training["args"] = [str(word).replace(path, "$(DEEPSPEED_CONFIG)") for word in args]
        remarks.changed(
            "args",
            f"{flag} $(DEEPSPEED_CONFIG): the configuration is {found[1]} of ConfigMap {found[0]}, by "
            "spec.dsConfigFrom, and judged before a pod starts",
        )
        return {"dsConfigFrom": {"configMap": found[0], **({"key": found[1]} if found[1] != "ds_config.json" else {})}}
    return {}


def _lasting(template: Json) -> list[str]:
    volumes = objects_at(template, "spec", "volumes")
    transient = {
        str(each.get("name")) for each in volumes if {"emptyDir", "configMap", "secret", "downwardAPI"} & set(each)
    }
    mounts = [
        mount
        for container in objects_at(template, "spec", "containers")
        for mount in objects_at(container, "volumeMounts")
    ]
    return [normpath(str(mount.get("mountPath"))) for mount in mounts if str(mount.get("name")) not in transient]


def _arguments(training: Json) -> Iterator[tuple[str, str]]:
    words: Sequence[str] = [str(word) for word in [*list_at(training, "command"), *list_at(training, "args")]]
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if equals and flag.startswith("-"):
            yield flag, value
        elif word.startswith("-") and at + 1 < len(words):
            yield word, words[at + 1]
