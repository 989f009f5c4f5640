"""Diagrams of modules that were traced while they ran."""
