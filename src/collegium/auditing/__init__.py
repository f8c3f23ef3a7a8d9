"""Attacks on what a run claims: canaries, views, attacks, lower bounds on epsilon, mechanisms, side channels.

`cg.audit` plays the game and returns an `Audit`. The package has another name than the function, so that importing one
never hides the other.
"""
