"""The tables of the papers, as declarations; how they are run, piece by piece; and the page of what came out."""
