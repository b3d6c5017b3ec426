"""Create exceptions that a server sends by name.

Key decision: names are looked up in a fixed table and never imported, so that a server
cannot choose what runs here.
"""

from ZODB import POSException

from .exceptions import ServerException


def plain(exception_class):
    return lambda arguments: exception_class(*as_arguments(arguments))


def as_arguments(arguments):
    return arguments if isinstance(arguments, (tuple, list)) else (arguments,)


def conflict(exception_class):
    def make(attributes):
        made = exception_class(
            message=attributes.get("message"),
            oid=attributes.get("oid"),
            serials=attributes.get("serials"),
        )
        made.class_name = attributes.get("class_name")
        return made

    return make


def btrees_conflict(attributes):
    places = {key: attributes.get(key) for key in ("p1", "p2", "p3", "reason")}
    return POSException.BTreesConflictError(**places)


def undo_error(attributes):
    return POSException.UndoError(attributes.get("_reason"), attributes.get("_oid"))


def undo_errors(attributes):
    failures = attributes.get("_errs")
    return POSException.MultipleUndoErrors([(oid, reason_of(why)) for oid, why in failures])


def reason_of(why):
    """Return a text, or the exception that a stock server has sent as a name and attributes."""
    is_exception = isinstance(why, tuple) and len(why) == 2 and isinstance(why[0], str)
    return exception(*why) if is_exception else why


BY_NAME = {
    f"ZODB.POSException.{exception_class.__name__}": factory(exception_class)
    for factory, classes in (
        (
            plain,
            (
                POSException.POSKeyError,
                POSException.ReadOnlyError,
                POSException.StorageSystemError,
                POSException.StorageTransactionError,
                POSException.Unsupported,
            ),
        ),
        (conflict, (POSException.ConflictError, POSException.ReadConflictError)),
    )
    for exception_class in classes
}
BY_NAME["ZODB.POSException.BTreesConflictError"] = btrees_conflict
BY_NAME["ZODB.POSException.UndoError"] = undo_error
BY_NAME["ZODB.POSException.MultipleUndoErrors"] = undo_errors
for module in ("builtins", "exceptions"):
    BY_NAME[f"{module}.KeyError"] = plain(KeyError)
    BY_NAME[f"{module}.TypeError"] = plain(TypeError)
    BY_NAME[f"{module}.ValueError"] = plain(ValueError)


def exception(name, arguments):
    """Return the exception with this name, or a ServerException."""
    make = BY_NAME.get(name)
    try:
        if make is not None:
            return make(arguments)
    except (AttributeError, TypeError, ValueError):
        # The class does not accept these arguments, so they go into a ServerException.
        pass
    return ServerException(name, arguments)
