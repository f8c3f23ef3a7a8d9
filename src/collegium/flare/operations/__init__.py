"""What operators and their programs look at: status, health and metrics of a server or a site."""
