"""The agent service: runs model and tools turn by turn.

One rollout, file by file: service.py takes the request; attempt.py runs it (plan.py, then
environment/session.py, context.py with model/, environment/verification.py) and sends events.py.
"""
