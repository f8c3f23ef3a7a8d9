"""All that knows NVFlare."""
