"""Named tuples whose methods are created lazily equal those of the standard library."""
import copy
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import typing

import pytest

from rmqha.common import lazy_tuples
from tests.support.sources import ROOT


def made(kind):
    class Place(kind.NamedTuple):
        """A position."""

        topic: str
        queue: int = 3
        more: tuple[int, ...] = ()

        @property
        def name(self):
            return f"{self.topic}-{self.queue}"

        def next(self):
            return self._replace(queue=self.queue + 1)

    return Place


class Place(lazy_tuples.NamedTuple):
    topic: str
    queue: int = 3


class Named(lazy_tuples.NamedTuple):
    topic: str

    def __str__(self):
        return self.topic


T = typing.TypeVar("T")


class Answer(lazy_tuples.NamedTuple, typing.Generic[T]):
    where: str
    told: T | None = None


class Checked(Place):
    __slots__ = ()

    def __new__(cls, topic, queue=4):
        return super().__new__(cls, topic, queue)


def outcome(call):
    try:
        return call()
    except (TypeError, AttributeError, ValueError) as error:
        return type(error), str(error)


def test_everything_equals_the_standard_library():
    def asked(cls):
        one = cls("t", more=(1,))
        topic, queue, more = one
        return [repr(one), one == ("t", 3, (1,)), topic, queue, more, one.name, repr(one.next()), one._asdict(),
                cls._make(["a", 1, ()]), outcome(lambda: cls._make([1])), outcome(lambda: cls()),
                outcome(lambda: cls("a", wrong=1)), outcome(lambda: one._replace(wrong=1)),
                outcome(lambda: setattr(one, "topic", "x")), outcome(lambda: setattr(one, "other", 1)), hash(one),
                cls._fields, cls._field_defaults, cls.__match_args__, cls.__doc__, cls.__slots__, cls.__mro__[1:],
                type(cls), cls.__new__.__qualname__, str(inspect.signature(cls)).replace("'", ""), one < cls("u"),
                copy.copy(one), typing.get_type_hints(cls), type(vars(cls)["topic"]), vars(cls)["queue"].__doc__]

    assert asked(made(lazy_tuples)) == asked(made(typing))


def test_import_creates_no_methods():
    code = ("import collections; made = []; original = collections.namedtuple\n"
            "def counted(name, *rest, **options): made.append(name); return original(name, *rest, **options)\n"
            "collections.namedtuple = counted\n"
            "from rmqha.common.message import message_decoder; print('RecordHead' in made, 'MessageId' in made)")
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True).stdout
    assert told.strip() == "False False"


@pytest.mark.parametrize("first", [lambda cls, one: repr(one) == "Place(topic='t', queue=1, more=())",
                                   lambda cls, one: cls._make(one) == one, lambda cls, one: one._asdict()["queue"] == 1,
                                   lambda cls, one: one._replace(queue=2).queue == 2,
                                   lambda cls, one: one.__getnewargs__() == ("t", 1, ())])
def test_first_use_of_any_kind_creates_the_methods(first):
    cls = made(lazy_tuples)
    assert first(cls, tuple.__new__(cls, ("t", 1, ()))) and cls("x").queue == 3


def test_own_methods_are_kept_and_subclasses_work():
    assert str(Named("a")) == "a" and repr(Named("a")) == "Named(topic='a')"
    assert Answer("a") == ("a", None) and Answer.__mro__[1:] == (tuple, typing.Generic, object)
    assert Checked("a") == ("a", 4) and repr(Checked("b", 1)) == "Checked(topic='b', queue=1)"


@pytest.mark.parametrize("one", [Place("a", 1), Named("b"), Checked("c"), Answer[int]("d", 1)], ids=repr)
def test_pickles_survive_a_round_trip(one):
    again = pickle.loads(pickle.dumps(one))
    assert again == one and type(again) is type(one)


def test_garbage_collection_during_the_creation():
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(20):
            assert made(lazy_tuples)("x", 1)[:2] == ("x", 1)
    finally:
        gc.set_threshold(*before)


def test_concurrent_first_uses_of_a_class():
    for _ in range(50):
        cls = made(lazy_tuples)
        start, wrong = threading.Barrier(4), []

        def use(cls=cls, start=start, wrong=wrong):
            start.wait()
            if cls("x", 1) != ("x", 1, ()) or repr(cls("x")) != "Place(topic='x', queue=3, more=())":
                wrong.append(cls)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
