"""Tell exceptions of signal handlers from those of the code that they interrupt."""

import functools
import signal


def is_from_handler(traceback):
    """Whether the traceback of an exception passes through a handler that is installed now."""
    codes = {code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def code_of(handler):
    """Return the code of a function, of a method, or of an object that is called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    code = getattr(handler, "__code__", None)
    return code if code is not None else getattr(type(handler).__call__, "__code__", None)
