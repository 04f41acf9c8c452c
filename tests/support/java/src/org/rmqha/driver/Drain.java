package org.rmqha.driver;

import com.alibaba.fastjson.JSONObject;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** A push consumer as users start it, except for pullBatchSize, that only counts: measures the time for a backlog of "count". */
final class Drain {
    private Drain() {
    }

    static JSONObject run(JSONObject command) throws Exception {
        int count = command.getIntValue("count");
        AtomicInteger seen = new AtomicInteger();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        Driver.pointToCluster(consumer, command);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(command.getIntValue("pullBatch"));
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (seen.addAndGet(messages.size()) >= count) {
                last.compareAndSet(0, System.nanoTime());
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            all.await(command.getLongValue("deadlineMs"), TimeUnit.MILLISECONDS);
        } finally {
            consumer.shutdown();
        }
        return new JSONObject().fluentPut("seen", seen.get()).fluentPut("seconds", (last.get() - first.get()) / 1e9);
    }
}
