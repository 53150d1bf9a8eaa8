"""Entry point: `python3 -u <directory>/agent`."""

import os
import sys

if sys.version_info < (3, 8):
    sys.exit("the image's python3 is Python " + sys.version.split()[0] + "; the operator's agent needs 3.8 or newer")

# The user's PYTHONPATH is the ranks'; a queue.py or json.py there must not stand in for the agent's own imports.
_users = set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
_library = os.path.dirname(os.__file__)
sys.path.sort(key=lambda entry: entry in _users and not entry.startswith(_library))

from dso_agent import main  # noqa: E402  the path comes first

# Not sys.exit: threads that still wait for a peer or a pipe are of no more use.
os._exit(main())
