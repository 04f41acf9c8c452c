"""What the original's own classes make of address patterns and of files of accounts, and what rmqha makes of them."""
import dataclasses

import pytest

from rmqha.acl.acl_files import AclFile
from rmqha.acl.common import AclException, PlainAccessResource
from rmqha.acl.remote_address_strategy_factory import RemoteAddressStrategyFactory
from tests.acl.acl_documents import KNOWN as KNOWN_DOCUMENTS
from tests.acl.acl_documents import generated as generated_documents
from tests.acl.address_patterns import ADDRESSES, KNOWN, generated

REFUSED = ("a text is expected, not a", "an empty element", "true or false is expected")
pytestmark = pytest.mark.java


def ours(pattern):
    """"error", or 1 or 0 for each address."""
    try:
        strategy = RemoteAddressStrategyFactory().get_remote_address_strategy(pattern)
    except AclException:
        return "error"
    return "".join("01"[strategy.match(PlainAccessResource(white_remote_address=address))] for address in ADDRESSES)


def test_address_patterns_mean_the_same(java_driver):
    patterns = [*KNOWN, *generated(7, 5000)]
    java = java_driver.submit("aclAddresses", patterns=patterns, addresses=ADDRESSES).result()["results"]
    different = {}
    for pattern, theirs in zip(patterns, java, strict=True):
        mine = ours(pattern)
        # x: the original takes the pattern, and each request from such an address then fails; rmqha refuses the pattern
        if mine != theirs and not ("x" in theirs and mine == "error"):
            different[pattern] = (theirs, mine)
    assert different == {}
    assert sum("1" in result for result in java) > 500 and java.count("error") > 500


def read_by_us(path):
    """What a file says, in the words of the Java driver."""
    try:
        content = AclFile.read(str(path))
    except AclException as error:
        return "error", str(error)
    if content is None:
        return "null", ""
    accounts = [{name: value for name, value in dataclasses.asdict(account).items() if value is not None}
                for account in content.accounts]
    return {"white": content.global_white_addrs, "accounts": accounts, "counter": content.data_version.counter}, ""


def test_files_of_accounts_say_the_same(java_driver, tmp_path):
    documents = [*KNOWN_DOCUMENTS, *generated_documents(7, 1500)]
    files = []
    for number, text in enumerate(documents):
        files.append(tmp_path / f"{number}.yml")
        files[-1].write_text(text, "utf-8")
    java = java_driver.submit("aclYaml", files=list(map(str, files))).result()["results"]
    different = {}
    for file, text, theirs in zip(files, documents, java, strict=True):
        mine, error = read_by_us(file)
        # the original takes anything for a text, and fails later, or has an account that nobody can use
        if mine != theirs and not any(why in error for why in REFUSED):
            different[text] = (theirs, mine, error)
    assert different == {}
    assert java.count("error") > 100 and sum(isinstance(result, dict) for result in java) > 500
