package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests that wait for replies, and a consumer that replies with each body reversed. */
final class Ask {
    private Ask() {
    }

    /** Sends each of "bodies" as a request; returns replies: the bodies, or the error. "-" gets no reply. */
    static JSONObject run(JSONObject command) throws Exception {
        String topic = command.getString("topic");
        DefaultMQProducer asker = producer(command, "askers", "asker");
        DefaultMQProducer replier = producer(command, "repliers", "replier");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        Driver.pointToCluster(consumer, command);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                reply(replier, message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        asker.start();
        replier.start();
        consumer.start();
        JSONArray replies = new JSONArray();
        try {
            for (Object body : command.getJSONArray("bodies")) {
                replies.add(ask(asker, topic, (String) body, command.getLongValue("timeoutMs")));
            }
        } finally {
            consumer.shutdown();
            replier.shutdown();
            asker.shutdown();
        }
        return new JSONObject().fluentPut("replies", replies);
    }

    private static DefaultMQProducer producer(JSONObject command, String group, String instance) {
        DefaultMQProducer producer = new DefaultMQProducer(command.getString("group") + "-" + group);
        Driver.pointToCluster(producer, command);
        producer.setInstanceName(command.getString("group") + "-" + instance);
        producer.setSendMsgTimeout(Driver.SEND_TIMEOUT_MS);
        return producer;
    }

    private static void reply(DefaultMQProducer replier, MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        if (body.equals("-")) {
            return;
        }
        byte[] reply = new StringBuilder(body).reverse().toString().getBytes(StandardCharsets.UTF_8);
        try {
            replier.send(MessageUtil.createReplyMessage(message, reply));
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static String ask(DefaultMQProducer asker, String topic, String body, long timeoutMs) {
        try {
            Message reply = asker.request(new Message(topic, body.getBytes(StandardCharsets.UTF_8)),
                body.equals("-") ? 3000 : timeoutMs);
            return new String(reply.getBody(), StandardCharsets.UTF_8);
        } catch (Exception e) {
            return e.toString();
        }
    }
}
