"""The two ways a request can be wrong, apart from JAX being wrong."""


class UsageError(Exception):
    """Input from a person that cannot be used: one line that says what, where, and what would be right."""


class CaseError(UsageError):
    """A case line that does not parse.

    Attributes:
      line: the text as given.
      column: 1-based position of the first character that cannot be used.
    """

    def __init__(self, line: str, column: int, found: str, expected: str):
        self.line, self.column = line, column
        super().__init__(f"case line, column {column}: found {found!r}, expected {expected}: {line}")


class Illegal(Exception):
    """A well-formed case that no JAX promises to run (the message says which constraint it breaks)."""


class NotApplicable(Exception):
    """Something that a way of running programs cannot do; the message is the reason people read."""
