"""The suite on Cloud TPUs: one command that gets machines, runs on all of them, brings the results home and always
deletes what it created. Everything goes through the `gcloud` command; nothing here imports JAX."""
