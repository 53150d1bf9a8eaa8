"""How dsjob is delivered: one file that runs it, and what krew is told of it."""
