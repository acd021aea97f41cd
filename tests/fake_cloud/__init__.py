"""A cloud for tests: a strict gcloud that keeps state, and a small suite to run on its workers."""
