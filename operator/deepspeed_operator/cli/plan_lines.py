"""What `dsjob plan` found, for people."""

from collections.abc import Iterator, Sequence
from typing import Final

from deepspeed_operator.api.facts import Quantization
from deepspeed_operator.cli.paint import painted
from deepspeed_operator.cli.plan_answer import answer_lines, micro_batch_lines, span, written
from deepspeed_operator.cli.plan_words import DOUBTS, gib, needed, speed, word
from deepspeed_operator.cli.planned import Estimate, Offer, Planned
from deepspeed_operator.dsconfig.batch import KEYS
from deepspeed_operator.dsconfig.wording import plural
from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.job.units import GIB
from deepspeed_operator.plan.advice.alternatives import WORTHWHILE, Speedups, free_micro_batch
from deepspeed_operator.plan.advice.script import INT8_AT_STAGE_3, NF4_AT_STAGE_3
from deepspeed_operator.plan.memory.fit import ERROR, Fit
from deepspeed_operator.plan.memory.host import loading
from deepspeed_operator.plan.time.costs import TUNED, UTILIZATION
from deepspeed_operator.plan.traffic.collectives import Term
from deepspeed_operator.plan.traffic.unproven import PROVEN_VERSIONS

_GB: Final = 10**9
_MB: Final = 10**6
_BAR: Final = 24
_MOST: Final = 6
_SMALL: Final = GIB // 20
_COUNTED: Final = PROVEN_VERSIONS[-1]


def lines(planned: Planned) -> Iterator[str]:
    """Yield all that is said of one job."""
    job, now = planned.job, planned.now.plan
    judge = job.around.version
    version = judge if job.version in (None, judge) else f"{job.version}, judged as {judge}"
    ranks = f"{job.world.nodes} × {plural(job.world.slots_per_node, 'rank')}, DeepSpeed {version}"
    batch = f"micro batch {now.micro}, accumulation {now.accumulation}, {now.samples} samples a step"
    yield from answer_lines(planned)
    yield from _stage_lines(planned)
    yield from micro_batch_lines(planned)
    yield from _advice_lines(planned)
    yield f"As written: {ranks}, ZeRO stage {now.setup.stage}, {batch}"
    for source in Source:
        facts = [f"{fact.name} {_written(fact)}" for fact in job.facts if fact.source is source]
        if facts:
            yield f"  {source.value}: {', '.join(facts)}"
    yield from _traffic_lines(planned)
    yield from _memory_lines(planned)
    yield from _pod_lines(planned)
    yield from _time_lines(planned)
    if planned.shares is not None:
        yield _share_line(planned.shares, planned)


def _traffic_lines(planned: Planned) -> Iterator[str]:
    traffic = planned.now.plan.traffic
    at_least = "≥ " if traffic.unproven else ""
    rows = [(term.collective, _gb(term.payload), f"{term.what} ({_where(term)})") for term in traffic.terms]
    rows.append(("on each GPU's link", at_least + _gb(traffic.wire), "each way"))
    if planned.job.world.nodes > 1:
        rows.append(("on each node's network", at_least + _gb(traffic.between_nodes), "each way"))
    yield from _table("Traffic of a step", rows)
    if traffic.unproven:
        yield f"  ≥: not counted with {', '.join(traffic.unproven)}"


def _where(term: Term) -> str:
    return f"{plural(term.group.ranks, 'rank')}, {'between nodes' if term.group.nodes > 1 else 'inside a node'}"


def _memory_lines(planned: Planned) -> Iterator[str]:
    memory, fit = planned.now.plan.memory, planned.now.fit
    phases = ", ".join(f"{phase.name} {gib(phase.size)}" for phase in memory.phases)
    yield f"Memory of a GPU: {needed(planned, planned.now)}, most in the {memory.peak.name}"
    yield f"  peaks: {phases}"
    items = [item for item in (*memory.items, memory.outside) if item.size > _SMALL]
    yield f"  there: {', '.join(f'{item.what} {gib(item.size)}' for item in items)}"
    if fit is None:
        yield f"  fits: unknown, since the memory of {planned.job.device} is not known: write spec.gpuMemory"
    else:
        words = {Fit.YES: painted("yes", "green"), Fit.NO: painted("no", "red"), Fit.UNKNOWN: "unknown"}[fit.fit]
        yield f"  fits into {gib(fit.capacity)} ({fit.source}): {words}{': ' if fit.open else ''}{'; '.join(fit.open)}"


def _pod_lines(planned: Planned) -> Iterator[str]:
    items = [f"{item.what} {gib(item.size)}" for item in planned.now.pod if item.size > _SMALL]
    limit = planned.job.limit
    of_limit = f" of its limit of {gib(limit)}" if limit is not None else ""
    words = f"{gib(planned.now.pod_size)}{of_limit}{_beyond(planned, planned.now)}"
    yield f"Memory of a pod: {words}, without data loaders and /dev/shm: {', '.join(items)}"
    loaded = loading(planned.now.plan.setup, planned.job.around.model, planned.job.around.slots)
    if loaded > _SMALL:
        first = "make TrainingArguments or HfDeepSpeedConfig before the model"
        yield f"  while it is loaded: {gib(loaded)} more, unless zero.Init divides it ({first})"


def _beyond(planned: Planned, estimate: Estimate) -> str:
    if estimate.pod_size > planned.largest_pod:
        return ", too much"
    limit = planned.job.limit
    return ", not surely enough" if limit is not None and estimate.pod_size * (1 + ERROR) > limit else ""


def _time_lines(planned: Planned) -> Iterator[str]:
    now = planned.now.plan
    time, rate = now.time, now.samples_per_second
    if time is None or rate is None:
        yield f"Time of a step: unknown: {_why_no_time(planned)}"
        return
    yield f"Time of a step: {span(time.least, time.seconds)} s, {speed(now)}{_assumption(planned)}"
    parts = {
        "computing": time.compute,
        "network": time.communication,
        "optimizer": time.update,
        "ZeRO's own work": time.work,
        **({"waiting for Python": time.host} if time.host else {}),
    }
    width = max(map(len, parts))
    for name, seconds in parts.items():
        filled = round(seconds / time.seconds * _BAR)
        yield f"  {name:<{width}} {'█' * filled}{'·' * (_BAR - filled)} {seconds / time.seconds:4.0%}  {seconds:.3g} s"
    if time.hidden:
        yield f"  {time.hidden_by} up to {time.hidden:.3g} s of the network: which of both is not known"
    if time.unproven:
        yield f"  not counted: {', '.join(time.unproven)}"
    if (free := free_micro_batch(now, planned.job.around)) is not None:
        yield f"  the host is the limit: a larger micro batch is free until {free}"


def _assumption(planned: Planned) -> str:
    """Say what computing is told by where nobody measured it: a stack may be faster, or slower."""
    share = next((fact.value for fact in planned.job.facts if fact.name == UTILIZATION), None)
    if not isinstance(share, float):
        return ""
    return f", computing at {share:.0%} of the GPU's peak as plain PyTorch does; tuned stacks reach {TUNED:.0%}"


def _why_no_time(planned: Planned) -> str:
    if not planned.job.around.timed:
        return f"no data sheet here describes {planned.job.device}: give --calibration FILE, or --gpu NAME of another"
    if planned.job.world.nodes > 1 and planned.job.around.costs.links.between is None:
        return "nothing is said of the network between nodes: give --network GB/S or NAME, or --calibration FILE"
    return f"no data sheet here describes the links of {planned.job.device}: give --interconnect GB/S"


def _stage_lines(planned: Planned) -> Iterator[str]:
    """The question that is asked most: which stage for this model, this GPU and this network?"""
    yield "Which ZeRO stage, at this batch"
    fastest, sure = _fastest(planned)
    wide = max(len(word(each)) for each in planned.stages)
    for each in planned.stages:
        plan = each.plan
        here = [f"{speed(plan)}, network {plan.time.share:.0%}"] if plan.time and speed(plan) else []
        here += ["as written"] if plan.setup.stage == planned.now.plan.setup.stage else []
        here += [f"the fastest that {'fits' if sure else 'may fit'}"] if each is fastest else []
        yield f"  {plan.setup.stage}  {needed(planned, each):>11}  {word(each):<{wide}}  {', '.join(here)}".rstrip()
    words = {word(each) for each in planned.stages}
    yield from (f"  {word}: {meaning}" for word, meaning in DOUBTS.items() if word in words)
    stored = planned.job.around.model.usage.quantized
    if stored is not None:
        yield f"  3: {INT8_AT_STAGE_3 if stored.name == Quantization.INT8 else NF4_AT_STAGE_3}"


def _fastest(planned: Planned) -> tuple[Estimate | None, bool]:
    """Return the fastest stage of which all of the time is known, and whether it fits for sure."""
    timed = [(each, each.plan.time) for each in planned.stages if each.fit and each.plan.time]
    known = [(each, time) for each, time in timed if not time.unproven]
    sure = [(each, time) for each, time in known if each.fits is Fit.YES]
    among = sure or [(each, time) for each, time in known if each.may_fit]
    if not among:
        return None, False
    fastest, _ = min(among, key=lambda pair: pair[1].seconds)
    hiding, _ = min(among, key=lambda pair: pair[1].least)
    return fastest if hiding is fastest else None, bool(sure)


def _share_line(shares: Speedups, planned: Planned) -> str:
    now = planned.now.plan
    return (
        f"Beside stage 0 without accumulation: ×{shares.both:.2f} samples/s, of which ×{shares.accumulation:.2f} by "
        f"accumulation, then ×{shares.stage:.2f} by ZeRO, both with accumulation {now.accumulation} "
        f"(which grew the global batch from {shares.samples_before} to {now.samples} samples)"
    )


def _advice_lines(planned: Planned) -> Iterator[str]:
    alternatives = planned.alternatives
    if planned.is_too_large:
        remedy = planned.remedy
        number = planned.number_of(planned.smallest)
        how = f" (--apply {number} writes it)" if number is not None else ""
        yield f"{remedy}{how}" if remedy is not None else "No single change that is known fits"
    if alternatives:
        sure = any(each.estimate.fits is Fit.YES for each in alternatives)
        yield "Faster" if not planned.is_too_large else "What fits" if sure else "What may fit"
    elif not planned.is_too_large:
        yield _why_no_advice(planned)
    yield from (_offered(planned, each) for each in alternatives[:_MOST])
    if planned.numbers is not None:
        yield "More precise"
        yield _offered(planned, planned.numbers)
    if planned.job.is_frameworks and any(each.change.values.keys() & KEYS for each in planned.offers):
        yield "Batch sizes are the framework's: change its arguments as well as the file"


def _why_no_advice(planned: Planned) -> str:
    if planned.now.plan.time is None:
        return f"No advice: no time is known, since {_why_no_time(planned)}"
    if planned.uncounted:
        version = planned.job.around.version
        other = f"; --deepspeed-version {_COUNTED} plans with one that is" if version not in PROVEN_VERSIONS else ""
        without = ", ".join(planned.uncounted)
        return f"No advice: what changes gain is not known, since all times are without {without}{other}"
    whatever = ", whatever overlap_comm hides" if planned.now.plan.time.hidden else ""
    return f"Nothing that fits is predicted to be {WORTHWHILE - 1:.0%} faster{whatever}"


def _offered(planned: Planned, offer: Offer) -> str:
    estimate = offer.estimate
    gain = painted(f"×{offer.gain:.2f}", "green") if offer.gain is not None else "?"
    time = estimate.plan.time
    without = f" without {', '.join(time.unproven)}" if time is not None and time.unproven else ""
    words = [f"{speed(estimate.plan)}{without}"] if speed(estimate.plan) else []
    words.append(needed(planned, estimate))
    words += [word(estimate)] if estimate.fit is not None and estimate.fits is not Fit.YES else []
    words += [f"pod {gib(estimate.pod_size)}{_beyond(planned, estimate)}"] if _offloads(offer) else []
    caveat = f" ({offer.change.caveat})" if offer.change.caveat else ""
    return f"  {planned.number_of(offer)}. {gain}  {', '.join(words)}  {written(offer.change)}{caveat}"


def _offloads(offer: Offer) -> bool:
    return any("offloaded" in item.what for item in offer.estimate.pod)


def _table(title: str, rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    yield title
    first = max(len(row[0]) for row in rows)
    second = max(len(row[1]) for row in rows)
    for name, value, remark in rows:
        yield f"  {name:<{first}}  {value:>{second}}  {remark}".rstrip()


def _written(fact: Fact) -> str:
    return fact.value if isinstance(fact.value, str) else f"{fact.value:,}"


def _gb(size: float) -> str:
    if not size:
        return "0 GB"
    return f"{size / _GB:,.2f} GB" if size >= _GB / 100 else f"{size / _MB:,.2f} MB"
