from millstream.kernel._delivery import Delivery

class Operations(Delivery):
    """The client protocol, one read buffer at a time."""
