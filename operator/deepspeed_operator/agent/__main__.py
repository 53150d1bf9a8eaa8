"""Entry point: `python3 -S -u <directory>/agent`."""

import os
import signal
import sys

# Before all that takes time: to the first process of a container a signal that nothing handles does not happen, and a
# pod that is deleted as its container starts would stay for its whole grace.
TERMINATED = (
    '{"protocol":3,"reason":"Terminated","signal":15,"signature":"stopped by SIGTERM from outside as it started"}'
)


def terminated(*_: object) -> None:
    try:
        with open(os.environ.get("DEEPSPEED_OPERATOR_TERMINATION_LOG", "/dev/termination-log"), "w") as file:
            file.write(TERMINATED)
    finally:
        os._exit(143)


signal.signal(signal.SIGTERM, terminated)

if sys.version_info < (3, 8):
    sys.exit("the image's python3 is Python " + sys.version.split()[0] + "; the operator's agent needs 3.8 or newer")

# The user's PYTHONPATH is the ranks'; a queue.py or json.py there must not stand in for the agent's own imports.
_users = set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
_library = os.path.dirname(os.__file__)
sys.path.sort(key=lambda entry: entry in _users and not entry.startswith(_library))

# The path comes first.
if sys.argv[1:] == ["stacks"]:
    from dso_stacks import main
elif sys.argv[1:] == ["state"]:
    from dso_ask import main
else:
    from dso_agent import main

# Not sys.exit: threads that still wait for a peer or a pipe are of no more use.
os._exit(main())
