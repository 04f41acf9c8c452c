"""Signs what a client sends."""
from rmqha.acl.common.acl_signer import cal_signature, combine_request_content
from rmqha.acl.common.session_credentials import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SessionCredentials
from rmqha.common.mix_all import UNIQUE_MSG_QUERY_FLAG
from rmqha.remoting.protocol.remoting_command import RemotingCommand


class AclClientRPCHook:
    """The hook for producers, consumers and admin tools: `DefaultMQProducer(group, AclClientRPCHook(credentials))`.

    Java: org.apache.rocketmq.acl.common.AclClientRPCHook (4.9.8)
    """

    def __init__(self, session_credentials: SessionCredentials) -> None:
        self.session_credentials = session_credentials

    def do_before_request(self, _remote_addr: str, request: RemotingCommand) -> None:
        """Add key, token and signature to the request."""
        credentials = self.session_credentials
        request.add_ext_field(ACCESS_KEY, credentials.access_key)
        if credentials.security_token is not None:
            request.add_ext_field(SECURITY_TOKEN, credentials.security_token)
        content = combine_request_content(request, self.parse_request_content(request))
        request.add_ext_field(SIGNATURE, cal_signature(content, credentials.secret_key))

    def do_after_response(self, _remote_addr: str, _request: RemotingCommand,
                          _response: RemotingCommand | None) -> None:
        """Nothing."""

    def parse_request_content(self, request: RemotingCommand) -> dict[str, str]:
        """The fields to be signed."""
        request.make_custom_header_to_net()
        # Differs: the flag of queries by key is not signed, as a broker leaves it out; the original signs it, and its
        # queries are refused
        return {name: text for name, text in (request.ext_fields or {}).items() if name != UNIQUE_MSG_QUERY_FLAG}
