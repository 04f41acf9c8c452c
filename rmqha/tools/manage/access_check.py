"""May an account use a topic or a group, and which rule decides that: the broker's checks, in their order, without it.

    files, or BrokerAccounts --> Rules --verdict--> allowed, denied or unknown, with the reason

The permissions are evaluated with the functions of rmqha.acl that a broker of rmqha uses. For a RocketMQ broker, they
are evaluated by its fewer rules. The signature is taken to be right.
"""
import functools
from collections.abc import Iterable
from dataclasses import dataclass

from rmqha.acl import common
from rmqha.acl.acl_files import AclFile
from rmqha.acl.common import (
    AclException,
    Need,
    PlainAccessResource,
    get_group_from_retry_topic,
    get_retry_topic,
    group_need,
    is_owned,
    is_retry_topic,
    topic_need,
)
from rmqha.acl.plain_permission_manager import PlainPermissionManager
from rmqha.acl.remote_address_strategy_factory import RemoteAddressStrategyFactory
from rmqha.common.java import hash_map_order
from rmqha.common.mix_all import DLQ_GROUP_TOPIC_PREFIX
from rmqha.common.texts import Secret
from rmqha.common.topics import RMQ_SYS_TRACE_TOPIC
from rmqha.tools.manage.accounts import Account, BrokerAccounts, permission_text
from rmqha.tools.terminal import CannotAnswerError

PUB, SUB = "pub", "sub"
_PERMISSIONS = {PUB: common.PUB, SUB: common.SUB}
# Long enough to be valid: the secret of a listed account is unknown, and not needed here.
_ANY_SECRET = Secret("unknown-secret")


@dataclass(frozen=True)
class Use:
    """A use by an account: sending to a topic, reading a topic, consuming as a group, or the last two.

    `address` is that of its host; None when it is on no white list.
    """

    perm: str
    topic: str | None = None
    group: str | None = None
    address: str | None = None

    def needs(self) -> list[Need]:
        """Return the permissions that a request for this needs."""
        needs = [] if self.topic is None else [topic_need(self.topic, _PERMISSIONS[self.perm])]
        return needs if self.group is None else [*needs, group_need(self.group)]


@dataclass(frozen=True)
class Rules:
    """The access control of a broker. `is_of_rmqha` is False for RocketMQ's rules; `unknown`: why they are unknown."""

    accounts: dict[str, Account]
    white_addresses: tuple[str, ...] = ()
    is_enabled: bool = True
    is_of_rmqha: bool = True
    unknown: str = ""

    @classmethod
    def of_broker(cls, held: BrokerAccounts) -> "Rules":
        """Return the rules that a broker has reported."""
        return cls(held.accounts, held.white_addresses, held.is_enabled, held.is_of_rmqha, held.unknown)

    @classmethod
    def of_files(cls, paths: Iterable[str]) -> "Rules":
        """Return the rules in account files, in the order in which a broker reads them.

        CannotAnswerError for a file that is missing, empty or invalid.
        """
        accounts: dict[str, Account] = {}
        white: list[str] = []
        for path in paths:
            try:
                content = AclFile.read(path)
                if content is None:
                    raise CannotAnswerError(f"{path}: the file is missing or empty")
                for config in content.accounts:
                    account = Account.of(config)
                    _built(account, config.secretKey)
                    accounts.setdefault(account.access_key, account)
            except AclException as error:
                text = str(error)
                raise CannotAnswerError(text if text.startswith(path) else f"{path}: {text}") from None
            white += [text or "" for text in content.global_white_addrs]
        return cls(accounts, tuple(white))


@dataclass(frozen=True)
class Verdict:
    """The answer to a use; `is_allowed`: None for unknown. `note`: from where it would be allowed."""

    is_allowed: bool | None
    reason: str
    note: str = ""

    @property
    def word(self) -> str:
        """The verdict as a word."""
        return "unknown" if self.is_allowed is None else "allowed" if self.is_allowed else "denied"


def verdict(rules: Rules, access_key: str, use: Use) -> Verdict:
    """Return whether a broker with these rules allows an account a use, by the first rule that decides."""
    if rules.unknown:
        return Verdict(None, f"{rules.unknown}; give its account files with --file")
    if not rules.is_enabled:
        return Verdict(True, "access control is off (aclEnable=false)")
    sender = PlainAccessResource(access_key, white_remote_address=use.address)
    try:
        white = _matching(rules.white_addresses, sender)
        if white is not None:
            return Verdict(True, f"globalWhiteRemoteAddresses has {white}: requests from there need no account")
        # All are built, because a broker refuses a file with an invalid account.
        built = {each.access_key: _built(each, _ANY_SECRET.reveal()) for each in rules.accounts.values()}
    except AclException as error:
        return Verdict(None, f"a broker refuses such a file, and keeps what it loaded before: {error}")
    account, owned = rules.accounts.get(access_key), built.get(access_key)
    if account is None or owned is None:
        return Verdict(False, f"the account {access_key} does not exist", _elsewhere(rules, None, use))
    if owned.remote_address_strategy is not None and owned.remote_address_strategy.match(sender):
        return Verdict(True, f"whiteRemoteAddress of the account is {account.white_address}: requests from there need "
                             "no permission")
    return _by_permissions(rules, account, owned, use)


def _matching(patterns: Iterable[str], sender: PlainAccessResource) -> str | None:
    """Return the first pattern that matches the sender's address."""
    factory, found = RemoteAddressStrategyFactory(), None
    for pattern in patterns:
        # All are read, because a broker refuses a file with an invalid one.
        if factory.get_remote_address_strategy(pattern).match(sender) and found is None:
            found = pattern
    return found


def _built(account: Account, secret: str | None) -> PlainAccessResource:
    """Return an account as a broker holds it. AclException when it is invalid."""
    return _manager().build_plain_access_resource(account.config(Secret(secret or "")))


@functools.cache
def _manager() -> PlainPermissionManager:
    """Return a manager that builds accounts, and has no files."""
    return PlainPermissionManager("")


def _elsewhere(rules: Rules, account: Account | None, use: Use) -> str:
    """Return from where an account that is denied would be allowed, when its address is not given."""
    if use.address is not None:
        return ""
    white = [text for text in (*rules.white_addresses, account.white_address if account else "") if text.strip()]
    return f"from an address on the white lists ({', '.join(white)}) it is allowed: see --from" if white else ""


def _by_permissions(rules: Rules, account: Account, owned: PlainAccessResource, use: Use) -> Verdict:
    if owned.admin and owned.resource_perm_map is None:
        return Verdict(True, "the account is an admin without lists of permissions")
    needs = dict(use.needs())
    if not rules.is_of_rmqha and needs.get(RMQ_SYS_TRACE_TOPIC) == common.PUB:
        return Verdict(True, "all accounts may send message traces")
    reasons = []
    for resource in hash_map_order(needs):
        perm = needs[resource]
        allowed = is_owned(owned, resource, perm) if rules.is_of_rmqha else _is_owned_there(owned, resource, perm)
        reason = _reason(rules, account, owned, resource, perm, allowed)
        if not allowed:
            return Verdict(False, reason, _elsewhere(rules, account, use))
        reasons.append(reason)
    return Verdict(True, "; ".join(reasons))


def _is_owned_there(owned: PlainAccessResource, resource: str, perm: int) -> bool:
    """Return whether a RocketMQ broker finds that an account has a permission."""
    own = (owned.resource_perm_map or {}).get(resource)
    default = owned.default_group_perm if is_retry_topic(resource) else owned.default_topic_perm
    return common.check_permission(perm, default if own is None else own)


def _reason(rules: Rules, account: Account, owned: PlainAccessResource, resource: str, perm: int,
            allowed: bool) -> str:
    """Return the rule that decides about a permission, as a text."""
    is_group = is_retry_topic(resource)
    name = (get_group_from_retry_topic(resource) if is_group else resource) or ""
    kind, entries, default, own_default, text = (
        ("group", common.CONFIG_GROUP_PERMS, common.CONFIG_DEFAULT_GROUP_PERM, owned.default_group_perm,
         account.default_group_perm) if is_group else
        ("topic", common.CONFIG_TOPIC_PERMS, common.CONFIG_DEFAULT_TOPIC_PERM, owned.default_topic_perm,
         account.default_topic_perm))
    if resource == RMQ_SYS_TRACE_TOPIC and perm == common.PUB and rules.is_of_rmqha:
        return "all accounts may send message traces"
    own = (owned.resource_perm_map or {}).get(resource)
    if own is not None:
        return f"{entries} has {name}={permission_text(own)}{_but_needed(own, perm, allowed)}"
    begin = f"{kind} {name} has no entry in {entries}"
    if rules.is_of_rmqha and resource in common.INNER_TOPICS:
        return f"{begin}, and {default} does not apply to it, because it holds messages or events of other topics"
    if rules.is_of_rmqha and resource.startswith(DLQ_GROUP_TOPIC_PREFIX):
        group = get_retry_topic(resource[len(DLQ_GROUP_TOPIC_PREFIX):])
        if not is_owned(owned, group, common.SUB):
            return f"{begin}, and its dead letters are only for accounts that may consume as the group: " + _reason(
                rules, account, owned, group, common.SUB, False)
    value = text if text and permission_text(own_default) == text.strip() else (
        f"{text!r}, which means {permission_text(own_default)}" if text else "missing, which means DENY")
    return f"{begin}, and {default} is {value}{_but_needed(own_default, perm, allowed)}"


def _but_needed(own: int, perm: int, allowed: bool) -> str:
    return "" if allowed or own & common.DENY else f", but {permission_text(perm)} is needed"
