"""`dsjob plan --html`: what was found, as one page that needs nothing else, for people who review a design together."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from deepspeed_operator.cli.plan_answer import cost, written
from deepspeed_operator.cli.plan_style import STYLE
from deepspeed_operator.cli.plan_words import DOUBTS, gib, needed, speed, word
from deepspeed_operator.cli.planned import Estimate, Offer, Planned
from deepspeed_operator.job.provenance import Source
from deepspeed_operator.job.units import GIB
from deepspeed_operator.plan.memory.fit import Fit
from deepspeed_operator.plan.memory.peaks import MemoryPhase
from deepspeed_operator.plan.memory.sizes import MemoryItem
from deepspeed_operator.plan.time.step_time import StepTime
from deepspeed_operator.plan.traffic.collectives import Term

_GB: Final = 10**9
_COLOURS: Final = 12  # of the style
_SMALL: Final = GIB // 20
_MOST: Final = 8
_CLASSES: Final = {Fit.YES: "yes", Fit.NO: "no", Fit.UNKNOWN: "open"}


def page(planned: Sequence[Planned]) -> str:
    """Return the page about all jobs of a file."""
    title = ", ".join(each.job.name for each in planned)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}: dsjob plan</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(line for each in planned for line in _job(each))
        + "\n</main>\n</body>\n</html>\n"
    )


def _job(planned: Planned) -> Iterator[str]:
    job, now = planned.job, planned.now.plan
    world = f"{job.world.nodes} × {job.world.slots_per_node} ranks, {job.device}, DeepSpeed {job.around.version}"
    yield f"<header><h1>{escape(job.name)}</h1><p>{escape(world)}</p></header>"
    yield from _answer(planned)
    yield "<h2>Which ZeRO stage</h2>"
    written_stage = now.setup.stage
    names = [f"stage {int(each.plan.setup.stage)}" for each in planned.stages]
    notes = ["as written" if each.plan.setup.stage == written_stage else "" for each in planned.stages]
    yield _compared(planned, planned.stages, names, notes)
    answer = planned.answer
    yield "<h2>Which micro batch, as the answer is</h2>"
    names = [f"{each.plan.micro} × {each.plan.accumulation}" for each in answer.micro_batches]
    notes = ["the answer" if each.plan.micro == answer.estimate.plan.micro else "" for each in answer.micro_batches]
    yield _compared(planned, answer.micro_batches, names, notes)
    words = {word(each) for each in (*planned.stages, *answer.micro_batches)}
    yield from (f"<p class=note>{key}: {escape(meaning)}</p>" for key, meaning in DOUBTS.items() if key in words)
    yield from _memory(planned)
    yield from _time(planned)
    yield from _offers(planned)
    yield from _traffic(planned)
    yield from _facts(planned)


def _answer(planned: Planned) -> Iterator[str]:
    answer = planned.answer
    plan = answer.estimate.plan
    words = f"Stage {int(plan.setup.stage)}, micro batch {plan.micro}, accumulation {plan.accumulation}"
    yield f'<section class="answer {_CLASSES[answer.estimate.fits]}"><p><strong>{words}</strong></p>'
    yield f"<p>{escape(cost(planned, answer.estimate))}</p>"
    if answer.offer is not None:
        gain = f"×{answer.offer.gain:.2f} " if answer.offer.gain is not None and not planned.is_too_large else ""
        yield f"<p>{gain}by <code>{escape(written(answer.offer.change))}</code></p>"
    fit = answer.estimate.fit
    if fit is not None and fit.open:
        yield f"<p>{escape(word(answer.estimate))}: {escape('; '.join(fit.open))}</p>"
    if planned.is_too_large:
        yield f"<p>As written: {escape(cost(planned, planned.now))}</p>"
    yield "</section>"


def _compared(planned: Planned, estimates: Sequence[Estimate], names: Sequence[str], notes: Sequence[str]) -> str:
    """Return a table with a bar of memory, and one of speed, for each."""
    capacity = next((each.fit.capacity for each in estimates if each.fit is not None), 0)
    most = max([capacity, *(each.plan.memory.needed for each in estimates)])
    fastest = max((each.plan.samples_per_second or 0.0 for each in estimates), default=0.0)
    mark = f'<i class=mark style="left:{100 * capacity / most:.1f}%"></i>' if capacity else ""
    rows: list[str] = []
    for each, name, note in zip(estimates, names, notes, strict=True):
        share = 100 * each.plan.memory.needed / most
        bar = f'<span class=bar><b class={_CLASSES[each.fits]} style="width:{share:.1f}%"></b>{mark}</span>'
        rate = 100 * (each.plan.samples_per_second or 0.0) / fastest if fastest else 0.0
        quick = f'<span class=bar><b class=speed style="width:{rate:.1f}%"></b></span>' if rate else ""
        rows.append(
            f"<tr><th>{escape(name)}{f' <em>{note}</em>' if note else ''}</th>"
            f"<td>{bar}{escape(needed(planned, each))} {escape(word(each))}</td>"
            f"<td>{quick}{escape(speed(each.plan)) or 'time not known'}</td></tr>"
        )
    limit = f" (the mark: {gib(capacity)})" if capacity else ""
    head = f"<tr><td></td><th>memory of a GPU{limit}</th><th>speed</th></tr>"
    return f"<div class=wide><table class=compared>{head}{''.join(rows)}</table></div>"


def _memory(planned: Planned) -> Iterator[str]:
    """Yield what is in a GPU's memory in each phase, one colour for each kind of thing."""
    memory, fit = planned.now.plan.memory, planned.now.fit
    phases = memory.phases
    names = list(dict.fromkeys(item.what for phase in phases for item in phase.items if item.size > _SMALL))
    outside = memory.outside
    names.append(outside.what)
    most = max([*(phase.size + outside.size for phase in phases), fit.capacity if fit is not None else 0])
    yield "<h2>Memory of a GPU by phase, as written</h2>"
    yield "<div class=wide><table class=phases>"
    for phase in phases:
        bar = "".join(_part(item, most, names) for item in (*phase.items, outside))
        mark = f'<i class=mark style="left:{100 * fit.capacity / most:.1f}%"></i>' if fit is not None else ""
        peak = " <em>the peak</em>" if phase.name is memory.peak.name else ""
        size = gib(phase.size + outside.size)
        yield f"<tr><th>{phase.name}{peak}</th><td><span class=bar>{bar}{mark}</span>{size}</td></tr>"
    yield "</table></div>"
    yield "<ul class=legend>"
    yield from (
        f"<li><b class=c{at % _COLOURS}></b>{escape(name)}{_at_peak(memory.peak, outside, name)}</li>"
        for at, name in enumerate(names)
    )
    yield "</ul>"
    pod = ", ".join(f"{item.what} {gib(item.size)}" for item in planned.now.pod if item.size > _SMALL)
    limit = f" of its limit of {gib(planned.job.limit)}" if planned.job.limit is not None else ""
    yield f"<p>Memory of a pod: {gib(planned.now.pod_size)}{limit}{f': {escape(pod)}' if pod else ''}</p>"


def _part(item: MemoryItem, most: float, names: Sequence[str]) -> str:
    if item.what not in names:
        return ""
    colour, title = names.index(item.what) % _COLOURS, f"{escape(item.what, quote=True)} {gib(item.size)}"
    return f'<b class=c{colour} style="width:{100 * item.size / most:.2f}%" title="{title}"></b>'


def _at_peak(peak: MemoryPhase, outside: MemoryItem, name: str) -> str:
    size = sum(item.size for item in (*peak.items, outside) if item.what == name)
    return f" {gib(size)}" if size > _SMALL else ""


def _time(planned: Planned) -> Iterator[str]:
    time = planned.now.plan.time
    yield "<h2>Time of a step, as written</h2>"
    if time is None or not time.seconds:
        yield "<p>Not known: <code>dsjob plan</code> says what to give.</p>"
        return
    yield f"<p>{time.seconds:.3g} s, {escape(speed(planned.now.plan))}</p><div class=wide><table class=phases>"
    for at, (name, seconds) in enumerate(_parts(time)):
        share = 100 * seconds / time.seconds
        bar = f'<span class=bar><b class=c{at} style="width:{share:.1f}%"></b></span>'
        yield f"<tr><th>{name}</th><td>{bar}{share:.0f} %, {seconds:.3g} s</td></tr>"
    yield "</table></div>"
    if time.hidden:
        yield f"<p class=note>{escape(time.hidden_by)} up to {time.hidden:.3g} s of the network</p>"
    if time.unproven:
        yield f"<p class=note>not counted: {escape(', '.join(time.unproven))}</p>"


def _parts(time: StepTime) -> Iterator[tuple[str, float]]:
    yield "computing", time.compute
    yield "network", time.communication
    yield "optimizer", time.update
    yield "ZeRO's own work", time.work
    if time.host:
        yield "waiting for Python", time.host


def _offers(planned: Planned) -> Iterator[str]:
    offers = planned.alternatives[:_MOST]
    if not offers:
        return
    yield f"<h2>{'What fits' if planned.is_too_large else 'What is faster'}</h2><ol>"
    yield from (f"<li>{_offer(planned, each)}</li>" for each in offers)
    yield "</ol>"


def _offer(planned: Planned, offer: Offer) -> str:
    gain = f"<strong>×{offer.gain:.2f}</strong> " if offer.gain is not None else ""
    figures = [speed(offer.estimate.plan), needed(planned, offer.estimate), word(offer.estimate)]
    caveat = f"<br><span class=note>{escape(offer.change.caveat)}</span>" if offer.change.caveat else ""
    change = escape(written(offer.change))
    return f"{gain}<code>{change}</code><br>{escape(', '.join(each for each in figures if each))}{caveat}"


def _traffic(planned: Planned) -> Iterator[str]:
    traffic = planned.now.plan.traffic
    least = "≥ " if traffic.unproven else ""
    rows = [
        (term.collective, f"{term.payload / _GB:,.2f} GB", f"{term.what}, {_where(term)}") for term in traffic.terms
    ]
    rows.append(("each GPU's link", f"{least}{traffic.wire / _GB:,.2f} GB", "each way"))
    if planned.job.world.nodes > 1:
        rows.append(("each node's network", f"{least}{traffic.between_nodes / _GB:,.2f} GB", "each way"))
    yield "<h2>Traffic of a step, as written</h2><div class=wide><table>"
    for name, size, remark in rows:
        yield f"<tr><th>{escape(name)}</th><td>{size}</td><td>{escape(remark)}</td></tr>"
    yield "</table></div>"


def _where(term: Term) -> str:
    return "between nodes" if term.group.nodes > 1 else "inside a node"


def _facts(planned: Planned) -> Iterator[str]:
    yield "<h2>What this is computed from</h2><dl>"
    for source in Source:
        facts = [fact for fact in planned.job.facts if fact.source is source]
        if facts:
            words = ", ".join(
                f"{fact.name} {fact.value if isinstance(fact.value, str) else f'{fact.value:,}'}" for fact in facts
            )
            yield f"<dt>{source.value}</dt><dd>{escape(words)}</dd>"
    yield "</dl>"
