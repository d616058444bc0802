"""Strategies of Hypothesis that draw the cases, a module per kind of case."""
