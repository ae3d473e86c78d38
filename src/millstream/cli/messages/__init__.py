"""Commands that send and receive messages: pub, sub, request, reply, bench."""
