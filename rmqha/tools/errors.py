"""Turns the exceptions that end a command into one line for users."""
import os

import click

from rmqha.client.exception import CLIENT_ERRORS, MQBrokerException, MQClientException
from rmqha.common.configuration import ConfigError
from rmqha.common.filesystem import NotRegularFileError
from rmqha.remoting.exception import RemotingException
from rmqha.tools.terminal import CannotAnswerError

TRACEBACK_ENV = "RMQHA_TRACEBACK"


def one_line(error: BaseException) -> str:
    """Return an error's text on one line, followed by its causes; without the URL that the client's errors append."""
    text = error.error_message if isinstance(error, (MQClientException, MQBrokerException)) else str(error)
    said = " ".join((text or type(error).__name__).split())
    if isinstance(error, MQBrokerException):
        said = f"{error.broker_addr or 'the server'} refused the request with code {error.response_code}: {said}"
    elif isinstance(error, RemotingException):
        said = f"no answer: {said}"
    said = said.partition(" For more information, please visit the url")[0]
    return said if error.__cause__ is None else f"{said}: {one_line(error.__cause__)}"


def told(error: Exception) -> click.ClickException | None:
    """Return the one-line error that ends the command; None when RMQHA_TRACEBACK asks for the traceback of a bug."""
    if isinstance(error, (*CLIENT_ERRORS, ConfigError, NotRegularFileError)):
        return CannotAnswerError(one_line(error))
    if os.environ.get(TRACEBACK_ENV):
        return None
    return CannotAnswerError(f"internal error in rmqha, {type(error).__name__}: {one_line(error)}. Please report it; "
                             f"{TRACEBACK_ENV}=1 shows the traceback")
