"""The only sockets, clocks and threads: carries out what the engine asks for, and decides nothing."""
