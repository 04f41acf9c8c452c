"""`rmqha bench` gives figures that fit each other, and fails when a message did."""
import json

from rmqha.tools.messages import bench


def figures(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_produce_and_consume(line):
    sent = figures(line.run("bench", "produce", "-t", "Bench", "--count", 300, "--warmup", 20, "--size", 100,
                            "-o", "json"))
    assert (sent["messages"], sent["bytes"], sent["failed"]) == (300, 30_000, 0)
    assert sent["statuses"] == {"SEND_OK": 300} and list(sent["latencyMs"]) == ["p50", "p90", "p99", "p99.9", "max"]
    assert 0 < sent["latencyMs"]["p50"] <= sent["latencyMs"]["max"] <= sent["seconds"] * 1000
    line.ok("bench", "produce", "-t", "Bench", "--count", 1, "--warmup", 1)  # all is dispatched behind it
    read = figures(line.run("bench", "consume", "-t", "Bench", "-o", "json"))
    assert read["messages"] == 322 and read["answers"] >= 322 // 32
    assert "messagesPerSecond" in line.ok("bench", "consume", "-t", "Bench", "--count", 10).stdout


def test_rate_is_kept(line):
    sent = figures(line.run("bench", "produce", "-t", "Rate", "--count", 10, "--warmup", 1, "--rate", 20,
                            "-o", "json"))
    assert sent["messagesPerSecond"] <= 25


def test_end_to_end(line):
    seen = figures(line.run("bench", "e2e", "-t", "E2e", "--count", 100, "--rate", 500, "--warmup", 1, "-o", "json"))
    assert (seen["messages"], seen["lost"], seen["doubled"], seen["failed"]) == (100, 0, 0, 0)
    assert 0 < seen["endToEndMs"]["p50"] and seen["acknowledgedMs"]["max"] < 10_000


def test_lost_messages_are_a_failure(line, monkeypatch):
    real, calls = bench.Sends.send, []

    def forgetful(self, producer, message):
        calls.append(message)
        if len(calls) != 3:
            real(self, producer, message)
    monkeypatch.setattr(bench.Sends, "send", forgetful)
    result = line.run("bench", "e2e", "-t", "Lost", "--count", 5, "--timeout", 0.5, "-o", "json")
    assert result.exit_code == 1 and json.loads(result.stdout)["lost"] == 1


def test_failed_sends_are_told(line):
    result = line.run("bench", "produce", "-t", "no topic", "--count", 3)
    assert result.exit_code == 2 and "illegal characters" in result.stderr


def test_a_topic_without_messages_is_nothing_to_measure(line):
    line.ok("produce", "-t", "Empty", "-m", "x")
    assert line.run("bench", "consume", "-t", "Empty", "--from", "latest").exit_code == 1
