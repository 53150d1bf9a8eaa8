"""Which reason a rank's end has: by its exit code or signal, its last words and the end of its log."""

from __future__ import annotations

import re
import signal
from typing import Iterator, NamedTuple

from dso_signatures import (
    CAUSE,
    CONSEQUENCE,
    GOES_DOWN,
    LEFT,
    LOG,
    MEMORY_FULL,
    OF_CODE,
    OF_TORCH,
    PERHAPS,
    PLACES,
    TRAINED,
    UNCAUGHT,
    VAGUE,
    WORDS,
    Signature,
)
from dso_words import (
    chain,
    dying_words,
    exceptions,
    is_complaint,
    is_exception,
    last_exceptions,
    plain,
    reported_end,
    uncaught,
)

_MOST_OTHERS = 2
_OF_SIGNALS = {
    signal.SIGSEGV: "Segfault",
    signal.SIGILL: "Segfault",
    signal.SIGFPE: "Segfault",
    signal.SIGBUS: "SharedMemory",  # torch and NCCL map files of /dev/shm; the pages that it has no room for fault
}
# All that a rank's own end may be.
OF_A_RANK = frozenset(
    ["RankFailed", "RankLeft", "UserError", "FinishedThenFailed", *(each.reason for each in (*WORDS, *LOG, *PLACES))]
)
_OF_SHELLS = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
# By which a program is asked to end: nothing in it has failed.
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# How launchers tell which signal has ended a rank: torchrun, DeepSpeed's, subprocess', torch.multiprocessing, mpirun.
_REPORTED = re.compile(
    r"exitcode\s*: -(\d+)|exits with return code = -(\d+)|died with <Signals\.\w+: (\d+)>"
    r"|Signal (\d+) \(SIG\w+\) received|\(exitcode: -(\d+)\)|got signal: (\d+)|terminated with signal (SIG[A-Z]+)"
    r"|exited on signal (\d+)|KILLED BY SIGNAL: (\d+)"
)
_OF_ACTORS = re.compile(r"^ray\.exceptions\.", re.MULTILINE)
# That a log is a launcher's, of several ranks.
_OF_RANKS = re.compile(r"ChildFailedError|failed \(exitcode: |exits with return code = ")


# A traceback that no other one has led to.
_BEGINS = re.compile(
    r"(?<!the following exception:\n\n)(?<!another exception occurred:\n\n)^Traceback \(most", re.MULTILINE
)
# A process of a rank's own that was killed for the rank's memory.
_WORKER = re.compile(r"DataLoader worker|exited unexpectedly|Broken ?Process ?Pool|killed by signal: Killed")
# What torch logs before it aborts without a word.
_ALARM = re.compile(r"^\[[EF][\d :.]*\S+\.cpp:\d+\] (.*)$", re.MULTILINE)


class Told(NamedTuple):
    """`text` has the rank's words, with what the log adds; `others` are further candidates where it is not certain."""

    reason: str
    text: str
    others: tuple[str, ...] = ()


def finding(code: int, output: str, words: str, out_of_memory: bool) -> Told:
    """`code` as subprocess gives it, `output` legible, `words` of dso_words or the rank's error file."""
    killed = _signal(code, output, words)
    if out_of_memory and (killed == signal.SIGKILL or _WORKER.search(words)):
        return Told("HostOutOfMemory", "the container ran out of memory")
    if _finished(output, words, killed):
        return Told("FinishedThenFailed", words)
    found, text = _explained(output, words, killed)
    if found:
        return Told(found.reason, text, found.others[:_MOST_OTHERS])
    if killed == signal.SIGKILL:
        full = MEMORY_FULL.search(output)
        return Told("HostOutOfMemory", full[0]) if full else Told("RankFailed", words, ("HostOutOfMemory",))
    if killed in _OF_SIGNALS:
        return Told(_OF_SIGNALS[signal.Signals(killed)], words)
    if killed:
        return Told("RankFailed", words)
    return Told("UserError" if is_exception(words) or is_complaint(words) else "RankFailed", words)


def signature_of(words: str, aborted: bool = False) -> Signature | None:
    words = words[:1000]  # a pattern may search a line without end for ever
    of_torch = aborted or bool(OF_TORCH.match(words))
    return next((each for each in WORDS if (of_torch or not each.of_torch) and each.search(words)), None)


def _explained(output: str, words: str, killed: int) -> tuple[Signature | None, str]:
    """What the words mean; where they tell of another rank, or of nothing, what else the log has."""
    found = signature_of(words, aborted=killed == signal.SIGABRT)
    vague = bool(VAGUE.search(words))
    if found and found.weight == CAUSE and not vague:
        return found, words
    text = plain(output)
    linked = chain(text)
    own = linked if words and linked and linked[-1].text in words else []
    if vague:
        for each in reversed(own[:-1]):  # that led to this one
            before = signature_of(each.text)
            if before:
                return before, each.text
    elif found is None and not killed and is_exception(words) and not is_complaint(words):
        return _placed(own[-1].places if own else [], words), words
    other = next(_others(output, text, killed, found), None)
    if other:
        return other
    for each in LOG:
        line = _line(each, text)
        if line:
            alone = not vague or not words or line in words
            return each, line if alone else f"{words}: {line}"
    if found.weight == CONSEQUENCE if found else killed == signal.SIGABRT:
        for alarm in [dying_words(output), *reversed(_ALARM.findall(text))]:
            each = signature_of(alarm, aborted=True)
            if each and (found is None or each.weight < found.weight):
                return each, alarm
    return found, words


def _others(output: str, text: str, killed: int, found: Signature | None) -> Iterator[tuple[Signature, str]]:
    """Failures beside the last one: of the other ranks in a launcher's log, or of this one before it aborted."""
    beside = [raised for _, raised in uncaught(output)]
    if found and found.weight == CONSEQUENCE and _OF_RANKS.search(output):
        beside += reversed(last_exceptions(text))
    for raised in beside:
        each = signature_of(raised.text)
        if not VAGUE.search(raised.text) and (each is None or each.weight == CAUSE):
            yield each or _placed(raised.places, raised.text) or UNCAUGHT, raised.text
    merged = len(set(re.findall(r"^\[(?:rank|default)(\d+)\]:", output, re.MULTILINE))) > 1
    if merged or killed == signal.SIGABRT or _OF_ACTORS.search(output):
        for raised in exceptions(text):
            each = signature_of(raised.text)
            if each and each.weight == CAUSE and not VAGUE.search(raised.text):
                yield each, raised.text


def _placed(places: list[str], words: str) -> Signature | None:
    if OF_CODE.match(words):
        return None
    near = f"{words} @ {' '.join(places[-6:])}"
    return next((each for each in PLACES if each.search(near)), None)


def _finished(output: str, words: str, killed: int) -> bool:
    """Whether the program had come to its end before this failure; False where that is not certain."""
    # An exception ends a program, too, and the interpreter says the same then.
    failed = "Traceback (most recent call last)" in output
    if GOES_DOWN.search(output[-3000:]) and ("shutdown" in words or (killed and not failed)):
        return True
    if not killed or killed == signal.SIGKILL:
        return False
    trained = [mark.end() for mark in TRAINED.finditer(output)]
    ends = trained if failed and not trained else [*trained, *(mark.end() for mark in LEFT.finditer(output))]
    after = output[max(ends) :] if ends else "Traceback"
    waiting = signature_of(words, aborted=True)
    return "Traceback" not in after and not (waiting and "collective operation" in words)


def _signal(code: int, output: str, words: str) -> int:
    """The signal that has ended the rank, or by a launcher's or a shell's word what it has started; 0 if none.

    What came before the exception that ended a program was handled.
    """
    if code < 0:
        return -code
    first = reported_end(output)
    if first is not None:
        return max(0, -first)
    begins = [mark.start() for mark in _BEGINS.finditer(output)] if is_exception(words) else []
    last = output[begins[-1] :] if begins and "ChildFailedError" not in words else output
    reported = [told for groups in _REPORTED.findall(last) for told in groups if told]
    if reported:
        return int(reported[-1]) if reported[-1].isdigit() else getattr(signal, reported[-1], 0)
    return code - 128 if code - 128 in _OF_SHELLS else 0


def _line(signature: Signature, text: str) -> str:
    found = signature.search(text)
    if not found:
        return ""
    begin = text.rfind("\n", 0, found.start()) + 1
    return text[begin:].partition("\n")[0].strip()[:200]


def weight(reason: str, text: str, killed: int | None, code: int | None) -> int:
    """How much another rank's end explains this one: CAUSE, PERHAPS or CONSEQUENCE."""
    if reason == "RankFailed" and (killed in _ASKED or (code or 0) - 128 in _ASKED):
        return CONSEQUENCE
    found = signature_of(text, aborted=killed == signal.SIGABRT)
    if found and reason in (found.reason, "PreflightFailed"):
        return found.weight
    return PERHAPS if reason in ("NcclTimeout", "NcclNetwork", "RendezvousTimeout") else CAUSE
