"""The judgement of a run as a question: what one job says may take long to judge, and others must not wait for it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from deepspeed_operator.api.elastic import RunElastic
from deepspeed_operator.api.status import MAX_MESSAGE, Batch, Finding, State, World
from deepspeed_operator.job.accelerators import CPU
from deepspeed_operator.job.image import given_accelerator
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.plan.advice.forecast import Foreseen
from deepspeed_operator.reconcile.actions import ForeseePlan, JudgeRun, Question
from deepspeed_operator.reconcile.admission.configuration import named_config_maps, questions_of_source
from deepspeed_operator.reconcile.admission.gpu_lookup import nodes_question
from deepspeed_operator.reconcile.admission.judge import Judgement, judge
from deepspeed_operator.reconcile.admission.plan_forecast import plan_question, with_foresight
from deepspeed_operator.reconcile.observe.observed import Facts, Observed, SetAside
from deepspeed_operator.reconcile.observe.unanswered import Unanswered
from deepspeed_operator.reconcile.report.conditions import Statement
from deepspeed_operator.reconcile.report.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Admission:
    """What a run needs of its judgement, without the user's data; `config_digest` is None without a configuration."""

    acceptance: Verdict
    world: World
    batch: Batch | None
    config_digest: str | None
    findings: tuple[Finding, ...]
    memory: Statement | None
    elastic: RunElastic | None = None

    @property
    def accepted(self) -> bool:
        return self.acceptance.state is not State.INVALID


def admission(observed: Observed, installation: Installation) -> Admission | SetAside:
    """Return how the run that spec asks for was judged; raise Unanswered until it was."""
    observed.facts.want(*questions_of_source(observed, text=False))
    digest, known = _digest(observed, installation), observed.facts.judged
    again = known is not None and isinstance(known.answer, SetAside) and observed.now >= known.answer.until
    if known is None or known.digest != digest or again:
        observed.facts.want(*questions_of_source(observed, text=True))
        raise Unanswered(JudgeRun(_what_counts(observed), digest))
    if isinstance(known.answer, tuple):
        raise Unanswered(*known.answer)
    return known.answer


def judge_run(
    observed: Observed, installation: Installation, foresee: Callable[[ForeseePlan], Foreseen | None]
) -> Admission | tuple[Question[object], ...]:
    """Answer JudgeRun, or return what is to be answered first; this may be another process than who asks.

    `foresee` tells what a job will be like, or None if that cannot be told.
    """
    try:
        judged = judge(observed, installation)
    except Unanswered as unanswered:
        return unanswered.questions
    question = plan_question(observed, judged, installation) if judged.accepted else None
    foreseen = foresee(question) if question is not None else None
    return _kept(with_foresight(judged, foreseen, observed.job.spec) if foreseen is not None else judged)


def _kept(judged: Judgement) -> Admission:
    # Of ten thousand errors no condition holds all.
    acceptance = replace(judged.acceptance, message=judged.acceptance.message[: MAX_MESSAGE + 1])
    config = judged.configuration
    digest = config.digest if config is not None else None
    return Admission(acceptance, judged.world, judged.batch, digest, judged.findings, judged.memory, judged.elastic)


def _what_counts(observed: Observed) -> Observed:
    """Return what a judgement goes by."""
    known = observed.facts.config_maps
    maps = {name: known[name] for name in named_config_maps(observed.job.spec)}
    return Observed(observed.job, (), Facts(config_maps=maps, gpus=observed.facts.gpus), observed.now)


def _digest(observed: Observed, installation: Installation) -> str:
    """Return a digest of what a judgement goes by; of a name only its length counts, which a ConfigMap has room for."""
    job, gpus = observed.job, observed.facts.gpus
    default = given_accelerator(job.spec, installation).resource or CPU
    known, nodes = observed.facts.config_maps, nodes_question(observed, default)
    said = [
        job.metadata.namespace,
        [str(each) for each in job.excess],
        len(job.metadata.name),
        job.status.run.deepspeed_version if job.status.run is not None else None,
        job.spec.model_dump_json(by_alias=True, exclude_none=True, exclude={"run_id", "suspend"}),
        {name: [known[name].keys, known[name].digest] for name in named_config_maps(job.spec)},
        repr((gpus.request, gpus.kinds)) if gpus is not None else None,
        nodes is None or nodes.answer_among(observed.facts) is not None,
    ]
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
