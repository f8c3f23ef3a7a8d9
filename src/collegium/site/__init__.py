"""What runs behind the seam, at a site: agent, gate, policy, ledger, exposure."""
