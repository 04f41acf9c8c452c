package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads the messages that a MessageSelector.bySql selects; each is returned as the number in its property "index". */
final class Select {
    private Select() {
    }

    /** Pulls the whole topic once for each of "expressions"; returns found: the sorted numbers, or the error. */
    static JSONObject pull(JSONObject command) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.getString("group"));
        Driver.pointToCluster(consumer, command);
        consumer.setConsumerPullTimeoutMillis(Driver.SEND_TIMEOUT_MS);
        consumer.start();
        JSONArray found = new JSONArray();
        try {
            // answers to heartbeats contain the brokers' versions; the client sends old ones no expressions
            MQClientInstance factory = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
            factory.updateTopicRouteInfoFromNameServer(command.getString("topic"));
            factory.sendHeartbeatToAllBrokerWithLock();
            for (Object expression : command.getJSONArray("expressions")) {
                found.add(pullOne(consumer, command.getString("topic"), (String) expression));
            }
        } finally {
            consumer.shutdown();
        }
        return new JSONObject().fluentPut("found", found);
    }

    private static Object pullOne(DefaultMQPullConsumer consumer, String topic, String expression) {
        List<Integer> numbers = new ArrayList<>();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                long offset = consumer.minOffset(queue);
                long end = consumer.maxOffset(queue);
                while (offset < end) {
                    PullResult result = consumer.pull(queue, MessageSelector.bySql(expression), offset, 32);
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        result.getMsgFoundList().forEach(message -> numbers.add(number(message)));
                    }
                    offset = result.getNextBeginOffset();
                }
            }
        } catch (Exception e) {
            return error(e);
        }
        Collections.sort(numbers);
        return numbers;
    }

    /** Consumes by push with "expression" until "until" messages have arrived; returns "found" and the exception of start(). */
    static JSONObject push(JSONObject command) throws Exception {
        List<Integer> numbers = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(command.getIntValue("until"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        Driver.pointToCluster(consumer, command);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), MessageSelector.bySql(command.getString("expression")));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                numbers.add(number(message));
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            consumer.start();
            all.await(command.getLongValue("deadlineMs"), TimeUnit.MILLISECONDS);
            Thread.sleep(command.getLongValue("lingerMs"));
        } catch (Exception e) {
            return new JSONObject().fluentPut("error", error(e));
        } finally {
            consumer.shutdown();
        }
        Collections.sort(numbers);
        return new JSONObject().fluentPut("found", numbers);
    }

    private static int number(MessageExt message) {
        return Integer.parseInt(message.getUserProperty("index"));
    }

    private static String error(Exception e) {
        StringBuilder text = new StringBuilder();
        for (Throwable each = e; each != null; each = each.getCause()) {
            text.append(each).append("; ");
        }
        return text.toString();
    }
}
