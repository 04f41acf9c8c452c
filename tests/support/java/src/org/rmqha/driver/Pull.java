package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.PullAPIWrapper;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.ResponseCode;

/** Reads each queue of a topic from its start to its end, from the broker with the given id. */
final class Pull {
    private static final int BATCH = 32;

    private Pull() {
    }

    @SuppressWarnings("deprecation")
    static JSONObject run(JSONObject command) throws Exception {
        Checks checks = new Checks(command);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.getString("group"));
        Driver.pointToCluster(consumer, command);
        consumer.setConsumerPullTimeoutMillis(Driver.SEND_TIMEOUT_MS);
        consumer.start();
        try {
            PullAPIWrapper wrapper = consumer.getDefaultMQPullConsumerImpl().getPullAPIWrapper();
            wrapper.setConnectBrokerByUser(true);
            wrapper.setDefaultBrokerId(command.getLongValue("brokerId"));
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(command.getString("topic"))) {
                readQueue(consumer, queue, checks);
            }
        } finally {
            consumer.shutdown();
        }
        return checks.report();
    }

    @SuppressWarnings("deprecation")
    private static void readQueue(DefaultMQPullConsumer consumer, MessageQueue queue, Checks checks) throws Exception {
        long offset = 0;
        while (true) {
            PullResult result = consumer.pull(queue, "*", offset, BATCH);
            if (result.getPullStatus() == PullStatus.OFFSET_ILLEGAL && result.getNextBeginOffset() > offset) {
                offset = result.getNextBeginOffset();
                continue;
            }
            if (result.getPullStatus() != PullStatus.FOUND) {
                return;
            }
            for (MessageExt message : result.getMsgFoundList()) {
                message.setBrokerName(queue.getBrokerName());
                checks.take(message);
            }
            offset = result.getNextBeginOffset();
        }
    }

    /** Queries the index by key; returns the "index" properties of the messages that it finds. */
    @SuppressWarnings("deprecation")
    static JSONObject queryKey(JSONObject command) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.getString("group"));
        Driver.pointToCluster(consumer, command);
        consumer.start();
        try {
            JSONArray found = new JSONArray();
            for (Object key : command.getJSONArray("keys")) {
                found.add(indices(consumer, command.getString("topic"), key.toString()));
            }
            return new JSONObject().fluentPut("found", found);
        } finally {
            consumer.shutdown();
        }
    }

    @SuppressWarnings("deprecation")
    private static JSONArray indices(DefaultMQPullConsumer consumer, String topic, String key) throws Exception {
        JSONArray indices = new JSONArray();
        try {
            QueryResult result = consumer.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
            for (MessageExt message : result.getMessageList()) {
                indices.add(Integer.parseInt(message.getUserProperty("index")));
            }
        } catch (MQClientException e) {
            if (e.getResponseCode() != ResponseCode.NO_MESSAGE) {
                throw e;
            }
        }
        return indices;
    }
}
