"""The other clients, each behind one small function, so that a benchmark reads the same for all."""
