package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.AclConstants;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.acl.plain.PlainAccessResource;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategy;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.DataVersion;
import org.apache.rocketmq.common.PlainAccessConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** Clients that sign their requests, and the original's reading of address patterns and of account files. */
final class Acl {
    private Acl() {
    }

    /** The hook of "accessKey" and "secretKey"; null without them. */
    static RPCHook hook(JSONObject command) {
        String key = command.getString("accessKey");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, command.getString("secretKey")));
    }

    /** Sends one message to each of "topics"; returns the status of each, or the error's text. */
    static JSONObject send(JSONObject command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("acl-producer", hook(command));
        Driver.pointToCluster(producer, command);
        producer.setInstanceName("acl-" + command.getIntValue("id"));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(Driver.SEND_TIMEOUT_MS);
        producer.start();
        JSONArray results = new JSONArray();
        try {
            for (Object topic : command.getJSONArray("topics")) {
                results.add(sendOne(producer, (String) topic));
            }
        } finally {
            producer.shutdown();
        }
        return new JSONObject().fluentPut("results", results);
    }

    private static String sendOne(DefaultMQProducer producer, String topic) {
        try {
            return producer.send(new Message(topic, "from java".getBytes(StandardCharsets.UTF_8))).getSendStatus().name();
        } catch (Exception e) {
            return e + " " + e.getCause();
        }
    }

    /** Consumes "topic" as "group" until one message has arrived or "deadlineMs" has passed; returns whether one arrived. */
    static JSONObject consume(JSONObject command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"), hook(command),
            new AllocateMessageQueueAveragely());
        Driver.pointToCluster(consumer, command);
        consumer.setInstanceName("acl-" + command.getIntValue("id"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), "*");
        CountDownLatch came = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            came.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return new JSONObject().fluentPut("came", came.await(command.getLongValue("deadlineMs"),
                TimeUnit.MILLISECONDS));
        } finally {
            consumer.shutdown();
        }
    }

    /** Returns a text for each of "patterns": "error", or for each of "addresses" 1, 0, or x where matching fails. */
    static JSONObject addresses(JSONObject command) {
        List<String> addresses = command.getJSONArray("addresses").toJavaList(String.class);
        JSONArray results = new JSONArray();
        for (String pattern : command.getJSONArray("patterns").toJavaList(String.class)) {
            StringBuilder result = new StringBuilder();
            try {
                RemoteAddressStrategy strategy = new RemoteAddressStrategyFactory().getRemoteAddressStrategy(pattern);
                for (String address : addresses) {
                    result.append(match(strategy, address));
                }
            } catch (Exception e) {
                result.append("error");
            }
            results.add(result.toString());
        }
        return new JSONObject().fluentPut("results", results);
    }

    private static char match(RemoteAddressStrategy strategy, String address) {
        PlainAccessResource resource = new PlainAccessResource();
        resource.setWhiteRemoteAddress(address);
        try {
            return strategy.match(resource) ? '1' : '0';
        } catch (Exception e) {
            return 'x';
        }
    }

    /** Reads each of "files" as the original's broker does; returns the result, "null", or "error". */
    static JSONObject yaml(JSONObject command) {
        JSONArray results = new JSONArray();
        for (String file : command.getJSONArray("files").toJavaList(String.class)) {
            results.add(read(file));
        }
        return new JSONObject().fluentPut("results", results);
    }

    private static Object read(String file) {
        try {
            JSONObject data = AclUtils.getYamlDataObject(file, JSONObject.class);
            if (data == null || data.isEmpty()) {
                return "null";
            }
            JSONArray white = data.getJSONArray(AclConstants.CONFIG_GLOBAL_WHITE_ADDRS);
            JSONArray addresses = new JSONArray();
            for (int i = 0; white != null && i < white.size(); i++) {
                addresses.add(white.getString(i));
            }
            JSONArray accounts = data.getJSONArray(AclConstants.CONFIG_ACCOUNTS);
            JSONArray versions = data.getJSONArray(AclConstants.CONFIG_DATA_VERSION);
            return new JSONObject().fluentPut("white", addresses)
                .fluentPut("accounts", accounts == null ? new JSONArray() : accounts.toJavaList(PlainAccessConfig.class))
                .fluentPut("counter", versions == null || versions.isEmpty() ? 0
                    : versions.toJavaList(DataVersion.class).get(0).getCounter().get());
        } catch (Exception e) {
            return "error";
        }
    }
}
