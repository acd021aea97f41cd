"""What people look at after a run: diagnosis, matrices, summaries, the HTML page. Reads a results folder, imports no JAX."""
