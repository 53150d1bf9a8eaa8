"""Pods that the gang has lost while the others keep theirs: until others have taken their places, the hub waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dso_launch import Cause, LaunchDocument

if TYPE_CHECKING:
    from dso_hub import Peer

KILLED_WITHIN = 5.0  # seconds: an agent that nobody answers ends its ranks after the fence, and they need some to end


class LostPods:
    """What the hub knows of them. Time is an argument."""

    def __init__(self, launch: LaunchDocument) -> None:
        self.launch = launch
        self.causes: dict[str, Cause] = {}  # why each is lost, by its uid: one that comes back is told, and ends
        self.awaited: dict[int, Peer] = {}  # by index, while no other has taken its place
        self.until: dict[int, float] = {}  # by index, when the others cease to wait for another
        self.fences: dict[str, float] = {}  # by uid, when none of its ranks can write any more

    def may_lose(self, index: int) -> bool:
        """Whether the gang may go on with another pod in the place of this one.

        Not where more than half of the pods would be lost: what the others would hold their GPUs for is then the
        smaller part, and a new attempt takes no longer. Where it is the hub's own, another hub goes on.
        """
        enough = 2 * len({*self.awaited, index}) <= self.launch.nodes
        return self.launch.replacement_seconds > 0 and enough

    def lose(self, index: int, peer: Peer, cause: Cause, now: float) -> None:
        self.until[index] = now + self.launch.replacement_seconds
        self.awaited[index] = peer
        self.causes[peer.uid] = cause
        self.fences[peer.uid] = 0.0
        self.heard(peer.uid, peer.seen)

    def heard(self, uid: str, now: float) -> None:
        """A lost pod lives: until it falls silent its ranks may, unless it is known to have ended."""
        if uid in self.fences:
            self.fences[uid] = now + self.launch.fence + KILLED_WITHIN

    def replaced(self, index: int, fenced: bool) -> None:
        """Another pod has come. `fenced`: whoever made it knows that the one before it has ended."""
        peer = self.awaited.pop(index, None)
        if peer and fenced:
            self.fences.pop(peer.uid, None)

    def hear_of_the_hub_before(self, now: float, parted: float) -> None:
        """A member parted so many seconds ago from the hub before this one, which ends its ranks for want of it."""
        at = now - parted + self.launch.fence + KILLED_WITHIN
        self.fences[""] = max(at, self.fences.get("", at))

    def fenced(self, now: float) -> bool:
        """Whether no rank of a lost pod can write any more."""
        return all(at <= now for at in self.fences.values())

    def late(self, now: float) -> Cause | None:
        """Why the attempt ends for want of a pod that did not come in time; None while there is time, or none lacks."""
        late = [peer for index, peer in self.awaited.items() if now > self.until[index]]
        return self.causes[late[0].uid] if late else None
