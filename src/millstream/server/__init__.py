"""Config in, connected parts out; start, reload, drain, stop."""
