"""Whatever goes wrong in a command, as one line for people."""
import os

import click

from rmqha.client.exception import CLIENT_ERRORS, MQBrokerException, MQClientException
from rmqha.common.configuration import ConfigError
from rmqha.common.filesystem import NotRegularFileError
from rmqha.remoting.exception import RemotingException
from rmqha.tools.terminal import CannotAnswerError

TRACEBACK_ENV = "RMQHA_TRACEBACK"


def one_line(error: BaseException) -> str:
    """What an error says, without the web page that the client's errors name, and its cause, when it has one."""
    text = error.error_message if isinstance(error, (MQClientException, MQBrokerException)) else str(error)
    said = " ".join((text or type(error).__name__).split())
    if isinstance(error, MQBrokerException):
        said = f"{error.broker_addr or 'the server'} refuses with code {error.response_code}: {said}"
    elif isinstance(error, RemotingException):
        said = f"no answer: {said}"
    said = said.partition(" For more information, please visit the url")[0]
    return said if error.__cause__ is None else f"{said}: {one_line(error.__cause__)}"


def told(error: Exception) -> click.ClickException | None:
    """The error that ends the command with one line; None for one that has to be seen as it is, when asked for."""
    if isinstance(error, (*CLIENT_ERRORS, ConfigError, NotRegularFileError)):
        return CannotAnswerError(one_line(error))
    if os.environ.get(TRACEBACK_ENV):
        return None
    return CannotAnswerError(f"a fault of rmqha itself, {type(error).__name__}: {one_line(error)}. Please report it; "
                             f"{TRACEBACK_ENV}=1 shows where it is")
