package org.apache.rocketmq.test.base;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQBroadCastConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQConsumer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.sendresult.ResultWrapper;
import org.apache.rocketmq.test.util.MQAdmin;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.test.util.TestUtils;

/**
 * Replaces the class of this name that RocketMQ's integration tests extend. That one starts a name server and two
 * brokers in the JVM; this one gets the addresses of servers that run elsewhere, and records each failed send: the tests'
 * own producers swallow the error, and some tests would then find that all of zero messages have arrived.
 */
public class BaseConf {
    public static String nsAddr;
    protected static String clusterName;
    protected static String broker1Name;
    protected static String broker2Name;
    protected static int brokerNum;
    protected static int waitTime = 5; // seconds
    protected static int consumeTime; // milliseconds
    protected static boolean debug = false;
    protected static List<Object> mqClients = new Clients(); // tests of broadcasting add their own

    private static final int QUEUES_TIMEOUT_MS = 60_000;
    private static final int SEND_TIMEOUT_MS = 120_000; // a busy host must not look like an error of the servers
    private static final int QUEUES = 8, TOPIC_ATTEMPTS = 6; // an attempt takes 5 s when the topic does not appear
    private static final ConcurrentLinkedQueue<String> FAILED_SENDS = new ConcurrentLinkedQueue<>();

    static {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, String.valueOf(MQVersion.CURRENT_VERSION));
    }

    /** Sets the servers for the tests from now on, and how long these wait for messages. */
    public static void use(String namesrv, String cluster, List<String> brokers, int consumeMillis) {
        nsAddr = namesrv;
        clusterName = cluster;
        broker1Name = brokers.get(0);
        broker2Name = brokers.get(brokers.size() - 1);
        brokerNum = brokers.size();
        consumeTime = consumeMillis;
    }

    /** Returns why sends have failed since the last call. */
    public static List<String> takeFailedSends() {
        List<String> taken = new ArrayList<>();
        for (String one = FAILED_SENDS.poll(); one != null; one = FAILED_SENDS.poll()) {
            taken.add(one);
        }
        return taken;
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopicWithName(String topic) {
        for (int attempt = 0; attempt < TOPIC_ATTEMPTS; attempt++) {
            if (MQAdmin.createTopic(nsAddr, clusterName, topic, QUEUES)) {
                return topic;
            }
            TestUtils.waitForMoment(500);
        }
        throw new AssertionError("topic " + topic + " could not be created in cluster " + clusterName);
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        MQAdmin.createSub(nsAddr, clusterName, group);
        return group;
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic) {
        return getProducer(namesrv, topic, false);
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic, boolean tls) {
        return kept(new Producer(namesrv, topic, tls));
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic, String group, String instance) {
        return kept(new Producer(namesrv, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(String namesrv, String topic,
        TransactionListener listener) {
        return kept(new RMQTransactionalProducer(namesrv, topic, listener) {
            @Override
            public ResultWrapper send(Object message, Object arg) {
                return judged(super.send(message, arg));
            }
        });
    }

    public static RMQAsyncSendProducer getAsyncProducer(String namesrv, String topic) {
        return kept(new RMQAsyncSendProducer(namesrv, topic));
    }

    public static RMQNormalConsumer getConsumer(String namesrv, String topic, String tags, AbstractListener listener) {
        return getConsumer(namesrv, topic, tags, listener, false);
    }

    public static RMQNormalConsumer getConsumer(String namesrv, String topic, String tags, AbstractListener listener,
        boolean tls) {
        return getConsumer(namesrv, initConsumerGroup(), topic, tags, listener, tls);
    }

    public static RMQNormalConsumer getConsumer(String namesrv, String group, String topic, String tags,
        AbstractListener listener) {
        return getConsumer(namesrv, group, topic, tags, listener, false);
    }

    public static RMQNormalConsumer getConsumer(String namesrv, String group, String topic, String tags,
        AbstractListener listener, boolean tls) {
        return kept(ConsumerFactory.getRMQNormalConsumer(namesrv, group, topic, tags, listener, tls));
    }

    /** Ends the clients of a test, and forgets them. */
    public static void shutdown() {
        for (Object client : mqClients) {
            if (client instanceof RMQAsyncSendProducer) {
                judge((RMQAsyncSendProducer) client);
            }
            if (client instanceof AbstractMQProducer) {
                ((AbstractMQProducer) client).shutdown();
            } else {
                ((AbstractMQConsumer) client).shutdown();
            }
        }
        mqClients.clear();
    }

    private static <T> T kept(T client) {
        mqClients.add(client);
        return client;
    }

    private static ResultWrapper judged(ResultWrapper result) {
        if (!result.isSendResult()) {
            FAILED_SENDS.add(String.valueOf(result.getSendException()));
        }
        return result;
    }

    /** Keeps the bodies of the messages that the client accepted, and counts the calls of its callback. */
    private static void judge(RMQAsyncSendProducer producer) {
        for (int count = producer.getExceptionMsgCount(); count > 0; count--) {
            FAILED_SENDS.add("told to the callback");
        }
        if (producer.getAllMsgBody().isEmpty()) {
            FAILED_SENDS.add("the client took no message");
        }
    }

    /**
     * Waits for the queues of a broadcasting consumer: it begins at their ends at the time when it gets them, and the
     * tests send immediately.
     */
    private static final class Clients extends ArrayList<Object> {
        @Override
        public boolean add(Object client) {
            if (client instanceof RMQBroadCastConsumer) {
                waitForQueues((RMQBroadCastConsumer) client);
            }
            return super.add(client);
        }

        private static void waitForQueues(RMQBroadCastConsumer client) {
            try {
                Field field = RMQNormalConsumer.class.getDeclaredField("consumer");
                field.setAccessible(true);
                RebalanceImpl given = ((DefaultMQPushConsumer) field.get(client)).getDefaultMQPushConsumerImpl().getRebalanceImpl();
                for (int wait = 0; wait < QUEUES_TIMEOUT_MS / 10 && !hasAll(given, client.getTopic()); wait++) {
                    Thread.sleep(10);
                }
            } catch (ReflectiveOperationException | InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        private static boolean hasAll(RebalanceImpl given, String topic) {
            Set<MessageQueue> queues = given.getTopicSubscribeInfoTable().get(topic);
            return queues != null && given.getProcessQueueTable().keySet().containsAll(queues);
        }
    }

    /** Records failed sends; a thread that still sends after its test has ended does not count. */
    private static final class Producer extends RMQNormalProducer {
        private volatile boolean ended;

        Producer(String namesrv, String topic, boolean tls) {
            super(namesrv, topic, tls);
            getProducer().setSendMsgTimeout(SEND_TIMEOUT_MS);
        }

        Producer(String namesrv, String topic, String group, String instance) {
            super(namesrv, topic, group, instance);
            getProducer().setSendMsgTimeout(SEND_TIMEOUT_MS);
        }

        @Override
        public ResultWrapper send(Object message, Object orderKey) {
            ResultWrapper result = super.send(message, orderKey);
            return ended ? result : judged(result);
        }

        @Override
        public ResultWrapper sendMQ(Message message, MessageQueue queue) {
            ResultWrapper result = super.sendMQ(message, queue);
            return ended ? result : judged(result);
        }

        @Override
        public void shutdown() {
            ended = true;
            super.shutdown();
        }
    }
}
