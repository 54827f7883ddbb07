r"""Answers as text, what they denote, and whether two denote the same. Pure.

extraction: where a response has its answer. reading: text into forms, by notation (one spelling),
splitting (signs outside of brackets), scalars, units, expressions (a tree of nodes), words
(dates, names). forms: what an answer may be. comparison: whether two forms are one, by numbers
(values) and regions (intervals). question: whether an answer only repeats what was asked.
"""
