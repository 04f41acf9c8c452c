"""docs/SECURITY.md against the code: the defaults that it tells, the ports, and what an unsigned request can do."""
import re

import pytest

from rmqha.acl.common import ADMIN_CODE, COMMON_CODE, AclClientRPCHook, SessionCredentials
from rmqha.broker import broker_startup
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.compression import MAX_DECOMPRESSED_SIZE
from rmqha.common.config_keys import config_keys
from rmqha.common.configuration import is_fixed
from rmqha.common.mix_all import property_text
from rmqha.common.protocol import request_code
from rmqha.namesrv import namesrv_startup
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig
from rmqha.store import message_store_config
from rmqha.store.message_store_config import MessageStoreConfig
from tests.broker.acl_broker import ADMIN, acl_broker, is_refused
from tests.broker.support import running_broker
from tests.support.sources import ROOT

PAGE = (ROOT / "docs" / "SECURITY.md").read_text("utf-8")
CONFIGS = (BrokerConfig(), MessageStoreConfig(), ServerConfig())


@pytest.mark.parametrize("pair", ["aclEnable=false", "autoCreateTopicEnable=true", "autoCreateSubscriptionGroup=true",
                                  "serverChannelMaxIdleTimeSeconds=120"])
def test_a_default_that_the_page_tells_is_one(pair):
    assert f"`{pair}`" in PAGE
    key, value = pair.split("=")
    found = [property_text(getattr(config, item.name)) for config in CONFIGS
             for name, item in config_keys(type(config)).items() if name == key]
    assert found == [value]


def test_keys_that_the_page_names_are_there():
    known = {key for config in CONFIGS for key in config_keys(type(config))}
    assert {"haAllowedPeers", "haMasterAddress", "logLevel"} <= known & set(re.findall(r"`(\w+)[`=]", PAGE))
    assert MessageStoreConfig().haAllowedPeers is None


def test_ports_and_sizes_are_those_of_the_code():
    port = broker_startup.DEFAULT_LISTEN_PORT
    assert f"name server, {namesrv_startup.DEFAULT_LISTEN_PORT} " in PAGE
    assert f"broker, {port}, and fast port, {port - message_store_config.FAST_PORT_DISTANCE} " in PAGE
    assert f"replication, {port + 1} " in PAGE
    assert f"grow to {MAX_DECOMPRESSED_SIZE >> 20} MiB at most" in PAGE


def test_tls_is_offered_and_proves_nothing_by_default():
    settings = TlsSystemConfig()
    assert settings.tls_mode is TlsMode.PERMISSIVE and settings.tls_test_mode_enable


def test_no_code_is_both_an_admins_and_everybodys():
    assert not ADMIN_CODE & COMMON_CODE and request_code.UPDATE_BROKER_CONFIG in ADMIN_CODE


def test_paths_names_ports_and_roles_cannot_be_changed_from_outside():
    allowed = {key for config in CONFIGS for key in config_keys(type(config)) if not is_fixed(key)}
    assert not [key for key in allowed if re.search("Path|Port$|Name$|Role$|Home$|Address$|IP[12]$", key)]
    assert "aclEnable" not in allowed and "haAllowedPeers" not in allowed


def test_without_access_control_anybody_may_change_keys(tmp_path):
    with running_broker(tmp_path) as broker:
        assert broker.call(request_code.UPDATE_BROKER_CONFIG, body=b"traceOn=false\n").code == 0
        assert broker.controller.broker_config.traceOn is False


def test_a_signed_request_can_be_sent_again_with_another_code_as_the_page_tells(tmp_path):
    """What an admin's tools send to a broker that a stranger has registered, other brokers take from the stranger."""
    assert "`DELETE_EXPIRED_COMMITLOG`" in PAGE and "`tls.client.authServer=true`" in PAGE
    hook = AclClientRPCHook(SessionCredentials(*ADMIN))
    request = RemotingCommand.create_request_command(request_code.GET_BROKER_RUNTIME_INFO, None)
    hook.do_before_request("stranger:10911", request)
    with acl_broker(tmp_path / "home") as broker, broker.client(None) as stranger:
        code = request_code.DELETE_EXPIRED_COMMITLOG
        assert is_refused(stranger.request(code))
        assert stranger.request(code, **request.ext_fields).code == 0
