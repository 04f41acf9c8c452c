"""Accounts of access control on the brokers of a cluster: list, create, change and delete them; addresses without one.

    brokers --aclEnable, versions (52), accounts (54)--> BrokerAccounts, without secrets
    an Account and its secret --check--> UPDATE_AND_CREATE_ACL_CONFIG (50) to each broker

Each broker has its own files: a change goes to all brokers of the cluster, masters and slaves. RocketMQ 4.9.8 does not
list accounts: there the accounts are unknown, and can only be created and deleted. 4.9.7 lists them with their secrets,
which are kept as `Secret`, to send them back with a change, and never shown.
"""
import secrets
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rmqha.acl import common
from rmqha.acl.common import AclClientRPCHook, AclException, SessionCredentials
from rmqha.acl.remote_address_strategy_factory import RemoteAddressStrategyFactory
from rmqha.client.exception import MQBrokerException
from rmqha.common.data_version import DataVersion
from rmqha.common.protocol import request_code, response_code
from rmqha.common.texts import HIDDEN, Secret
from rmqha.common.topics import AclConfig, PlainAccessConfig
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, NoAnswerError, RefusedError
from rmqha.tools.manage.masters import Outcomes, on_each
from rmqha.tools.manage.settings import Settings, read_settings
from rmqha.tools.manage.single_request import ask_broker
from rmqha.tools.terminal import CannotAnswerError

PERMISSIONS = (common.DENY_TEXT, common.PUB_TEXT, common.SUB_TEXT, common.PUB_SUB)
IS_OFF = "access control is off there (aclEnable=false)"
TURN_ON = "set aclEnable=true in the brokers' files, write conf/plain_acl.yml, and restart them"
_NOT_LISTED = "it does not list its accounts, like RocketMQ 4.9.8"
_GENERATED_LENGTH = 32
_TEXTS = {common.DENY: common.DENY_TEXT, common.PUB: common.PUB_TEXT, common.SUB: common.SUB_TEXT,
          common.PUB | common.SUB: common.PUB_SUB}


T = TypeVar("T")


@dataclass(frozen=True)
class Account:
    """An account without its secret. The permissions are texts as in a file, such as "orders=PUB|SUB"."""

    access_key: str
    admin: bool = False
    white_address: str = ""
    default_topic_perm: str = ""
    default_group_perm: str = ""
    topic_perms: tuple[str, ...] = ()
    group_perms: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: PlainAccessConfig) -> "Account":
        """Return the account of an answer."""
        return cls(config.accessKey or "", config.admin, config.whiteRemoteAddress or "",
                   config.defaultTopicPerm or "", config.defaultGroupPerm or "",
                   tuple(config.topicPerms or ()), tuple(config.groupPerms or ()))

    @property
    def may_do_everything(self) -> bool:
        """True for an admin without lists of permissions, whose defaults do not count."""
        return self.admin and not self.topic_perms and not self.group_perms

    def config(self, secret: Secret) -> PlainAccessConfig:
        """Return the account as requests and files have it."""
        return PlainAccessConfig(self.access_key, secret.reveal(), self.white_address, self.admin,
                                 self.default_topic_perm or None, self.default_group_perm or None,
                                 list(self.topic_perms) or None, list(self.group_perms) or None)

    def differing(self, other: "Account") -> list[str]:
        """Return the names, as in a file, of what is not the same in both: permissions are compared by meaning."""
        ours, theirs = self._meaning(), other._meaning()
        return [name for name in ours if ours[name] != theirs[name]]

    def _meaning(self) -> dict[str, object]:
        return {common.CONFIG_ADMIN_ROLE: self.admin, common.CONFIG_WHITE_ADDR: self.white_address.strip(),
                common.CONFIG_DEFAULT_TOPIC_PERM: common.parse_perm_from_string(self.default_topic_perm),
                common.CONFIG_DEFAULT_GROUP_PERM: common.parse_perm_from_string(self.default_group_perm),
                common.CONFIG_TOPIC_PERMS: _permissions(self.topic_perms),
                common.CONFIG_GROUP_PERMS: _permissions(self.group_perms)}


def _permissions(texts: Iterable[str]) -> dict[str, int]:
    """Return name -> permission of texts such as `a=PUB`."""
    pairs = [text.partition("=") for text in texts]
    return {name.strip(): common.parse_perm_from_string(perm) for name, _equals, perm in pairs}


def permission_text(perm: int) -> str:
    """Return a permission as a text of files."""
    return _TEXTS.get(perm, common.DENY_TEXT)


@dataclass(frozen=True)
class BrokerAccounts:
    """The accounts of one broker. `versions` are those of its files, by path.

    `accounts` and `white_addresses` mean nothing when `unknown` says why the broker does not list them.
    """

    is_enabled: bool
    is_of_rmqha: bool
    accounts: dict[str, Account] = field(default_factory=dict)
    white_addresses: tuple[str, ...] = ()
    versions: dict[str, DataVersion] = field(default_factory=dict)
    unknown: str = ""
    # Of a broker of 4.9.7.
    known_secrets: dict[str, Secret] = field(default_factory=dict, repr=False)


def read_accounts(admin: ClusterAdmin, brokers: Iterable[Broker]) -> Outcomes[BrokerAccounts]:
    """Return the accounts of all brokers, asked in parallel."""
    settings = read_settings(admin, brokers)
    answers = on_each(admin, settings.values, lambda broker: _accounts(admin, broker, settings.values[broker]),
                   2 * admin.timeout_millis)
    return _explained(Outcomes(answers.values, {**settings.errors, **answers.errors}))


def _accounts(admin: ClusterAdmin, broker: Broker, settings: Settings) -> BrokerAccounts:
    # RocketMQ does not answer requests about accounts when access control is off.
    if settings.values.get("aclEnable") != "true":
        return BrokerAccounts(False, settings.is_of_rmqha)
    who = f"broker {broker.address}"
    versions = admin.asked(who, admin.api.get_broker_cluster_acl_info, broker.address, admin.timeout_millis)
    files = versions.allAclConfigDataVersion or {}
    try:
        config = admin.asked(who, _listed, admin, broker)
    except RefusedError as error:
        if error.code == response_code.REQUEST_CODE_NOT_SUPPORTED:
            return BrokerAccounts(True, settings.is_of_rmqha, versions=files, unknown=_NOT_LISTED)
        raise
    accounts: dict[str, Account] = {}
    known_secrets: dict[str, Secret] = {}
    for each in config.plainAccessConfigs:
        account = Account.of(each)
        accounts.setdefault(account.access_key, account)
        if each.secretKey:
            known_secrets.setdefault(account.access_key, Secret(each.secretKey))
    return BrokerAccounts(True, settings.is_of_rmqha, accounts, tuple(config.globalWhiteAddrs or ()), files, "",
                          known_secrets)


def _listed(admin: ClusterAdmin, broker: Broker) -> AclConfig:
    request = RemotingCommand.create_request_command(request_code.GET_BROKER_CLUSTER_ACL_CONFIG)
    return remoting_serializable.from_json(AclConfig, ask_broker(admin, broker, request).body or b"{}")


def _explained(outcomes: Outcomes[T]) -> Outcomes[T]:
    """Return outcomes in which the errors of access control say what to do."""
    for broker, error in outcomes.errors.items():
        if AclException.JAVA_NAME in error.message:
            outcomes.errors[broker] = CannotAnswerError(
                f"{error.message}. Use an account with admin rights there (`rmqha context add --access-key`), or an "
                "address on its white list")
    return outcomes


@dataclass(frozen=True)
class AccountView:
    """An account over all brokers: how each of them has it, those that lack it, and what differs between them."""

    access_key: str
    by_broker: dict[Broker, Account]
    missing: tuple[Broker, ...]
    differing: tuple[str, ...]

    @property
    def first(self) -> Account:
        """The account as the first broker has it."""
        return next(iter(self.by_broker.values()))


def account_views(answers: Mapping[Broker, BrokerAccounts]) -> list[AccountView]:
    """Return all accounts, by key, over the brokers that list them."""
    listing = {broker: each.accounts for broker, each in answers.items() if each.is_enabled and not each.unknown}
    views = []
    for key in sorted({key for accounts in listing.values() for key in accounts}):
        by_broker = {broker: accounts[key] for broker, accounts in listing.items() if key in accounts}
        first = next(iter(by_broker.values()))
        differing = dict.fromkeys(name for each in by_broker.values() for name in first.differing(each))
        views.append(AccountView(key, by_broker, tuple(broker for broker in listing if broker not in by_broker),
                                 tuple(differing)))
    return views


def unknown_account(access_key: str) -> CannotAnswerError:
    """Return the error about an account that no broker has."""
    return CannotAnswerError(f"no broker has the account {access_key!r}; `rmqha acl user list` shows those that exist")


def existing_account(access_key: str) -> CannotAnswerError:
    """Return the error about a new account that is there already."""
    return CannotAnswerError(f"the account {access_key} exists already: change it with `rmqha acl user alter`, or give "
                             "--overwrite")


# ---- checks before a request


def checked_permission(text: str) -> str:
    """Return a permission as files have it; CannotAnswerError for another text."""
    found = text.strip().upper()
    if found == common.SUB_PUB:
        return common.PUB_SUB
    if found not in PERMISSIONS:
        raise CannotAnswerError(f"{text[:80]!r} is not a permission: expected one of {', '.join(PERMISSIONS)}")
    return found


def checked_entries(texts: Iterable[str]) -> dict[str, str]:
    """Return name -> permission of NAME=PERMISSION texts; CannotAnswerError for another form."""
    entries: dict[str, str] = {}
    for text in texts:
        name, equals, perm = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise CannotAnswerError(f"{text[:80]!r} is not NAME=PERMISSION, such as orders=PUB|SUB")
        if "," in name:
            raise CannotAnswerError(f"{name[:80]!r} is not a valid name: it has a comma")
        if name in entries:
            raise CannotAnswerError(f"{name[:80]!r} is given twice")
        entries[name] = checked_permission(perm)
    return entries


def check_address(text: str) -> None:
    """Raise CannotAnswerError unless a text is a pattern of addresses."""
    try:
        RemoteAddressStrategyFactory().get_remote_address_strategy(text)
    except AclException as error:
        raise CannotAnswerError(f"{text[:80]!r} is not a valid address pattern: {error}") from None


def check_addresses(addresses: Iterable[str]) -> None:
    """Raise CannotAnswerError unless each text is a pattern of addresses that can be sent in a list."""
    for address in addresses:
        if "," in address:
            raise CannotAnswerError(f"{address[:80]!r} has a comma, which separates addresses in the request: give "
                                    "each address on its own")
        check_address(address)


def check_key_and_secret(access_key: str, secret: Secret | None) -> None:
    """Raise CannotAnswerError unless both are long enough, as brokers want them. None: the secret is not known yet."""
    if len(access_key) <= common.ACCESS_KEY_MIN_LENGTH:
        raise CannotAnswerError(f"the access key {access_key[:80]!r} is too short: it needs more than "
                                f"{common.ACCESS_KEY_MIN_LENGTH} characters")
    if secret is not None and len(secret.reveal()) <= common.SECRET_KEY_MIN_LENGTH:
        raise CannotAnswerError(f"the secret key is too short: it needs more than {common.SECRET_KEY_MIN_LENGTH} "
                                "characters")


def generated_secret() -> Secret:
    """Return a new random secret of letters and digits."""
    return Secret("".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(_GENERATED_LENGTH)))


# ---- changes


def create_account(admin: ClusterAdmin, answers: Mapping[Broker, BrokerAccounts], account: Account, secret: Secret,
                   overwrite: bool = False) -> Outcomes[Account]:
    """Create an account on these brokers; return it as each of them has it then.

    A broker that already has it counts as failed, unless it is to be overwritten.
    """
    check_key_and_secret(account.access_key, secret)
    check_address(account.white_address)

    def create(broker: Broker) -> Account:
        there = _enabled(answers[broker]).accounts.get(account.access_key)
        if there is not None and not overwrite:
            raise existing_account(account.access_key)
        if there is not None:
            _refuse_emptied(there, account)
        return _send(admin, broker, answers[broker], account, secret)
    return _explained(on_each(admin, answers, create, 2 * admin.timeout_millis))


@dataclass(frozen=True)
class AccountChange:
    """A change of an account; None leaves a value as it is."""

    admin: bool | None = None
    white_address: str | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    without_topics: frozenset[str] = frozenset()
    without_groups: frozenset[str] = frozenset()

    def of(self, account: Account) -> Account:
        """Return the changed account. CannotAnswerError for an entry to remove that is not there."""
        changed = replace(account, topic_perms=_edited(account.topic_perms, self.topics, self.without_topics),
                          group_perms=_edited(account.group_perms, self.groups, self.without_groups))
        for name in ("admin", "white_address", "default_topic_perm", "default_group_perm"):
            if getattr(self, name) is not None:
                changed = replace(changed, **{name: getattr(self, name)})
        return changed


def _edited(texts: tuple[str, ...], entries: Mapping[str, str], without: frozenset[str]) -> tuple[str, ...]:
    """Return the entries of a list, changed: in their order, new ones at the end."""
    found = {text.partition("=")[0].strip(): text for text in texts}
    for name in sorted(without):
        if name not in found:
            raise CannotAnswerError(f"the account has no entry for {name}")
        del found[name]
    return tuple({**found, **{name: f"{name}={perm}" for name, perm in entries.items()}}.values())


def alter_account(admin: ClusterAdmin, answers: Mapping[Broker, BrokerAccounts], access_key: str, change: AccountChange,
                  secret: Secret | None) -> Outcomes[Account]:
    """Change an account on these brokers; return it as each of them has it then.

    Without a secret, each broker's own is sent back; only 4.9.7 reveals it.
    """
    if change.white_address is not None:
        check_address(change.white_address)
    if secret is not None:
        check_key_and_secret(access_key, secret)

    def alter(broker: Broker) -> Account:
        each = _enabled(answers[broker])
        if each.unknown:
            raise CannotAnswerError(f"{each.unknown}: create the account with all its permissions and --overwrite")
        there = each.accounts.get(access_key)
        if there is None:
            raise CannotAnswerError(f"the account {access_key} does not exist: create it there with `rmqha acl user "
                                    f"create {access_key} -b {broker.address}`")
        changed = change.of(there)
        _refuse_emptied(there, changed)
        its_secret = secret or each.known_secrets.get(access_key)
        if its_secret is None:
            raise CannotAnswerError("a change needs the account's secret")
        return _send(admin, broker, each, changed, its_secret)
    return _explained(on_each(admin, answers, alter, 2 * admin.timeout_millis))


def _refuse_emptied(before: Account, after: Account) -> None:
    """Refuse to remove all entries of a list: the request cannot say that a list is empty."""
    for name, old, new in ((common.CONFIG_TOPIC_PERMS, before.topic_perms, after.topic_perms),
                           (common.CONFIG_GROUP_PERMS, before.group_perms, after.group_perms)):
        if old and not new:
            raise CannotAnswerError(f"no request can remove all entries of {name}: set one to DENY instead, or delete "
                                    "the account and create it again")


def delete_account(admin: ClusterAdmin, answers: Mapping[Broker, BrokerAccounts], access_key: str) -> Outcomes[bool]:
    """Delete an account on these brokers. False: a broker did not have it."""
    def delete(broker: Broker) -> bool:
        each = _enabled(answers[broker])
        if not each.unknown and access_key not in each.accounts:
            return False
        admin.ask_broker(broker.address, admin.api.delete_access_config, access_key, admin.timeout_millis)
        return True
    return _explained(on_each(admin, answers, delete))


def set_white_addresses(admin: ClusterAdmin, answers: Mapping[Broker, BrokerAccounts], addresses: list[str],
                        path: str | None = None) -> Outcomes[None]:
    """Replace the addresses that need no account in a file of these brokers; without `path` in the default file."""
    check_addresses(addresses)

    def change(broker: Broker) -> None:
        _enabled(answers[broker])
        admin.ask_broker(broker.address, admin.api.update_global_white_addrs_config, ",".join(addresses), path,
                         admin.timeout_millis)
    return _explained(on_each(admin, answers, change))


def _enabled(held: BrokerAccounts) -> BrokerAccounts:
    if not held.is_enabled:
        raise CannotAnswerError(IS_OFF)
    return held


def _send(admin: ClusterAdmin, broker: Broker, held: BrokerAccounts, account: Account, secret: Secret) -> Account:
    """Send an account, and return it as the broker has it then. No error contains the secret."""
    who = f"broker {broker.address}"
    config, before = account.config(secret), held.accounts.get(account.access_key)
    if not config.whiteRemoteAddress and not held.unknown and (before is None or not before.white_address):
        config.whiteRemoteAddress = None  # the file needs no empty one
    try:
        admin.asked(who, admin.api.create_plain_access_config, broker.address, config, admin.timeout_millis)
        listed = None if held.unknown else admin.asked(who, _listed, admin, broker)
    except CannotAnswerError as error:
        raise _without_secret(error, secret) from None
    if listed is None:
        return account
    there = [Account.of(each) for each in listed.plainAccessConfigs if each.accessKey == account.access_key]
    wrong = there[0].differing(account) if there else []
    if not there or wrong:
        raise CannotAnswerError("the broker reported success, but " + (
            f"its account differs in {', '.join(wrong)}" if there else "does not have the account"))
    return there[0]


def _without_secret(error: CannotAnswerError, secret: Secret) -> CannotAnswerError:
    """Return an error without the secret, which RocketMQ quotes when it refuses it."""
    text = error.message.replace(secret.reveal(), HIDDEN)
    if isinstance(error, RefusedError):
        return RefusedError(text, error.code)
    return type(error)(text) if isinstance(error, NoAnswerError) else CannotAnswerError(text)


# ---- the secret of an account


def is_right_secret(admin: ClusterAdmin, broker: Broker, access_key: str, secret: Secret) -> bool | None:
    """Return whether a broker accepts requests that are signed with a secret of an account.

    None: it also accepts a wrong one, because this host is on a white list. CannotAnswerError without an answer.
    """
    if _is_served(admin, broker, access_key, generated_secret()):
        return None
    return _is_served(admin, broker, access_key, secret)


def _is_served(admin: ClusterAdmin, broker: Broker, access_key: str, secret: Secret) -> bool:
    hook = AclClientRPCHook(SessionCredentials(access_key, secret.reveal()))

    def is_served() -> bool:
        try:
            client.api.get_broker_config(broker.address, client.timeout_millis)
        except MQBrokerException as error:
            if AclException.JAVA_NAME in (error.error_message or ""):
                return False
            raise
        return True
    with ClusterAdmin(None, admin.timeout_millis, hook, admin.client_config.tls) as client:
        return client.asked(f"broker {broker.address}", is_served)


Ask = Callable[[], Secret]


def secret_to_send(admin: ClusterAdmin, answers: Mapping[Broker, BrokerAccounts], access_key: str, given: Secret | None,
                   is_new: bool, ask: Ask) -> tuple[Secret | None, bool]:
    """Return the secret for a change of an account, and whether it could be compared with the brokers' own.

    None: each broker's own can be sent back. `ask` is called without another source. CannotAnswerError when a
    given secret is not the account's present one, unless it is new.
    """
    having = [broker for broker, each in answers.items() if access_key in each.accounts]
    if given is None and not is_new and having and all(access_key in answers[each].known_secrets for each in having):
        return None, True
    secret = given or ask()
    check_key_and_secret(access_key, secret)
    if is_new:
        return secret, True
    is_compared = True
    for broker in having:
        known = answers[broker].known_secrets.get(access_key)
        is_right = known == secret if known is not None else is_right_secret(admin, broker, access_key, secret)
        if is_right is False:
            raise CannotAnswerError(f"this is not the secret of {access_key} at broker {broker.address}; nothing was "
                                    "changed. To give the account a new secret, add --new-secret")
        is_compared = is_compared and bool(is_right)
    return secret, is_compared
