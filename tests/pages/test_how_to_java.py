"""The how-to guides that start with servers of RocketMQ 4.9, each as its operator follows it."""
import re

import pytest

from tests.pages.guided import (
    LAPTOP,
    MASTER,
    NAMESRV,
    NAMESRV_ADDR,
    OFFSET,
    SCRUBBING,
    SLAVE,
    TOPIC,
    State,
    migrate,
)

OTHER_NAMESRV = "10.0.0.5"
pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


def test_replace_a_java_slave(walk_of):
    walk = walk_of("replace-a-java-slave", NAMESRV, MASTER, SLAVE)
    state = State(walk)
    state.pair("java", "java", "java")
    state.send(5)
    walk.types("1. Check before you change anything", SLAVE, again={"bin/rmqha check ha": "OK"})
    state.stop(SLAVE)
    walk.types("2. Stop the Java slave", SLAVE)
    walk.types("3. Start rmqha with the same file", SLAVE)
    walk.types("4. Check that it follows", SLAVE, again={"bin/rmqha ha status": ""}, differs=[SCRUBBING, OFFSET])
    walk.types("4. Check that it follows", SLAVE, again={"bin/rmqha check ha": "OK"})
    walk.done()


def test_replace_a_java_master(walk_of):
    walk = walk_of("replace-a-java-master", NAMESRV, MASTER, SLAVE)
    state = State(walk)
    state.pair("java", "rmqha", "java")
    state.send(7)
    state.consume(5)
    walk.types("1. Send the producers elsewhere", MASTER)
    walk.types("2. Wait until the slave has everything", MASTER, again={"bin/rmqha check ha": "OK"})
    state.stop(MASTER)
    walk.types("3. Stop the Java master, start rmqha", MASTER, codes={"bin/rmqha doctor": 1})
    said = walk.types("4. Check the result", MASTER, again={"bin/mqadmin topicRoute": "", "bin/rmqha check ha": "OK"})
    assert set(re.findall(r'"perm": ?(\d)', said)) == {"6"}, said
    state.send(2)
    state.consume(4)
    walk.done()


def test_replace_the_name_servers(walk_of):
    walk = walk_of("replace-the-name-server", NAMESRV, OTHER_NAMESRV, MASTER, SLAVE)
    state = State(walk)
    file = "/etc/rocketmq/namesrv.properties"
    for host in (NAMESRV, OTHER_NAMESRV):
        state.has_file(host, file, {"listenPort": 9876})
    state.name_server(OTHER_NAMESRV, "java", file)
    state.pair(namesrv="java", namesrvAddr=f"{NAMESRV_ADDR};{OTHER_NAMESRV}:9876")
    walk.tool(NAMESRV, f"bin/mqadmin updateOrderConf -m put -t {TOPIC} -v broker-a:2")
    before = walk.types("1. Replace one name server", NAMESRV)
    state.stop(NAMESRV)
    walk.types("1. Replace one name server", NAMESRV)
    after = walk.types("2. Wait for the brokers", NAMESRV, again={
        "bin/mqadmin clusterList": f"{MASTER}:10911(?s:.*){SLAVE}:10911", "bin/rmqha check ha": "OK"})
    assert names_in(before) <= names_in(after), "the table has to keep its earlier brokers"
    assert "broker-a:2" in walk.types("2. Wait for the brokers", NAMESRV)
    walk.done()


def test_migrate_from_java(walk_of):
    migrate(walk_of("migrate", NAMESRV, MASTER, SLAVE, LAPTOP), "java")


def names_in(table):
    """Return the brokers and addresses in a table of `clusterList`."""
    return {word for line in table.splitlines() if "DefaultCluster" in line for word in line.split()[:4]}
