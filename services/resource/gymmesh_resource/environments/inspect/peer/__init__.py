"""Runs a task of Inspect, in the interpreter that has inspect-ai; a script of `peer_processes`.

One evaluation that never ends runs in the process, without log files. Each session is a sample
that is added to it, so that files, sandbox, solver, limits and scorers are handled by Inspect.

script      what the service calls
evaluation  the task as it is evaluated: its solver and scorers in the hands of sessions
session     one sample, and who plays it
models      the model that its solver and scorers reach
listing     the task's samples as rows
scores      what scorers answered, as numbers
sandboxes   the service's sandboxes as Inspect's
"""
