"""What a site's owner agrees to: plans, how they look from a site, and signatures."""
