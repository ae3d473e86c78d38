"""HTTP/2 with prior knowledge. Comes in: frames of one client. Goes out: requests, and answers.

``frame_queue`` cuts what was read into frames, ``leaky_count`` says what is too often,
``window_writer`` sends answers, and ``connection`` does the rest with h2.
"""
