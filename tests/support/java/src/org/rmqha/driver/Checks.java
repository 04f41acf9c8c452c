package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;

/** Comparison of the received messages with the sent ones: bodies, repeats, and the offsets of each queue. Synchronized. */
final class Checks {
    private static final int SHOWN = 20;
    private final Bodies bodies;
    private final JSONArray sizes;
    private final JSONArray tags;
    private final int first;
    private final int count;
    private final BitSet seen = new BitSet();
    private final Map<String, BitSet> offsets = new TreeMap<>();
    private final JSONArray bad = new JSONArray();
    private int repeats;
    private int foreign;
    private int total;

    Checks(JSONObject command) {
        this.bodies = new Bodies(command.getIntValue("seed"));
        this.sizes = command.getJSONArray("sizes");
        this.tags = command.getJSONArray("tags");
        this.first = command.getIntValue("first");
        this.count = command.getIntValue("count");
    }

    /** Adds one message; returns the number of distinct ones so far. */
    synchronized int take(MessageExt message) {
        total++;
        String queue = message.getBrokerName() + "/" + message.getQueueId();
        offsets.computeIfAbsent(queue, k -> new BitSet()).set((int) message.getQueueOffset());
        String property = message.getUserProperty("index");
        int index = property == null ? -1 : Integer.parseInt(property);
        if (index < first || index >= first + count) {
            foreign++;
            return seen.cardinality();
        }
        if (seen.get(index - first)) {
            repeats++;
        }
        seen.set(index - first);
        byte[] expected = bodies.of(index, sizes.getIntValue(index % sizes.size()));
        boolean same = Arrays.equals(expected, message.getBody()) && message.getKeys().startsWith("key-" + index + " ")
            && tags.getString(index % tags.size()).equals(message.getTags());
        if (!same && bad.size() < SHOWN) {
            bad.add(index);
        }
        return seen.cardinality();
    }

    synchronized JSONObject report() {
        JSONArray missing = new JSONArray();
        for (int i = seen.nextClearBit(0); i < count && missing.size() < SHOWN; i = seen.nextClearBit(i + 1)) {
            missing.add(first + i);
        }
        JSONObject queues = new JSONObject(true);
        offsets.forEach((queue, set) -> queues.put(queue, new JSONObject(true).fluentPut("count", set.cardinality())
            .fluentPut("min", set.nextSetBit(0)).fluentPut("max", set.length() - 1)));
        return new JSONObject().fluentPut("distinct", seen.cardinality()).fluentPut("repeats", repeats).fluentPut("total", total)
            .fluentPut("foreign", foreign).fluentPut("bad", bad).fluentPut("missing", missing).fluentPut("queues", queues);
    }
}
