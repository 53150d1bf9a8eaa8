"""What to do after a failure: by its reason, and before that by words whose cause is known."""

import re
from typing import Final

from deepspeed_operator.api.reason_catalogue import CATALOGUE
from deepspeed_operator.api.reasons import Reason

# A text and what it comes from: the words of DeepSpeed and Python do not say it.
_KNOWN: Final = (
    (
        re.compile(r"is not writable by uid (\d+)"),
        "Set securityContext.fsGroup (such as {0}) in spec.template.spec, so that the pod's group may write to its "
        "volumes; one that knows no fsGroup, such as NFS or hostPath, give to uid {0} where it is kept. Then {again}.",
    ),
    (
        re.compile(r"' not supported between instances of '(?:str' and '(?:int|float)|(?:int|float)' and 'str)'"),
        'If dsConfig says "auto", no framework has filled it in and DeepSpeed got text: write a number. Else correct '
        "the program. Then {again}.",
    ),
)


def remedy(reason: str, words: str, again: str = "set a new spec.runId to run it again") -> str:
    """Return what to do after a failure for this reason, told in these words; `again` is how to run again."""
    for pattern, advice in _KNOWN:
        found = pattern.search(words)
        if found is not None:
            return advice.format(*found.groups(), again=again)
    entry = CATALOGUE.get(reason, CATALOGUE[Reason.RANK_FAILED])
    return entry.remedy_by(again)
