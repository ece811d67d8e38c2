"""The one exception that the command line turns into a one-line message."""


class OcmError(Exception):
    """Bad input or a missing artifact: says what was found, what was expected and what to do."""
