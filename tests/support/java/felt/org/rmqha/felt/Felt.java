package org.rmqha.felt;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * One producer and one push consumer of the Java client with its default options: a synchronous send every "interval" ms until the standard
 * input ends, then only the consumer until SIGTERM. Each send and each received message is a line of JSON: see tests/faults/felt/records.py.
 *
 * Modes: "plain"; "ordered": to the first queue, by a selector, and an orderly consumer; "transactions": see Fate.
 * The sources compile against the clients of 4.9 and of 5.1.
 */
public final class Felt {
    private static final int DIGITS = 8; // of the number, at the beginning of each body

    private final Map<String, String> options;
    private final BufferedWriter out;
    private final AtomicInteger tries = new AtomicInteger(); // of the current send

    private Felt(Map<String, String> options) throws IOException {
        this.options = options;
        this.out = Files.newBufferedWriter(Paths.get(options.get("log")), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i < args.length; i += 2) {
            options.put(args[i].substring(1), args[i + 1]);
        }
        new Felt(options).run();
    }

    private void run() throws Exception {
        startConsumer();
        DefaultMQProducer producer = producer();
        producer.setNamesrvAddr(options.get("namesrv"));
        int timeoutMs = Integer.parseInt(options.get("sendtimeout"));
        if (timeoutMs > 0) {
            producer.setSendMsgTimeout(timeoutMs);
        }
        producer.start();
        producer.getDefaultMQProducerImpl().registerSendMessageHook(new CountTries());
        Thread sending = new Thread(() -> produce(producer), "sending");
        System.out.println("ready");
        sending.start();
        while (System.in.read() >= 0) {
            // wait for its end
        }
        sending.interrupt();
        sending.join();
        System.out.println("stopped");
        Thread.sleep(Long.MAX_VALUE);
    }

    // ---- the consumer

    private void startConsumer() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), "*");
        if (is("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                received(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                received(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
    }

    private void received(List<MessageExt> messages) {
        long at = nowUs();
        for (MessageExt message : messages) {
            write("\"got\": %d, \"at\": %d, \"id\": \"%s\", \"offset\": %d, \"queue\": %d, \"broker\": \"%s\", \"again\": %d", numberOf(message), at,
                message.getMsgId(), message.getQueueOffset(), message.getQueueId(), message.getBrokerName(), message.getReconsumeTimes());
        }
    }

    // ---- the producer

    private DefaultMQProducer producer() {
        String group = options.get("group") + "-p";
        if (!is("transactions")) {
            return new DefaultMQProducer(group);
        }
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setTransactionListener(new Decisions());
        return producer;
    }

    private void produce(DefaultMQProducer producer) {
        long intervalNs = Long.parseLong(options.get("interval")) * 1_000_000;
        try {
            for (int number = 0; !Thread.currentThread().isInterrupted(); number++) {
                long at = nowUs();
                long begin = System.nanoTime();
                tries.set(0);
                String outcome;
                try {
                    SendResult result = send(producer, message(number));
                    MessageQueue queue = result.getMessageQueue();
                    outcome = String.format("\"status\": \"%s\", \"id\": \"%s\", \"offset\": %d, \"queue\": %d, \"broker\": \"%s\"",
                        result.getSendStatus(), result.getMsgId(), result.getQueueOffset(), queue.getQueueId(), queue.getBrokerName());
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    outcome = "\"error\": \"interrupted at the end\"";
                } catch (Exception e) {
                    outcome = "\"error\": " + quoted(rootOf(e) == e ? String.valueOf(e) : rootOf(e) + " <- " + e);
                }
                long took = System.nanoTime() - begin;
                write("\"send\": %d, \"at\": %d, \"us\": %d, \"tries\": %d, %s", number, at, took / 1000, tries.get(), outcome);
                Thread.sleep(Math.max(0, (intervalNs - took) / 1_000_000));
            }
        } catch (InterruptedException e) {
            // the end
        }
    }

    private SendResult send(DefaultMQProducer producer, Message message) throws Exception {
        if (is("ordered")) {
            return producer.send(message, (queues, sent, argument) -> Collections.min(queues), null);
        }
        if (is("transactions")) {
            return ((TransactionMQProducer) producer).sendMessageInTransaction(message, null);
        }
        return producer.send(message);
    }

    private Message message(int number) {
        StringBuilder body = new StringBuilder(String.format("%0" + DIGITS + "d", number));
        int size = Integer.parseInt(options.get("size"));
        while (body.length() < size) {
            body.append('.');
        }
        return new Message(options.get("topic"), body.toString().getBytes(StandardCharsets.US_ASCII));
    }

    private static int numberOf(Message message) {
        return Integer.parseInt(new String(message.getBody(), 0, DIGITS, StandardCharsets.US_ASCII));
    }

    /** Counts the attempts of a send. */
    private final class CountTries implements SendMessageHook {
        @Override
        public String hookName() {
            return "tries";
        }

        @Override
        public void sendMessageBefore(SendMessageContext context) {
            tries.incrementAndGet();
        }

        @Override
        public void sendMessageAfter(SendMessageContext context) {
            // only the attempts count
        }
    }

    /** The fate of a transaction, by the last digit of its number: 0 to 5 commit, 6 rolls back, 7 to 9 are unknown at first; a check then
     *  commits 7 and 8, and rolls 9 back. */
    private final class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            int digit = numberOf(message) % 10;
            return digit <= 5 ? LocalTransactionState.COMMIT_MESSAGE
                : digit == 6 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int number = numberOf(message);
            write("\"check\": %d, \"at\": %d", number, nowUs());
            int digit = number % 10;
            return digit == 6 || digit == 9 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    // ---- records

    private boolean is(String mode) {
        return mode.equals(options.get("mode"));
    }

    private static long nowUs() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    private static Throwable rootOf(Throwable e) {
        Throwable root = e;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        return root;
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            quoted.append(c == '"' || c == '\\' ? "\\" + c : c < ' ' ? " " : String.valueOf(c));
        }
        return quoted.append('"').toString();
    }

    private synchronized void write(String format, Object... values) {
        try {
            out.write("{" + String.format(format, values) + "}\n");
            out.flush();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
