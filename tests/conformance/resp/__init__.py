"""Valkey's own tests, with our program as the server."""
