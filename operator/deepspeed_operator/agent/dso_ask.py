"""`agent state` in a pod prints what its agent tells those who know the token: whoever may exec there may read it."""

from __future__ import annotations

import http.client
import sys

from dso_launch import load

SECONDS = 5


def main() -> int:
    launch = load()
    connection = http.client.HTTPConnection(launch.hosts[launch.index], launch.agent_port, timeout=SECONDS)
    try:
        connection.request("GET", "/state", headers={"Authorization": "Bearer " + launch.token})
        print(connection.getresponse().read().decode())
    except (OSError, http.client.HTTPException) as error:
        print(f"the agent does not answer: {error}", file=sys.stderr)
        return 1
    return 0
