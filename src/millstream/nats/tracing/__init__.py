"""Message traces: where a message went, told to the subject that its headers name.

A message without such headers never comes here: the kernel looks at the names of the headers alone.
"""
