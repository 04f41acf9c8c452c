package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Work of clients with the minimum permissions: transactions, batches, retries, orderly and lite consumers, replies. */
final class AclWork {
    private static final int WANTED = 4;

    private final JSONObject command;
    private final RPCHook producers;
    private final RPCHook consumers;

    private AclWork(JSONObject command) {
        this.command = command;
        this.producers = Acl.hook(command.getJSONObject("producer"));
        this.consumers = Acl.hook(command.getJSONObject("consumer"));
    }

    /** Returns the messages received in each way: "pushed", "again", "orderly", "lite", "reply". */
    static JSONObject run(JSONObject command) throws Exception {
        return new AclWork(command).run();
    }

    private JSONObject run() throws Exception {
        Set<String> pushed = new ConcurrentSkipListSet<>();
        Set<String> again = new ConcurrentSkipListSet<>();
        Set<String> orderly = new ConcurrentSkipListSet<>();
        DefaultMQPushConsumer consumer = consumer("workGroup", "WorkTopic");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            if (body(message).equals("again") && message.getReconsumeTimes() == 0) {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            (message.getReconsumeTimes() > 0 ? again : pushed).add(body(message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQPushConsumer inOrder = consumer("orderGroup", "WorkTopic");
        inOrder.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> orderly.add(body(message)));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        Set<String> lite;
        consumer.start();
        inOrder.start();
        try {
            send();
            lite = lite();
            long deadline = System.currentTimeMillis() + command.getLongValue("deadlineMs");
            while (System.currentTimeMillis() < deadline
                && (again.isEmpty() || pushed.size() < WANTED - 1 || orderly.size() < WANTED)) {
                Thread.sleep(50);
            }
        } finally {
            consumer.shutdown();
            inOrder.shutdown();
        }
        return new JSONObject().fluentPut("pushed", array(pushed)).fluentPut("again", array(again))
            .fluentPut("orderly", array(orderly)).fluentPut("lite", array(lite)).fluentPut("reply", ask());
    }

    private void send() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("work-producers", producers);
        Driver.pointToCluster(producer, command);
        producer.setInstanceName("work-producer-" + command.getIntValue("id"));
        producer.setSendMsgTimeout(Driver.SEND_TIMEOUT_MS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return body(message).equals("committed") ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        try {
            producer.send(message("WorkTopic", "again"));
            producer.send(new ArrayList<>(Arrays.asList(message("WorkTopic", "batch 1"), message("WorkTopic", "batch 2"))));
            producer.sendMessageInTransaction(message("WorkTopic", "committed"), null);
            producer.sendMessageInTransaction(message("WorkTopic", "rolled back"), null);
        } finally {
            producer.shutdown();
        }
    }

    private Set<String> lite() throws Exception {
        Set<String> bodies = new TreeSet<>();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("liteGroup", consumers);
        Driver.pointToCluster(consumer, command);
        consumer.setInstanceName("work-lite-" + command.getIntValue("id"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("WorkTopic", "*");
        consumer.start();
        try {
            long deadline = System.currentTimeMillis() + command.getLongValue("deadlineMs");
            while (bodies.size() < WANTED && System.currentTimeMillis() < deadline) {
                consumer.poll(500).forEach(message -> bodies.add(body(message)));
            }
            consumer.commitSync();
        } finally {
            consumer.shutdown();
        }
        return bodies;
    }

    private String ask() throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer("work-repliers", consumers);
        DefaultMQProducer asker = new DefaultMQProducer("work-askers", producers);
        replier.setInstanceName("work-replier-" + command.getIntValue("id"));
        asker.setInstanceName("work-asker-" + command.getIntValue("id"));
        replier.setSendMsgTimeout(Driver.SEND_TIMEOUT_MS);
        asker.setSendMsgTimeout(Driver.SEND_TIMEOUT_MS);
        Driver.pointToCluster(replier, command);
        Driver.pointToCluster(asker, command);
        DefaultMQPushConsumer consumer = consumer("askGroup", "AskTopic");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                replier.send(MessageUtil.createReplyMessage(messages.get(0), "the answer".getBytes(StandardCharsets.UTF_8)));
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        replier.start();
        asker.start();
        consumer.start();
        try {
            return body(asker.request(message("AskTopic", "a question"), command.getLongValue("deadlineMs")));
        } finally {
            consumer.shutdown();
            replier.shutdown();
            asker.shutdown();
        }
    }

    private DefaultMQPushConsumer consumer(String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, consumers, new AllocateMessageQueueAveragely());
        Driver.pointToCluster(consumer, command);
        consumer.setInstanceName(group + "-" + command.getIntValue("id"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static JSONArray array(Set<String> bodies) {
        return new JSONArray(new ArrayList<Object>(bodies));
    }
}
