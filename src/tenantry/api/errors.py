"""The errors that Tenantry raises.

::

    TenantryError                   a person can act on the message
    ├── InputError                  invalid input: a flag, a file, a field (exit code 2)
    ├── ConfigError                 no cluster can be reached with these credentials (exit code 3)
    ├── LocalError                  a local control plane, its build or its files (exit code 4)
    ├── StoreError                  a store of snapshots refuses, or does not answer
    ├── RetryableError              try again later: after_seconds
    ├── TerminalError               retrying does not help until something changes: reason
    └── ApiError                    the API server answered with an error: status, reason
        ├── BadRequest              400
        ├── Unauthorized            401
        ├── Forbidden               403
        ├── NotFound                404
        ├── Conflict                409, resourceVersion is old
        ├── AlreadyExists           409 on create
        ├── Gone                    410, a watch or a page is too old
        ├── Invalid                 422
        ├── TooManyRequests         429
        ├── ServerError             5xx
        ├── TooLarge                the response is longer than the client reads
        └── Unreachable             no response at all
            └── Interrupted         the response broke off
"""

from __future__ import annotations


class TenantryError(Exception):
    """The root of all errors. The text has the fault, the place, the input, and what to do."""

    exit_code = 1


class InputError(TenantryError):
    """The input is invalid."""

    exit_code = 2


class ConfigError(TenantryError):
    """No cluster can be reached with what was given."""

    exit_code = 3


class LocalError(TenantryError):
    """A local control plane cannot be built, started, stopped or read."""

    exit_code = 4


class StoreError(TenantryError):
    """A store of snapshots outside of the cluster refuses a request, or does not answer.

    Args:
        message: Why, in one sentence, with the name of the destination and not its address: owners read it.
        is_passing: The same request may succeed in a moment.
    """

    def __init__(self, message: str, *, is_passing: bool = False) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class RetryableError(TenantryError):
    """The operation cannot be done yet.

    Args:
        message: What must happen first.
        after_seconds: Seconds until the next try; None for the queue's back-off.
        is_reported: A condition and an event report it, so that the log does not have to for each try.
    """

    def __init__(self, message: str, after_seconds: float | None = None, *, is_reported: bool = False) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds
        self.is_reported = is_reported


class TerminalError(TenantryError):
    """Nothing changes until a person changes something.

    Args:
        reason: A constant of `tenantry.api.reasons`, for the condition.
        message: What to change.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ApiError(TenantryError):
    """The API server answered with an error.

    Args:
        message: The server's message, or a default if it sent none.
        status: The HTTP status; 0 if there was no answer.
        reason: `Status.reason`; "" if the server sent none.
        retry_after_seconds: The server's Retry-After; None if it sent none.
    """

    exit_code = 5

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds

    def worded(self, message: str) -> ApiError:
        """Return the same error in other words."""
        return type(self)(message, status=self.status, reason=self.reason, retry_after_seconds=self.retry_after_seconds)


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: RBAC, a policy, a quota or a terminating namespace refuses."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: another client wrote in between."""


class AlreadyExists(Conflict):
    """409 on create: an object of this name is there."""


class Gone(ApiError):
    """410: the resourceVersion or the continue token is too old."""


class Invalid(ApiError):
    """422: a field of the object is wrong."""


class TooManyRequests(ApiError):
    """429: wait `retry_after_seconds`."""


class ServerError(ApiError):
    """5xx."""


class TooLarge(ApiError):
    """The response is longer than the client reads: it was not read to its end."""


class Unreachable(ApiError):
    """No response: nothing listens there, the connection broke, or time ran out."""


class Interrupted(Unreachable):
    """The response began, and the connection broke before its end."""
