"""Kill the operator at every write of every life, and write docs/kill-points.md: `make faults-full`.

Ends with a traceback at the first kill point after which a job comes to anything else.
"""

import secrets
import tempfile
from pathlib import Path

from dev.cluster.cluster import Cluster
from tests.faults.jobs import Jobs
from tests.faults.kill_points import LIVES, KillPoints, Undisturbed
from tests.faults.proxy import Proxy
from tests.faults.replica import Replica
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
    """Try all, and write the page."""
    cluster = Cluster()
    cluster.up()
    rows, lists = "", ""
    with simulated_nodes(cluster), tempfile.TemporaryDirectory() as directory, Proxy(cluster.kubeconfig) as proxy:
        for life in LIVES:
            name = f"faults-{secrets.token_hex(3)}"
            cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            jobs = Jobs(cluster.api, name)
            replica = Replica(proxy.kubeconfig(Path(directory)), name, Path(directory), name)
            replica.start()
            try:
                whole, passed = every(KillPoints(replica, jobs, proxy), life)
            finally:
                replica.end()
                cluster.api.request("DELETE", f"/api/v1/namespaces/{name}")
            rows += f"| {life} | {len(whole.writes)} | {passed} | {passed} |\n"
            lists += f"\n## {life}\n" + "".join(f"{at}. {write}\n" for at, write in enumerate(whole.writes, 1))
            print(life, len(whole.writes), passed, flush=True)
    PAGE.write_text(HEAD + rows + lists)


def every(points: KillPoints, life: str) -> tuple[Undisturbed, int]:
    """Return the life undisturbed, and at how many points the operator was killed."""
    whole = points.undisturbed(life)
    tried = [(number, done) for number in range(1, len(whole.writes) + 1) for done in (False, True)]
    return whole, sum(points.kill_at(life, number, done=done, expected=whole.picture) for number, done in tried)


if __name__ == "__main__":
    main()
