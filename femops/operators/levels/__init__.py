"""Levels of assembly: which data an operator stores."""
