"""The settings of TLS on their way to a task: it can use the passwords, and shows none."""
import pickle

from rmqha.common.texts import Secret
from rmqha.pipeline.cluster.cluster_client import CLIENT_OPTIONS, client_options
from rmqha.pipeline.format_options import Options


def test_passwords_come_to_a_task_and_are_secrets_there():
    given = {"rocketmq.tls.client.keyPassword": "of-the-client"}
    options = client_options(Options(given, CLIENT_OPTIONS, "format rocketmq"))
    taken = pickle.loads(pickle.dumps(options))
    assert taken == options and isinstance(taken.tls.tls_client_key_password, Secret)
    assert taken.tls.tls_client_key_password.reveal() == "of-the-client"
    assert "of-the-client" not in f"{taken} {taken.tls} {taken.tls.__dict__}"
