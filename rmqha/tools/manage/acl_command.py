"""The group `rmqha acl`: accounts, the addresses that need none, and what an account may do."""
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from rmqha.acl.remote_address_strategy_factory import is_valid_inet4_address, is_valid_inet6_address
from rmqha.common import util_all
from rmqha.common.program import examples
from rmqha.common.texts import Secret
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.connection import asked_secret, connected, needed_namesrv
from rmqha.tools.manage.access_check import PUB, SUB, Rules, Use, Verdict, verdict
from rmqha.tools.manage.accounts import (
    IS_OFF,
    TURN_ON,
    Account,
    AccountChange,
    BrokerAccounts,
    account_views,
    alter_account,
    check_addresses,
    checked_entries,
    checked_permission,
    create_account,
    delete_account,
    existing_account,
    generated_secret,
    read_accounts,
    secret_to_send,
    set_white_addresses,
    unknown_account,
)
from rmqha.tools.manage.cluster_command import one_broker_option
from rmqha.tools.manage.completion import complete_group, complete_topic
from rmqha.tools.manage.masters import ManageGroup, Outcomes, cluster_options
from rmqha.tools.manage.settings import label, picked
from rmqha.tools.terminal import (
    CANNOT_ANSWER,
    FAILED,
    OK,
    CannotAnswerError,
    agreed,
    cell,
    emit,
    put,
    put_facts,
    render_table,
    yes_option,
)

F = TypeVar("F", bound=Callable[..., Any])
_DENY = "DENY"


@click.group("acl", cls=ManageGroup)
def acl_group() -> None:
    """List, create, change and delete accounts, and check what an account may do.

    Each broker has its own account files: changes go to all brokers of the cluster, masters and slaves. All of this
    needs an account with admin rights (`rmqha context add --access-key`), except `acl check --file`.
    """


@acl_group.group("user", short_help="List, create, change and delete accounts.")
def user_group() -> None:
    """List, create, describe, change and delete accounts. Secrets are never shown, except one that --generate made."""


@acl_group.group("white-list", short_help="Show and set the addresses that need no account.")
def white_list_group() -> None:
    """Show and set the addresses that need no account (globalWhiteRemoteAddresses)."""


def _read(admin: ClusterAdmin, cluster: str | None, broker: str | None) -> Outcomes[BrokerAccounts]:
    answers = read_accounts(admin, picked(admin, cluster, broker))
    answers.needed()
    return answers


def _by_label(answers: Mapping[Broker, str]) -> dict[str, str]:
    return {label(broker): text for broker, text in answers.items()}


def _labels(brokers: Sequence[Broker]) -> str:
    return ", ".join(cell(label(each)) for each in brokers)


# ---- accounts


@user_group.command("list", short_help="List the accounts of all brokers.", epilog=examples(
    "rmqha acl user list"))
@one_broker_option
@cluster_options
def list_command(namesrv: str | None, cluster: str | None, broker: str | None, timeout_s: float, output: str) -> None:
    """List the accounts, the brokers that have each, and whether they have it alike; and the brokers' account files.

    The counter of a file grows with each change by a request. RocketMQ 4.9.8 does not list accounts.
    """
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        answers = _read(admin, cluster, broker)
    views = account_views(answers.values)
    if output != "table":
        emit({"accounts": [{**_account_json(each.first), "brokers": [label(one) for one in each.by_broker],
                            "missing": [label(one) for one in each.missing], "differing": list(each.differing)}
                           for each in views],
              "brokers": [_broker_json(one, accounts) for one, accounts in answers.values.items()]}, output)
    else:
        put(render_table(["account", "admin", "topics", "groups", "brokers", "differs"], [
            [cell(each.access_key), "yes" if each.first.admin else "", cell(_permissions(each.first, True)),
             cell(_permissions(each.first, False)), "all" if not each.missing else _labels(list(each.by_broker)),
             ", ".join(each.differing)] for each in views], set()))
        put("")
        put(render_table(["broker", "access control", "account file", "counter", "changed"],
                         [row for one, accounts in answers.values.items() for row in _file_rows(one, accounts)],
                         {"counter"}))
    answers.finish()


def _permissions(account: Account, of_topics: bool) -> str:
    if account.may_do_everything:
        return "all"
    default, entries = ((account.default_topic_perm, account.topic_perms) if of_topics else
                        (account.default_group_perm, account.group_perms))
    return " ".join([*entries, f"others={default or _DENY}"])


def _file_rows(broker: Broker, held: BrokerAccounts) -> list[list[str]]:
    begin = [cell(label(broker)), "off" if not held.is_enabled else f"on; {held.unknown}" if held.unknown else "on"]
    files = [[cell(path), str(version.counter), util_all.format_date(version.timestamp)]
             for path, version in sorted(held.versions.items())]
    return [[*begin, *file] for file in files] or [[*begin, "", "", ""]]


def _broker_json(broker: Broker, held: BrokerAccounts) -> dict[str, object]:
    return {"cluster": broker.cluster, "name": broker.name, "broker_id": broker.broker_id, "address": broker.address,
            "enabled": held.is_enabled, "unknown": held.unknown,
            "files": [{"path": path, "counter": version.counter, "timestamp": version.timestamp}
                      for path, version in sorted(held.versions.items())]}


def _account_json(account: Account) -> dict[str, object]:
    return {"accessKey": account.access_key, "admin": account.admin, "whiteRemoteAddress": account.white_address,
            "defaultTopicPerm": account.default_topic_perm, "defaultGroupPerm": account.default_group_perm,
            "topicPerms": list(account.topic_perms), "groupPerms": list(account.group_perms)}


@user_group.command("describe", short_help="Show one account as each broker has it.", epilog=examples(
    "rmqha acl user describe orders-service"))
@click.argument("access_key", metavar="ACCESS_KEY")
@one_broker_option
@cluster_options
def describe_command(access_key: str, namesrv: str | None, cluster: str | None, broker: str | None, timeout_s: float,
                     output: str) -> None:
    """Show an account: its permissions, and the brokers that lack it or have it differently."""
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        answers = _read(admin, cluster, broker)
    view = next((each for each in account_views(answers.values) if each.access_key == access_key), None)
    unknown = {each: accounts.unknown or IS_OFF for each, accounts in answers.values.items()
               if accounts.unknown or not accounts.is_enabled}
    if view is None:
        answers.finish()
        if len(unknown) == len(answers.values):
            raise CannotAnswerError(f"no broker lists its accounts: {'; '.join(dict.fromkeys(unknown.values()))}"
                                    + (f": {TURN_ON}" if IS_OFF in unknown.values() else ""))
        raise unknown_account(access_key)
    if output != "table":
        emit({"accounts": {label(each): _account_json(account) for each, account in view.by_broker.items()},
              "missing": [label(each) for each in view.missing], "differing": list(view.differing),
              "unknown": _by_label(unknown)}, output)
    else:
        kept: dict[Account, list[Broker]] = {}
        for each, account in view.by_broker.items():
            same = next((one for one in kept if not one.differing(account)), account)
            kept.setdefault(same, []).append(each)
        for number, (account, brokers) in enumerate(kept.items()):
            if number:
                put("")
            put_facts({**{name: _fact(value) for name, value in _account_json(account).items()},
                       "brokers": _labels(brokers)})
        for each in view.missing:
            put(f"{cell(label(each))} does not have this account", err=True)
        for each, why in unknown.items():
            put(f"{cell(label(each))}: {cell(why)}", err=True)
    answers.finish()


def _fact(value: object) -> str:
    if isinstance(value, list):
        return cell(" ".join(map(str, value))) or "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else cell(str(value)) or "-"


def _permission_options(command: F) -> F:
    """Add the options for the permissions of an account."""
    for option in (
            click.option("--white-address", metavar="ADDRESSES",
                         help="Addresses from which the key is enough, such as 10.1.2.* or 10.1.2.{7,8}; empty: none."),
            click.option("--admin/--no-admin", "admin", default=None, help="Whether it may send admin requests."),
            click.option("--default-group-perm", metavar="PERMISSION", help="SUB or DENY, for groups that are not "
                         f"named; a new account has {_DENY}."),
            click.option("--default-topic-perm", metavar="PERMISSION", help="PUB, SUB, PUB|SUB or DENY, for topics "
                         f"that are not named; a new account has {_DENY}."),
            click.option("--group", "groups", multiple=True, metavar="NAME=PERMISSION",
                         help="Permission for a group: SUB or DENY. May be repeated."),
            click.option("--topic", "topics", multiple=True, metavar="NAME=PERMISSION",
                         help="Permission for a topic: PUB, SUB, PUB|SUB or DENY. May be repeated.")):
        command = option(command)
    return command


def _secret_options(command: F) -> F:
    for option in (
            click.option("--generate", is_flag=True, help="Generate a new secret, and print it once."),
            click.option("--secret-env", metavar="VARIABLE", help="The environment variable that holds the secret.")):
        command = option(command)
    return command


def _given_secret(secret_env: str | None, generate: bool) -> Secret | None:
    if secret_env and generate:
        raise click.UsageError("give --secret-env or --generate, not both")
    if generate:
        return generated_secret()
    if secret_env is None:
        return None
    value = os.environ.get(secret_env)
    if not value:
        raise CannotAnswerError(f"the environment variable {secret_env} is not set, or is empty")
    return Secret(value)


def _asked_secret(text: str, confirm: bool) -> Secret:
    return asked_secret(text, "--secret-env or --generate", confirm)


def _put_changed(made: Outcomes[Any], access_key: str, what: str, secret: Secret | None, output: str) -> None:
    """Print the brokers that have made a change, and a generated secret."""
    if output != "table":
        facts = {"accessKey": access_key, "brokers": [label(each) for each in made.values],
                 "errors": {label(each): error.message for each, error in made.errors.items()}}
        emit({**facts, **({"secretKey": secret.reveal()} if secret is not None and made.values else {})}, output)
    elif made.values:
        put(f"{what} {cell(access_key)} on {_labels(list(made.values))}")
        if secret is not None:
            put(f"secret key, shown only now: {secret.reveal()}")


def _finish(made: Outcomes[Any]) -> None:
    """End a command as `Outcomes.finish`, with what to do where access control is off."""
    made.finish(TURN_ON if any(IS_OFF in error.message for error in made.errors.values()) else "")


def _joined(made: Outcomes[Any], answers: Outcomes[Any]) -> Outcomes[Any]:
    """Return the outcomes of a change, with the errors of brokers that could not be asked before."""
    return Outcomes(made.values, {**answers.errors, **made.errors})


@user_group.command("create", short_help="Create an account on all brokers.", epilog=examples(
    "rmqha acl user create orders-service --generate --topic 'orders=PUB|SUB'",
    "rmqha acl user create operations --secret-env OPS_KEY --admin"))
@click.argument("access_key", metavar="ACCESS_KEY")
@_permission_options
@_secret_options
@click.option("--overwrite", is_flag=True, help="Give an account that exists these permissions and this secret.")
@one_broker_option
@cluster_options
def create_command(access_key: str, topics: tuple[str, ...], groups: tuple[str, ...], default_topic_perm: str | None,
                   default_group_perm: str | None, admin: bool | None, white_address: str | None,
                   secret_env: str | None, generate: bool, overwrite: bool, namesrv: str | None, cluster: str | None,
                   broker: str | None, timeout_s: float, output: str) -> None:
    """Create an account on all brokers of the cluster, masters and slaves. All that is not permitted is denied.

    ACCESS_KEY and the secret need more than 6 characters each. The secret is asked for, unless an option gives it. It
    is in no output, except that of --generate. Exit code 1 also when some brokers have the account already, 2 when all
    have it.
    """
    account = Account(access_key, bool(admin), white_address or "",
                      checked_permission(default_topic_perm or _DENY), checked_permission(default_group_perm or _DENY),
                      _entries(topics), _entries(groups))
    secret = _given_secret(secret_env, generate)
    with connected(needed_namesrv(namesrv), timeout_s) as client:
        answers = _read(client, cluster, broker)
        if not overwrite and all(access_key in each.accounts for each in answers.values.values()):
            raise existing_account(access_key)
        secret = secret or _asked_secret(f"Secret key for {access_key}", confirm=True)
        made = _joined(create_account(client, answers.values, account, secret, overwrite), answers)
    _put_changed(made, access_key, "created", secret if generate else None, output)
    _finish(made)


def _entries(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}={perm}" for name, perm in checked_entries(texts).items())


@user_group.command("alter", short_help="Change an account on all brokers.", epilog=examples(
    "rmqha acl user alter orders-service --topic refunds=PUB",
    "rmqha acl user alter orders-service --generate"))
@click.argument("access_key", metavar="ACCESS_KEY")
@_permission_options
@click.option("--remove-topic", "without_topics", multiple=True, metavar="NAME",
              help="Remove the permission of a topic, so that the default applies. May be repeated.")
@click.option("--remove-group", "without_groups", multiple=True, metavar="NAME",
              help="Remove the permission of a group. May be repeated.")
@_secret_options
@click.option("--new-secret", is_flag=True, help="The given secret replaces the present one.")
@one_broker_option
@cluster_options
def alter_command(access_key: str, topics: tuple[str, ...], groups: tuple[str, ...], default_topic_perm: str | None,
                  default_group_perm: str | None, admin: bool | None, white_address: str | None,
                  without_topics: tuple[str, ...], without_groups: tuple[str, ...], secret_env: str | None,
                  generate: bool, new_secret: bool, namesrv: str | None, cluster: str | None, broker: str | None,
                  timeout_s: float, output: str) -> None:
    """Change an account on all brokers of the cluster. What no option names stays as it is.

    RocketMQ's request needs the account's secret with each change. It is asked for, unless an option gives it. The
    command tries it with a signed request, and changes nothing if a broker refuses that. From a host on a white list it
    can't be tried, and becomes the account's secret. With --new-secret or --generate it always does.
    """
    change = AccountChange(
        admin, white_address, None if default_topic_perm is None else checked_permission(default_topic_perm),
        None if default_group_perm is None else checked_permission(default_group_perm),
        checked_entries(topics), checked_entries(groups), frozenset(without_topics), frozenset(without_groups))
    new_secret = new_secret or generate
    if change == AccountChange() and not new_secret:
        raise click.UsageError("nothing to change: give a permission, --admin, --white-address or --new-secret")
    given = _given_secret(secret_env, generate)
    with connected(needed_namesrv(namesrv), timeout_s) as client:
        answers = _read(client, cluster, broker)
        if not any(access_key in each.accounts or each.unknown for each in answers.values.values()):
            raise unknown_account(access_key)
        what = "New secret" if new_secret else "Secret"
        secret, is_compared = secret_to_send(client, answers.values, access_key, given, new_secret,
                                             lambda: _asked_secret(f"{what} key for {access_key}", new_secret))
        if not is_compared:
            put("note: this host is on a white list, so the secret could not be tried; it becomes the account's secret",
                err=True)
        made = _joined(alter_account(client, answers.values, access_key, change, secret), answers)
    _put_changed(made, access_key, "changed", secret if generate else None, output)
    _finish(made)


@user_group.command("delete", short_help="Delete an account from all brokers.", epilog=examples(
    "rmqha acl user delete --yes orders-service"))
@click.argument("access_key", metavar="ACCESS_KEY")
@yes_option
@one_broker_option
@cluster_options
def delete_command(access_key: str, yes: bool, namesrv: str | None, cluster: str | None, broker: str | None,
                   timeout_s: float, output: str) -> None:
    """Delete an account from all brokers of the cluster; its requests are refused from then on."""
    with connected(needed_namesrv(namesrv), timeout_s) as client:
        answers = _read(client, cluster, broker)
        agreed(f"Delete the account {access_key}?", yes)
        made = _joined(delete_account(client, answers.values, access_key), answers)
    gone = Outcomes({each: True for each, deleted in made.values.items() if deleted}, made.errors)
    _put_changed(gone, access_key, "deleted", None, output)
    _finish(made)
    if not gone.values:
        raise unknown_account(access_key)


# ---- addresses without an account


@white_list_group.command("get", short_help="Show the addresses that need no account.", epilog=examples(
    "rmqha acl white-list get"))
@one_broker_option
@cluster_options
def get_command(namesrv: str | None, cluster: str | None, broker: str | None, timeout_s: float, output: str) -> None:
    """Show the addresses from which requests need no account, and may do everything, for each broker."""
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        answers = _read(admin, cluster, broker)
    if output != "table":
        emit([{**_broker_json(each, accounts), "addresses": list(accounts.white_addresses)}
              for each, accounts in answers.values.items()], output)
    else:
        put(render_table(["broker", "addresses"], [
            [cell(label(each)), cell(_addresses(accounts))] for each, accounts in answers.values.items()], set()))
    answers.finish()


def _addresses(held: BrokerAccounts) -> str:
    if not held.is_enabled:
        return "access control is off"
    return held.unknown or " ".join(text for text in held.white_addresses if text.strip()) or "none"


@white_list_group.command("set", short_help="Replace the addresses that need no account.", epilog=examples(
    "rmqha acl white-list set '10.10.103.*' 10.10.104.7"))
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option("--none", "no_address", is_flag=True, help="Let no address in without an account.")
@click.option("--path", metavar="PATH", help="Another account file of the brokers, below their home.")
@yes_option
@one_broker_option
@cluster_options
def set_command(addresses: tuple[str, ...], no_address: bool, path: str | None, yes: bool, namesrv: str | None,
                cluster: str | None, broker: str | None, timeout_s: float, output: str) -> None:
    """Replace the addresses from which requests need no account, in the default file of all brokers, or in another.

    Slaves need to be on their master's list, and this host may be, too: check the list that is shown before you agree.
    """
    if bool(addresses) == no_address:
        raise click.UsageError("give addresses, or --none")
    check_addresses(addresses)
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        answers = _read(admin, cluster, broker)
        if output == "table" or not yes:
            put(render_table(["broker", "before", "after"], [
                [cell(label(each)), cell(_addresses(accounts)), cell(" ".join(addresses)) or "none"]
                for each, accounts in answers.values.items()], set()), err=output != "table")
        agreed(f"Replace the addresses that need no account{'' if path is None else f' in {path}'}?", yes)
        made = _joined(set_white_addresses(admin, answers.values, list(addresses), path), answers)
    if output != "table":
        emit({"addresses": list(addresses), "brokers": [label(each) for each in made.values],
              "errors": {label(each): error.message for each, error in made.errors.items()}}, output)
    elif made.values:
        put(f"changed on {_labels(list(made.values))}")
    _finish(made)


# ---- what an account may do


@acl_group.command("check", short_help="Check whether an account may use a topic or group.", epilog=examples(
    "rmqha acl check orders-service --topic orders pub",
    "rmqha acl check orders-service --topic orders --group billing sub",
    "rmqha acl check --file plain_acl.yml orders-service --topic orders pub"))
@click.argument("access_key", metavar="ACCESS_KEY")
@click.argument("perm", type=click.Choice([PUB, SUB]))
@click.option("--topic", shell_complete=complete_topic, help="The topic to send to (pub) or to read (sub).")
@click.option("--group", shell_complete=complete_group, help="The group to consume as; with --topic, check both.")
@click.option("--from", "address", metavar="ADDRESS", help="The client's address; by default one on no white list.")
@click.option("--file", "files", multiple=True, type=click.Path(dir_okay=False),
              help="An account file to check instead of the brokers'. May be repeated, in the order of reading.")
@one_broker_option
@cluster_options
def check_command(access_key: str, perm: str, topic: str | None, group: str | None, address: str | None,
                  files: tuple[str, ...], namesrv: str | None, cluster: str | None, broker: str | None,
                  timeout_s: float, output: str) -> None:
    """Check whether an account may send to a topic, read it, or consume as a group, and print the rule that decides.

    The rules are evaluated as the brokers do it, with the accounts that they list, or those in files. The signature is
    taken to be right. Exit code 0: allowed by all brokers; 1: denied by a broker; 2: unknown.
    """
    if topic is None and group is None:
        raise click.UsageError("give --topic, --group or both")
    if perm == PUB and group is not None:
        raise click.UsageError("sending needs no group: give --group only with sub")
    if address is not None and not is_valid_inet4_address(address) and not is_valid_inet6_address(address):
        raise click.UsageError(f"{address!r} is not an IP address")
    use = Use(perm, topic, group, address)
    if files:
        if broker is not None or cluster is not None:
            raise click.UsageError("give --file, or brokers with -c and -b, not both")
        _finish_check({"files": verdict(Rules.of_files(files), access_key, use)}, output)
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        answers = _read(admin, cluster, broker)
    verdicts = {label(each): verdict(Rules.of_broker(accounts), access_key, use)
                for each, accounts in answers.values.items()}
    verdicts.update({label(each): Verdict(None, error.message) for each, error in answers.errors.items()})
    _finish_check(verdicts, output)


def _finish_check(verdicts: Mapping[str, Verdict], output: str) -> None:
    """Print the verdicts, each with the brokers that have it, and end with the exit code."""
    words = {each.word for each in verdicts.values()}
    worst = next(word for word in ("denied", "unknown", "allowed") if word in words)
    if output != "table":
        emit({"verdict": worst, "brokers": [{"broker": where, "verdict": each.word, "reason": each.reason,
                                             "note": each.note} for where, each in verdicts.items()]}, output)
    else:
        places: dict[Verdict, list[str]] = {}
        for where, each in verdicts.items():
            places.setdefault(each, []).append(where)
        for each, where_all in places.items():
            where = f" ({cell(', '.join(where_all))})" if len(places) > 1 else ""
            put(f"{each.word}{where}: {cell(each.reason)}")
            if each.note:
                put(f"  {cell(each.note)}")
    raise SystemExit({"allowed": OK, "denied": FAILED, "unknown": CANNOT_ANSWER}[worst])
