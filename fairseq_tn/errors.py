"""The one exception for input that a user can mend."""


class UserError(ValueError, SystemExit):
    """Bad input: the message is one line that says what is wrong, where, and what to do.

    It is a ``ValueError`` for those who call the library. It is a ``SystemExit`` too, so that the
    interpreter, wherever it ends ``fairseq-train`` or a worker process, prints the line without a traceback
    and exits with status 1.
    """

    def __init__(self, message: str):
        super().__init__(message)
        self.code = message


class CheckpointMismatch(SystemExit):
    """A checkpoint that this model cannot load; the message is one line.

    It is no ``Exception``: fairseq's trainer replaces any exception that arises while weights are loaded by one
    that does not say what differs.
    """
