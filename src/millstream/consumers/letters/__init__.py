"""Dead letters of consumers: what is given up comes in, a copy of it goes out."""
