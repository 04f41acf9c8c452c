package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages that are described one by one, each of its own kind, and reads them back with all their fields.
 * A description: "index", "body" and optionally "tag", "keys", "properties", "delayLevel", "flag"; "transaction" is the
 * result of the local transaction: commit, rollback, late (commits when the broker checks) or never; "batch" is a list of
 * descriptions.
 */
final class Mixed {
    private static final String TRANSACTION = "transaction";

    private Mixed() {
    }

    /** Returns results: [status or error, queueId, queueOffset, offsetMsgId] of each description, in order. */
    static JSONObject send(JSONObject command) throws Exception {
        JSONArray descriptions = command.getJSONArray("messages");
        CountDownLatch late = new CountDownLatch((int) descriptions.stream()
            .filter(one -> "late".equals(((JSONObject) one).getString(TRANSACTION))).count());
        TransactionMQProducer producer = new TransactionMQProducer(command.getString("group"));
        Driver.pointToCluster(producer, command);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(Driver.SEND_TIMEOUT_MS);
        producer.setHeartbeatBrokerInterval(1000); // the broker only checks with producers that have sent it a heartbeat
        producer.setTransactionListener(new Outcomes(late));
        ExecutorService checks = Executors.newSingleThreadExecutor();
        producer.setExecutorService(checks);
        producer.start();
        JSONArray results = new JSONArray();
        try {
            for (Object description : descriptions) {
                results.add(sendOne(producer, command.getString("topic"), (JSONObject) description));
            }
            boolean allSent = results.stream().allMatch(result -> ((JSONArray) result).size() > 1);
            if (allSent && !late.await(command.getLongValue("deadlineMs"), TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("the broker did not ask for " + late.getCount() + " late transactions");
            }
            if (descriptions.stream().anyMatch(one -> ((JSONObject) one).containsKey(TRANSACTION))) {
                checks.shutdown();
                checks.awaitTermination(command.getLongValue("deadlineMs"), TimeUnit.MILLISECONDS);
                Thread.sleep(500); // the last answers to the broker are oneway
            }
        } finally {
            producer.shutdown();
        }
        return new JSONObject().fluentPut("results", results);
    }

    private static JSONArray sendOne(TransactionMQProducer producer, String topic, JSONObject description) {
        try {
            SendResult sent;
            if (description.containsKey("batch")) {
                List<Message> batch = new ArrayList<>();
                for (Object one : description.getJSONArray("batch")) {
                    batch.add(message(topic, (JSONObject) one));
                }
                sent = producer.send(batch);
            } else if (description.containsKey(TRANSACTION)) {
                sent = producer.sendMessageInTransaction(message(topic, description), null);
                if (((TransactionSendResult) sent).getLocalTransactionState() == null) {
                    throw new IllegalStateException("no local transaction state");
                }
            } else {
                sent = producer.send(message(topic, description));
            }
            return new JSONArray().fluentAdd(sent.getSendStatus().name()).fluentAdd(sent.getMessageQueue().getQueueId())
                .fluentAdd(sent.getQueueOffset()).fluentAdd(sent.getOffsetMsgId());
        } catch (Exception e) {
            StringBuilder text = new StringBuilder();
            for (Throwable each = e; each != null; each = each.getCause()) {
                text.append(each).append("; ");
            }
            return new JSONArray().fluentAdd(text.toString());
        }
    }

    private static Message message(String topic, JSONObject description) {
        Message message = new Message(topic, description.getString("body").getBytes(StandardCharsets.UTF_8));
        if (description.containsKey("tag")) {
            message.setTags(description.getString("tag"));
        }
        if (description.containsKey("keys")) {
            message.setKeys(description.getString("keys"));
        }
        if (description.containsKey("delayLevel")) {
            message.setDelayTimeLevel(description.getIntValue("delayLevel"));
        }
        if (description.containsKey("properties")) {
            description.getJSONObject("properties").forEach((name, value) -> message.putUserProperty(name, value.toString()));
        }
        if (description.containsKey(TRANSACTION)) {
            message.putUserProperty(TRANSACTION, description.getString(TRANSACTION));
        }
        message.setFlag(description.getIntValue("flag"));
        message.putUserProperty("index", description.getString("index"));
        return message;
    }

    /** Returns for each transaction the state that its property asks for. */
    private static final class Outcomes implements TransactionListener {
        private final CountDownLatch late;
        private final Set<String> asked = ConcurrentHashMap.newKeySet(); // the broker may check again before it has the answer

        Outcomes(CountDownLatch late) {
            this.late = late;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
            switch (message.getUserProperty(TRANSACTION)) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            if (!"late".equals(message.getUserProperty(TRANSACTION))) {
                return LocalTransactionState.UNKNOW;
            }
            if (!asked.add(message.getUserProperty("index"))) {
                return LocalTransactionState.UNKNOW; // already committed; a second commit would store it again
            }
            late.countDown();
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    /** Consumes until "until" messages have arrived (and lingerMs more); returns each message with its fields. */
    static JSONObject read(JSONObject command) throws Exception {
        JSONArray read = new JSONArray();
        CountDownLatch all = new CountDownLatch(command.getIntValue("until"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        Driver.pointToCluster(consumer, command);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), command.getString("expression"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                synchronized (read) {
                    read.add(fields(message));
                }
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            all.await(command.getLongValue("deadlineMs"), TimeUnit.MILLISECONDS);
            Thread.sleep(command.getLongValue("lingerMs"));
        } finally {
            consumer.shutdown();
        }
        synchronized (read) {
            return new JSONObject().fluentPut("messages", new JSONArray(new ArrayList<>(read)));
        }
    }

    private static JSONObject fields(MessageExt message) {
        Map<String, Object> properties = new TreeMap<>(message.getProperties());
        return new JSONObject(true)
            .fluentPut("queueId", message.getQueueId())
            .fluentPut("queueOffset", message.getQueueOffset())
            .fluentPut("flag", message.getFlag())
            .fluentPut("sysFlag", message.getSysFlag())
            .fluentPut("bodyCrc", message.getBodyCRC())
            .fluentPut("storeSize", message.getStoreSize())
            .fluentPut("physicalOffset", message.getCommitLogOffset())
            .fluentPut("bornMs", message.getBornTimestamp())
            .fluentPut("storeMs", message.getStoreTimestamp())
            .fluentPut("bornHost", message.getBornHostString())
            .fluentPut("storeHost", String.valueOf(message.getStoreHost()))
            .fluentPut("properties", new JSONObject(properties))
            .fluentPut("body", new String(message.getBody(), StandardCharsets.UTF_8));
    }
}
