"""YAML as SnakeYAML has it: scalars, what is written, and anything that is no YAML."""
import builtins
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.acl import acl_files
from rmqha.acl.acl_files import AclFile
from rmqha.acl.common import AclException
from rmqha.common.filesystem import how_to_install
from tests.acl.acl_documents import KNOWN, generated
from tests.support.tiers import drawn


@pytest.mark.parametrize("text, value", [
    ("12345678", "12345678"), ("01234567", "342391"), ("0123456789", "0123456789"), ("'0777'", "0777"),
    ("1e3", "1000.0"), ("12345678e3", "1.2345678E10"), ("1_000", "1000"), ("0x1F", "31"), ("12:30", "750"),
    ("1e999", "Infinity"), ("~", None), ("yes", "true"), ("Off", "false"), ("2001-01-01", "2001-01-01"), ("=", "="),
    ("*", AclException), ("[a]", AclException),
])
def test_scalars_become_javas_texts(text, value):
    if value is AclException:
        with pytest.raises(AclException):
            acl_files.text_of(acl_files.loads(f"a: {text}\n".encode())["a"])
    else:
        assert acl_files.text_of(acl_files.loads(f"a: {text}\n".encode())["a"]) == value


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x85\u2028\u2029"), max_size=30)
SCALARS = st.one_of(TEXTS, st.integers(-2**63, 2**63), st.booleans(), st.none(),
                    st.sampled_from(("1e3", "0777", "12345678", "yes", "null", "2001-01-01", "=", "- a", "a: b", "*",
                                     "{x}")))


@settings(max_examples=drawn(200), deadline=None)
@given(st.dictionaries(TEXTS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), max_size=4))
def test_what_is_written_is_read_again(data):
    written = acl_files.dumps(data)
    assert acl_files.loads(written) == data
    assert yaml.safe_load(written).keys() == data.keys()  # and any other reader finds the same keys


@settings(max_examples=drawn(400), deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text("{}[]:-,&*!|>'\"#%@`\n\t a1", max_size=60).map(str.encode)))
def test_any_bytes_are_a_value_or_an_acl_exception(content):
    try:
        acl_files.loads(content)
    except AclException as error:
        assert str(error).startswith("no YAML: ")


def test_generated_files_are_read_or_refused_with_their_name(tmp_path):
    path, outcomes = tmp_path / "some.yml", {"read": 0, "refused": 0}
    for text in [*KNOWN, *generated(3, 300)]:
        path.write_text(text, "utf-8")
        try:
            AclFile.read(str(path))
            outcomes["read"] += 1
        except AclException as error:
            assert str(error).startswith(f"{path}: ")
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 30


@pytest.mark.parametrize("content", [b"[" * 10_000, b"{a: " * 5_000, b"- " * 5_000, b"? " * 5_000, b"a: 0b_\n",
                                     b"\xff\xfe\x00", b"a: \x00", b"a: 9" + b"9" * 5000, b"&a [*a", b"<<: 1\n"])
def test_hostile_documents_are_refused(content):
    with pytest.raises(AclException, match="^no YAML: "):
        acl_files.loads(content)


def test_folder_in_the_place_of_a_file_is_named(tmp_path):
    (tmp_path / "folder.yml").mkdir()
    with pytest.raises(AclException, match="folder.yml: .*Is a directory"):
        acl_files.get_yaml_data_object(str(tmp_path / "folder.yml"))


def test_without_pyyaml_the_way_to_install_it_is_told(monkeypatch):
    real = builtins.__import__

    def without_yaml(name, *args):
        if name == "yaml":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    with pytest.raises(AclException, match=re.escape(how_to_install("acl"))):
        acl_files.loads(b"a: b")
