package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.MQAdmin;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.NamespaceUtil;

/** Producers and consumers with a namespace, a trace, a compression; and the strategies that allocate queues. */
final class Clients {
    private static final Object COMPRESSION_LOCK = new Object();

    private Clients() {
    }

    /** Sends "bodies" to "topic" and returns the ids. Options: "namespace", "trace", "traceTopic", "compressType",
     *  "compressLevel", "compressOver", "inTransaction". */
    static JSONObject send(JSONObject command) throws Exception {
        DefaultMQProducer producer = producer(command);
        Driver.pointToCluster(producer, command);
        producer.setInstanceName("send-" + command.getInteger("id"));
        producer.setSendMsgTimeout(Driver.SEND_TIMEOUT_MS);
        producer.setCompressMsgBodyOverHowmuch(command.containsKey("compressOver") ? command.getIntValue("compressOver") : 1 << 30);
        producer.start();
        JSONArray ids = new JSONArray();
        JSONArray topics = new JSONArray();
        try {
            for (Object body : command.getJSONArray("bodies")) {
                Message message = new Message(command.getString("topic"), command.getString("tags"), command.getString("keys"),
                    ((String) body).getBytes(StandardCharsets.UTF_8));
                SendResult result = producer instanceof TransactionMQProducer
                    ? ((TransactionMQProducer) producer).sendMessageInTransaction(message, null) : producer.send(message);
                ids.add(result.getMsgId());
                topics.add(result.getMessageQueue().getTopic());
                if (command.getBooleanValue("trace")) {
                    String last = producer instanceof TransactionMQProducer ? "EndTransaction" : "Pub";
                    waitForTraces(producer, result.getMsgId(), last, 1);
                }
            }
        } finally {
            producer.shutdown();
        }
        return new JSONObject().fluentPut("ids", ids).fluentPut("topics", topics);
    }

    private static DefaultMQProducer producer(JSONObject command) {
        boolean trace = command.getBooleanValue("trace");
        String traceTopic = command.getString("traceTopic");
        String namespace = command.getString("namespace");
        String group = command.getString("group");
        if (command.getBooleanValue("inTransaction")) {
            TransactionMQProducer producer = new TransactionMQProducer(namespace, group, null, trace, traceTopic);
            producer.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message msg, Object arg) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt msg) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }
            });
            return producer;
        }
        synchronized (COMPRESSION_LOCK) {  // the type is read once, when the producer is created
            if (command.containsKey("compressType")) {
                System.setProperty(MixAll.MESSAGE_COMPRESS_TYPE, command.getString("compressType"));
                System.setProperty(MixAll.MESSAGE_COMPRESS_LEVEL, command.getString("compressLevel"));
            }
            try {
                return new DefaultMQProducer(namespace, group, null, trace, traceTopic);
            } finally {
                System.clearProperty(MixAll.MESSAGE_COMPRESS_TYPE);
                System.clearProperty(MixAll.MESSAGE_COMPRESS_LEVEL);
            }
        }
    }

    /** Receives "topic" until "until" messages have arrived; returns each as {topic, body, msgId, tags, reconsumeTimes}. The first
     *  "failFirst" are refused. Options: "namespace", "trace", "traceTopic", "orderly", "expression". */
    static JSONObject receive(JSONObject command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("namespace"), command.getString("group"),
            null, new AllocateMessageQueueAveragely(), command.getBooleanValue("trace"), command.getString("traceTopic"));
        Driver.pointToCluster(consumer, command);
        consumer.setInstanceName("receive-" + command.getInteger("id"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), command.containsKey("expression") ? command.getString("expression") : "*");
        List<JSONObject> seen = new ArrayList<>();
        int failFirst = command.getIntValue("failFirst");
        if (command.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                take(seen, messages) > failFirst ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(1);
                return take(seen, messages) > failFirst ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        try {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(80);
            while (System.nanoTime() < deadline) {
                synchronized (seen) {
                    if (seen.size() >= command.getIntValue("until")) {
                        break;
                    }
                }
                Thread.sleep(20);
            }
            if (command.getBooleanValue("trace")) {
                List<String> ids = new ArrayList<>();
                synchronized (seen) {
                    seen.forEach(one -> ids.add(one.getString("msgId")));
                }
                for (String id : new HashSet<>(ids)) {
                    waitForTraces(consumer, id, "SubAfter", java.util.Collections.frequency(ids, id));
                }
            }
        } finally {
            consumer.shutdown();
        }
        synchronized (seen) {
            return new JSONObject().fluentPut("messages", new JSONArray(new ArrayList<Object>(seen)));
        }
    }

    /** Waits until the trace topic has "count" events of that kind about a message: a client that ends earlier loses some. */
    private static void waitForTraces(MQAdmin client, String id, String kind, int count) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(50);
        int found = 0;
        while (found < count && System.nanoTime() < deadline) {
            Thread.sleep(100);
            found = 0;
            try {
                for (MessageExt trace : client.queryMessage("RMQ_SYS_TRACE_TOPIC", id, 64, 0, Long.MAX_VALUE).getMessageList()) {
                    String body = new String(trace.getBody(), StandardCharsets.UTF_8);
                    for (String event : body.split("\u0002")) {
                        found += event.startsWith(kind) && event.contains(id) ? 1 : 0;
                    }
                }
            } catch (MQClientException e) {
                found = 0;  // no events yet
            }
        }
    }

    private static int take(List<JSONObject> seen, List<MessageExt> messages) {
        synchronized (seen) {
            for (MessageExt message : messages) {
                seen.add(new JSONObject().fluentPut("topic", message.getTopic()).fluentPut("msgId", message.getMsgId())
                    .fluentPut("body", new String(message.getBody(), StandardCharsets.UTF_8)).fluentPut("tags", message.getTags())
                    .fluentPut("reconsumeTimes", message.getReconsumeTimes()).fluentPut("sysFlag", message.getSysFlag())
                    .fluentPut("instance", message.getProperty("INSTANCE_ID")));
            }
            return seen.size();
        }
    }

    /** "cases": {strategy, cid, cids, queues: [[topic, broker, id], ...], nodes, rooms} -> for each the queues of that
     *  client, or the name of the exception. The room of a client or broker is the part of its name before "@". */
    static JSONObject allocate(JSONObject command) {
        JSONArray results = new JSONArray();
        for (Object item : command.getJSONArray("cases")) {
            JSONObject one = (JSONObject) item;
            try {
                JSONArray share = new JSONArray();
                List<MessageQueue> queues = queues(one.getJSONArray("queues"));
                List<String> cids = one.getJSONArray("cids").toJavaList(String.class);
                for (MessageQueue queue : strategy(one).allocate("group", one.getString("cid"), queues, cids)) {
                    share.add(new JSONArray().fluentAdd(queue.getTopic()).fluentAdd(queue.getBrokerName()).fluentAdd(queue.getQueueId()));
                }
                results.add(share);
            } catch (RuntimeException e) {
                results.add(e.getClass().getSimpleName());
            }
        }
        return new JSONObject().fluentPut("shares", results);
    }

    private static List<MessageQueue> queues(JSONArray rows) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Object item : rows) {
            JSONArray row = (JSONArray) item;
            queues.add(new MessageQueue(row.getString(0), row.getString(1), row.getIntValue(2)));
        }
        return queues;
    }

    private static AllocateMessageQueueStrategy strategy(JSONObject one) {
        switch (one.getString("strategy")) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONFIG":
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                byConfig.setMessageQueueList(queues(one.getJSONArray("queues")).subList(0, 1));
                return byConfig;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(one.getJSONArray("rooms").toJavaList(String.class)));
                return byRoom;
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(one.getIntValue("nodes"));
            case "MACHINE_ROOM_NEARBY-AVG":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new AllocateMachineRoomNearby.MachineRoomResolver() {
                    @Override
                    public String brokerDeployIn(MessageQueue messageQueue) {
                        return messageQueue.getBrokerName().split("@")[0];
                    }

                    @Override
                    public String consumerDeployIn(String clientID) {
                        return clientID.split("@")[0];
                    }
                });
            default:
                throw new IllegalArgumentException(one.getString("strategy"));
        }
    }

    /** "cases": [namespace, resource] -> the results of NamespaceUtil for each. */
    static JSONObject namespaces(JSONObject command) {
        JSONArray results = new JSONArray();
        for (Object item : command.getJSONArray("cases")) {
            String namespace = ((JSONArray) item).getString(0);
            String resource = ((JSONArray) item).getString(1);
            results.add(new JSONArray().fluentAdd(NamespaceUtil.wrapNamespace(namespace, resource))
                .fluentAdd(NamespaceUtil.withoutNamespace(resource)).fluentAdd(NamespaceUtil.withoutNamespace(resource, namespace))
                .fluentAdd(NamespaceUtil.isAlreadyWithNamespace(resource, namespace))
                .fluentAdd(NamespaceUtil.wrapNamespaceAndRetry(namespace, resource))
                .fluentAdd(NamespaceUtil.getNamespaceFromResource(resource)));
        }
        return new JSONObject().fluentPut("results", results);
    }
}
