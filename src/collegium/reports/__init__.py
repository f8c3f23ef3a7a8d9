"""Tables, plots and progress: what people look at."""
