"""The fixtures rocketmq_topic, rocketmq_aio and rocketmq_transactions, and the options for backends and scopes: run by
the real pytest."""
import subprocess
import sys

import pytest

from rmqha.testing import EmbeddedError, EmbeddedRocketMQ
from rmqha.testing.async_clients import AsyncClients
from rmqha.testing.isolated_topic import IsolatedTopic
from tests.support.tiers import in_all
from tests.testing.support import JAVA, JAVA_5, bodies, outcome, run_pytest, send

# Uses each fixture as the tests of a user do; runs with all backends and scopes.
SUITE = """
    import pytest
    from rmqha import ConsumeFromWhere, LocalTransactionState, Message, Producer, PushConsumer
    from rmqha.testing import NotSupportedError

    topics = []

    def consumed(mq, topic, group):
        seen = []
        consumer = PushConsumer(group, mq.namesrv_addr, seen.extend,
                                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer.subscribe(topic)
        with consumer:
            while len(seen) < len(mq.messages(topic)):
                pass
        return [message.body for message in seen]

    @pytest.mark.parametrize("body", [b"a", b"b"])
    def test_topic_is_of_this_test_alone(rocketmq, rocketmq_topic, body):
        assert rocketmq_topic.startswith("test_topic_is_of_this_test_alone") and rocketmq_topic not in topics
        assert not topics or topics[-1] not in rocketmq.admin.topics()
        topics.append(rocketmq_topic)
        with Producer(rocketmq_topic.group("shop"), rocketmq.namesrv_addr) as producer:
            producer.send(Message(rocketmq_topic, body))
            producer.send(Message(rocketmq_topic.topic("other", queues=1), b"other"))
        assert [message.body for message in rocketmq_topic.messages()] == [body]
        assert consumed(rocketmq, rocketmq_topic, rocketmq_topic.group("billing")) == [body]

    def test_transaction(rocketmq_transactions, rocketmq_topic):
        rocketmq_transactions.send(Message(rocketmq_topic, b"1"), LocalTransactionState.UNKNOW,
                                   on_check=LocalTransactionState.COMMIT_MESSAGE)
        rocketmq_transactions.check()
        rocketmq_transactions.settle()
        assert [message.body for message in rocketmq_transactions.consume(rocketmq_topic)] == [b"1"]

    def test_fault(rocketmq, rocketmq_topic):
        rocketmq.refuse("SYSTEM_BUSY")  # ends before the topic is deleted
"""
ASYNC = """
    import asyncio
    import pytest
    from rmqha import Message

    made, closed_in, loops = [], [], []

    def note(client):
        close = client.close

        async def noted():
            closed_in.append(asyncio.get_running_loop())
            await close()

        client.close = noted

    async def use(clients, topic):
        producer, consumer = await clients.producer("shop"), await clients.consumer(topics=topic)
        made[:] = [producer.producer, consumer.consumer]
        note(producer)
        note(consumer)
        closed_in.clear()
        loops[:] = 2 * [asyncio.get_running_loop()]
        await producer.send(Message(topic, b"1"))
        message = await asyncio.wait_for(consumer.receive(), 60)
        assert message.body == b"1" and message.ack()

    def are_closed():
        parts = [getattr(one, "default_mq_producer_impl", None) or one.default_mq_push_consumer_impl for one in made]
        return {part.service_state.name for part in parts} == {"SHUTDOWN_ALREADY"}

    @pytest.mark.MARK
    async def test_passes(rocketmq_aio, rocketmq_topic):
        await use(rocketmq_aio, rocketmq_topic)

    def test_they_are_closed_after_a_test_that_passes():
        assert made and are_closed() and closed_in == loops

    @pytest.mark.MARK
    @pytest.mark.xfail(strict=True, raises=ZeroDivisionError)
    async def test_fails(rocketmq_aio, rocketmq_topic):
        await use(rocketmq_aio, rocketmq_topic)
        1 / 0

    def test_they_are_closed_after_a_test_that_fails():
        assert made and are_closed() and closed_in == loops

    class TestInAClass:
        @pytest.mark.MARK
        @pytest.mark.parametrize("number", [1])
        async def test_method(self, rocketmq_aio, rocketmq_topic, number):
            assert number == 1 and isinstance(self, TestInAClass)
            await use(rocketmq_aio, rocketmq_topic)

    @FIXTURE
    async def producer(rocketmq_aio):
        return await rocketmq_aio.producer("shop")

    @pytest.mark.MARK
    async def test_fixture(producer, rocketmq_topic):
        made[:] = [producer.producer]
        await producer.send(Message(rocketmq_topic, b"1"))

    def test_those_of_a_fixture_are_closed():
        assert made and are_closed()

    def test_loop_of_the_test_itself(rocketmq_aio, rocketmq_topic):
        asyncio.run(use(rocketmq_aio, rocketmq_topic))

    def test_those_of_a_closed_loop_are_closed():
        assert made and are_closed() and closed_in == []

    def test_block(rocketmq_aio, rocketmq_topic):
        async def main():
            async with rocketmq_aio:
                await use(rocketmq_aio, rocketmq_topic)
            assert are_closed()

        asyncio.run(main())
"""
ANYIO = """
    @pytest.fixture
    def anyio_backend():
        return "asyncio"
"""


def test_fixtures_in_the_scope_of_the_session(project):
    done = run_pytest(project(SUITE + """
    def test_cluster_is_kept_for_the_session(rocketmq):
        rocketmq.create_topic("kept")

    def test_cluster_was_not_reset(rocketmq):
        assert "kept" in rocketmq.admin.topics() and rocketmq.faults == []
        assert {name for name in rocketmq.admin.topics() if "test_" in name} == set()
    """, ini="rocketmq_scope = session"), "-q")
    assert outcome(done) == "6 passed", done.stdout


@in_all
def test_fixtures_in_another_process(project):
    done = run_pytest(project(SUITE), "-q", "--rocketmq-backend=process")
    assert outcome(done) == "4 passed", done.stdout


@pytest.mark.parametrize("version", [JAVA, JAVA_5])
def test_fixtures_with_the_real_rocketmq(project, release, version):
    code = SUITE + """
    from rmqha.testing import factories

    ours = factories.rocketmq(backend="embedded")
    extension = factories.rocketmq(config={"metricsPort": 9090})

    def test_fault_needs_our_broker(ours):
        assert ours.refuse("SYSTEM_BUSY").hits == 0

    def test_key_of_ours(extension):
        pass
    """
    done = run_pytest(project(code), "-q", "-rs", "--rocketmq-backend=java", "--rocketmq-scope=session",
                      RMQHA_ROCKETMQ_HOME=str(release(version)))
    assert outcome(done) == "4 passed, 2 skipped", done.stdout
    assert f"RocketMQ {version} can't inject this fault; refuse, slow_down" in done.stdout
    assert f"metricsPort is a key of rmqha, which RocketMQ {version} does not have" in done.stdout


@in_all
def test_two_workers_share_an_existing_cluster(project):
    code = """
        import pytest
        from rmqha import Message, Producer

        @pytest.mark.parametrize("number", range(20))
        def test_it(rocketmq_noproc, rocketmq_topic, number):
            with Producer(rocketmq_topic.group(), rocketmq_noproc.namesrv_addr) as producer:
                producer.send(Message(rocketmq_topic, str(number).encode()))
            assert [message.body for message in rocketmq_topic.messages()] == [str(number).encode()]
            assert rocketmq_topic.group() != rocketmq_topic.group("other")
        """
    with EmbeddedRocketMQ() as mq:
        before = mq.admin.topics().keys()
        done = run_pytest(project(code), "-q", "-n", "2", NAMESRV_ADDR=mq.namesrv_addr)
        assert outcome(done) == "20 passed", done.stdout
        assert mq.admin.topics().keys() == before


def test_asyncio_clients_are_closed_with_anyio(project):
    code = ASYNC.replace("MARK", "anyio").replace("FIXTURE", "pytest.fixture") + ANYIO
    done = run_pytest(project(code, ini="filterwarnings = error"), "-q", "-p", "no:asyncio")
    assert outcome(done) == "9 passed, 1 xfailed", done.stdout


@pytest.fixture(scope="session")
def pytest_asyncio(tmp_path_factory):
    """The folder of pytest-asyncio, which the checkout's environment does not have: it would warn in each run."""
    folder = tmp_path_factory.mktemp("pytest-asyncio")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder),
                           "pytest-asyncio==1.*"], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"pytest-asyncio can't be installed: {done.stderr.strip()[-200:]}")
    return folder


@in_all
@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_asyncio_clients_are_closed_with_pytest_asyncio(project, pytest_asyncio, mode):
    code = ASYNC.replace("FIXTURE", "pytest_asyncio.fixture" if mode == "strict" else "pytest.fixture")
    code = code.replace("@pytest.mark.MARK\n", "\n") if mode == "auto" else code.replace("MARK", "asyncio")
    folder = project(code.replace("    import pytest\n", "    import pytest\n    import pytest_asyncio\n", 1) + """
    @pytest_asyncio.fixture(loop_scope="session")
    async def of_another_loop(rocketmq_aio):
        return await rocketmq_aio.producer("shop")

    @pytest.mark.asyncio
    async def test_fixture_of_another_loop(of_another_loop):
        made[:] = [of_another_loop.producer]

    def test_those_of_another_loop_are_closed():
        assert made and are_closed()
    """, ini=f"""
    filterwarnings = error
    asyncio_mode = {mode}
    asyncio_default_fixture_loop_scope = function
    """)
    from tests.support.sources import ROOT

    done = run_pytest(folder, "-q", "-p", "no:anyio", PYTHONPATH=f"{ROOT}:{pytest_asyncio}")
    assert outcome(done) == "11 passed, 1 xfailed", done.stdout + done.stderr


@in_all
def test_wrong_options_are_one_line_with_the_reason(project):
    folder = project("""
        import pytest
        from rmqha.testing import factories

        unknown = factories.rocketmq(backend="jvm")
        no_home = factories.rocketmq(backend="java")
        topic_of_one = factories.rocketmq_topic(on="rocketmq")
        two_masters = factories.rocketmq("2m")

        @pytest.mark.parametrize("name", ["unknown", "no_home"])
        def test_it(request, name):
            request.getfixturevalue(name)

        def test_two(rocketmq, rocketmq_proc, rocketmq_topic):
            pass

        def test_one_of_two(rocketmq, rocketmq_proc, topic_of_one):
            assert topic_of_one in rocketmq.admin.topics()

        @pytest.fixture
        def mine(two_masters):
            return two_masters

        def test_one_of_a_factory(mine, rocketmq_topic, rocketmq_transactions):
            assert rocketmq_topic.mq is rocketmq_transactions.mq is mine and rocketmq_topic in mine.admin.topics()
        """)
    done = run_pytest(folder, "-q", RMQHA_ROCKETMQ_HOME="")
    assert outcome(done) == "2 failed, 2 passed, 1 error", done.stdout
    for why in ("rocketmq_backend=jvm is not one of embedded, process, java",
                "the backend java needs an unpacked Apache RocketMQ release: use --rocketmq-home=FOLDER",
                "the test uses several clusters, rocketmq and rocketmq_proc; choose one"):
        assert why in done.stdout, done.stdout
    done = run_pytest(folder, "-q", "-k", "no_home", "--rocketmq-home=/nowhere")
    assert "/nowhere is not a binary release of Apache RocketMQ" in done.stdout


@pytest.fixture(scope="module")
def mq():
    """A cluster of one master."""
    with EmbeddedRocketMQ() as mq:
        yield mq


@pytest.mark.parametrize("test, begin", [
    ("test_it[a/b c-1.5]", "test_it-a-b-c-1-5-"), ("t" * 500, "t" * 60 + "-"), ("[ä]", "test-"), ("", "test-")])
def test_topic_has_the_name_of_its_test(mq, test, begin):
    topic = IsolatedTopic.create(mq, test, queues=1)
    assert topic.startswith(begin) and isinstance(topic, str)
    send(mq, topic, b"1")
    assert bodies(topic.messages()) == [b"1"]
    group, other = topic.group("billing"), topic.topic("other")
    assert group == f"{topic}-billing" == topic.group("billing") and other == f"{topic}-other"
    with pytest.raises(EmbeddedError, match="is longer than 120 characters"):
        topic.group("g" * 120)
    with pytest.raises(EmbeddedError, match="is longer than 120 characters"):
        topic.topic("t" * 120)
    topic.delete()
    assert {topic, other} & mq.admin.topics().keys() == set()


def test_topic_is_not_deleted_from_servers_that_have_ended():
    with EmbeddedRocketMQ() as mq:
        topic = IsolatedTopic.create(mq, "test")
        mq.kill_master()
        topic.delete()
    topic.delete()


def test_asyncio_clients_need_asyncio(mq):
    making = AsyncClients(mq, "test").producer()
    with pytest.raises(EmbeddedError, match="no asyncio event loop is running; with anyio"):
        making.send(None)
