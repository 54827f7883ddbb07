"""The gateway: a model endpoint for programs that run as the agent, which captures their calls.

A program's request is read by its dialect (dialects/, pure), placed in the rollout's tree of calls
(tree/, pure) and answered by the model service.
"""
