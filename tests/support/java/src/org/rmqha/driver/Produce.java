package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages first .. first+count-1: body from (seed, index, sizes[index % n]), property "index", a tag and two keys.
 * Returns results: [index, status or error, msgId, offsetMsgId, brokerName, queueId, queueOffset], one for each message or batch;
 * seconds from the first send to the last answer, and latencyUs of the calls without an exception: [share, us] for each of SHARES, where this
 * share of them took at most us (-1 if all threw).
 */
final class Produce {
    private static final double[] SHARES = {0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1};

    private final JSONObject command;
    private final Bodies bodies;
    private final JSONArray sizes;
    private final JSONArray tags;
    private final int first;
    private final int end;
    private final int batch;
    private final AtomicInteger next;
    private final JSONArray results = new JSONArray();
    private final List<Long> latencies = new ArrayList<>(); // ns; guarded by results
    private DefaultMQProducer producer;

    private Produce(JSONObject command) {
        this.command = command;
        this.bodies = new Bodies(command.getIntValue("seed"));
        this.sizes = command.getJSONArray("sizes");
        this.tags = command.getJSONArray("tags");
        this.first = command.getIntValue("first");
        this.end = first + command.getIntValue("count");
        this.batch = Math.max(1, command.getIntValue("batch"));
        this.next = new AtomicInteger(first);
    }

    static JSONObject run(JSONObject command, Driver.Progress progress) throws Exception {
        return new Produce(command).send(progress);
    }

    private JSONObject send(Driver.Progress progress) throws Exception {
        producer = new DefaultMQProducer(command.getString("group"));
        Driver.pointToCluster(producer, command);
        producer.setSendMsgTimeout(command.getIntValue("timeoutMs"));
        producer.setRetryTimesWhenSendFailed(command.getIntValue("retries"));
        producer.setCompressMsgBodyOverHowmuch(command.getIntValue("compressOver"));
        if (command.getBooleanValue("tls")) { // a separate client: connections are shared by instance name
            producer.setUseTLS(true);
            producer.setInstanceName("tls");
        }
        producer.start();
        long begin;
        long elapsed;
        try {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < command.getIntValue("threads"); i++) {
                threads.add(new Thread(() -> sendSome(progress), "produce-" + i));
            }
            begin = System.nanoTime();
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            elapsed = System.nanoTime() - begin;
        } finally {
            producer.shutdown();
        }
        Collections.sort(latencies);
        JSONArray latency = new JSONArray();
        for (double share : SHARES) {
            latency.add(new JSONArray().fluentAdd(share).fluentAdd(latencyUs(share)));
        }
        return new JSONObject().fluentPut("results", results).fluentPut("seconds", elapsed / 1e9).fluentPut("latencyUs", latency);
    }

    private long latencyUs(double share) {
        return latencies.isEmpty() ? -1 : latencies.get((int) Math.min(latencies.size() - 1, latencies.size() * share)) / 1000;
    }

    private void sendSome(Driver.Progress progress) {
        int every = Math.max(1, command.getIntValue("progressEvery"));
        long pauseMs = command.getLongValue("pauseOnErrorMs");
        for (int i = next.getAndAdd(batch); i < end; i = next.getAndAdd(batch)) {
            JSONArray result = new JSONArray().fluentAdd(i);
            boolean good = true;
            long took = 0;
            try {
                List<Message> messages = messages(i);
                long begin = System.nanoTime();
                SendResult sent = batch == 1 ? producer.send(messages.get(0)) : producer.send(messages);
                took = System.nanoTime() - begin;
                result.fluentAdd(sent.getSendStatus().name()).fluentAdd(sent.getMsgId()).fluentAdd(sent.getOffsetMsgId())
                    .fluentAdd(sent.getMessageQueue().getBrokerName()).fluentAdd(sent.getMessageQueue().getQueueId())
                    .fluentAdd(sent.getQueueOffset());
            } catch (Exception e) {
                good = false;
                result.fluentAdd(e.toString());
            }
            int done;
            synchronized (results) {
                results.add(result);
                if (good) {
                    latencies.add(took);
                }
                done = results.size();
            }
            if (done % every == 0) {
                progress.at(done);
            }
            if (!good && !pause(pauseMs)) {
                return;
            }
        }
    }

    /** Pauses for a broker that is down; false ends the thread. */
    private static boolean pause(long ms) {
        try {
            Thread.sleep(ms);
            return true;
        } catch (InterruptedException e) {
            return false;
        }
    }

    private Message message(int i) {
        int size = sizes.getIntValue(i % sizes.size());
        String keys = "key-" + i + " group-" + i % 10;
        Message message = new Message(command.getString("topic"), tags.getString(i % tags.size()), keys, bodies.of(i, size));
        message.putUserProperty("index", Integer.toString(i));
        int level = command.getIntValue("delayLevel");
        if (level > 0) {
            message.setDelayTimeLevel(level);
        }
        return message;
    }

    private List<Message> messages(int from) {
        List<Message> list = new ArrayList<>();
        for (int i = from; i < Math.min(from + batch, end); i++) {
            list.add(message(i));
        }
        return list;
    }
}
