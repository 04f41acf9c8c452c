"""Queries by key."""
from rmqha.common import mix_all
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import QueryMessageRequestHeader
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.broker.support import running_broker


def test_query_by_unique_key_has_its_own_number_of_answers(tmp_path):
    with running_broker(tmp_path, defaultQueryMaxNum=2) as broker:
        for _ in range(5):
            broker.send("T", properties={"UNIQ_KEY": "K"})
        assert broker.next_offset("T") == 5
        header = QueryMessageRequestHeader("T", "K", 4, 0, 1 << 62)
        found = {}
        for flag in (None, "false", "true"):
            request = RemotingCommand.create_request_command(request_code.QUERY_MESSAGE, header)
            if flag is not None:
                request.ext_fields = {mix_all.UNIQUE_MSG_QUERY_FLAG: flag}
            answer = broker.client.invoke_sync(broker.address, request, 5000)
            found[flag] = len(message_decoder.decodes(answer.body))
        assert found == {None: 4, "false": 4, "true": 2}
