"""Runs an agent on a node whose clock is so many seconds ahead: SECONDS, then the command that starts the agent."""

import runpy
import sys
import time

_true, _ahead = time.time, float(sys.argv[1])
time.time = lambda: _true() + _ahead
sys.argv = sys.argv[-1:]
runpy.run_path(sys.argv[0], run_name="__main__")
