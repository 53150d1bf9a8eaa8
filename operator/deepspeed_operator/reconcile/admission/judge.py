"""Whether a run may begin: the configuration, the batch arithmetic and the template, all errors at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from deepspeed_operator.api.bounds import excess_of
from deepspeed_operator.api.elastic import RunElastic
from deepspeed_operator.api.finding import Code, advice
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.spec import AdmissionPolicy, Integration, Launcher
from deepspeed_operator.api.status import MAX_FINDINGS, Batch, Finding, Level, State, World
from deepspeed_operator.dsconfig.judgement import ConfigJudgement, JudgementContext
from deepspeed_operator.dsconfig.judgement import judge as judge_configuration
from deepspeed_operator.dsconfig.source import format_findings
from deepspeed_operator.job.accelerators import CPU, default_resource, library_of
from deepspeed_operator.job.image import declared_version, given_accelerator
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.world import declared_parallelism, world_of
from deepspeed_operator.lint.checkpoint_volume import checkpoint_volume_findings
from deepspeed_operator.lint.delivery_size import delivery_findings
from deepspeed_operator.lint.fleet_limits import limit_findings
from deepspeed_operator.lint.launchers import launcher_findings
from deepspeed_operator.lint.network.findings import network_findings
from deepspeed_operator.lint.restart_rules import restart_rule_findings
from deepspeed_operator.lint.template_rules import template_findings
from deepspeed_operator.reconcile.admission.configuration import Configuration, Unusable, configuration, missing_files
from deepspeed_operator.reconcile.admission.elastic_run import ElasticRun, elastic_run, without_too_small
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.report.conditions import Statement
from deepspeed_operator.reconcile.report.outcome import warnings_among
from deepspeed_operator.reconcile.report.verdict import Verdict, accepted
from deepspeed_operator.render.attempt import Attempt


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a run will be; `acceptance` says why not where its state is Invalid, in the words of all `errors`."""

    acceptance: Verdict
    world: World
    batch: Batch | None
    configuration: Configuration | None
    findings: tuple[Finding, ...]  # the other levels, as many as status holds
    errors: tuple[Finding, ...]
    accelerator: str | None
    memory: Statement | None = None
    elastic: RunElastic | None = None  # the numbers of nodes that the run may have, where it may have others

    @property
    def accepted(self) -> bool:
        return self.acceptance.state is not State.INVALID


def judge(observed: Observed, installation: Installation, *, accelerator: str | None = None) -> Judgement:
    """Judge the job as its spec stands now; raise Unanswered while something must be known of the cluster first.

    `accelerator`, in DeepSpeed's words, is taken instead of what the job tells.
    """
    spec = observed.job.spec
    excess = excess_of(observed.job)
    if excess:
        return _judgement(world_of(spec), None, None, excess, Reason.INVALID_SPEC, accelerator=accelerator)
    source, absent = configuration(observed), missing_files(observed)
    given = given_accelerator(spec, installation)
    world = world_of(spec).model_copy(update={"accelerator": given})
    accelerator = accelerator or given.name
    others = [*template_findings(spec, installation), *launcher_findings(spec, world)]
    others += restart_rule_findings(spec)
    others += checkpoint_volume_findings(spec)
    others += network_findings(spec, library_of(accelerator))
    others += filter(None, [absent])
    limits = [*limit_findings(observed.job, installation)]
    others += limits
    if isinstance(source, Unusable):
        return _judgement(world, None, None, (*source.findings, *others), source.reason, accelerator=accelerator)
    path = "spec.dsConfig" if spec.ds_config is not None else "spec.dsConfigFrom"
    named = spec.training.integration
    framework = named is not Integration.NONE
    version = declared_version(spec, installation)
    # Who starts the ranks may bring the framework: accelerate launch and llamafactory-cli do.
    integration = named if framework or spec.training.launcher is Launcher.RANKS else None
    context = JudgementContext(world.size, version, accelerator, declared_parallelism(spec), integration)
    judged = _judged(source, context, path)
    world = world.model_copy(update={"data_parallel": judged.data_parallel or world.data_parallel})
    form = format_findings(source.text, path, framework=framework) if source is not None else []
    of_spec = Reason.LIMIT_EXCEEDED if limits else Reason.INVALID_SPEC
    reason = Reason.INVALID_CONFIG if judged.errors else Reason.FILES_NOT_FOUND if absent else of_spec
    text = source.text if source is not None else None
    run = observed.job.status.run
    before = run.deepspeed_version if run is not None else None
    if source is not None and before is not None and version is not None and before != version:
        from deepspeed_operator.dsconfig.migration import news  # noqa: PLC0415  # its table is large, and seldom asked

        form += news(source.values, before, version, path)
    size = delivery_findings(spec, Attempt(observed.job, 1, world, text, installation).config_map())
    findings = [*judged.findings, *form, *others, *size]
    memory, elastic = None, ElasticRun(None)
    if not any(each.level is Level.ERROR for each in findings):
        elastic = elastic_run(observed.job, world, source, context)
        if spec.model is not None and source is not None:
            memory, found, elastic = _memory(observed, installation, source, world, batch=judged.batch, elastic=elastic)
            findings += found
            reason = Reason.DOES_NOT_FIT
    findings += elastic.findings
    judgement = _judgement(world, judged.batch, source, findings, reason, accelerator=accelerator, memory=memory)
    return replace(judgement, elastic=elastic.sizes)


def _memory(
    observed: Observed,
    installation: Installation,
    source: Configuration,
    world: World,
    *,
    batch: Batch | None,
    elastic: ElasticRun,
) -> tuple[Statement, list[Finding], ElasticRun]:
    """Return whether the memory of a job with a model is enough, and with which numbers of nodes it may be."""
    # Few jobs declare a model, and the planner would be a tenth of what dsjob validate takes for the others.
    from deepspeed_operator.plan.memory.case import Case, Missing, case_of  # noqa: PLC0415
    from deepspeed_operator.reconcile.admission.gpu_lookup import known_gpus, nodes_question  # noqa: PLC0415
    from deepspeed_operator.reconcile.admission.memory_fit import sizes_that_do_not_fit, stated  # noqa: PLC0415

    spec, default, slots = observed.job.spec, default_resource(world), world.slots_per_node
    if world.accelerator is not None and world.accelerator.name == CPU:
        case = Missing("spec.template", "the job trains on CPUs")
    else:
        case = case_of(spec, source.values, world, batch, declared_version(spec, installation))
    if installation.reads_nodes and isinstance(case, Case) and (question := nodes_question(observed, default)):
        observed.facts.want(question)
    gpus = known_gpus(observed, default)
    memory, found = stated(case, spec, slots, gpus)
    if elastic.sizes is not None and isinstance(case, Case) and spec.admission is AdmissionPolicy.REQUIRE_FIT:
        elastic = without_too_small(elastic, sizes_that_do_not_fit(case, elastic.sizes, slots, gpus))
    return memory, found, elastic


# The jobs of a sweep often have one configuration, and each is judged before and after its pod is tried.
@lru_cache(maxsize=128)
def _judged(source: Configuration | None, context: JudgementContext, where: str) -> ConfigJudgement:
    return judge_configuration(source.values if source is not None else None, context, where)


def _judgement(
    world: World,
    batch: Batch | None,
    source: Configuration | None,
    findings: Sequence[Finding],
    reason_if_invalid: Reason,
    *,
    accelerator: str | None,
    memory: Statement | None = None,
) -> Judgement:
    errors = tuple(finding for finding in findings if finding.level is Level.ERROR)
    others = _bounded(tuple(finding for finding in findings if finding.level is not Level.ERROR))
    if errors:
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        listed = "; ".join(str(error) for error in errors)
        acceptance = Verdict(State.INVALID, reason_if_invalid, f"{count}, nothing was created: {listed}")
    else:
        acceptance = accepted(world, batch, has_config=source is not None, warnings=warnings_among(others))
    return Judgement(acceptance, world, batch, source, others, errors, accelerator, memory)


def _bounded(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    if len(findings) <= MAX_FINDINGS:
        return findings
    rest = len(findings) - MAX_FINDINGS + 1
    more = advice("status.findings", Code.MORE_FINDINGS, f"{rest} more: dsjob validate lists them all")
    return (*findings[: MAX_FINDINGS - 1], more)
