"""Random forms: programs in text, with the spaces, coefficients and points they are made for.

An example is made from one number.  Each expression is evaluated while it is put together, by the
numbers of tests/support/oracles/running_error.py, so that arguments lie where functions are defined
and large and small numbers meet on purpose, not by accident.
"""
