"""What `dsjob plan` found, for programs: bytes and seconds."""

from dataclasses import asdict
from typing import Any, Final

from deepspeed_operator.cli.planned import Estimate, Offer, Planned
from deepspeed_operator.plan.memory.fit import Fit
from deepspeed_operator.plan.time.step_time import StepTime
from deepspeed_operator.plan.traffic.collectives import Term

# Unknown is neither.
_FITS: Final = {Fit.YES: True, Fit.NO: False, Fit.UNKNOWN: None}


def record(planned: Planned) -> dict[str, Any]:
    """Return all that is said of one job."""
    job, now = planned.job, planned.now.plan
    facts = [{"name": fact.name, "value": fact.value, "source": fact.source.value} for fact in job.facts]
    return {
        "name": job.name,
        "version": job.around.version,
        "declaredVersion": job.version,
        "facts": facts,
        "communication": {
            "terms": [_of_term(term) for term in now.traffic.terms],
            "wire": now.traffic.wire,
            "betweenNodes": now.traffic.between_nodes,
            "unproven": list(now.traffic.unproven),
        },
        "memory": _of_memory(planned),
        "pod": {
            "needed": round(planned.now.pod_size),
            "terms": {item.what: round(item.size) for item in planned.now.pod if item.size},
            "limit": job.limit,
        },
        "step": _of_time(now.time) if now.time else None,
        "samplesPerSecond": now.samples_per_second,
        "answer": {
            "number": planned.number_of(planned.answer.offer),
            "stage": planned.answer.estimate.plan.setup.stage,
            **_of_batch(planned.answer.estimate),
        },
        "microBatches": [_of_batch(each) for each in planned.answer.micro_batches],
        "stages": [{"stage": each.plan.setup.stage, **_of_estimate(each)} for each in planned.stages],
        "alternatives": [_of_offer(each) for each in planned.alternatives],
        "uncounted": list(planned.uncounted),
        "smallestChange": planned.remedy.change if planned.remedy is not None else None,
        "smallestChangeNumber": planned.number_of(planned.smallest),
        "shares": asdict(planned.shares) if planned.shares else None,
        "precision": {**_of_offer(planned.numbers), "number": planned.number_of(planned.numbers)}
        if planned.numbers
        else None,
    }


def _of_offer(offer: Offer) -> dict[str, Any]:
    return {
        "change": dict(offer.change.values),
        "script": list(offer.change.script.words),
        "gain": offer.gain,
        **_of_estimate(offer.estimate),
        "caveat": offer.change.caveat or None,
    }


def _of_batch(estimate: Estimate) -> dict[str, Any]:
    plan = estimate.plan
    return {"microBatch": plan.micro, "accumulation": plan.accumulation, **_of_estimate(estimate)}


def _of_estimate(estimate: Estimate) -> dict[str, Any]:
    plan = estimate.plan
    return {
        "memory": plan.memory.needed,
        "fits": _FITS[estimate.fits],
        "pod": round(estimate.pod_size),
        "samplesPerSecond": plan.samples_per_second,
    }


def _of_term(term: Term) -> dict[str, Any]:
    return {
        "collective": term.collective,
        "payload": term.payload,
        "group": term.group.name,
        "ranks": term.group.ranks,
        "nodes": term.group.nodes,
    }


def _of_time(time: StepTime) -> dict[str, Any]:
    return {
        "seconds": time.seconds,
        "compute": time.compute,
        "work": time.work,
        "update": time.update,
        "communication": time.communication,
        "networkShare": time.share,
        "unproven": list(time.unproven),
        "hidden": time.hidden,
        "host": time.host,
    }


def _of_memory(planned: Planned) -> dict[str, Any]:
    memory, fit = planned.now.plan.memory, planned.now.fit
    phases = [
        {"phase": phase.name.value, "bytes": phase.size, "terms": {item.what: round(item.size) for item in phase.items}}
        for phase in memory.phases
    ]
    return {
        "phases": phases,
        "peak": memory.peak.name.value,
        "outside": round(memory.outside.size),
        "needed": memory.needed,
        "atLeast": not planned.counts_all_memory,
        "fit": planned.now.fits.value,
        "capacity": fit.capacity if fit else None,
        "source": fit.source if fit else None,
        "open": list(fit.open) if fit else [],
    }
