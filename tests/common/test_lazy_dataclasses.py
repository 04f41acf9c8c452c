"""Classes whose methods are created lazily equal those that the standard library's decorator creates at once."""
import copy
import dataclasses
import gc
import inspect
import pickle
import subprocess
import sys
import threading

import pytest

from rmqha.common import lazy_dataclasses
from tests.support.sources import ROOT

OPTIONS = [{}, {"slots": True}, {"frozen": True}, {"eq": False}, {"frozen": True, "slots": True},
           {"frozen": True, "eq": False}, {"frozen": True, "order": True, "slots": True},
           {"slots": True, "eq": False}]


def made(kind, options):
    """Return a family of classes made by one of the two decorators."""
    @kind.dataclass(**options)
    class Base:
        name: str = kind.field(default="n", metadata={"key": "a"})
        late: int = kind.field(default=7, kw_only=True)

    @kind.dataclass(**options)
    class Inner(Base):
        """Documented."""

        number: int = 3
        many: list[int] = kind.field(default_factory=list, compare=False)
        hidden: str | None = kind.field(default=None, repr=False)

        def doubled(self):
            return self.number * 2

    return Base, Inner


@dataclasses.dataclass(frozen=True)
class Eager:
    number: int = 1


@lazy_dataclasses.dataclass(frozen=True)
class LaterOfEager(Eager):
    text: str = "t"


@lazy_dataclasses.dataclass(slots=True)
class Place:
    topic: str
    queue: int = 0

    def __hash__(self):
        return hash(self.topic)


@lazy_dataclasses.dataclass(frozen=True, slots=True)
class FrozenPlace:
    topic: str
    queues: tuple[int, ...] = ()


@lazy_dataclasses.dataclass
class Derived:
    number: int
    double: int = lazy_dataclasses.field(default=0, init=False)

    def __post_init__(self):
        self.double = self.number * 2


@dataclasses.dataclass
class EagerOfLater(Derived):
    text: str = "t"


def outcome(call):
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_everything_equals_the_standard_library(options):
    (_, eager), (_, later) = made(dataclasses, options), made(lazy_dataclasses, options)

    def asked(cls):
        one, two = cls("x", 1, [2], late=9), cls("x", 1, [3], late=9)
        return [repr(one), one == two, one != cls(), outcome(lambda: hash(one) == hash(two)),
                outcome(lambda: one < cls("y")), outcome(lambda: one >= two), one.doubled(), dataclasses.asdict(one),
                repr(dataclasses.replace(one, number=5)), [(each.name, each.default, each.metadata, each.kw_only)
                                                           for each in dataclasses.fields(cls)],
                outcome(lambda: setattr(one, "number", 4)), one.number, outcome(lambda: delattr(cls("x"), "number")),
                outcome(lambda: cls(nothing=1)), outcome(lambda: cls(1, 2, 3, 4, 5, 6)), str(inspect.signature(cls)),
                cls.__match_args__, cls.__doc__, cls.__init__.__qualname__, cls.__hash__ is None,
                getattr(cls, "__slots__", None), repr(copy.copy(one)), repr(copy.deepcopy(one)),
                outcome(lambda: cls.name if "slots" not in options else None), outcome(lambda: cls.many is None)]

    assert asked(later) == asked(eager)


def test_import_creates_no_methods():
    code = ("import sys; from rmqha.common.protocol import admin_headers, client_bodies\n"
            "print('dataclasses' in sys.modules)")
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True).stdout
    assert told.strip() == "False"


@pytest.mark.parametrize("first", [lambda one, two: one == two, lambda one, two: repr(one) == repr(two),
                                   lambda one, two: dataclasses.fields(one) == dataclasses.fields(two)])
def test_first_use_of_any_kind_creates_the_methods(first):
    _, cls = made(lazy_dataclasses, {})
    one, two = cls.__new__(cls), cls.__new__(cls)
    for each in (one, two):
        vars(each).update(name="n", number=1, many=[], hidden=None, late=1)
    assert first(one, two) and vars(cls)["__init__"] is cls.__init__


def test_both_kinds_inherit_from_each_other():
    assert EagerOfLater(2, "x") == EagerOfLater(2, "x") and EagerOfLater(2).double == 4
    assert repr(LaterOfEager(2, "x")) == "LaterOfEager(number=2, text='x')"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'number'"):
        LaterOfEager().number = 3


def test_class_that_only_inherits():
    class Plain(Derived):
        def __init__(self):
            super().__init__(4)

    assert Plain().double == 8 and dataclasses.fields(Plain) == dataclasses.fields(Derived)


@pytest.mark.parametrize("one", [Place("t", 1), FrozenPlace("t", (1, 2)), LaterOfEager(1, "x"), Derived(3)], ids=repr)
def test_pickles_survive_a_round_trip(one):
    assert pickle.loads(pickle.dumps(one)) == one == copy.copy(one)
    assert getattr(type(one), "__hash__", None) is None or hash(pickle.loads(pickle.dumps(one))) == hash(one)


def test_garbage_collection_during_the_creation():
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(20):
            assert made(lazy_dataclasses, {"slots": True})[1]("x", 1).number == 1
    finally:
        gc.set_threshold(*before)


def test_concurrent_first_uses_of_a_class():
    for _ in range(50):
        _, cls = made(lazy_dataclasses, {"slots": True})
        start, wrong = threading.Barrier(4), []

        def use(cls=cls, start=start, wrong=wrong):
            start.wait()
            if cls("x", 1) != cls("x", 1) or cls("x").late != 7:
                wrong.append(cls)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
