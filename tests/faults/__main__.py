"""Kill the operator at every write of every life, or of those that are named, and write docs/kill-points.md.

`make faults-full` does.

Ends with a traceback at the first kill point after which a job comes to anything else.
"""

import secrets
import sys
import tempfile
from pathlib import Path

from dev.cluster.cluster import Cluster
from tests.faults.jobs import Jobs
from tests.faults.kill_points import LIVES, KillPoints, Undisturbed
from tests.faults.proxy import Proxy
from tests.faults.replica import LONG_LEASE, Replica
from tests.faults.simulated import ROOT, simulated_nodes

PAGE = ROOT / "docs" / "kill-points.md"
HEAD = """# The operator killed at every write

`make faults-full` has written this page. On the real API server, with simulated nodes, a job is brought to where a
part of its life begins; the operator gets SIGKILL at one of its writes of that part, once before the API server hears
of it and once after it is done but not answered; another one starts, and the job must come to the same end state, with
the same objects, restarts and attempts, as one that was not disturbed. `make test` draws three of each.

| life | writes | kill points | came to the same |
|---|---|---|---|
"""


def main() -> None:
    """Try them, and write the page: what it says of others stays."""
    cluster = Cluster()
    cluster.up()
    with simulated_nodes(cluster), tempfile.TemporaryDirectory() as directory, Proxy(cluster.kubeconfig) as proxy:
        for life in sys.argv[1:] or LIVES:
            name = f"faults-{secrets.token_hex(3)}"
            cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            jobs = Jobs(cluster.api, name)
            replica = Replica(proxy.kubeconfig(Path(directory)), name, Path(directory), name, LONG_LEASE)
            replica.start()
            try:
                whole, passed = every(KillPoints(replica, jobs, proxy), life)
            finally:
                replica.end()
                cluster.api.request("DELETE", f"/api/v1/namespaces/{name}")
            row = f"| {life} | {len(whole.writes)} | {passed} | {passed} |\n"
            print(row, end="", flush=True)
            page = _read()
            page[life] = row, "".join(f"{at}. {write}\n" for at, write in enumerate(whole.writes, 1))
            known = [each for each in LIVES if each in page]
            lists = (f"\n## {each}\n{page[each][1]}" for each in known)
            PAGE.write_text(HEAD + "".join(page[each][0] for each in known) + "".join(lists))


def _read() -> dict[str, tuple[str, str]]:
    """Return what the page says of each life: its row, and the list of its writes."""
    head, *lists = PAGE.read_text().split("\n## ") if PAGE.exists() else [""]
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in head.splitlines(keepends=True) if " | " in line}
    titled = (each.partition("\n") for each in lists)
    return {life: (rows[life], writes.rstrip("\n") + "\n") for life, _, writes in titled}


def every(points: KillPoints, life: str) -> tuple[Undisturbed, int]:
    """Return the life undisturbed, and at how many points the operator was killed."""
    whole = points.undisturbed(life)
    tried = [(number, done) for number in range(1, len(whole.writes) + 1) for done in (False, True)]
    return whole, sum(points.kill_at(life, number, done=done, expected=whole.picture) for number, done in tried)


if __name__ == "__main__":
    main()
