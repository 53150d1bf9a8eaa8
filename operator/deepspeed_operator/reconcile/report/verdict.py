"""What there is to say of a job as a whole: it follows from its run and where that run's attempt stands."""

from dataclasses import dataclass

from deepspeed_operator.api.attempt_status import AttemptStatus, Obstacle, Phase
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.lifecycle import SuccessPolicy
from deepspeed_operator.api.names import HOSTFILE, JOB_DIRECTORY, pod_name
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Batch, Failure, Run, State, World
from deepspeed_operator.reconcile.report.remedies import remedy


@dataclass(frozen=True, slots=True)
class Verdict:
    """The job's state in one word, why, and what a person should know or do."""

    state: State
    reason: str
    message: str


def verdict_on(job: DeepSpeedJob, run: Run, attempt: AttemptStatus, failure: Failure | None) -> Verdict:
    """Return what is to be said of an accepted run. `failure`: why it failed; None where it has not."""
    match attempt.phase:
        case Phase.QUEUED:
            return _queued(attempt)
        case Phase.STARTING | Phase.REFUSED:
            return _starting(run.world, attempt)
        case Phase.RUNNING:
            first = attempt.latest_replacements.get(0)
            pod = pod_name(job.metadata.name, attempt.number, 0, first.number if first is not None else 0)
            if job.spec.training.debug:
                return Verdict(State.RUNNING, Reason.RUNNING, _debugged(run.world, pod))
            where = f"kubectl logs {pod} shows rank 0"
            words = f"{_ranks(run.world.size)} run{'s' * (run.world.size == 1)} in {_pods(run.world.nodes)}; {where}."
            return Verdict(State.RUNNING, Reason.RUNNING, words)
        case Phase.BACKING_OFF | Phase.REPLACING | Phase.EVICTING:
            assert attempt.obstacle is not None, "why ranks are to start again is recorded with the phase"
            return Verdict(State.RESTARTING, attempt.obstacle.reason, attempt.obstacle.message)
        case Phase.STOPPING:
            words = "spec.suspend is true: the pods end. Set it to false for a new attempt."
            if not job.spec.suspend:
                words = f"Run {run.id!r} was suspended, and its pods end. Set spec.runId back to it for a new attempt."
            return Verdict(State.SUSPENDING, Reason.SUSPENDING, words)
        case Phase.SUSPENDED:
            resume = "set spec.suspend to false" if job.spec.suspend else f"set spec.runId back to {run.id!r}"
            words = f"The job is suspended and holds no GPU: {resume} to begin a new attempt."
            return Verdict(State.SUSPENDED, Reason.SUSPENDED, words)
        case Phase.ENDED:
            return _ended(job, run.world, failure)


def accepted(world: World, batch: Batch | None, *, has_config: bool, warnings: int) -> Verdict:
    """Return why a job is accepted: the batch arithmetic in words, and how many warnings there are beside it."""
    count = f" {warnings} warning{'s' * (warnings > 1)}: kubectl describe and dsjob validate show what to write."
    beside = count if warnings else ""
    if not has_config:
        words = f"The job has no dsConfig: its program configures DeepSpeed.{beside}"
        return Verdict(State.STARTING, Reason.NO_CONFIG, words)
    if batch is None or None in {batch.train, batch.micro_per_gpu, batch.accumulation}:
        words = f"The configuration was accepted for {_ranks(world.size)}; its batch sizes are left to the framework."
    else:
        words = (
            f"The configuration fits {_ranks(world.size)}: train_batch_size {batch.train} = micro batch "
            f"{batch.micro_per_gpu} × accumulation {batch.accumulation} × data-parallel size "
            f"{batch.data_parallel_ranks}."
        )
    return Verdict(State.STARTING, Reason.ACCEPTED, words + beside)


def headline(failure: Failure) -> str:
    """Return the failure in one line with what to do next, for a condition."""
    cause = failure.message.partition("\n")[0]
    return f"{sentence(cause)} {remedy(failure.reason, cause)}"


def sentence(words: str) -> str:
    """End somebody else's words, which may or may not have a full stop, with one."""
    return f"{words.rstrip(' .')}."


def _queued(attempt: AttemptStatus) -> Verdict:
    held = attempt.obstacle
    if held is None:
        words = f"Attempt {attempt.number} waits for its turn in the queue; no pod exists."
        return Verdict(State.QUEUED, Reason.QUEUED, words)
    if held.reason in {Reason.QUEUED, Reason.WAITING_FOR_OLD_PODS}:
        return Verdict(State.QUEUED, held.reason, held.message)
    return _held(held)


def _held(held: Obstacle) -> Verdict:
    # The name that the job's children need belongs to somebody else: only a person can change that.
    state = State.INVALID if held.reason == Reason.NAME_CONFLICT else State.STARTING
    return Verdict(state, held.reason, held.message)


def _debugged(world: World, pod: str) -> str:
    up = f"{_pods(world.nodes)} wait{'s' * (world.nodes == 1)} and run{'s' * (world.nodes == 1)} nothing"
    hosts = f"the hosts are in {JOB_DIRECTORY}/{HOSTFILE}"
    end = "Delete or suspend the job to end this, or set debug to false together with a new spec.runId."
    return f"{up}, since spec.training.debug is true: kubectl exec -it {pod} -- bash; {hosts}. {end}"


def _starting(world: World, attempt: AttemptStatus) -> Verdict:
    held = attempt.obstacle
    if held is None:
        words = f"Attempt {attempt.number}: starting {_pods(world.nodes)} with {_ranks(world.slots_per_node)} each."
        return Verdict(State.STARTING, Reason.STARTING, words)
    return _held(held)


def _ended(job: DeepSpeedJob, world: World, failure: Failure | None) -> Verdict:
    if failure is not None:
        return Verdict(State.FAILED, failure.reason, headline(failure))
    pods = "The pod" if world.nodes == 1 else f"All {world.nodes} pods"
    if job.spec.success_policy is SuccessPolicy.HEAD:
        pods = "Pod 0, which decides (spec.successPolicy),"
    words = f"{pods} ended with success. Set a new spec.runId to run it again."
    return Verdict(State.COMPLETE, Reason.COMPLETED, words)


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"
