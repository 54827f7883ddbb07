"""What collecting for a trainer costs: contenders, each run by `run.py` in a process of its own.

work      the task, the tokenizer and the engine, which are the same for all
bare      a loop of asyncio that does the same by hand
ours      TrainerCollector
trl_loop  TRL's own loop over tools, with its sampling replaced
"""
