"""One rollout as the page shows it: detail.py has the whole. All but traced.py is pure.

conversation.py  its items, as messages and calls
call_tokens.py   the tokens of its model calls
images.py        which images are shown
traced.py        what a run's trace adds
"""
