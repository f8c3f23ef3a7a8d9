"""RuleFit, and the quick search for its penalty."""
